"""Refreshes a materialized table with Spark: its query runs on the changes if possible, otherwise on all rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tidelake.catalog import open_catalog
from tidelake.ingest.spark.batch_rows import TypedColumns
from tidelake.ingest.spark.batch_target import Overwrite
from tidelake.ingest.spark.job_names import named_jobs
from tidelake.ingest.spark.sink import sink, write_batch
from tidelake.materialized.plain_query import PlainQuery
from tidelake.materialized.query_engine import FullRefresh, QueriedTable, check_columns
from tidelake.materialized.refresh import Refresh
from tidelake.materialized.refresh_result import RefreshKind
from tidelake.materialized.source_state import REFRESH_USER
from tidelake.spark.registration import register
from tidelake.storage.base import env
from tidelake.table import Table

_DIALECT = "spark"


def refresh_materialized_table(
    spark: SparkSession,
    table: str,
    warehouse: str,
    *,
    sources: Mapping[str, str] | None = None,
    when_due: bool = False,
    full: bool = False,
    catalog_options: Mapping[str, str] | None = None,
) -> int | None:
    """Refresh a materialized table in one snapshot. A full refresh runs in tasks of Spark.

    sources: name in the query -> table of this warehouse; each becomes a temporary view of the session, which stays.
        Other names are resolved by the session. Changes are known for `sources` only.
    when_due: only if the rows are older than the definition allows
    full: recompute all rows, even if computing only the changed ones is possible

    Returns the snapshot's id; None if nothing had to be done. Raises BadInput if the query returns other columns than
    the table has, or the table is suspended.
    """
    register(spark)
    options = dict(catalog_options or {})
    catalog = open_catalog(warehouse, **options)
    tables = dict(sources or {})

    def find(name: str) -> Table | None:
        return catalog.table(tables[name]) if name in tables else None

    engine = _Spark(spark, warehouse, options, tables)
    done = Refresh(catalog.table(table), find, engine, is_of_engine=True).run(full=full, when_due=when_due)
    return None if done.kind is RefreshKind.NONE else done.snapshot_id


@dataclass(frozen=True)
class _Spark:
    """Runs a refresh's query with Spark.

    tables: by their names in the query.
    """

    spark: SparkSession
    warehouse: str
    options: Mapping[str, str]
    tables: Mapping[str, str]

    @property
    def dialect(self) -> str:
        return _DIALECT

    def evaluate_over(self, query: PlainQuery, rows: pa.RecordBatch) -> pa.RecordBatch:
        view = f"tidelake_{env.new_uuid().hex}"
        self.spark.createDataFrame(pa.Table.from_batches([rows])).createOrReplaceTempView(view)
        try:
            with named_jobs(self.spark, "refresh"):
                found = self.spark.sql(query.sql(_DIALECT, view)).toArrow()
        finally:
            self.spark.catalog.dropTempView(view)
        return pa.concat_batches(found.to_batches() or [pa.RecordBatch.from_pylist([], found.schema)])

    def replace_all(self, request: FullRefresh) -> int | None:
        """Replace all rows in one snapshot: readers see the old rows or the new ones.

        A partition for which the query returns no rows is emptied, too.
        """
        pinned = {name: source for name, source in request.sources.items() if _can_be_pinned(source)}
        for name, table in self.tables.items():
            self._read(table, pinned.get(name)).createOrReplaceTempView(name)
        rows = self.spark.sql(request.query)
        target = request.target
        check_columns(target, rows.columns)
        one = sink(target.name, self.warehouse, commit_user=REFRESH_USER, options=self.options)
        replaced = Overwrite(properties=request.properties if len(pinned) == len(request.sources) else {})
        one = replace(one, overwrite=replaced, input=TypedColumns((), replaces=True), guard=lambda _: None)
        published = write_batch([one], rows, request.number)
        return published[0] if published else None

    def _read(self, table: str, source: QueriedTable | None) -> DataFrame:
        """Return a table's rows as a DataFrame.

        source: read at its snapshot, which the refresh records as read.
        """
        reader = self.spark.read.format("tidelake").options(warehouse=self.warehouse, table=table, **self.options)
        if source is not None and source.snapshot is not None:
            reader = reader.option("snapshot", source.snapshot.id)
        return reader.load()


def _can_be_pinned(source: QueriedTable) -> bool:
    """Return whether the table's schema is the snapshot's.

    A snapshot is read under its own schema, which may lack columns that the table has now.
    """
    return source.snapshot is not None and source.snapshot.schema_id == source.context.schema.id
