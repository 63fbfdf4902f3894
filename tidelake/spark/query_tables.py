"""The tables of a pipeline's query: their sinks, and those that are created while it runs.

The tasks report the first record of each source table whose table doesn't exist. The driver creates the table, and the
batch is decoded again. So an entry that stands for many tables costs nothing in batches without a new one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tidelake.checkpoint.idle_progress import ProgressEntry
from tidelake.checkpoint.offsets import TopicPartition
from tidelake.checkpoint.routing import ROUTING_PROPERTY
from tidelake.ingest.config.lower_case import format_of
from tidelake.ingest.formats.base import OpenedFormat
from tidelake.ingest.pipeline.configured_tables import ConfiguredTables
from tidelake.ingest.settings import Config, TableSettings
from tidelake.ingest.spark.batch_position import Ranges
from tidelake.ingest.spark.batch_rows import PipelineRecords, RawRecords
from tidelake.ingest.spark.batch_statistics import BatchStatistics
from tidelake.ingest.spark.batch_target import BatchTarget, SparkDeadLetterTable
from tidelake.ingest.spark.sink import sink
from tidelake.ingest.tables.pipeline_tables import PipelineTables
from tidelake.ingest.tables.table_history import PIPELINE_PROPERTY
from tidelake.ingest.tables.table_sink import TableSink
from tidelake.ingest.tables.table_templates import ExpandedTable
from tidelake.spark.query_progress import QueryProgress, QueryProgressFile
from tidelake.spark.start_positions import StartPositions
from tidelake.storage.catalog.opening import open_catalog
from tidelake.storage.fileio import open_file_io
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext
from tidelake.storage.write.memory_budget import MemoryBudget


class ConfiguredQueryTables:
    """Implements `QueryTables` for a configuration. Its calls block.

    config: with an entry for each existing table of the entries that stand for many.
    configured: the same tables. It grows.
    contexts: tables that were opened just now.
    begins: where the query begins to read partitions that tables have; empty after its first start.
    """

    def __init__(
        self,
        config: Config,
        configured: ConfiguredTables,
        positions: StartPositions,
        begins: Mapping[TopicPartition, int],
        contexts: Mapping[str, TableContext] | None = None,
    ) -> None:
        self._config = config
        self._configured = configured
        self._format = configured.format(format_of(config))
        self._format.decoder(lambda _: None)  # so that the start is refused, and not each task
        self._entries = list(config.tables)
        self._states = dict(positions.states)
        options = {key: str(value) for key, value in config.warehouse_options.items()}
        self._file = QueryProgressFile(open_file_io(config.warehouse, options), config.warehouse, config.pipeline)
        self._progress = QueryProgress(began=begins)
        self._batch_id = -1  # that is being written
        memory = MemoryBudget(config.write.memory_bytes)

        def open_sink(context: TableContext) -> TableSink:
            return TableSink(context, config.pipeline, memory)

        self._tables = PipelineTables(
            config.tables,
            open_catalog(config.warehouse, config.warehouse_options),
            open_sink,
            format_of(config).infer_table,
            configured.targets,
            configured.column_types,
            self._name,
            contexts=contexts,
        )
        self._sinks = {
            name: replace(self._sink_of(name), reached=positions.reached.get(name, {})) for name in self._tables.sinks
        }

    def _name(self, table: ExpandedTable) -> None:
        self._configured.add(table)
        self._entries.append(table)

    def begin(self, query: str | None) -> None:
        """Continue the query of this id, before its first batch of this run."""
        if query is None or self._progress.query:
            return
        known = self._file.read()
        known = known if known.query == query else QueryProgress(query)
        self._progress = replace(known, began={**known.began, **self._progress.began}, tables={})

    def sinks(self, batch_id: int) -> list[BatchTarget]:
        """Return the sinks of all tables that exist, for this batch."""
        self._batch_id = batch_id
        before = self._progress.read_before(batch_id)
        # What the file says of tables without rows includes a batch that is repeated.
        after = self._progress.reached if batch_id == self._progress.batch else {}
        return [
            replace(
                one,
                read={**one.read, **before},
                reached={p: before.get(p, end) if after.get(p) == end else end for p, end in one.reached.items()},
            )
            for one in self._sinks.values()
        ]

    # ------------------------------------------------------------ QueryTables

    def records(self) -> PipelineRecords:
        """See `QueryTables`."""
        return PipelineRecords(
            self._format,
            tuple(self._entries),
            frozenset(self._sinks),
            keeps_dead_letters(self._config),
            self._configured.masks_columns,
        )

    def create(self, statistics: BatchStatistics) -> Sequence[BatchTarget]:
        """See `QueryTables`."""
        for source in sorted(statistics.sources, key=str):
            self._tables.router.tables_for(source)  # it refuses names that differ only in case
        records = sorted(statistics.first_records.values(), key=lambda record: record.order)
        batches = [(record.batch(), {record.source: 0}) for record in records]
        for number, (batch, sources) in enumerate(batches):
            self._tables.create(batch, sources, batches[1:] if number == 0 else ())
        new = [name for name in self._tables.sinks if name not in self._sinks]
        for name in new:
            self._states[name] = ProgressEntry.of(
                self._tables.sinks[name].history.created_ms, None, self._configured.routings[name]
            )
            # No earlier record was for the table. So its position is that of the query.
            self._sinks[name] = replace(self._sink_of(name), read=self._progress.began)
        return [one for one in self.sinks(self._batch_id) if one.table in new]

    def keep_dead_letters(self, batch_id: int, lines: Sequence[str]) -> None:
        """See `QueryTables`."""
        name = self._config.pipeline
        without_table = _sink_of(TableSettings(name=name), self._config, self._configured, self._format)
        without_table.keep_dead_letters(f"spark-{self._progress.query}-{name}", batch_id, lines)

    def read(self, batch_id: int, ranges: Ranges, idle: Mapping[str, Snapshot | None]) -> None:
        """See `QueryTables`."""
        before = self._progress.read_before(batch_id)
        reached = {**before, **{partition: end for partition, (_, end) in ranges.items()}}
        known = self._states.keys()  # all but a table that another process creates while the query starts
        entries = {name: self._state(name, newest) for name, newest in idle.items() if name in known}
        self._progress = replace(self._progress, batch=batch_id, before=before, reached=reached, tables=entries)
        self._file.write(self._progress)

    def _state(self, name: str, newest: Snapshot | None) -> ProgressEntry:
        """Return the state of a table.

        newest: its newest snapshot of the query.
        """
        known = self._states[name]
        if newest is None:
            return known
        return replace(known, snapshot_id=newest.id, manifest_list=newest.delta_manifest_list)

    def _sink_of(self, name: str) -> BatchTarget:
        return _sink_of(self._tables.settings[name], self._config, self._configured, self._format)


def sinks_of(config: Config) -> list[BatchTarget]:
    """Return one sink for each entry of a single table."""
    configured = ConfiguredTables.of(config)
    format_ = configured.format(format_of(config))
    return [_sink_of(table, config, configured, format_) for table in config.named_tables]


def keeps_dead_letters(config: Config) -> bool:
    return config.errors.tolerance not in ("none", 0)


def _sink_of(table: TableSettings, config: Config, configured: ConfiguredTables, format_: OpenedFormat) -> BatchTarget:
    """Return the sink of a table.

    format_: the format of the records, with all that the configuration says of it.
    """
    made = sink(
        table.name,
        config.warehouse,
        format=config.format,
        match=table.match_patterns,
        dead_letters=config.dead_letters if keeps_dead_letters(config) else None,
        source_types=table.source_types,
        rounded_columns=table.rounded_columns,
        connector=config.format_options,
        options={key: str(value) for key, value in config.warehouse_options.items()},
        topics=table.topic_patterns,
        key_from_records=table.takes_key_of_records,
        key_columns=table.key_columns,
    )
    rows = made.input
    assert isinstance(rows, RawRecords)
    rows = replace(
        rows,
        format=format_,
        is_history=table.mode == "append",
        deleted_at_column=table.deleted_at_column if table.deletes == "soft" else "",
        withholds=bool(table.masks),
        applies_truncates=config.format_options.get("truncates", "apply") == "apply",
    )
    dead_letters = config.dead_letters_table
    routing = configured.routings.get(table.name)
    return replace(
        made,
        dead_letter_table=None if dead_letters is None else SparkDeadLetterTable(dead_letters, config.pipeline),
        input=rows,
        shared_with=table.other_users,
        properties={
            PIPELINE_PROPERTY: config.pipeline,
            **({} if routing is None else {ROUTING_PROPERTY: routing.to_text()}),
        },
    )
