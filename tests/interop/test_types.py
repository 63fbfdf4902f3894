"""Every type as key, as partition, and as bucket key, compared with Java."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa
import pytest

import tidelake
from tests.interop.columns import SCALARS, Column, cycled
from tests.interop.conftest import NewTable
from tests.interop.shared_table import KIND, Reader, SharedTable
from tests.support.line_server import Refused

FORMATS: Final = ("parquet", "orc", "avro")
V: Final = Column("v", "INT", pa.int32(), ())

_TIMES_OF_ORC: Final = "its ORC library adds up seconds and nanoseconds of a time before 1970 wrongly"


def unreadable(column: Column, file_format: str) -> dict[Reader, str]:
    """Who can't read a value column of this type."""
    if file_format == "orc" and column.name.startswith("timestamp") and not column.name.startswith("timestamp_s"):
        return {Reader.RUST: _TIMES_OF_ORC}
    return {}


def pairs(columns: Iterable[Column]) -> list[Any]:
    """Columns and formats that go together."""
    return [
        pytest.param(column, file_format, id=f"{column.name} {file_format}")
        for file_format in FORMATS
        for column in columns
        if file_format != "avro" or "TIMESTAMP(9)" not in column.sql  # Avro reaches microseconds
    ]


# What pypaimon merges by: Python's comparisons, of values that Python holds.
UNMERGED: Final = {
    "float": "it takes 0.0 and -0.0 for one key, and NaN has no place in its order",
    "double": "it takes 0.0 and -0.0 for one key, and NaN has no place in its order",
    "timestamp_ns": "it cuts the times it merges by to microseconds",
    "timestamp_ns_ltz": "it cuts the times it merges by to microseconds",
}


@pytest.mark.parametrize(("column", "file_format"), pairs(SCALARS))
def test_keys_of_every_type_are_upserted_deleted_and_compacted(
    column: Column, file_format: str, new_table: NewTable
) -> None:
    """0.0 and -0.0 are two keys, NaN is one."""
    cannot = unreadable(column, file_format)
    if column.name in UNMERGED:
        cannot[Reader.PYPAIMON] = UNMERGED[column.name]
    options = {"bucket": "1", "file.format": file_format}
    table = new_table([column, V], primary_key=[column.name], options=options, cannot=cannot)
    keys = cycled(column, file_format, len(column.values_for(file_format)), with_nulls=False)

    def rows(first_value: int, kinds: str) -> pa.Table:
        """kinds: of the keys in turn, U or D; `.` leaves one out."""
        reported = [kinds[i % len(kinds)] for i in range(len(keys))]
        numbers = pa.array([{"U": 2, "D": 3}.get(kind) for kind in reported], pa.int8())
        values = pa.array(range(first_value, first_value + len(keys)), pa.int32())
        return pa.table({column.name: keys, "v": values, KIND: numbers}).filter(numbers.is_valid())

    table.write(rows(100, "U"))
    table.write(rows(200, "D.U"))
    table.check()
    table.java_writes(rows(300, ".U"), full=True)
    table.check([Reader.JAVA])
    table.write(rows(400, "UD."))
    table.check([Reader.JAVA])


# Who looks for a partition in a folder that Java spells otherwise.
_NAN: Final = "it looks for a partition nan, and Java writes NaN"
_CUT: Final = "it looks for a partition with microseconds"
MISSPELLED: Final = {
    "float": {Reader.PYPAIMON: _NAN, Reader.RUST: _NAN},
    "double": {Reader.PYPAIMON: _NAN, Reader.RUST: _NAN},
    "timestamp_ns": {Reader.PYPAIMON: _CUT},
    "timestamp_ns_ltz": {Reader.PYPAIMON: _CUT},
}
FOLDERS: Final = [column for column in SCALARS if column.arrow != pa.binary()]


@pytest.mark.parametrize("legacy", ["legacy names", "names as casts"])
@pytest.mark.parametrize("column", [pytest.param(column, id=column.name) for column in FOLDERS])
def test_partition_directories_of_every_type_are_named_as_in_java(
    column: Column, legacy: str, new_table: NewTable
) -> None:
    options = {"bucket": "-1", "partition.legacy-name": str(legacy == "legacy names").lower()}
    count = len(column.values) + 1
    rows = pa.table({column.name: cycled(column, "parquet", count), "v": pa.array(range(count), pa.int32())})
    ours, javas = (
        new_table([column, V], partition_by=[column.name], options=options, folder=writer) for writer in ("we", "java")
    )
    ours.cannot = MISSPELLED.get(column.name, {})
    if column.name == "time" and legacy == "names as casts":
        ours.cannot = {Reader.RUST: "it looks for a partition 00:00:00, and Java writes 00:00:00.0"}
    ours.write(rows)
    javas.java_writes(rows)
    assert folders(ours) == folders(javas)
    ours.check()


def folders(table: SharedTable) -> set[str]:
    return {path.parent.parent.name for path in table.warehouse.glob("db.db/t/*/bucket-0/*")}


def hashable(function: str) -> list[Any]:
    """Columns that a bucket function takes."""
    taken = {
        "default": SCALARS,
        "mod": [c for c in SCALARS if c.sql in ("INT", "BIGINT")],
        "hive": [c for c in SCALARS if not c.sql.startswith("TIMESTAMP")],
    }
    return [pytest.param(column, function, id=f"{column.name} {function}") for column in taken[function]]


@pytest.mark.parametrize(("column", "function"), [*hashable("default"), *hashable("mod"), *hashable("hive")])
def test_every_row_is_in_the_same_bucket_as_in_java(column: Column, function: str, new_table: NewTable) -> None:
    options = {"bucket": "5", "bucket-function.type": function}
    keys = cycled(column, "parquet", len(column.values), with_nulls=False)
    rows = pa.table({column.name: keys, "v": pa.array(range(len(keys)), pa.int32())})
    ours, javas = (
        new_table([column, V], primary_key=[column.name], options=options, folder=writer) for writer in ("we", "java")
    )
    ours.write(rows)
    javas.java_writes(rows)
    assert buckets(ours) == buckets(javas)


@pytest.mark.parametrize("column", SCALARS[:3], ids=lambda column: column.name)
def test_the_bucket_key_decides_about_the_bucket_as_in_java(column: Column, new_table: NewTable) -> None:
    """It is a part of the primary key. Rows of one bucket key are in one bucket, whatever the rest of their key is."""
    options = {"bucket": "5", "bucket-key": column.name}
    keys = cycled(column, "parquet", 4 * len(column.values), with_nulls=False)
    rows = pa.table({column.name: keys, "v": pa.array(range(len(keys)), pa.int32())})
    ours, javas = (
        new_table([column, V], primary_key=[column.name, "v"], options=options, folder=writer)
        for writer in ("we", "java")
    )
    ours.write(rows)
    javas.java_writes(rows)
    assert buckets(ours) == buckets(javas)


def test_times_have_no_hive_bucket_in_java_either(new_table: NewTable) -> None:
    column = Column("ts", "TIMESTAMP(6)", pa.timestamp("us"), (0,))
    options = {"bucket": "5", "bucket-function.type": "hive"}
    table = new_table([column, V], primary_key=["ts"], options=options)
    rows = pa.table({"ts": cycled(column, "parquet", 1), "v": pa.array([1], pa.int32())})
    with pytest.raises(tidelake.BadInput, match="choose another bucket-key"):
        table.write(rows)
    with pytest.raises(Refused):
        table.java_writes(rows)


def buckets(table: SharedTable) -> dict[int, int]:
    """The bucket of each row, by `v`."""
    scan = table.ours.scan(columns=["v"])
    return {v: split.bucket for split in scan.splits() for v in scan.to_arrow([split]).column("v").to_pylist()}
