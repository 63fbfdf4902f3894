"""Reads a table as a DataFrame, mostly with Spark's own Parquet reader."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from tidelake.errors import BadInput, UnsupportedFeature
from tidelake.ingest.spark.release import HAS_DATA_SOURCES, check_session
from tidelake.scan import Scan
from tidelake.spark.data_source_options import FORMAT, ReadOptions
from tidelake.spark.native.native_files import FileKey, native_files, without_files
from tidelake.spark.native.parquet_frame import parquet_frame
from tidelake.spark.native.pinned_read import PINNED_READ, PinnedRead
from tidelake.spark.registration import register
from tidelake.spark.scan_frame import scan_frame
from tidelake.spark.spark_types import schema_of
from tidelake.storage.catalog.identifier import Identifier
from tidelake.storage.read.expired_snapshots import raise_if_snapshot_expired

_ARGUMENTS: Final = ("warehouse", "table", PINNED_READ)


def read(
    spark: SparkSession,
    table: str,
    warehouse: str,
    *,
    columns: Sequence[str] | None = None,
    native: bool | None = None,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return the rows of a table at one snapshot, which is chosen now.

    Files that need no merge are read by Spark's own Parquet reader, all others by `format("tidelake")`; the rows and
    types are the same. All columns may be null.

    columns: names, in the order of the result; None is all. The data source reads no others.
    native: False: the data source reads everything. True: Spark's reader also reads files in object stores, with
        Hadoop's configuration (`spark.hadoop.fs.s3a.…`), whatever `options` say of the store. None: it reads files on
        disks, which driver and executors must see under the same path.
    options: as for `format("tidelake")`: `snapshot`, `tag`, `as-of`, `branch`, of the table, of the store.

    Raises BadInput like `format("tidelake")`. The query fails if files expire before they are read.
    """
    given = {key: str(value) for key, value in (options or {}).items()}
    for name in _ARGUMENTS:
        if name in map(str.lower, given):
            raise BadInput(f"tidelake.spark.read: leave {name} out of options; pass table and warehouse as arguments")
    given |= {"warehouse": warehouse, "table": table}
    asked = ReadOptions.of(given)
    check_session(spark)
    if HAS_DATA_SOURCES:
        register(spark)
    scan = asked.scan()
    if columns is not None:
        scan = scan.select(columns)
    schema = _all_nullable(schema_of(scan))
    if not _is_snapshot_read(asked, scan):
        return _of_data_source(spark, schema, given) if HAS_DATA_SOURCES else _of_tasks(spark, asked, scan, {})
    files = _native_files(spark, scan, native)

    def rest() -> DataFrame:
        if not HAS_DATA_SOURCES:
            return _of_tasks(spark, asked, scan, files)
        pinned = PinnedRead.of(scan, files, any_store=bool(native))
        return _of_data_source(spark, schema, {**given, PINNED_READ: pinned.to_text()})

    if not files:
        return rest()
    assert scan.snapshot_id is not None
    types = {name: scan.context.schema.by_name[name].type for name in scan.schema.names}
    with raise_if_snapshot_expired(scan.context, scan.snapshot_id):
        rows = parquet_frame(spark, list(files.values()), schema, types)
    return rows.union(rest()) if without_files(scan.splits(), files) else rows


def _of_data_source(spark: SparkSession, schema: StructType, given: Mapping[str, str]) -> DataFrame:
    return spark.read.format(FORMAT).schema(schema).options(**given).load()


def _of_tasks(spark: SparkSession, asked: ReadOptions, scan: Scan, files: Mapping[FileKey, str]) -> DataFrame:
    """Return the rows that Spark's reader doesn't read, on a release of PySpark without data sources."""
    asked.check_batch_read()
    splits = without_files(scan.splits(), files) if scan.has_splits else None
    return scan_frame(spark, scan, splits, _all_nullable(schema_of(scan)), asked.min_partitions)


def _is_snapshot_read(asked: ReadOptions, scan: Scan) -> bool:
    """Return whether snapshot and schema determine the rows."""
    return type(scan) is Scan and Identifier.parse(asked.table).system_table is None and scan.is_of_snapshot_alone


def _native_files(spark: SparkSession, scan: Scan, native: bool | None) -> dict[FileKey, str]:
    if native is False:
        return {}
    if not isinstance(spark, SparkSession):  # Connect has another class
        if native:
            raise UnsupportedFeature(
                "tidelake.spark.read(native=True) on Spark Connect",
                "the server lists files again for each query, and silently leaves out deleted files",
                "Leave native out: then the data source reads all files",
            )
        return {}
    return native_files(scan, any_store=bool(native))


def _all_nullable(schema: StructType) -> StructType:
    return StructType([StructField(field.name, _nullable(field.dataType)) for field in schema.fields])


def _nullable(kind: DataType) -> DataType:
    """Return the type with nullable parts, as Spark returns it for files."""
    if isinstance(kind, StructType):
        return _all_nullable(kind)
    if isinstance(kind, ArrayType):
        return ArrayType(_nullable(kind.elementType))
    if isinstance(kind, MapType):
        return MapType(_nullable(kind.keyType), _nullable(kind.valueType))
    return kind
