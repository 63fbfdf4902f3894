"""Records in Protobuf with a schema in a registry: types, presence, references, bytes that are no record.

Records are written by Google's library. `confluent.json` has records and schemas of Confluent's serializer for Python.
"""

from __future__ import annotations

import json
import math
import sys
from base64 import b64decode
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from google.protobuf.message_factory import GetMessageClass
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.ingest.formats.debezium.changes import Record, batch_of, orders
from tests.support.levels import examples
from tests.support.schema_registry import SchemaRegistryServer, schema_registry
from tidelake.errors import BadInput, TableNotInferred
from tidelake.ingest.formats.base import Decoder, FailureKind, Format
from tidelake.ingest.formats.protobuf.schema_files import compiled
from tidelake.ingest.formats.registry import open_format
from tidelake.storage.model.format import KIND_COLUMN

SCHEMA: Final = """
syntax = "proto3";
package shop.v1;
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/wrappers.proto";
import "confluent/meta.proto";
import "shop/money.proto";

message Header { string unused = 1; }
message Order {
  message Line { string sku = 1; uint32 count = 2; }
  message Tree { int32 v = 1; repeated Tree children = 2; }
  enum Color { RED = 0; GREEN = 1; }
  int64 id = 1;
  string name = 2 [json_name = "NAME", (confluent.field_meta).doc = "the name"];
  oneof pay { string card = 3; int32 cash = 4; }
  map<string, int32> counts = 5;
  repeated double numbers = 6;
  optional uint64 big = 7;
  google.protobuf.Timestamp at = 8;
  Color color = 9;
  Line line = 10;
  repeated Line lines = 11;
  fixed32 u32 = 12;
  bytes raw = 13;
  float f = 14;
  bool ok = 15;
  google.protobuf.Int64Value boxed = 16;
  google.protobuf.Duration took = 17;
  google.protobuf.Struct free = 18;
  Money price = 19;
  Tree tree = 20;
  sint32 delta = 21;
  map<int64, string> by_number = 22;
  double d = 23;
}
"""
MONEY: Final = """
syntax = "proto3";
package shop.v1;
import "shop/currency.proto";
message Money { int64 units = 1; Currency currency = 2; }
"""
CURRENCY: Final = 'syntax = "proto3"; package shop.v1; enum Currency { EUR = 0; USD = 1; }'
TYPES: Final = {
    "id": "BIGINT",
    "name": "STRING",
    "card": "STRING",
    "cash": "INT",
    "counts": "MAP<STRING NOT NULL, INT>",
    "numbers": "ARRAY<DOUBLE>",
    "big": "DECIMAL(20, 0)",
    "at": "TIMESTAMP(6) WITH LOCAL TIME ZONE",
    "color": "STRING",
    "line": "STRING",
    "lines": "ARRAY<STRING>",
    "u32": "BIGINT",
    "raw": "BYTES",
    "f": "FLOAT",
    "ok": "BOOLEAN",
    "boxed": "BIGINT",
    "took": "STRING",
    "free": "STRING",
    "price": "STRING",
    "tree": "STRING",
    "delta": "INT",
    "by_number": "MAP<BIGINT NOT NULL, STRING>",
    "d": "DOUBLE",
}
PATH: Final = b"\x02\x02"  # one index: the second message of the file


@pytest.fixture
def registry() -> Iterator[SchemaRegistryServer]:
    with schema_registry() as server:
        server.schemas = {"7": SCHEMA, "8": MONEY, "9": CURRENCY}
        server.types = dict.fromkeys(server.schemas, "PROTOBUF")
        server.subjects = {"money": ["8"], "currency": ["9"]}
        server.references = {
            "7": [{"name": "shop/money.proto", "subject": "money", "version": 1}],
            "8": [{"name": "shop/currency.proto", "subject": "currency", "version": 1}],
        }
        yield server


def opened(registry: SchemaRegistryServer, **more: Any) -> Format:
    return open_format("protobuf", {"schema_registry_url": registry.url, **more})


def message(schema: str = SCHEMA, path: tuple[int, ...] = (1,)) -> Any:
    """The class of a message, as a producer has it."""
    return GetMessageClass(compiled(schema, {"shop/money.proto": MONEY, "shop/currency.proto": CURRENCY}).message(path))


def framed(data: bytes, id_: int = 7, path: bytes = PATH) -> bytes:
    return b"\0" + id_.to_bytes(4, "big") + path + data


def read(format_: Format, columns: Mapping[str, str], *values: bytes, **target: Any) -> tuple[list[Any], Any]:
    batch = batch_of([Record(None, value) for value in values])
    result = format_.decoder(lambda _: orders(dict(columns), **target)).decode(batch)
    return _rows(result), result


def _rows(result: Any) -> list[Any]:
    found = []
    for table in result.tables:
        found += table.rows.drop_columns([KIND_COLUMN]).to_pylist()
    return found


def inferred(registry: SchemaRegistryServer, value: bytes) -> dict[str, str]:
    found = opened(registry).infer_table(batch_of([Record(None, value)]), 0)
    return {f.name: str(f.type) for f in found.fields}


def full() -> Any:
    order = message()(id=-7, name="ä\0😀", cash=5, big=2**64 - 1, color=1, u32=2**32 - 1, raw=b"\0\xff", f=0.1, ok=True)
    order.counts.update({"b": 2, "a": -1})
    order.numbers.extend([1.5, math.inf, math.nan])
    order.at.seconds, order.at.nanos = 1_700_000_000, 123_456_000
    order.line.sku = "x"
    order.lines.add(sku="y", count=3)
    order.boxed.value = 0
    order.took.seconds, order.took.nanos = -1, -500_000_000
    order.free.fields["k"].list_value.values.add().null_value = 0
    order.price.units, order.price.currency = 12, 1
    order.tree.v = 1
    order.tree.children.add(v=2).children.add(v=3)
    order.delta, order.d = -3, -0.0
    order.by_number[-5] = "five"
    return order


_FULL: Final = full().SerializeToString()


def test_a_table_is_derived_from_the_schema(registry: SchemaRegistryServer) -> None:
    assert inferred(registry, framed(message()().SerializeToString())) == TYPES


def test_each_type_has_its_value(registry: SchemaRegistryServer) -> None:
    ((row,), result) = read(opened(registry), TYPES, framed(full().SerializeToString()))
    assert not result.failures
    numbers = row.pop("numbers")
    assert (numbers[:2], math.isnan(numbers[2])) == ([1.5, math.inf], True)
    found = {name: str(value) if name in ("big", "at") else value for name, value in row.items()}
    assert found == {
        "id": -7,
        "name": "ä\0😀",
        "card": None,  # the other member of the oneof
        "cash": 5,
        "counts": [("a", -1), ("b", 2)],
        "big": str(2**64 - 1),
        "at": "2023-11-14 22:13:20.123456+00:00",
        "color": "GREEN",
        "line": '{"sku":"x","count":0}',
        "lines": ['{"sku":"y","count":3}'],
        "u32": 2**32 - 1,
        "raw": b"\0\xff",
        "f": pytest.approx(0.1),
        "ok": True,
        "boxed": 0,
        "took": "-1.5s",
        "free": '{"k":[null]}',
        "price": '{"units":12,"currency":"USD"}',
        "tree": '{"v":1,"children":[{"v":2,"children":[{"v":3}]}]}',
        "delta": -3,
        "by_number": [(-5, "five")],
        "d": -0.0,
    }


def test_fields_with_presence_are_null_and_others_have_their_default(registry: SchemaRegistryServer) -> None:
    ((row,), _) = read(opened(registry), TYPES, framed(b""))
    nothing = {name for name, value in row.items() if value is None}
    assert nothing == {"card", "cash", "big", "at", "line", "boxed", "took", "free", "price", "tree"}
    assert (row["id"], row["name"], row["color"], row["ok"]) == (0, "", "RED", False)
    assert (row["counts"], row["numbers"], row["lines"]) == ([], [], [])


def test_a_member_of_a_oneof_that_is_set_to_its_default_is_not_null(registry: SchemaRegistryServer) -> None:
    rows, _ = read(
        opened(registry),
        TYPES,
        *(framed(message()(**{m: v}).SerializeToString()) for m, v in (("card", ""), ("cash", 0))),
    )
    assert [(row["card"], row["cash"]) for row in rows] == [("", None), (None, 0)]


def test_the_number_of_an_enum_that_has_no_name_is_its_digits(registry: SchemaRegistryServer) -> None:
    rows, _ = read(opened(registry), TYPES, framed(b"\x48\x2a"))
    assert [row["color"] for row in rows] == ["42"]


def test_a_message_can_be_a_row_and_nested_types_are_found_by_their_path(registry: SchemaRegistryServer) -> None:
    columns = {"line": "ROW<sku STRING, count BIGINT>", "lines": "ARRAY<ROW<sku STRING, count BIGINT>>"}
    ((row,), result) = read(opened(registry), {**TYPES, **columns}, framed(full().SerializeToString()))
    assert not result.failures
    assert row["line"] == {"sku": "x", "count": 0}
    assert row["lines"] == [{"sku": "y", "count": 3}]
    line = message(path=(1, 0))(sku="z", count=1).SerializeToString()
    rows, _ = read(
        opened(registry), {"sku": "STRING", "count": "BIGINT"}, framed(line, path=b"\x04\x02\x00"), primary_key=()
    )
    assert [(row["sku"], row["count"]) for row in rows] == [("z", 1)]


def test_the_first_message_of_a_file_may_be_named_by_one_zero(registry: SchemaRegistryServer) -> None:
    header = message(path=(0,))(unused="h").SerializeToString()
    for path in (b"\0", b"\x02\x00"):
        rows, _ = read(opened(registry), {"unused": "STRING"}, framed(header, path=path), primary_key=())
        assert [row["unused"] for row in rows] == ["h"]


def test_a_field_of_a_new_schema_is_a_column_that_the_table_needs(registry: SchemaRegistryServer) -> None:
    newer = CURRENCY.replace("enum", "message Row { int64 id = 1; uint64 added = 2; } enum")
    registry.schemas["10"], registry.types["10"] = newer, "PROTOBUF"
    row = message(newer, (0,))(id=1, added=5)
    _, result = read(opened(registry), {"id": "BIGINT"}, framed(row.SerializeToString(), 10, b"\0"))
    (failure,) = result.failures
    assert failure.kind is FailureKind.UNKNOWN_COLUMN
    assert [(column.path, str(column.type)) for column in failure.needed] == [(("added",), "DECIMAL(20, 0)")]


def test_nanoseconds_need_a_wider_column_or_are_rounded_on_request(registry: SchemaRegistryServer) -> None:
    order = message()()
    order.at.seconds, order.at.nanos = 1, 123_456_789
    value = framed(order.SerializeToString())
    _, result = read(opened(registry), TYPES, value)
    assert [failure.kind for failure in result.failures] == [FailureKind.NARROW_COLUMN]
    rows, result = read(opened(registry, inexact_values="round"), TYPES, value)
    assert not result.failures
    assert str(rows[0]["at"]) == "1970-01-01 00:00:01.123456+00:00"


def test_a_text_like_debeziums_placeholder_is_a_text(registry: SchemaRegistryServer) -> None:
    value = framed(message()(name="__debezium_unavailable_value").SerializeToString())
    rows, result = read(opened(registry), TYPES, value)
    assert rows[0]["name"] == "__debezium_unavailable_value"
    assert result.tables[0].unavailable is None


RECORDED: Final = json.loads((Path(__file__).parent / "confluent.json").read_text(encoding="utf-8"))
_OF_CONFLUENT: Final[list[dict[str, Any]]] = [
    {"id": 1, "note": "ä", "card": "visa", "cash": None, "tags": ["x", "y"], "counts": [("k", -1)], "big": 2**64 - 1},
    {"id": 2, "note": None, "card": None, "cash": '{"units":5,"currency":"EUR"}', "tags": [], "counts": [], "big": 0},
]


@pytest.mark.parametrize("form", ["schemas", "sources"], ids=["encoded schemas", "source texts"])
def test_records_of_confluents_own_serializer_are_read(registry: SchemaRegistryServer, form: str) -> None:
    """It registers encoded descriptors. A registry may answer with these, or with the source that it makes of them."""
    registry.schemas = {**RECORDED["schemas"], **RECORDED[form]}
    registry.types, registry.references = RECORDED["types"], RECORDED["references"]
    registry.subjects = RECORDED["subjects"]
    values = [b64decode(record["value_base64"]) for record in RECORDED["records"]]
    columns = {name: TYPES[name] for name in ("id", "card", "counts", "big", "at")}
    columns |= {"note": "STRING", "cash": "STRING", "tags": "ARRAY<STRING>"}
    rows, result = read(opened(registry), columns, *values[:2])
    assert not result.failures
    assert [{name: row[name] for name in _OF_CONFLUENT[0]} for row in rows] == _OF_CONFLUENT
    assert [None if row["at"] is None else row["at"].timestamp() for row in rows] == [1_700_000_000, None]
    rows, _ = read(opened(registry), {"name": "STRING"}, values[2], primary_key=())
    assert rows == [{"name": "c"}]
    rows, _ = read(opened(registry), {"sku": "STRING", "count": "BIGINT"}, values[3], primary_key=())
    assert rows == [{"sku": "s", "count": 3}]


PROTO2: Final = """
syntax = "proto2";
message Row {
  required int64 id = 1;
  optional string name = 2 [default = "none"];
  optional Kind kind = 3;
  optional group Part = 4 { optional int32 n = 1; }
  extensions 100 to 199;
  enum Kind { A = 1; B = 2; }
}
extend Row { optional string more = 100; }
"""


def test_proto2_has_null_for_what_is_not_set_and_groups_are_messages(registry: SchemaRegistryServer) -> None:
    registry.schemas["20"], registry.types["20"] = PROTO2, "PROTOBUF"
    columns = {"id": "BIGINT", "name": "STRING", "kind": "STRING", "part": "STRING"}
    assert inferred(registry, framed(b"\x08\x01", 20, b"\0")) == columns
    cases = {
        b"\x08\x01": (1, None, None, None),
        b"\x08\x01\x18\x02": (1, None, "B", None),
        b"\x08\x01\x23\x08\x05\x24": (1, None, None, '{"n":5}'),
    }
    rows, result = read(opened(registry), columns, *(framed(data, 20, b"\0") for data in cases))
    assert not result.failures
    assert [(row["id"], row["name"], row["kind"], row["part"]) for row in rows] == list(cases.values())


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        pytest.param(framed(b"\x10\x01", 20, b"\0"), "not a message of Row", id="a required field is missing"),
        pytest.param(framed(b"\x08\x01\x18\x09", 20, b"\0"), "written with another schema", id="a closed enum"),
        pytest.param(framed(b"\x08\x01\xa2\x06\x01x", 20, b"\0"), "Row has an extension", id="an extension"),
        pytest.param(framed(b"\xff"), "not a message of shop.v1.Order", id="broken bytes"),
        pytest.param(framed(b"\x12\x01\xff"), "not a message of shop.v1.Order", id="a text that is not UTF-8"),
        pytest.param(framed(b"\xf8\x3f\x01"), "written with another schema", id="a field that the schema lacks"),
        pytest.param(framed(b"", path=b"\x02\x7e"), "no message type", id="a message that the file lacks"),
        pytest.param(framed(b"", path=b"\x02"), "before its message indexes", id="nothing after the first index"),
        pytest.param(framed(b"", path=b"\xff\xff\xff\xff\xff\xff"), "more than 32 bits", id="an endless index"),
        pytest.param(framed(b"", 99), "schema registry does not know schema 99", id="an unknown schema"),
        pytest.param(framed(b"", 21), "schema of AVRO, not of Protobuf", id="a schema of Avro"),
        pytest.param(framed(b"", 22), "refuses the schema: .*Expected message name", id="a schema that is none"),
        pytest.param(framed(b"", 23), "gone.proto.* not found", id="an import without a reference"),
        pytest.param(b'{"id": 1}', "begins with 7b .*It looks like|begins with 7b", id="JSON"),
        pytest.param(b"", "begins with nothing", id="nothing"),
        pytest.param(b"\x03\x00" + bytes(20), "AWS Glue", id="the frame of AWS Glue"),
    ],
)
def test_a_record_that_can_not_be_read_is_a_failure_and_others_are_read(
    registry: SchemaRegistryServer, value: bytes, reason: str
) -> None:
    registry.schemas |= {"20": PROTO2, "21": '"string"', "22": "message {", "23": 'import "gone.proto"; message A {}'}
    registry.types |= dict.fromkeys(("20", "22", "23"), "PROTOBUF")
    good = framed(message()(id=1).SerializeToString())
    rows, result = read(opened(registry), {**TYPES, "part": "STRING", "kind": "STRING"}, good, value, good)
    assert [row["id"] for row in rows] == [1, 1]
    (failure,) = result.failures
    assert (failure.row, failure.kind) == (1, FailureKind.BAD_RECORD)
    assert pytest.raises(AssertionError, match=reason).matches(AssertionError(failure.reason)), failure.reason
    assert not result.skipped


def test_a_tombstone_deletes_nothing(registry: SchemaRegistryServer) -> None:
    batch = batch_of([Record(b"k", None), Record(b"k", b"bad")])
    result = opened(registry).decoder(lambda _: orders(TYPES)).decode(batch)
    assert (dict(result.skipped), len(result.failures)) == ({"tombstone": 1}, 1)


def test_no_table_is_derived_from_a_bad_record(registry: SchemaRegistryServer) -> None:
    with pytest.raises(TableNotInferred, match="begins with 7b"):
        inferred(registry, b'{"id":1}')


@pytest.mark.parametrize(
    ("options", "message_"),
    [
        pytest.param({"schema_registry_ulr": "http://r"}, "did you mean 'schema_registry_url'", id="misspelt"),
        pytest.param({"inexact_values": "cut"}, "fail or round", id="a value"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, str], message_: str) -> None:
    with pytest.raises(BadInput, match=message_):
        open_format("protobuf", options)


def test_the_extra_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tidelake.ingest.formats.protobuf.protobuf_decoder", None)
    with pytest.raises(BadInput, match=r"pip install 'tidelake\[protobuf\]'"):
        open_format("protobuf", {"schema_registry_url": "http://r"}).decoder(lambda _: orders(TYPES))


def test_a_registry_is_needed() -> None:
    with pytest.raises(BadInput, match="Protobuf records refer to their schemas by id: set `schema_registry_url`"):
        open_format("protobuf", {}).decoder(lambda _: orders(TYPES))


@pytest.fixture
def decoding(registry: SchemaRegistryServer) -> Decoder:
    target = orders(TYPES)
    return opened(registry).decoder(lambda _: target)


@pytest.fixture
def order() -> Any:
    return message()


@given(st.data())
@settings(max_examples=examples(400), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_mutated_bytes_are_a_row_that_google_reads_as_well_or_a_failure(
    decoding: Decoder, order: Any, data: st.DataObject
) -> None:
    """No byte crashes the decoder, and no row differs from what Google's own parser and printer make of it."""
    octets = bytearray(_FULL)
    for _ in range(data.draw(st.integers(0, 4))):
        at = data.draw(st.integers(0, len(octets) - 1))
        octets[at] = data.draw(st.integers(0, 255))
    del octets[data.draw(st.integers(0, len(octets))) :]
    result = decoding.decode(batch_of([Record(None, framed(bytes(octets)))]))
    rows = _rows(result)
    assert len(rows) + len(result.failures) == 1
    for row in rows:
        parsed = order.FromString(bytes(octets))
        same = ("id", "name", "u32", "raw", "ok", "delta")
        assert [row[name] for name in same] == [getattr(parsed, name) for name in same]
        assert (row["cash"] if parsed.HasField("cash") else row["card"]) == (
            getattr(parsed, parsed.WhichOneof("pay")) if parsed.WhichOneof("pay") else None
        )
        assert (row["big"] is None) == (not parsed.HasField("big"))
        assert row["big"] is None or int(row["big"]) == parsed.big
