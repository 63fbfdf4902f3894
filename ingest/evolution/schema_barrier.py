"""A schema change takes effect between two records: all rows before it are committed under the old schema.

1. All written rows are committed.
2. The schema is read again, because another process may have changed it.
3. The table is altered.
4. Writer and decoder adopt the new schema, and the record is decoded again.

*Crash after 1: the record is read again, and needs the same change. Crash after 3: the table already has the column,
and the record fits.* So the barrier needs no state.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Protocol, TypeAlias

from tidelake.errors import BadInput
from tidelake.ingest.evolution.behavior import Action, SchemaBehavior
from tidelake.ingest.evolution.needed_changes import NeededChange, needed_changes, unchanged_columns
from tidelake.ingest.evolution.statement_changes import dropped_columns, statement_changes
from tidelake.ingest.formats.base import DecodedBatch, DecodeFailure, Target
from tidelake.ingest.formats.ddl_statements import ColumnStatement
from tidelake.ingest.formats.online_ddl import ShadowChange, ShadowStep
from tidelake.ingest.tables.column_types import ColumnTypes
from tidelake.ingest.tables.table_lineage import AlteredCopy, TableLineage
from tidelake.storage.base.logs import get_logger
from tidelake.storage.base.threads import run_uncancellable
from tidelake.storage.ddl.schema_changes import SchemaChange
from tidelake.storage.model.table import TableContext

ROUNDS_MAX: Final = 100  # rounds for one record; each changes the table, or the known schema of it

Commit: TypeAlias = Callable[[], Awaitable[None]]
"""Commits all written rows."""

_log = get_logger(__name__)


class Schemas(Protocol):
    """The schemas of tables. See `TableSchemas`. Methods block."""

    def current(self, table: str) -> Target | None: ...

    def newest(self, table: str) -> TableContext: ...

    def alter(self, table: str, changes: Sequence[SchemaChange]) -> TableContext: ...

    def adopt(self, table: TableContext) -> None: ...

    def leave_unchanged(
        self, table: str, *, ignored_columns: Sequence[str] = (), columns_with_fixed_type: Sequence[str] = ()
    ) -> None: ...


class SchemaBarrier:
    """Changes the schemas of a pipeline's tables between records.

    tables: the schemas of the tables.
    behaviors: by the table's name.
    column_types: by the table's name.
    lineage: keeps the changes that were made in copies of source tables.
    """

    def __init__(
        self,
        tables: Schemas,
        behaviors: Mapping[str, SchemaBehavior],
        column_types: Mapping[str, ColumnTypes],
        lineage: TableLineage,
    ) -> None:
        self.lineage = lineage
        self._tables = tables
        self._behaviors = behaviors
        self._column_types = column_types
        self._last: tuple[object, int] | None = None
        self._rounds = 0

    def is_outdated(self, batch: DecodedBatch) -> bool:
        """Return whether the batch was decoded for tables that have changed since."""
        targets = [part.target for part in batch.tables]
        targets += [failure.target for failure in batch.failures if failure.target is not None]
        return any(self._tables.current(target.name) not in (None, target) for target in targets)

    async def follow(self, failure: DecodeFailure, commit: Commit) -> str | None:
        """Alter the table so that a record fits, as far as the configuration allows.

        Returns None if the record is to be decoded again, because the table or the way to read its records has changed.
        Otherwise returns a sentence that says why nothing was changed, or "" without a specific reason. A person may
        still make a change that the pipeline doesn't make.
        """
        target = failure.target
        if target is not None and failure.shadow is not None:
            return await self._follow_shadow(failure, target, failure.shadow, commit)
        if target is not None and failure.statements:
            return await self._follow_statements(failure, failure.statements, target, commit)
        if target is None or not failure.needed:
            return ""
        self._count_round(failure, target)
        if self._rounds > ROUNDS_MAX:
            return f"The table's schema can't be changed: its table was changed {ROUNDS_MAX} times for this record"
        newest = await run_uncancellable(self._tables.newest, target.name)
        if newest.schema.id != target.schema.id:
            current = self._tables.current(target.name)
            if current is not None and current.schema.id == newest.schema.id:
                return None  # the schema was adopted after the record was decoded
            await commit()
            await run_uncancellable(self._tables.adopt, newest)
            _log.info("schema changed by another writer", table=target.name, schema=newest.schema.id)
            return None
        behavior = self._behaviors[target.name]
        types = self._column_types[target.name]
        wanted = [
            (change, Action.IGNORE if change.is_unwanted else behavior.action(change.kind))
            for change in needed_changes(failure.needed, target.schema, types)
        ]
        if any(change.column.found is None for change, _ in wanted):
            # An older record of another partition must not add a dropped column again.
            dropped = dropped_columns(newest) if behavior.drops_columns else frozenset()
            wanted = [(c, Action.IGNORE if c.column.path[0] in dropped else action) for c, action in wanted]
        if any(action is Action.STOP for _, action in wanted):
            return ""
        made = [change for change, action in wanted if action is not Action.IGNORE and change.change is not None]
        if made:
            refused = await self._alter(target, made, failure, commit)
            if refused is None:
                return None
            wanted = [(change, action) for change, action in wanted if change not in made] + [
                (NeededChange(change.kind, change.column, None, refused), behavior.action(change.kind))
                for change in made
            ]
            if any(action is Action.APPLY for _, action in wanted):
                return f"The pipeline tried this, and it was refused: {refused}"
        for change, action in wanted:
            if action is Action.APPLY:
                return _not_made(change.reason)
        self._leave_unchanged(target, [change for change, _ in wanted], failure)
        return None

    async def alter_ahead(self, failures: Sequence[DecodeFailure], commit: Commit) -> None:
        """Alter tables for the last of several later records each, before any row is written after a commit.

        failures: records that need new or wider columns. A change that fails is tried again when its record is written.
        """
        last_of = {failure.target.name: failure for failure in failures if failure.target is not None}
        saved = self._last, self._rounds
        for table, failure in last_of.items():
            try:
                await self.follow(failure, commit)
            except Exception as error:  # a failure of this table; it is raised again when its record is written
                _log.warning("schema change put off", table=table, error=str(error), offset=failure.offset)
            finally:
                self._last, self._rounds = saved

    async def _follow_shadow(
        self, failure: DecodeFailure, target: Target, shadow: ShadowChange, commit: Commit
    ) -> str | None:
        """Apply the changes of a copy of the source table (online DDL) when the copy replaces the table.

        *Until then the table's snapshots record them, because their positions pass the records with these changes.*
        """
        match shadow.step:
            case ShadowStep.RECREATED:
                self.lineage.forget_copy(target.name, shadow.shadow)
            case ShadowStep.ALTERED:
                altered = AlteredCopy(shadow.table.topic, failure.offset, shadow.statements)
                self.lineage.alter_copy(target.name, shadow.shadow, altered)
            case ShadowStep.MOVED if statements := self.lineage.altered_in(target.name, shadow.shadow):
                refused = await self._follow_statements(failure, statements, target, commit)
                if refused is not None:
                    return refused or _not_made(f"the copy was altered with {', '.join(map(str, statements))}")
                self.lineage.forget_copy(target.name, shadow.shadow)
        return None

    async def _follow_statements(
        self, failure: DecodeFailure, statements: Sequence[ColumnStatement], target: Target, commit: Commit
    ) -> str | None:
        """Apply the source's DDL statements. After a crash they are read again; then they may have been applied."""
        newest = await run_uncancellable(self._tables.newest, target.name)
        plan = statement_changes(
            statements,
            newest,
            self._behaviors[target.name],
            self._column_types[target.name],
        )
        if plan.stops or plan.refused:
            return _not_made(plan.refused) if plan.refused else ""
        for left in plan.left:
            _log.warning("schema change ignored", table=target.name, change=left, offset=failure.offset)
        if not plan.changes:
            return None
        await commit()
        try:
            altered = await run_uncancellable(self._tables.alter, target.name, plan.changes)
        except BadInput as error:
            if plan.must_be_made:
                return f"The pipeline tried this, and it was refused: {error}"
            _log.warning("schema change ignored", table=target.name, reason=str(error), offset=failure.offset)
            return None
        await run_uncancellable(self._tables.adopt, altered)
        texts = [str(statement) for statement in statements]
        _log.info("schema changed", table=target.name, changes=texts, schema=altered.schema.id, offset=failure.offset)
        return None

    async def _alter(
        self, target: Target, made: Sequence[NeededChange], failure: DecodeFailure, commit: Commit
    ) -> str | None:
        """Alter the table. Returns None, or the reason why the table can't be altered."""
        await commit()
        changes = [change.change for change in made if change.change is not None]
        try:
            altered = await run_uncancellable(self._tables.alter, target.name, changes)
        except BadInput as error:
            return str(error)
        await run_uncancellable(self._tables.adopt, altered)
        _log.info(
            "schema changed",
            table=target.name,
            changes=[str(change) for change in made],
            schema=altered.schema.id,
            source=str(failure.source),
            offset=failure.offset,
        )
        return None

    def _leave_unchanged(self, target: Target, left: Sequence[NeededChange], failure: DecodeFailure) -> None:
        ignored, fixed = unchanged_columns(left)
        self._tables.leave_unchanged(target.name, ignored_columns=ignored, columns_with_fixed_type=fixed)
        effects = {
            "these columns are not written": ignored,
            "the columns are not changed; records with values that don't fit are bad records": fixed,
        }
        for effect, columns in effects.items():
            if columns:
                _log.warning(
                    "schema change ignored",
                    table=target.name,
                    effect=effect,
                    columns=columns,
                    reasons=[c.reason for c in left if c.reason],
                    source=str(failure.source),
                    offset=failure.offset,
                )

    def _count_round(self, failure: DecodeFailure, target: Target) -> None:
        record = (failure.source, failure.offset)
        self._rounds = self._rounds + 1 if record == self._last else 1
        self._last = record


def _not_made(reason: str) -> str:
    return f"The pipeline doesn't make this change by itself: {reason}"
