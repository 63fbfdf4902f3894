"""Footers are parsed and serialized without loss."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.cases import golden_tables, unpack_golden
from tidelake.storage.files.formats.parquet_footer import MAGIC, binary_as_int96, int96_as_binary
from tidelake.storage.files.formats.thrift import List, Struct, parse, serialize

I32, I64, DOUBLE, BINARY, LIST, STRUCT = 5, 6, 7, 8, 9, 12


def footer_of(path: Path) -> bytes:
    data = path.read_bytes()
    size = int.from_bytes(data[-8:-4], "little")
    return data[-8 - size : -8]


IN_PARQUET = [t for t in golden_tables() if "types" in t.name and not t.name.endswith(("_avro", "_orc"))]


@pytest.mark.parametrize("table", IN_PARQUET, ids=lambda t: t.id)
def test_footers_of_other_writers_are_reproduced_byte_by_byte(table: Any, tmp_path: Path) -> None:
    paths = list(table.unpack(tmp_path).glob("**/*.parquet"))
    assert paths
    for path in paths:
        assert serialize(parse(footer_of(path))) == footer_of(path)


def values(depth: int) -> st.SearchStrategy[tuple[int, Any]]:
    """(kind, value) of a field."""
    plain = [
        st.tuples(st.just(I32), st.integers(-(2**31), 2**31 - 1)),
        st.tuples(st.just(I64), st.integers(-(2**63), 2**63 - 1)),
        st.tuples(st.just(BINARY), st.binary(max_size=300)),
        st.tuples(st.just(DOUBLE), st.binary(min_size=8, max_size=8)),
        st.tuples(st.sampled_from([1, 2]), st.none()),
    ]
    if depth == 0:
        return st.one_of(plain)
    lists = st.tuples(st.just(LIST), st.lists(st.integers(-9, 9), max_size=40).map(lambda items: List(I32, items)))
    rows = st.tuples(
        st.just(LIST), st.lists(structs(depth - 1), max_size=3).map(lambda items: List(STRUCT, list(items)))
    )
    return st.one_of(*plain, lists, rows, st.tuples(st.just(STRUCT), structs(depth - 1)))


def structs(depth: int) -> st.SearchStrategy[Struct]:
    fields = st.dictionaries(st.integers(1, 300), values(depth), max_size=5)
    return fields.map(_struct)


def _struct(fields: dict[int, tuple[int, Any]]) -> Struct:
    struct = Struct()
    for number, (kind, value) in fields.items():
        struct.set(number, kind, value)
    return struct


def plainly(value: Any) -> Any:
    if isinstance(value, Struct):
        return {number: (kind, plainly(inner)) for number, (kind, inner) in value.fields.items()}
    return [value.kind, *map(plainly, value.items)] if isinstance(value, List) and value.items else value


@given(structs(2))
def test_parsing_undoes_serializing(struct: Struct) -> None:
    assert plainly(parse(serialize(struct))) == plainly(struct)


@pytest.mark.parametrize("data", [b"", b"\x15", b"\x18\x7f", b"\x1f", b"not a footer"])
def test_invalid_thrift_structs_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="not a Thrift struct"):
        parse(data)


def test_int96_is_converted_to_binary_and_back(tmp_path: Path) -> None:
    paths = sorted(unpack_golden("java/types_parquet", tmp_path).glob("**/*.parquet"))
    for path in paths:
        changed = int96_as_binary(footer_of(path))
        framed = MAGIC + changed + len(changed).to_bytes(4, "little") + MAGIC
        metadata = pq.read_metadata(pa.BufferReader(framed))
        types = [metadata.schema.column(i).physical_type for i in range(metadata.num_columns)]
        assert types[25:] == ["FIXED_LEN_BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY"]
        assert [metadata.schema.column(i).length for i in (25, 26)] == [12, 12]
        back = parse(binary_as_int96(changed, [25, 26]))
        schema = [plainly(element) for element in back.get(2).items]
        assert schema == [plainly(element) for element in parse(footer_of(path)).get(2).items]
