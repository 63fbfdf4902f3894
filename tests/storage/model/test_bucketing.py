from __future__ import annotations

import math
import struct
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.cases import Case, case_id, check_members, vectors
from tests.support.row_values import case_columns, case_types
from tidelake.errors import BadInput
from tidelake.storage.model.bucketing import (
    BucketFunction,
    Bucketing,
    BucketMode,
    bucket_ids,
    bucket_mode,
    check_new_table,
)
from tidelake.storage.model.schema.table_schema import TableSchema
from tidelake.storage.model.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    SMALLINT,
    STRING,
    TINYINT,
    AtomicType,
    DataField,
    DataType,
    Root,
    arrow_type,
    decimal,
    parse_type,
    timestamp,
)

# ---------------------------------------------------------------- functions


@pytest.mark.parametrize("case", vectors("binary_row"), ids=case_id)
def test_the_default_function_assigns_the_same_buckets_as_java(case: Case) -> None:
    for num_buckets, bucket in case["bucket"].items():
        assert bucket_ids(case_columns(case), case_types(case), int(num_buckets)).tolist() == [bucket]


@pytest.mark.parametrize("case", vectors("bucket_functions"), ids=case_id)
def test_the_other_functions_assign_the_same_buckets_as_java(case: Case) -> None:
    check_members(case, {"types", "values", *BucketFunction})
    functions = case.keys() & set(BucketFunction)
    assert functions
    for function in functions:
        for num_buckets, bucket in case[function].items():
            ids = bucket_ids(case_columns(case), case_types(case), int(num_buckets), function)
            assert ids.tolist() == [bucket]
            assert ids.dtype == np.int32


def naive_hive_hash(value: Any, data_type: DataType) -> int:
    """One value, with Python's unbounded integers; wraps at the end only."""
    if value is None:
        return 0
    match data_type.root:
        case Root.BOOLEAN | Root.TINYINT | Root.SMALLINT | Root.INT | Root.DATE | Root.TIME:
            return int(value)
        case Root.BIGINT:
            return int(value & 0xFFFFFFFF ^ value >> 32 & 0xFFFFFFFF)
        case Root.FLOAT:
            canonical = math.nan if math.isnan(value) else value or 0.0
            return int.from_bytes(struct.pack("<f", canonical), "little")
        case Root.DOUBLE:
            canonical = math.nan if math.isnan(value) else value or 0.0
            low, high = struct.unpack("<II", struct.pack("<d", canonical))
            return int(low ^ high)
        case Root.DECIMAL:
            sign, digits, exponent = value.as_tuple()
            magnitude = int("".join(map(str, digits)))
            scale = -exponent if magnitude else 0
            while scale > 0 and magnitude % 10 == 0:
                magnitude, scale = magnitude // 10, scale - 1
            words = [magnitude >> 32 * i & 0xFFFFFFFF for i in range(4)]
            big_integer = words[3] * 31**3 + words[2] * 31**2 + words[1] * 31 + words[0]
            return (-big_integer if sign else big_integer) * 31 + scale
    encoded = value.encode() if isinstance(value, str) else value
    total = 0
    for byte in encoded:
        total = total * 31 + (byte - 256 if byte > 127 else byte)
    return total


def exact(unscaled: int, scale: int) -> Decimal:
    return Decimal((unscaled < 0, tuple(map(int, str(abs(unscaled)))), -scale))


def signed(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


HIVE_VALUES: list[tuple[DataType, st.SearchStrategy[Any]]] = [
    (BOOLEAN, st.booleans()),
    (TINYINT, signed(8)),
    (SMALLINT, signed(16)),
    (INT, signed(32)),
    (BIGINT, signed(64)),
    (FLOAT, st.floats(width=32)),
    (DOUBLE, st.floats()),
    (STRING, st.text(max_size=20)),
    (BYTES, st.binary(max_size=20)),
    (decimal(10, 3), st.integers(-(10**10) + 1, 10**10 - 1).map(lambda n: exact(n, 3))),
    (
        decimal(38, 20),
        st.builds(lambda n, zeros: exact(n * 10**zeros, 20), st.integers(-(10**18), 10**18), st.integers(0, 19)),
    ),
]


@given(st.data())
def test_hive_hashes_are_independent_of_neighbouring_rows(data: st.DataObject) -> None:
    fields = data.draw(st.lists(st.sampled_from(HIVE_VALUES), min_size=1, max_size=3))
    rows = data.draw(st.lists(st.tuples(*(st.none() | values for _, values in fields)), max_size=12))
    types = [data_type for data_type, _ in fields]
    columns = [pa.array([row[i] for row in rows], arrow_type(t)) for i, t in enumerate(types)]
    expected = []
    for row in rows:
        total = 0
        for value, data_type in zip(row, types, strict=True):
            total = total * 31 + naive_hive_hash(value, data_type)
        expected.append((total & 0x7FFFFFFF) % 7)
    assert bucket_ids(columns, types, 7, "hive").tolist() == expected
    start = data.draw(st.integers(0, len(rows)))
    chunked = [pa.chunked_array([c.slice(0, start), c.slice(start)]) for c in columns]
    assert bucket_ids(chunked, types, 7, "hive").tolist() == expected
    assert bucket_ids([c.slice(start) for c in columns], types, 7, "hive").tolist() == expected[start:]


@given(st.lists(st.none() | signed(64)), st.integers(1, 2**31 - 1))
def test_mod_is_the_remainder_that_is_never_negative(values: list[int | None], num_buckets: int) -> None:
    ids = bucket_ids([pa.array(values, pa.int64())], [BIGINT], num_buckets, "mod")
    assert ids.tolist() == [(value or 0) % num_buckets for value in values]


def test_buckets_do_not_depend_on_blocks() -> None:
    texts = pa.array([str(i) for i in range(50_000)])
    for function in ("default", "hive"):
        ids = bucket_ids([texts], [STRING], 64, function)
        for row in (0, 16_383, 16_384, 49_999):
            assert ids[row] == bucket_ids([texts.slice(row, 1)], [STRING], 64, function)[0]


@pytest.mark.parametrize("function", list(BucketFunction))
def test_no_rows_have_no_buckets(function: str) -> None:
    for column in (pa.array([], pa.int32()), pa.chunked_array([], pa.int32())):
        assert bucket_ids([column], [INT], 4, function).tolist() == []


@pytest.mark.parametrize(
    ("types", "function", "message"),
    [
        pytest.param([STRING], "mod", r"one INT or BIGINT column, but the bucket key is \(STRING\)", id="mod of text"),
        pytest.param([INT, INT], "mod", r"the bucket key is \(INT, INT\)", id="mod of two columns"),
        pytest.param(
            [timestamp(3)], "hive", r"hive does not support values of type TIMESTAMP\(3\)", id="hive of a time"
        ),
    ],
)
def test_types_a_function_cannot_take_are_refused(types: list[DataType], function: str, message: str) -> None:
    columns = [pa.nulls(1, arrow_type(t)) if t == STRING else pa.array([1], arrow_type(t)) for t in types]
    with pytest.raises(BadInput, match=message):
        bucket_ids(columns, types, 2, function)


@pytest.mark.parametrize("function", list(BucketFunction))
def test_a_column_of_another_arrow_type_is_refused(function: str) -> None:
    with pytest.raises(BadInput, match="int64 can't be read as INT"):
        bucket_ids([pa.array([1])], [INT], 2, function)


# ---------------------------------------------------------------- options

COLUMNS = {
    "k": BIGINT,
    "d": DATE,
    "s": STRING,
    "tags": parse_type("ARRAY<STRING>"),
    "blob": AtomicType(Root.BLOB),
}
FIELDS = tuple(DataField(i, name, t) for i, (name, t) in enumerate(COLUMNS.items()))


def schema(primary_keys: str = "", partition_keys: str = "", **options: str) -> TableSchema:
    return TableSchema(
        0, FIELDS, len(FIELDS) - 1, tuple(partition_keys.split()), tuple(primary_keys.split()), options_of(options)
    )


def options_of(keywords: dict[str, str]) -> dict[str, str]:
    return {
        {"bucket_key": "bucket-key", "function": "bucket-function.type"}.get(key, key): value
        for key, value in keywords.items()
    }


@pytest.mark.parametrize(
    ("table", "mode", "num_buckets", "key"),
    [
        pytest.param(schema("k", bucket="4"), BucketMode.FIXED, 4, ("k",), id="fixed: the primary key"),
        pytest.param(schema("d s k", "d", bucket="4"), BucketMode.FIXED, 4, ("s", "k"), id="without the partition"),
        pytest.param(schema("k s", bucket="4", bucket_key="s,k"), BucketMode.FIXED, 4, ("s", "k"), id="another order"),
        pytest.param(schema("k", "d", bucket="4"), BucketMode.FIXED, 4, ("k",), id="fixed in each partition"),
        pytest.param(schema(bucket="4", bucket_key="s"), BucketMode.FIXED, 4, ("s",), id="append"),
        pytest.param(schema(bucket="1"), BucketMode.FIXED, 1, (), id="append of Paimon 0.7: one bucket, no key"),
        pytest.param(schema(), BucketMode.UNAWARE, -1, (), id="append without buckets"),
        pytest.param(schema("k"), BucketMode.DYNAMIC, -1, ("k",), id="dynamic"),
        pytest.param(schema("k d", "d", bucket="-1"), BucketMode.DYNAMIC, -1, ("k",), id="dynamic in partitions"),
        pytest.param(schema("k", "d"), BucketMode.CROSS_PARTITION, -1, ("k",), id="across partitions"),
        pytest.param(schema("k", bucket="-2"), BucketMode.POSTPONE, -2, ("k",), id="postpone"),
    ],
)
def test_options_decide_how_rows_get_their_bucket(
    table: TableSchema, mode: BucketMode, num_buckets: int, key: tuple[str, ...]
) -> None:
    bucketing = Bucketing.of(table, table.options)
    assert (bucketing.mode, bucketing.num_buckets, bucketing.key_columns) == (mode, num_buckets, key)
    assert bucketing.key_types == tuple(COLUMNS[name] for name in key)
    assert bucketing.total_buckets == num_buckets
    assert bucket_mode(table, table.options) is mode


@pytest.mark.parametrize(
    ("table", "message"),
    [
        pytest.param(schema(bucket="two"), "bucket = 'two': expected a whole number", id="not a number"),
        pytest.param(schema("k", bucket="0"), "bucket = 0: use 1 or more", id="no bucket"),
        pytest.param(schema(bucket="-2"), r"bucket = -2: .* -2 \(primary-key tables only\)", id="postpone on append"),
        pytest.param(schema(bucket_key="k"), "unset bucket-key", id="key without buckets"),
        pytest.param(schema(bucket="2"), "bucket = 2 on a table without primary key needs bucket-key", id="no key"),
        pytest.param(schema(bucket="2", bucket_key="x"), "no column 'x'; the table has k, d, s", id="unknown column"),
        pytest.param(schema("k s", bucket="2", bucket_key="k, s"), "no column ' s'.*don't put", id="blank in names"),
        pytest.param(schema("k d", "d", bucket="2", bucket_key="d"), "d is a partition column", id="partition column"),
        pytest.param(schema("k", bucket="2", bucket_key="s"), r"s is not in the primary key \(k\)", id="value column"),
        pytest.param(schema(bucket="2", bucket_key="tags"), "tags ARRAY<STRING> can't be in", id="array"),
        pytest.param(schema("k blob", bucket="2"), "blob BLOB can't be in", id="blob as primary key"),
        pytest.param(schema("k", bucket="2", function="rand"), "expected one of default, mod, hive", id="function"),
        pytest.param(schema("s", bucket="2", function="mod"), r"the bucket key is \(STRING\)", id="mod of text"),
    ],
)
def test_contradictory_options_are_refused(table: TableSchema, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        Bucketing.of(table, table.options)


def test_an_append_table_with_one_bucket_and_no_key_opens_but_is_not_created() -> None:
    old = schema(bucket="1")
    assert Bucketing.of(old, old.options).key_columns == ()
    with pytest.raises(BadInput, match="bucket = 1 on a table without primary key needs bucket-key"):
        check_new_table(old, old.options)
    new = schema(bucket="1", bucket_key="k")
    check_new_table(new, new.options)


def test_a_partition_may_have_another_bucket_count_than_the_option() -> None:
    table = schema("k", bucket="4", function="mod")
    bucketing = Bucketing.of(table, table.options)
    keys = [pa.array([5, -1, 12])]
    assert bucketing.bucket_ids(keys).tolist() == [1, 3, 0]
    assert bucketing.bucket_ids(keys, num_buckets=7).tolist() == [5, 6, 5]
    assert bucketing.bucket_ids(keys, num_buckets=1).tolist() == [0, 0, 0]
    with pytest.raises(ValueError, match="number of buckets must be 1 or more, not 0"):
        bucketing.bucket_ids(keys, num_buckets=0)
