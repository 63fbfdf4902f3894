"""Refreshing a materialized table: its query runs on Spark, and its rows replace those that were there."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession

from storage.catalog.opening import open_catalog
from storage.clock import epoch_ms
from storage.ddl.materialized import MaterializedDefinition, is_materialized
from storage.errors import BadInput, UnsupportedFeature
from storage.table import TableContext
from tidelake.spark.data_source import register


def refresh_materialized_table(
    spark: SparkSession,
    table: str,
    warehouse: str,
    *,
    sources: Mapping[str, str] | None = None,
    when_due: bool = False,
    catalog_options: Mapping[str, str] | None = None,
) -> int | None:
    """All rows again, in one snapshot, by tasks of Spark. Returns its id.

    sources: name in the query -> table of this warehouse; each is a temporary view of the session, which stays. Other
    names mean what they mean to the session.
    when_due: only if the rows are older than the definition allows; else None.
    Raises BadInput where the query gives other columns than the table has, or the table is suspended.
    """
    catalog = open_catalog(warehouse, catalog_options or {})
    context = catalog.load(table)
    if not is_materialized(context.schema.options):
        raise BadInput(f"{table} is no materialized table; tidelake.MaterializedDefinition makes the options of one")
    definition = MaterializedDefinition.of(context.options)
    _check_refreshable(context, definition)
    latest = context.snapshots.latest()
    if when_due and latest is not None and epoch_ms() - latest.time_ms < definition.freshness_ms:
        return None
    register(spark)
    options = {**(catalog_options or {}), "warehouse": warehouse}
    for view, source in (sources or {}).items():
        spark.read.format("tidelake").options(**options).option("table", source).load().createOrReplaceTempView(view)
    rows = spark.sql(definition.query)
    if set(rows.columns) != set(context.schema.names):
        raise BadInput(
            f"the query of {table} gives the columns {', '.join(rows.columns)}; the table has "
            f"{', '.join(context.schema.names)}. Name them alike, with AS"
        )
    # in one snapshot: readers see the old rows or the new ones. A partition that the query no longer gives goes, too
    writer = rows.write.format("tidelake").options(**options).option("dynamic-partition-overwrite", "false")
    writer.option("table", table).mode("overwrite").save()
    return context.snapshots.latest_id()


def _check_refreshable(context: TableContext, definition: MaterializedDefinition) -> None:
    if definition.status == "suspended":
        raise BadInput(
            f"{context.name} is suspended; set option materialized-table.refresh-status = activated to go on"
        )
    if definition.refresh_mode != "full":
        raise UnsupportedFeature(
            f"a refresh of {context.name}",
            "its refresh mode is continuous: a job of Flink's keeps it",
            "Leave it to Flink",
        )
    if context.schema.has_primary_key:
        raise UnsupportedFeature(
            f"a refresh of {context.name}",
            "Spark asks no Python source how to divide rows into the buckets of a primary key",
            "Create the table without one",
        )
