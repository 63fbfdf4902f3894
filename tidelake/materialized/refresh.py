"""Refreshes a materialized table: chooses the kind of refresh, and commits it.

    the definition, the sources at their newest snapshots, the last refresh
      ├─ nothing changed since                                     → none
      ├─ a plain query, and the changes since can be read          → incremental: the rows that change
      └─ else                                                      → full: all rows, which replace all existing ones

The snapshot with the rows records the snapshots of the sources that they were made from. Commits are numbered: if two
refreshes run at once, the second one finds its number taken, and drops its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from tidelake.errors import BadInput, UnsupportedFeature
from tidelake.materialized.changed_rows import NotMaintainable, TargetChanges, check_maintainable
from tidelake.materialized.plain_query import NotPlain, PlainQuery, plain_query, tables_of
from tidelake.materialized.query_engine import FullRefresh, QueriedTable, QueryEngine, check_columns
from tidelake.materialized.refresh_result import Refreshed, RefreshKind
from tidelake.materialized.source_changes import NoChanges, changes_since
from tidelake.materialized.source_state import REFRESH_USER, LastRefresh, QueriedState, RefreshState, last_refresh
from tidelake.storage.base.clock import epoch_ms
from tidelake.storage.base.logs import get_logger
from tidelake.storage.ddl.materialized import MaterializedDefinition, is_materialized
from tidelake.storage.model.bucketing import BucketMode, bucket_mode
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext
from tidelake.table import Table
from tidelake.writer import Writer

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Refresh:
    """One refresh.

    find_table: returns a table by its name in the query; None for a table that only the engine knows.
    is_of_engine: whether the definition is certainly in the engine's SQL.
    """

    target: Table
    find_table: Callable[[str], Table | None]
    engine: QueryEngine
    is_of_engine: bool

    def run(self, *, full: bool, when_due: bool) -> Refreshed:
        context = self.target.context
        definition = refreshable_definition(context)
        latest = context.snapshots.latest()
        last = last_refresh(context, latest)
        if when_due and last.time_ms is not None and epoch_ms() - last.time_ms < definition.freshness_ms:
            why = f"its rows are younger than {definition.freshness} {definition.unit}"
            return Refreshed(context.name, RefreshKind.NONE, why, context.snapshots.latest_id())
        plain, why_not_plain = self._plain(definition)
        sources, why_unknown = self._sources(definition, plain)
        state = None if why_unknown else _state_of(definition, sources, latest)
        request = FullRefresh(
            self.target,
            definition.query,
            plain,
            sources,
            last.number + 1,
            {} if state is None else state.to_properties(),
        )
        try:
            if full:
                raise NotMaintainable("a full refresh was requested")
            if plain is None or why_unknown:
                raise NotMaintainable(why_not_plain or why_unknown)
            changes = self._changes(plain, sources[plain.table], last, state, latest)
        except (NotMaintainable, NoChanges) as reason:
            return self._refreshed(RefreshKind.FULL, str(reason), self.engine.replace_all(request))
        if changes is None:
            at = None if latest is None else latest.id
            return Refreshed(context.name, RefreshKind.NONE, "its source has not changed", at)
        with Writer(context, REFRESH_USER) as writer:
            writer.write(changes)
            published = writer.commit(request.number, properties=request.properties)
        return self._refreshed(RefreshKind.INCREMENTAL, f"rows that changed: {changes.num_rows:,}", published)

    # ------------------------------------------------------------ query and sources

    def _plain(self, definition: MaterializedDefinition) -> tuple[PlainQuery | None, str]:
        """Return the plain query, or the reason why the definition is not plain."""
        dialect = self.engine.dialect if self.is_of_engine else None
        try:
            plain = plain_query(definition.query, dialect, self._schema_of)
        except NotPlain as reason:
            if self.is_of_engine:
                return None, f"the query {reason}"
            raise BadInput(
                f"the query of {self.target.name} {reason}: SQL dialects may interpret that in different ways, and a "
                "definition doesn't name its dialect. If it is DuckDB's SQL, pass dialect='duckdb' (--dialect "
                "duckdb). Otherwise refresh on Spark: tidelake spark call refresh_materialized_table -w WAREHOUSE"
            ) from None
        check_columns(self.target, plain.names)
        return plain, ""

    def _schema_of(self, name: str) -> pa.Schema:
        table = self.find_table(name)
        if table is None:
            raise NotPlain(f"reads {name}, which only the engine knows")
        return table.schema

    def _sources(
        self, definition: MaterializedDefinition, plain: PlainQuery | None
    ) -> tuple[dict[str, QueriedTable], str]:
        """Return the sources, and the reason why not all of them can be known."""
        try:
            names = [plain.table] if plain is not None else tables_of(definition.query, self.engine.dialect)
        except BadInput as error:
            return {}, str(error)
        found = {name: self.find_table(name) for name in names}
        unknown = [name for name, table in found.items() if table is None]
        why = f"it reads {unknown[0]}, which only the engine knows" if unknown else ""
        return {name: QueriedTable.of(table) for name, table in found.items() if table is not None}, why

    # ------------------------------------------------------------ incremental

    def _changes(
        self,
        plain: PlainQuery,
        source: QueriedTable,
        last: LastRefresh,
        state: RefreshState | None,
        base: Snapshot | None,
    ) -> pa.RecordBatch | None:
        """Return the changed rows; None if the source has not changed. Raises NotMaintainable, NoChanges."""
        if last.state is None:
            raise NotMaintainable(last.reason)
        if state is None or source.snapshot is None:
            raise NotMaintainable(f"{source.table.name} has no snapshot")
        before = last.state.sources.get(source.table.name)
        if last.state.query != state.query or before is None:
            raise NotMaintainable("the definition has changed since the last refresh")
        if before.matches_snapshot(source.snapshot) and before.schema_id == source.context.schema.id:
            return None
        if before.schema_id != source.context.schema.id:
            raise NotMaintainable(f"the schema of {source.table.name} has changed")
        check_maintainable(plain, source.context, self.target.context)
        changed = changes_since(source.context, before, source.snapshot, plain.columns())
        of_query = partial(self.engine.evaluate_over, plain)
        return TargetChanges(plain, source.context, self.target.context, base, of_query).of(changed)

    def _refreshed(self, kind: RefreshKind, reason: str, published: int | None) -> Refreshed:
        name = self.target.name
        if published is None:
            latest_id = self.target.context.snapshots.latest_id()
            return Refreshed(name, RefreshKind.NONE, "another refresh was committed first", latest_id)
        _log.info("materialized table refreshed", table=name, kind=kind.value, reason=reason, snapshot=published)
        return Refreshed(name, kind, reason, published)


def refreshable_definition(context: TableContext) -> MaterializedDefinition:
    """Return the definition of a materialized table.

    Raises BadInput if the table is not materialized, or suspended; UnsupportedFeature if Flink refreshes it.
    """
    if not is_materialized(context.schema.options):
        raise BadInput(
            f"{context.name} is not a materialized table; create one with the options of "
            "tidelake.MaterializedDefinition"
        )
    definition = MaterializedDefinition.of(context.options)
    if definition.status == "suspended":
        raise BadInput(
            f"{context.name} is suspended; set option materialized-table.refresh-status = activated to refresh it again"
        )
    if definition.refresh_mode != "full":
        raise UnsupportedFeature(
            f"a refresh of {context.name}",
            "its refresh mode is continuous: a Flink job refreshes it",
            "Let the Flink job refresh it",
        )
    if bucket_mode(context.schema, context.options) is BucketMode.POSTPONE:
        raise UnsupportedFeature(
            f"a refresh of {context.name}",
            "with bucket = -2 its rows would not be visible before a compaction",
            "Create the table with another value of bucket",
        )
    return definition


def _state_of(
    definition: MaterializedDefinition, sources: Mapping[str, QueriedTable], base: Snapshot | None
) -> RefreshState | None:
    """Return the state of the sources.

    None if a source has no snapshots: then the next refresh can't be incremental.
    """
    states = {
        source.table.name: QueriedState.of(source.context, source.snapshot)
        for source in sources.values()
        if source.snapshot is not None
    }
    if len(states) < len(sources):
        return None
    return RefreshState(RefreshState.digest(definition.query), 0 if base is None else base.id, states)
