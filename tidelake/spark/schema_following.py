"""Schema evolution of a query on Spark: tables are altered for a batch before any of its rows is written.

Tasks report what records need, the driver alters the tables, and the batch is decoded again, until it fits. Only
changes that don't depend on the order of records are supported, new columns and wider types: the records of a batch
have no order between tasks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from tidelake.checkpoint.offsets import TopicPartition
from tidelake.errors import RecordRefused
from tidelake.ingest.evolution.behavior import Action, ChangeKind, SchemaBehavior
from tidelake.ingest.evolution.schema_barrier import SchemaBarrier
from tidelake.ingest.evolution.table_schemas import alter_table
from tidelake.ingest.formats.base import DecodeFailure, Target
from tidelake.ingest.pipeline.configured_tables import ConfiguredTables
from tidelake.ingest.pipeline.error_policy import remedy_of
from tidelake.ingest.settings import Config
from tidelake.ingest.spark.batch_rows import RawRecords
from tidelake.ingest.spark.batch_statistics import SchemaNeed
from tidelake.ingest.spark.batch_target import BatchTarget
from tidelake.ingest.tables.table_lineage import TableLineage
from tidelake.ingest.tables.table_targets import TableTargets
from tidelake.storage.catalog.base import Catalog
from tidelake.storage.catalog.opening import open_catalog
from tidelake.storage.ddl.schema_changes import SchemaChange
from tidelake.storage.model.table import TableContext

NewColumns: TypeAlias = dict[str, dict[TopicPartition, int]]
"""See `RawRecords.new_columns`."""

_ORDERED = (ChangeKind.RENAME_COLUMN, ChangeKind.DROP_COLUMN)


def has_ordered_changes(config: Config) -> bool:
    """Return whether the configuration renames or drops columns, which must happen between two records."""
    behaviors = [SchemaBehavior(config.schema_evolution_of(table)) for table in config.tables]
    return any(behavior.action(kind) in (Action.APPLY, Action.TRY) for behavior in behaviors for kind in _ORDERED)


class SchemaFollowing:
    """A `SchemaFollower` for the tables of a configuration. Its calls block.

    configured: the tables. It may grow.
    """

    def __init__(self, config: Config, configured: ConfiguredTables) -> None:
        self._targets = TableTargets(configured.settings, configured.following_types)
        catalog = open_catalog(config.warehouse, config.warehouse_options)
        self._tables = _TargetSchemas(catalog, self._targets, configured.behaviors)
        empty_lineage = TableLineage(lambda _: ())
        self._barrier = SchemaBarrier(self._tables, configured.behaviors, configured.column_types, empty_lineage)
        self._new_columns: dict[str, NewColumns] = {}

    def with_decisions(self, target: BatchTarget) -> BatchTarget:
        assert isinstance(target.input, RawRecords)
        decisions, new = self._targets.decisions(target.table), self._new_columns.get(target.table, {})
        return replace(target, input=replace(target.input, decisions=decisions, new_columns=new))

    def follow(self, needs: Mapping[str, Sequence[SchemaNeed]]) -> bool:
        """See `SchemaFollower.follow`. Raises RecordRefused."""
        has_changed = False
        for table, of_table in needs.items():
            self._note_new_columns(table, of_table)
            for need in sorted(of_table, key=lambda need: (need.failure.offset, need.record)):
                if (failure := self._still_needed(table, need.failure)) is None:
                    has_changed = True  # another record needed it, too
                    continue
                reason = asyncio.run(self._barrier.follow(failure, _nothing_to_commit))
                if reason is not None:
                    refused = f"{need.record}. {remedy_of(failure.kind)}"
                    raise RecordRefused(f"{refused}. {reason}" if reason else refused)
                has_changed |= bool(failure.needed)
        return has_changed

    def _note_new_columns(self, table: str, needs: Sequence[SchemaNeed]) -> None:
        """Record the first offset that has a new column.

        Offsets of earlier batches are kept: earlier records don't come again.
        """
        columns = self._new_columns.setdefault(table, {})
        for need in needs:
            target = need.failure.target
            for column in need.failure.needed:
                name = column.path[0]
                if target is None or name in target.schema.by_name:
                    continue
                first = columns.setdefault(name, {})
                first[need.partition] = min(first.get(need.partition, need.failure.offset), need.failure.offset)

    def _still_needed(self, table: str, failure: DecodeFailure) -> DecodeFailure | None:
        """Return what the record still needs of the current table, or None."""
        if failure.target is None or not failure.needed:
            return failure
        newest = self._tables.newest(table)
        if newest.schema.id == failure.target.schema.id:
            return failure
        types = {f.name: f.type for f in newest.schema.fields}
        needed = tuple(
            column for column in failure.needed if len(column.path) == 1 and types.get(column.path[0]) == column.found
        )
        target = replace(failure.target, schema=newest.schema)
        return replace(failure, needed=needed, target=target) if needed else None


async def _nothing_to_commit() -> None:
    """Do nothing: earlier batches are committed, and no row of this one is written yet."""


class _TargetSchemas:
    """Implements `Schemas` for a barrier without writers and decoders."""

    def __init__(self, catalog: Catalog, targets: TableTargets, behaviors: Mapping[str, SchemaBehavior]) -> None:
        self._catalog = catalog
        self._targets = targets
        self._behaviors = behaviors

    def current(self, table: str) -> Target | None:
        return None

    def newest(self, table: str) -> TableContext:
        return self._catalog.load(table)

    def alter(self, table: str, changes: Sequence[SchemaChange]) -> TableContext:
        return alter_table(self._catalog, table, changes, self._behaviors[table].settings.rewrite_keys_max_bytes)

    def adopt(self, table: TableContext) -> None:
        """Do nothing: the batch is decoded again for the altered table."""

    def leave_unchanged(
        self, table: str, *, ignored_columns: Sequence[str] = (), columns_with_fixed_type: Sequence[str] = ()
    ) -> None:
        self._targets.ignore(table, ignored_columns)
        self._targets.keep_type(table, columns_with_fixed_type)
