"""Both readers read records of fastavro with the same values, and refuse invalid bytes."""

from __future__ import annotations

import base64
import json
from io import BytesIO
from typing import Any, Final

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.levels import examples
from tidelake.ingest.formats.avro.framing import VALUE_SCHEMA_HEADER, schema_ids, unframed
from tidelake.ingest.formats.avro.value_reader import read_record, values_as_json
from tidelake.ingest.formats.avro.writer_schema import connect_schema, parse_avro_schema
from tidelake.ingest.formats.values.json_text import BadValue
from tidelake.storage.model.avro.avro_type import AvroType
from tidelake.storage.model.avro.column_reader import ColumnReader

_INT: Final = st.integers(-(2**31), 2**31 - 1)
_LONG: Final = st.one_of(st.integers(-(2**63), 2**63 - 1), st.sampled_from([0, -1, 63, 64, -64, -65, 2**62, -(2**63)]))
_TEXT: Final = st.text(st.characters(codec="utf-8"), max_size=12)
_INNER: Final = {
    "type": "record",
    "name": "Inner",
    "fields": [{"name": "x", "type": "double"}, {"name": "y", "type": ["null", "bytes"]}],
}
# type: (schema, values)
_TYPES: Final[dict[str, tuple[Any, st.SearchStrategy[Any]]]] = {
    "flag": ("boolean", st.booleans()),
    "int": ("int", _INT),
    "long": ("long", _LONG),
    "float": ("float", st.floats(width=32, allow_nan=False)),
    "double": ("double", st.floats(allow_nan=False)),
    "text": ("string", _TEXT),
    "bytes": ("bytes", st.binary(max_size=12)),
    "fixed": ({"type": "fixed", "name": "Fixed", "size": 3}, st.binary(min_size=3, max_size=3)),
    "enum": ({"type": "enum", "name": "Enum", "symbols": ["A", "B"]}, st.sampled_from(["A", "B"])),
    "null": ("null", st.none()),
    "maybe": (["null", "long"], st.none() | _LONG),
    "or_null": (["string", "null"], st.none() | _TEXT),
    "either": (["null", "long", "string"], st.none() | _LONG | _TEXT),
    "texts": ({"type": "array", "items": ["null", "string"]}, st.lists(st.none() | _TEXT, max_size=4)),
    "longs": (["null", {"type": "array", "items": "long"}], st.none() | st.lists(_LONG, max_size=4)),
    "map": ({"type": "map", "values": "int"}, st.dictionaries(_TEXT, _INT, max_size=3)),
    "inner": (["null", _INNER], st.none() | st.fixed_dictionaries({"x": st.floats(allow_nan=False), "y": st.binary()})),
    "inners": (
        {"type": "array", "items": "Inner"},
        st.lists(st.fixed_dictionaries({"x": st.just(1.5), "y": st.none()})),
    ),
}
SCHEMA: Final = {
    "type": "record",
    "name": "Row",
    "fields": [{"name": name, "type": type_} for name, (type_, _) in _TYPES.items()],
}
TYPE: Final = parse_avro_schema(json.dumps(SCHEMA))
_ROWS: Final = st.lists(st.fixed_dictionaries({name: values for name, (_, values) in _TYPES.items()}), min_size=1)


def written(row: Any, schema: Any = SCHEMA) -> bytes:
    out = BytesIO()
    fastavro.schemaless_writer(out, schema, row)
    return out.getvalue()


def as_json(value: Any) -> Any:
    """As Connect's converter writes it."""
    match value:
        case bytes():
            return base64.b64encode(value).decode()
        case float() if value in (float("inf"), float("-inf")):
            return "Infinity" if value > 0 else "-Infinity"
        case dict():
            return {name: as_json(member) for name, member in value.items()}
        case list():
            return [as_json(member) for member in value]
        case _:
            return value


def columns(records: list[bytes], type_: AvroType = TYPE) -> tuple[dict[str, Any], list[bool]]:
    values = pa.array(records, pa.binary())
    cells, read = ColumnReader(type_, {name: {} for name in type_.fields}).read(values, np.arange(len(records)), 0)
    return dict(cells), read.tolist()


@settings(max_examples=examples(200))
@given(_ROWS)
def test_both_readers_read_records_of_fastavro(rows: list[dict[str, Any]]) -> None:
    records = [written(row) for row in rows]
    for row, record in zip(rows, records, strict=True):
        found = {name: json.loads(raw) for name, raw in read_record(record, TYPE).items()}
        row["float"] = found["float"] if np.float32(found["float"]) == np.float32(row["float"]) else row["float"]
        assert found == as_json(row)
    cells, read = columns(records)
    assert all(read)
    for name in _TYPES:
        raws = values_as_json(cells[name])
        assert [None if raw is None else json.loads(raw) for raw in raws] == [as_json(row[name]) for row in rows], name
        array = cells[name].to_arrow()
        if array is not None and name != "float":
            assert array.to_pylist() == [row[name] for row in rows]
    assert cells["texts"].items.to_arrow().to_pylist() == [text for row in rows for text in row["texts"]]
    assert cells["longs"].items.to_arrow().to_pylist() == [n for row in rows for n in row["longs"] or ()]


@settings(max_examples=examples(300))
@given(_ROWS, st.data())
def test_both_readers_refuse_invalid_bytes_in_the_same_way(rows: list[dict[str, Any]], data: Any) -> None:
    records = [written(row) for row in rows]
    for at in range(0, len(records), 2):
        octets = bytearray(records[at])
        for _ in range(data.draw(st.integers(1, 3))):
            place = data.draw(st.integers(0, len(octets) - 1))
            octets[place] = data.draw(st.integers(0, 255))
        cut = data.draw(st.integers(0, len(octets)))
        records[at] = bytes(octets[: cut or None])
    cells, read = columns(records)
    for row, record in enumerate(records):
        try:
            expected = read_record(record, TYPE)
        except BadValue:
            if read[row]:  # only a text that is no UTF-8 is found when it is looked at
                with pytest.raises((BadValue, pa.ArrowInvalid)):
                    for name in _TYPES:
                        cells[name].take(np.array([row])).to_arrow()
                        values_as_json(cells[name].take(np.array([row])))
            continue
        assert read[row]
        for name, raw in expected.items():
            (found,) = values_as_json(cells[name].take(np.array([row])))
            assert (found or b"null") == raw


def test_a_recursive_type_is_read_by_the_row_reader() -> None:
    node = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}
    schema = {"type": "record", "name": "List", "fields": [{"name": "head", "type": ["null", node]}]}
    type_ = parse_avro_schema(json.dumps(schema))
    value: Any = None
    for _ in range(40):
        value = {"next": value}
    record = written({"head": value}, schema)
    assert columns([record, written({"head": None}, schema)], type_)[1] == [False, True]
    assert json.loads(read_record(record, type_)["head"]) == value
    assert connect_schema(type_).type == "struct"


@pytest.mark.parametrize("count", [2**40, -(2**40), -(2**63)], ids=["many", "many in a block with a size", "the least"])
def test_a_block_of_more_items_than_there_are_bytes_is_refused_at_once(count: int) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": {"type": "array", "items": "null"}}]}
    long_ = {"type": "record", "name": "L", "fields": [{"name": "a", "type": "long"}]}
    type_ = parse_avro_schema(json.dumps(schema))
    record = written({"a": count}, long_) + b"\0\0"
    with pytest.raises(BadValue):
        read_record(record, type_)
    cells, read = columns([record], type_)
    if read != [False]:  # a block with a size is passed over at once, and found out when it is looked at
        with pytest.raises(BadValue):
            values_as_json(cells["a"])


def test_the_schema_id_is_read_from_the_prefix_or_a_header() -> None:
    framed, bare, short = b"\0\x01\x02\x03\x04rest", b"rest!", b"\0\0"
    assert schema_ids(pa.array([framed, bare, short], pa.binary()), np.arange(3)).tolist() == [0x01020304, -1, -1]
    assert unframed(framed, (), VALUE_SCHEMA_HEADER) == (0x01020304, b"rest")
    assert unframed(bare, ((VALUE_SCHEMA_HEADER, b"\0\0\0\0\x07"),), VALUE_SCHEMA_HEADER) == (7, bare)
    guid = bytes(range(16))
    found, _ = unframed(bare, ((VALUE_SCHEMA_HEADER, b"\1" + guid),), VALUE_SCHEMA_HEADER)
    assert not isinstance(found, int)
    assert found.bytes == guid
    with pytest.raises(BadValue, match="begins with 72 65 73 74 21, not with a zero byte"):
        unframed(bare, (), VALUE_SCHEMA_HEADER)
    with pytest.raises(BadValue, match="header __value_schema_id: 02 is not the id of a schema"):
        unframed(bare, ((VALUE_SCHEMA_HEADER, b"\2"),), VALUE_SCHEMA_HEADER)


@pytest.mark.parametrize(
    "text",
    ["{", "7", '"nothing"', '{"type": "record"}', '{"type": "record", "name": "R", "fields": [{"name": "a"}]}'],
)
def test_an_invalid_avro_schema_raises(text: str) -> None:
    with pytest.raises(BadValue, match="not a schema of Avro"):
        parse_avro_schema(text)


def test_a_record_with_an_invalid_count_does_not_keep_others_from_being_read() -> None:
    items = {"type": "array", "items": "long"}
    schema = {"type": "record", "name": "R", "fields": [{"name": name, "type": items} for name in "abc"]}
    good = written({"a": [1], "b": list(range(100)), "c": [3]}, schema)
    bad = written({"a": 1_000_000}, {"type": "record", "name": "L", "fields": [{"name": "a", "type": "long"}]}) + good
    cells, read = columns([bad, good, bad], parse_avro_schema(json.dumps(schema)))
    assert read == [False, True, False]
    assert cells["c"].take(np.array([1])).items.to_arrow().to_pylist() == [3]
