"""Creates missing tables of a pipeline on Spark in the driver, after the first record for each."""

from __future__ import annotations

from pyspark.sql import DataFrame

from tidelake.ingest.config.lower_case import format_of
from tidelake.ingest.pipeline.configured_tables import ConfiguredTables
from tidelake.ingest.settings import Config
from tidelake.ingest.spark.first_records import first_records
from tidelake.ingest.tables.pipeline_tables import PipelineTables
from tidelake.ingest.tables.table_sink import TableSink
from tidelake.storage.catalog.opening import open_catalog
from tidelake.storage.model.table import TableContext
from tidelake.storage.write.memory_budget import MemoryBudget


class TableCreation:
    """Creates the tables of one query. Its calls block."""

    def __init__(self, config: Config) -> None:
        self._format = format_of(config)
        self._names = {table.name for table in config.tables}
        memory = MemoryBudget(config.write.memory_bytes)
        configured = ConfiguredTables.of(config)

        def open_sink(context: TableContext) -> TableSink:
            return TableSink(context, config.pipeline, memory)

        self._tables = PipelineTables(
            config.tables,
            open_catalog(config.warehouse, config.warehouse_options),
            open_sink,
            self._format.infer_table,
            configured.targets,
            configured.column_types,
        )

    @property
    def missing(self) -> set[str]:
        """The tables that don't exist."""
        return self._names - self._tables.sinks.keys()

    def create(self, batch: DataFrame) -> None:
        """Create the tables for which the batch has a record.

        Raises BadInput if a record lacks what its table needs.
        """
        for record in first_records(batch, self._format):
            self._tables.create(record.batch(), {record.source: 0})
