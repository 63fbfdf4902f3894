"""The tables of a sample: as its records would create, alter or refuse them. Nothing is written."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidelake.checkpoint.offsets import TopicPartition
from tidelake.errors import BadInput
from tidelake.ingest.config.lower_case import format_of
from tidelake.ingest.evolution.behavior import Action
from tidelake.ingest.evolution.needed_changes import NeededChange, needed_changes, unchanged_columns
from tidelake.ingest.formats.base import DecodedBatch, DecodeFailure, FailureKind, Target
from tidelake.ingest.formats.source_table import SourceTable
from tidelake.ingest.pipeline.configured_tables import ConfiguredTables
from tidelake.ingest.raw_batch import RawBatch
from tidelake.ingest.settings import Config, TableSettings
from tidelake.ingest.tables.pipeline_tables import check_inferred, with_key_columns
from tidelake.ingest.tables.routed_decoder import RoutedDecoder
from tidelake.ingest.tables.table_router import router_of
from tidelake.ingest.tables.table_targets import TableTargets
from tidelake.ingest.tables.table_templates import ExpandedTable
from tidelake.storage.base.clock import epoch_ms
from tidelake.storage.catalog.opening import open_catalog
from tidelake.storage.ddl.schema_changes import apply_changes
from tidelake.storage.model.table import TableContext
from tidelake.storage.read.time_ranges import check_times_fit

_ROUNDS_MAX: Final = 100  # rounds for one batch; each creates or changes a table
# Whether these fail depends on earlier records, which a sample lacks.
_ORDER_DEPENDENT_FAILURES: Final = (FailureKind.SCHEMA_CHANGE, FailureKind.TRUNCATE, FailureKind.UNKNOWN_VALUE)


@dataclass(slots=True)
class SampledTable:
    """One table in a sample.

    is_there: whether the table exists
    changes: descriptions of the changes that the sample's records cause
    times_ms: times of the records of its rows, by partition
    """

    context: TableContext
    target: Target
    is_there: bool
    changes: list[str] = field(default_factory=list)
    rows: list[pa.RecordBatch] = field(default_factory=list)
    times_ms: defaultdict[TopicPartition, list[Any]] = field(default_factory=lambda: defaultdict(list))


@dataclass(slots=True)
class Obstacle:
    """A problem that a run would have: records of one table that fail with one code.

    table: the table's name, or the source table's name if the table can't be created
    example: the reason of the first record, with its place
    records: number of records in the sample, at least
    """

    table: str
    code: str
    example: str
    records: int = 0


class SampledTables:
    """The tables in a sample.

    known: existing tables of the configuration, and tables that the records so far would create, by name
    obstacles: by table name and error code
    passed_over: source tables that match no entry
    """

    def __init__(self, config: Config) -> None:
        self.known: dict[str, SampledTable] = {}
        self.obstacles: dict[tuple[str, str], Obstacle] = {}
        self.passed_over: set[str] = set()
        self._catalog = open_catalog(config.warehouse, config.warehouse_options)
        self._router = router_of(config.tables)
        self._format = format_of(config)
        self._configured = ConfiguredTables.of(config)
        configured = self._configured
        self._targets = TableTargets(
            configured.settings, configured.following_types, configured.derived, configured.shapes
        )
        self._decoder = RoutedDecoder(
            self._router, partial(configured.decoder, self._format), tables_for=self._names_for
        )
        for table in config.named_tables:
            if self._catalog.table_exists(table.name):
                self._add_table(self._catalog.load(table.name), is_there=True)

    def take(self, raw: RawBatch) -> None:
        """Add the records of a batch. Raises the decoder's errors, for example for an unavailable schema registry."""
        decoded = self._decoder.decode(raw)
        for _ in range(_ROUNDS_MAX):
            made = [
                name
                for source, row in decoded.creating.items()
                for name in self._names_for(source)
                if self._make(name, raw, source, row)
            ]
            followed = [self._apply_schema_change(failure) for failure in _first_of_each_table(decoded)]
            if not made and not any(followed):
                break
            decoded = self._decoder.decode(raw)
        for part in decoded.tables:
            sampled = self.known[part.target.name]
            sampled.rows.append(part.rows)
            times_ms = raw.timestamps_ms[np.searchsorted(raw.offsets, part.offsets)]
            sampled.times_ms[TopicPartition(raw.topic, raw.partition)].append(times_ms[times_ms >= 0])
        for failure in decoded.failures:
            if failure.kind not in _ORDER_DEPENDENT_FAILURES:
                name = self._named(failure, raw)
                withholds = self._configured.withholds(name if name in self._configured.settings else None)
                shown = failure.withheld() if withholds else failure
                self._add_obstacle(name, failure.code, shown.describe(raw))
        self.passed_over.update(str(source) for source in decoded.unrouted if not self._names_for(source))

    def _names_for(self, source: SourceTable) -> tuple[str, ...]:
        try:
            return self._router.tables_for(source)
        except BadInput as error:
            self._add_obstacle(str(source), "NO_TABLE", str(error), records=0)
            return ()

    def _named(self, failure: DecodeFailure, raw: RawBatch) -> str:
        """Return the name of the record's table, or else of its source table or topic."""
        if failure.table_name is not None:
            return failure.table_name
        if failure.source is None:
            return raw.topic
        return next(iter(self._names_for(failure.source)), str(failure.source))

    def _add_table(self, context: TableContext, *, is_there: bool) -> None:
        self.known[context.name] = found = SampledTable(context, self._targets.of(context), is_there)
        self._router.add_target(found.target)

    def _add_obstacle(self, name: str, code: str, example: str, records: int = 1) -> None:
        self.obstacles.setdefault((name, code), Obstacle(name, code, example)).records += records

    def _make(self, name: str, raw: RawBatch, source: SourceTable, row: int) -> bool:
        """Add a table that a run would create for the source table. Returns whether it was added."""
        if name in self.known or (name, "NO_TABLE") in self.obstacles:
            return False
        settings = self._configured.settings.get(name) or self._router.templates.table_for(source)
        assert settings is not None
        try:
            self._add_table(self._preview(name, settings, raw, row), is_there=False)
        except BadInput as error:
            self._add_obstacle(name, "NO_TABLE", f"{source}: {error}", records=0)
            return False
        return True

    def _preview(self, name: str, settings: TableSettings, raw: RawBatch, row: int) -> TableContext:
        if isinstance(settings, ExpandedTable):
            self._configured.add(settings)
        shape = self._configured.shapes[name]
        inferred = with_key_columns(settings, shape.inferred(self._format.infer_table(raw, row)))
        check_inferred(settings, inferred, raw, row)
        if isinstance(settings, ExpandedTable):
            derived = self._configured.derived[name]
            names = [one.name for one in inferred.fields]
            settings = settings.fitted([*names, *derived.names])
        primary_key = settings.key_of_new(inferred.primary_key)
        inferred = self._configured.column_types[name].apply(inferred, primary_key)
        return self._catalog.preview_table(
            name,
            inferred.fields,
            primary_key=primary_key,
            partition_by=settings.partition_by,
            options=settings.options_of_new(inferred.primary_key),
        )

    def _apply_schema_change(self, failure: DecodeFailure) -> bool:
        """Change the table as a run would for the record (see `SchemaBarrier`). Returns whether anything changed."""
        assert failure.target is not None
        sampled = self.known[failure.target.name]
        name, schema = sampled.context.name, sampled.context.schema
        behavior = self._configured.behaviors[name]
        made: list[NeededChange] = []
        left: list[NeededChange] = []
        for change in needed_changes(failure.needed, schema, self._configured.column_types[name]):
            action = Action.IGNORE if change.is_unwanted else behavior.action(change.kind)
            if action is Action.STOP or (action is Action.APPLY and change.change is None):
                why = change.reason or f"`schema_evolution` is {behavior}"
                self._add_obstacle(
                    name, "SCHEMA_CHANGE", f"{change}: {why}, so the table stops at this change", records=0
                )
                return False
            (left if action is Action.IGNORE or change.change is None else made).append(change)
        try:
            changes = [change.change for change in made if change.change is not None]
            altered = apply_changes(schema, changes, has_snapshots=True, time_ms=epoch_ms()) if changes else schema
            if sampled.is_there and altered is not schema:
                check_times_fit(sampled.context, altered)
        except BadInput as error:
            self._add_obstacle(name, "SCHEMA_CHANGE", str(error), records=0)
            return False
        ignored, fixed = unchanged_columns(left)
        self._targets.ignore(name, ignored)
        self._targets.keep_type(name, fixed)
        sampled.changes += map(str, made)
        sampled.context = sampled.context.with_schema(altered)
        before, sampled.target = sampled.target, self._targets.of(sampled.context)
        self._router.add_target(sampled.target)
        return sampled.target != before


def _first_of_each_table(decoded: DecodedBatch) -> list[DecodeFailure]:
    """Return the first failure of each table among the records that need a schema change."""
    first: dict[str, DecodeFailure] = {}
    for failure in decoded.failures:
        if failure.target is not None and failure.needed:
            first.setdefault(failure.target.name, failure)
    return list(first.values())
