from __future__ import annotations

import struct
from decimal import Decimal
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.support.case_values import column_of, top_level_parts
from tests.support.cases import Case, case_id, check_members, vectors
from tests.support.levels import examples
from tests.support.row_kinds import row_kind_of
from tests.support.row_values import case_columns, case_types
from tests.support.value_text import read_value
from tidelake.errors import BadInput, UnsupportedFeature
from tidelake.storage.model.binary_row import (
    decode_rows,
    encode_rows,
    hash_bytes,
    hash_rows,
    hashing,
    serialize,
    serialize_row,
    serialize_rows,
)
from tidelake.storage.model.binary_row.hashing import _PART_HALVES, _VECTOR_ROWS_MIN
from tidelake.storage.model.format import RowKind
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
    TIMESTAMP_ROOTS,
    TINYINT,
    ArrayType,
    AtomicType,
    DataField,
    DataType,
    MapType,
    MultisetType,
    Root,
    RowType,
    VectorType,
    arrow_type,
    decimal,
    parse_type,
    timestamp,
    timestamp_ltz,
)

# ---------------------------------------------------------------- vectors


BINARY_ROW_MEMBERS = {
    *("types", "values", "row_hex", "serialized_hex", "hash", "bucket"),
    *("pypaimon_same", "pypaimon_serialized_hex", "pypaimon_bucket"),
}


@pytest.mark.parametrize("case", vectors("binary_row"), ids=case_id)
def test_rows_have_the_same_bytes_and_hash_as_in_java(case: Case) -> None:
    check_members(case, BINARY_ROW_MEMBERS)
    columns, types = case_columns(case), case_types(case)
    assert encode_rows(columns, types)[0].as_py().hex() == case["row_hex"]
    assert serialize_rows(columns, types)[0].hex() == case["serialized_hex"]
    assert hash_rows(columns, types).tolist() == [case["hash"]]


@pytest.mark.parametrize("case", vectors("binary_row"), ids=case_id)
def test_rows_of_java_are_decoded(case: Case) -> None:
    types = case_types(case)
    decoded = decode_rows([bytes.fromhex(case["serialized_hex"])], types, out_of_range="null")
    for column, given_column, data_type in zip(decoded, case_columns(case), types, strict=True):
        assert column.type == arrow_type(data_type)
        if column.null_count > given_column.null_count:
            assert not 1678 <= given_column[0].as_py().year <= 2261  # beyond Arrow's nanoseconds
        else:
            if data_type.root in TIMESTAMP_ROOTS:  # some cases have digits that their type has no place for
                given_column = pc.floor_temporal(given_column, unit=UNITS[column.type.unit])
            assert column.equals(given_column.cast(column.type))


UNITS = {"s": "second", "ms": "millisecond", "us": "microsecond", "ns": "nanosecond"}


@pytest.mark.parametrize("case", vectors("complex_types"), ids=case_id)
def test_nested_values_have_the_same_bytes_as_in_java(case: Case) -> None:
    check_members(case, {"types", "value", "array_hex", "row_hex", "hash"})
    types, is_row = types_in(case["types"]), case["types"].startswith("[")
    value, remark = read_value(case["value"])
    kind = row_kind_of(remark.removeprefix("with RowKind ")) if "RowKind" in remark else RowKind.INSERT
    columns = [column_of([v], t) for v, t in zip(value if is_row else [value], types, strict=True)]
    row: bytes = encode_rows(columns, types, kind)[0].as_py()
    if "array_hex" in case:
        assert row[16:].hex() == case["array_hex"]
        assert int.from_bytes(row[8:16], "little") == (16 << 32) + len(row) - 16
    if "row_hex" in case:
        assert row.hex() == case["row_hex"]
    if "hash" in case:
        assert naive_hash(row) == case["hash"]
    decoded = decode_rows([serialize(row, len(types))], types)
    assert [column.to_pylist() for column in decoded] == [column.to_pylist() for column in columns]


def types_in(text: str) -> list[DataType]:
    """`[INT, ARRAY<INT>]`: those of a row's columns. `ARRAY<INT>`: of a value alone."""
    return [parse_type(t) for t in top_level_parts(text.removeprefix("[").removesuffix("]"))]


# ---------------------------------------------------------------- a naive reference


def naive_hash(row: bytes, size: int | None = None) -> int:
    """Murmur3, one row and one word at a time. size: the length that is mixed in at the end, if it is another."""
    mask = 0xFFFFFFFF
    h = 42
    for (word,) in struct.iter_unpack("<I", row):
        k = word * 0xCC9E2D51 & mask
        h ^= ((k << 15 | k >> 17) & mask) * 0x1B873593 & mask
        h = (h << 13 | h >> 19) & mask
        h = (h * 5 + 0xE6546B64) & mask
    h ^= len(row) if size is None else size
    h = (h ^ h >> 16) * 0x85EBCA6B & mask
    h = (h ^ h >> 13) * 0xC2B2AE35 & mask
    h ^= h >> 16
    return h - (1 << 32) if h >> 31 else h


# ---------------------------------------------------------------- any columns

SCALAR_TYPES: list[DataType] = [
    BOOLEAN,
    TINYINT,
    SMALLINT,
    INT,
    BIGINT,
    FLOAT,
    DOUBLE,
    DATE,
    STRING,
    BYTES,
    AtomicType(Root.CHAR, length=5),
    AtomicType(Root.BINARY, length=9),
    AtomicType(Root.BLOB),
    AtomicType(Root.TIME, precision=3),
    decimal(1, 0),
    decimal(18, 4),
    decimal(19, 0),
    decimal(38, 20),
    *(make(precision) for make in (timestamp, timestamp_ltz) for precision in (0, 3, 6, 9)),
]


def nested_in(inner: st.SearchStrategy[DataType]) -> st.SearchStrategy[DataType]:
    return st.one_of(
        inner.map(ArrayType),
        st.builds(MapType, st.sampled_from([STRING, INT, decimal(20, 2)]), inner),
        st.just(MultisetType(STRING)),
        st.just(VectorType(FLOAT, 3)),
        st.just(AtomicType(Root.VARIANT)),
        st.lists(inner, max_size=3).map(
            lambda types: RowType(tuple(DataField(i, f"f{i}", t) for i, t in enumerate(types)))
        ),
    )


ANY_TYPE = st.recursive(st.sampled_from(SCALAR_TYPES), nested_in, max_leaves=4)


def values_of(data_type: DataType) -> st.SearchStrategy[Any]:
    """Python values that Arrow takes for the in-memory form, nulls among them."""
    return st.none() | present_values(data_type)


def present_values(data_type: DataType) -> st.SearchStrategy[Any]:
    match data_type:
        case ArrayType(element=element):
            return st.lists(values_of(element), max_size=40)
        case MapType(key=key, value=value):
            return st.lists(st.tuples(present_values(key), values_of(value)), max_size=4)
        case MultisetType(element=element):
            return st.lists(st.tuples(present_values(element), signed(32)), max_size=4)
        case VectorType(element=element, length=length):
            return st.lists(present_values(element), min_size=length, max_size=length)
        case RowType(fields=fields):
            return st.fixed_dictionaries({f.name: values_of(f.type) for f in fields})
        case AtomicType(root=Root.DECIMAL, precision=precision, scale=scale):
            largest = 10**precision - 1
            return st.integers(-largest, largest).map(lambda n: Decimal((n < 0, tuple(map(int, str(abs(n)))), -scale)))
    match data_type.root:
        case Root.BOOLEAN:
            return st.booleans()
        case Root.TINYINT:
            return signed(8)
        case Root.SMALLINT:
            return signed(16)
        case Root.INT | Root.DATE:
            return signed(32)
        case Root.BIGINT:
            return signed(64)
        case Root.TIMESTAMP | Root.TIMESTAMP_LTZ:
            seconds = arrow_type(data_type).unit == "s"
            return signed(64).map(lambda n: n // 1001 if seconds else n)
        case Root.TIME:
            return st.integers(0, 86_399_999)
        case Root.FLOAT:
            return st.floats(width=32)
        case Root.DOUBLE:
            return st.floats()
        case Root.CHAR | Root.VARCHAR:
            return st.text(max_size=30)
        case Root.VARIANT:
            return st.fixed_dictionaries({"value": st.binary(max_size=20), "metadata": st.binary(max_size=20)})
        case _:
            return st.binary(max_size=30)


def signed(bits: int) -> st.SearchStrategy[int]:
    limit = 1 << (bits - 1)
    edges = st.sampled_from([0, -1, 1, limit - 1, -limit])
    return edges | st.integers(-limit, limit - 1)


Table: TypeAlias = tuple[list[pa.Array], list[DataType]]


@st.composite
def tables(draw: st.DrawFn, min_rows: int = 0) -> Table:
    types = draw(st.lists(ANY_TYPE, min_size=1, max_size=5))
    rows = draw(st.integers(min_rows, 12))
    values = [draw(st.lists(values_of(t), min_size=rows, max_size=rows)) for t in types]
    return [pa.array(v, arrow_type(t)) for v, t in zip(values, types, strict=True)], types


@given(tables())
def test_decoding_undoes_encoding(table: Table) -> None:
    columns, types = table
    decoded = decode_rows(serialize_rows(columns, types), types)
    for column, back, data_type in zip(columns, decoded, types, strict=True):
        back.validate(full=True)
        assert back.type == arrow_type(data_type)
        assert bits(back) == bits(column)


def bits(column: pa.Array) -> list[Any]:
    """Values that compare by their bits: NaN equals NaN, -0.0 is not 0.0, times are numbers."""
    kind = column.type
    if pa.types.is_floating(kind):
        return [None if v is None else struct.pack("<d", v) for v in column.to_pylist()]
    if pa.types.is_temporal(kind):
        column = column.view(f"int{kind.bit_width}")
    if pa.types.is_struct(kind):
        parts = [bits(column.field(i)) for i in range(kind.num_fields)]
        return [[part[i] for part in parts] if scalar.is_valid else None for i, scalar in enumerate(column)]
    if pa.types.is_nested(kind):
        return [bits(scalar.values) if scalar.is_valid else None for scalar in column]
    values: list[Any] = column.to_pylist()
    return values


@given(tables())
def test_hashes_are_those_of_the_encoded_rows(table: Table) -> None:
    columns, types = table
    rows = encode_rows(columns, types).to_pylist()
    assert hash_rows(columns, types).tolist() == [naive_hash(row) for row in rows]
    assert hash_rows(columns, types).dtype == np.int32


@settings(max_examples=examples(60))
@given(st.data())
def test_hashes_of_long_values_among_short_ones_are_those_of_the_encoded_rows(data: st.DataObject) -> None:
    """Many rows are hashed at once, and the rest of the few long ones part by part: each row meets both."""
    rows = data.draw(st.sampled_from([1, 2, _VECTOR_ROWS_MIN - 1, _VECTOR_ROWS_MIN, _VECTOR_ROWS_MIN + 3]))
    lengths = st.integers(0, 70) | st.sampled_from([4 * _PART_HALVES + n for n in (-9, -8, -1, 0, 1, 4, 7, 8)])
    short = data.draw(st.lists(st.integers(0, 40), min_size=rows, max_size=rows))
    for place in data.draw(st.lists(st.integers(0, rows - 1), max_size=3)):
        short[place] = data.draw(lengths)
    pattern = bytes(range(256)) * (1 + max(short) // 256)
    values = [None if n == 13 else pattern[-n:] if n else b"" for n in short]
    columns = [pa.array(values, pa.binary()), pa.array(range(rows), pa.int32()), pa.array(values[::-1], pa.binary())]
    types = [BYTES, INT, BYTES]
    encoded = encode_rows(columns, types).to_pylist()
    assert hash_rows(columns, types).tolist() == [naive_hash(row) for row in encoded]
    texts = [pa.array([v for v in values if v is not None], pa.binary())]
    assert hash_bytes(texts[0]).tolist() == [naive_text_hash(v) for v in texts[0].to_pylist()]


def naive_text_hash(text: bytes) -> int:
    """Java's hash of a text: murmur3 of its words, then of its last bytes, each as a signed word."""
    whole = len(text) // 4 * 4
    words = text[:whole] + b"".join(
        int.from_bytes([b], signed=True).to_bytes(4, "little", signed=True) for b in text[whole:]
    )
    return naive_hash(words, len(text))


def test_the_hash_of_a_long_key_costs_what_its_bytes_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call of NumPy for each word of a key of 1 MB took 36 seconds. Now it has some calls for 256 KiB."""
    calls: list[int] = []
    scrambled = hashing._scrambled

    def counted(half: NDArray[np.uint32]) -> NDArray[np.uint32]:
        calls.append(len(half))
        return scrambled(half)

    monkeypatch.setattr(hashing, "_scrambled", counted)
    hash_rows([pa.array(["k" * 1_000_000] + ["short"] * 1_000)], [STRING])
    assert len(calls) < 300
    assert sum(calls) < 2 * (1_000_000 + 1_000 * 16) / 4


@given(tables(min_rows=2), st.data())
def test_rows_are_encoded_the_same_alone_in_slices_and_in_chunks(table: Table, data: st.DataObject) -> None:
    columns, types = table
    rows = encode_rows(columns, types).to_pylist()
    alone = [encode_rows([column.slice(i, 1) for column in columns], types)[0].as_py() for i in range(len(rows))]
    assert alone == rows

    start = data.draw(st.integers(0, len(rows)))
    length = data.draw(st.integers(0, len(rows) - start))
    slices = [column.slice(start, length) for column in columns]
    assert encode_rows(slices, types).to_pylist() == rows[start : start + length]
    assert hash_rows(slices, types).tolist() == hash_rows(columns, types).tolist()[start : start + length]

    chunked = [pa.chunked_array([c.slice(0, start), c.slice(start)]) for c in columns]
    assert encode_rows(chunked, types).to_pylist() == rows
    assert hash_rows(chunked, types).tolist() == hash_rows(columns, types).tolist()


# ---------------------------------------------------------------- what is special


@pytest.mark.parametrize("data_type", SCALAR_TYPES, ids=str)
def test_zero_rows_are_encoded(data_type: DataType) -> None:
    nothing = pa.array([], arrow_type(data_type))
    for column in (nothing, pa.chunked_array([], arrow_type(data_type))):
        assert encode_rows([column], [data_type]).to_pylist() == []
        assert hash_rows([column], [data_type]).tolist() == []
    assert decode_rows([], [data_type]) == [nothing]


def test_a_row_without_fields_is_twelve_zero_bytes_in_manifests() -> None:
    assert serialize_row([], []) == bytes(12)
    assert decode_rows([bytes(12), bytes(12)], []) == []


def test_one_row_of_python_values_is_the_row_of_the_columns() -> None:
    types = [INT, STRING, decimal(20, 2)]
    columns = [pa.array([7], pa.int32()), pa.array(["longer than seven"]), pa.array([None], pa.decimal128(20, 2))]
    assert serialize_row([7, "longer than seven", None], types) == serialize_rows(columns, types)[0]
    assert serialize_row([column[0] for column in columns], types) == serialize_rows(columns, types)[0]


def test_bytes_under_a_null_are_not_written() -> None:
    text = pa.array(["left over from a longer value", "b"])
    masked = pa.Array.from_buffers(pa.string(), 2, [pa.py_buffer(b"\x02"), *text.buffers()[1:]])
    assert masked.to_pylist() == [None, "b"]
    assert encode_rows([masked], [STRING]).equals(encode_rows([pa.array([None, "b"], pa.string())], [STRING]))
    number = pa.Array.from_buffers(pa.int64(), 2, [pa.py_buffer(b"\x02"), pa.array([5, 6], pa.int64()).buffers()[1]])
    assert hash_rows([number], [BIGINT]).tolist() == hash_rows([pa.array([None, 6], pa.int64())], [BIGINT]).tolist()


def test_large_strings_have_the_same_rows_as_strings() -> None:
    text = pa.array(["a", None, "longer than seven"])
    assert encode_rows([text.cast(pa.large_string())], [STRING]).equals(encode_rows([text], [STRING]))


def test_many_blocks_hash_as_one() -> None:
    keys = pa.array(range(100_000), pa.int64())
    names = pa.array([f"{'x' * (i % 40)}{i}" for i in range(100_000)])
    hashes = hash_rows([keys, names], [BIGINT, STRING])
    picked = [0, 1, 16_383, 16_384, 99_999]
    rows = encode_rows([keys.take(picked), names.take(picked)], [BIGINT, STRING])
    assert hashes[picked].tolist() == [naive_hash(row) for row in rows.to_pylist()]


@pytest.mark.parametrize(
    ("columns", "types", "message"),
    [
        pytest.param([], [], "as many columns", id="no columns"),
        pytest.param([pa.array([1])], [INT, INT], "2 fields need as many columns", id="too few columns"),
        pytest.param(
            [pa.array([1]), pa.array([1, 2])], [BIGINT, BIGINT], "of 1, 2 rows", id="columns of unlike length"
        ),
        pytest.param([pa.array([1])], [INT], "int64 can't be read as INT; cast it to int32", id="wider integer"),
        pytest.param([pa.array([1])], [STRING], "int64 can't be read as STRING", id="number for a string"),
        pytest.param(
            [pa.array([Decimal("1.5")], pa.decimal128(10, 3))],
            [decimal(10, 2)],
            r"decimal128\(10, 3\) can't be read as DECIMAL\(10, 2\)",
            id="decimal of another scale",
        ),
        pytest.param(
            [pa.array([2**60], pa.timestamp("s"))], [timestamp(0)], "64 bits of milliseconds", id="far future"
        ),
    ],
)
def test_columns_of_another_arrow_type_are_refused(
    columns: list[pa.Array], types: list[DataType], message: str
) -> None:
    with pytest.raises(BadInput, match=message):
        encode_rows(columns, types)
    with pytest.raises(BadInput, match=message):
        hash_rows(columns, types)


# ---------------------------------------------------------------- reading what others wrote


def test_nulls_without_reserved_space_read_the_same_as_nulls_with_it() -> None:
    types = [timestamp(6), decimal(38, 9), STRING]
    by_java = serialize_row([None, None, "longer than seven"], types)
    text = b"longer than seven".ljust(24, b"\0")
    by_pypaimon = serialize(b"\0\x03".ljust(24, b"\0") + struct.pack("<II", 17, 32) + text, 3)
    assert len(by_java) == len(by_pypaimon) + 24
    for row in (by_java, by_pypaimon):
        assert [column.to_pylist() for column in decode_rows([row], types)] == [[None], [None], ["longer than seven"]]


def test_a_timestamp_beyond_nanoseconds_is_an_error_or_null_never_another_time() -> None:
    columns = [pa.array([-1, 253402300799999999, None], pa.timestamp("us"))]
    rows = serialize_rows(columns, [timestamp(9)])
    with pytest.raises(UnsupportedFeature, match=r"TIMESTAMP\(9\) value 253402300799999 ms after 1970"):
        decode_rows(rows, [timestamp(9)])
    (decoded,) = decode_rows(rows, [timestamp(9)], out_of_range="null")
    assert decoded.cast(pa.int64()).to_pylist() == [-1000, None, None]


@pytest.mark.parametrize(
    ("row", "types", "message"),
    [
        pytest.param(bytes(19), [INT], "at least 20 bytes, found one of 19", id="cut short"),
        pytest.param(serialize(bytes(16), 2), [INT], "expected rows of 1 fields, found one of 2", id="other arity"),
        pytest.param(
            serialize(bytes(24), 1), [INT, INT], "expected rows of 2 fields, found one of 1", id="fewer fields"
        ),
        pytest.param(
            serialize(bytes(8) + struct.pack("<II", 9, 16) + bytes(8), 1),
            [STRING],
            "points outside of its row",
            id="string longer than the row",
        ),
        pytest.param(
            serialize(bytes(8) + struct.pack("<II", 0, 24) + bytes(8), 1),
            [timestamp(6)],
            "points outside of its row",
            id="timestamp behind the row",
        ),
        pytest.param(
            serialize(bytes(8) + struct.pack("<II", 17, 16) + bytes(24), 1),
            [decimal(38, 0)],
            r"takes 17 bytes, more than DECIMAL\(38, 0\) needs",
            id="decimal too long",
        ),
        pytest.param(serialize_row([b"\xff\xfe"], [BYTES]), [STRING], "[Uu][Tt][Ff]", id="not UTF-8"),
    ],
)
def test_broken_rows_are_refused(row: bytes, types: list[DataType], message: str) -> None:
    good = serialize_row([None] * len(types), types)
    with pytest.raises(ValueError, match=message):
        decode_rows([good, row, good], types)


@given(tables(min_rows=1), st.data())
def test_a_damaged_row_is_refused_or_read_without_other_errors(table: Table, data: st.DataObject) -> None:
    columns, types = table
    rows = serialize_rows(columns, types)
    damaged = bytearray(rows[-1])
    for position in data.draw(st.lists(st.integers(4, len(damaged) - 1), max_size=4)):
        damaged[position] = data.draw(st.integers(0, 255))
    rows[-1] = bytes(damaged)
    try:
        decoded = decode_rows(rows, types, out_of_range="null")
    except ValueError:
        return
    for column, back in zip(columns, decoded, strict=True):
        assert bits(back)[:-1] == bits(column)[:-1]
