"""The recordings as tables: what to create, how to decode, and what the table must hold at the end.

    @pytest.mark.parametrize("recorded", RECORDED_TABLES, ids=lambda recorded: recorded.id)
        ... create recorded.schema with recorded.primary_key, ingest recorded.files, read the table ...
        assert differences(recorded, table) == []

The truth is what the database printed (`expected.json`). UNRECOVERABLE lists, with a reason each, what no consumer
could know from the records; such cells are compared as far as the reason allows, not passed over.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import fastavro
import pyarrow as pa

from tests.support.cases import recorded_bytes, recorded_lines, recorded_topics, recorded_truth, recording
from tests.support.database_text import same_value, timestamp_us
from tests.support.schema_registry import schema_registry

Row = Mapping[str, Any]


@dataclass(frozen=True)
class RecordedTable:
    """One source table of one variant.

    name: as in expected.json, without the schema. topics: those that carry it. truncates: whether op `t` occurs.
    source_types, connector_settings: what the records don't say (`Target.source_types`, `ConnectorSettings`).
    """

    capture: str
    variant: str | None
    name: str
    topics: tuple[str, ...]
    schema: pa.Schema
    primary_key: tuple[str, ...]
    source_types: Mapping[str, str] = field(default_factory=dict)
    connector_settings: Mapping[str, str] = field(default_factory=dict)
    truncates: bool = False

    @property
    def id(self) -> str:
        return "/".join(part for part in (self.capture, self.variant, self.name) if part)

    @property
    def files(self) -> list[Path]:
        found = recorded_topics(self.capture, self.variant)
        return [found[topic] for topic in self.topics]

    @property
    def format(self) -> str:
        return "debezium-avro" if self.variant == "avro" else "debezium-json"

    @property
    def schemas(self) -> Path | None:
        """The registry's schemas, where the records are in Avro."""
        return recording(self.capture, self.variant) / "schemas.json" if self.variant == "avro" else None

    @property
    def truth(self) -> Mapping[str, Any]:
        """`primary_key`, `columns` (name, type, nullable) and `rows` of the source table at the end."""
        tables = recorded_truth(self.capture)["tables"]
        table: Mapping[str, Any] = tables.get(self.name) or tables[f"public.{self.name}"]
        return table


@contextmanager
def format_options_for(recorded: RecordedTable) -> Iterator[dict[str, str]]:
    """`format_options` for its records, beside a schema registry where they need one."""
    with schema_registry(recorded.schemas) as registry:
        of_registry = {} if recorded.schemas is None else {"schema_registry_url": registry.url}
        yield {**recorded.connector_settings, **of_registry}


# ---------------------------------------------------------------- target tables

_US: Final = pa.timestamp("us")
_US_UTC: Final = pa.timestamp("us", "UTC")
_POINT: Final = pa.struct([("x", pa.float64()), ("y", pa.float64()), ("wkb", pa.binary()), ("srid", pa.int32())])


def _schema(columns: Mapping[str, pa.DataType], not_null: Sequence[str]) -> pa.Schema:
    return pa.schema([pa.field(name, kind, name not in not_null) for name, kind in columns.items()])


def _customers(variant: str) -> pa.Schema:
    """Times of day in microseconds don't fit Paimon's TIME: texts where a schema says what they are, else integers.
    Doubles near the end of a decimal's range round out of it, so the variant that sends doubles gets doubles.
    """
    plain, doubles = variant == "json-plain", variant == "json-schema-connect"
    return _schema(
        {
            "id": pa.int64(),
            **dict.fromkeys(("code", "name", "email", "tier"), pa.string()),
            "balance": pa.decimal128(12, 2),
            "score": pa.float64() if doubles else pa.string(),
            "huge": pa.float64() if doubles else pa.decimal128(38, 10),
            "rating": pa.float32(),
            "factor": pa.float64(),
            "active": pa.bool_(),
            "born": pa.date32(),
            "signup": _US,
            "signup_ms": pa.timestamp("ms"),
            "seen": _US_UTC,
            "wakes": pa.int64() if plain else pa.string(),
            "wakes_s": pa.time32("ms"),
            "wakes_tz": pa.string(),
            "patience": pa.string() if variant == "json-schema-numeric" else pa.int64(),
            **dict.fromkeys(("prefs", "raw"), pa.string()),
            "avatar": pa.binary(),
            "tags": pa.list_(pa.string()),
            "nums": pa.list_(pa.int32()),
            "days": pa.list_(pa.date32()),
            "short": pa.int16(),
            "grade": pa.string(),
            "flag": pa.bool_(),
            "mask": pa.string(),
            "loose": pa.string(),
            **dict.fromkeys(("addr", "net", "mac"), pa.string()),
            "spot": _POINT,
            "span": pa.string(),
            "paid": pa.decimal128(19, 2),
            "doc": pa.string(),
            "labels": pa.map_(pa.string(), pa.string()),
            "nick": pa.string(),
        },
        ("id", "code", "name", "tier", "balance"),
    )


_PG_ORDERS: Final = _schema(
    {
        "id": pa.int64(),
        "customer_id": pa.int64(),
        "status": pa.string(),
        "placed_at": _US_UTC,
        "total": pa.decimal128(14, 4),
        "currency": pa.string(),
        "notes": pa.string(),
    },
    ("id", "customer_id", "status", "placed_at", "total", "currency"),
)
_ORDER_ITEMS: Final = _schema(
    {
        "order_id": pa.int64(),
        "line_no": pa.int16(),
        "sku": pa.string(),
        "quantity": pa.int32(),
        "price": pa.decimal128(10, 2),
        "discount": pa.float32(),
    },
    ("order_id", "line_no", "sku", "quantity", "price"),
)
_INVENTORY: Final = _schema(
    {
        "sku": pa.string(),
        "warehouse": pa.string(),
        "quantity": pa.int32(),
        "doc": pa.string(),
        "photo": pa.binary(),
        "attrs": pa.string(),
        "labels": pa.list_(pa.string()),
        "sizes": pa.list_(pa.int32()),
        "changed": _US_UTC,
    },
    ("sku", "warehouse", "quantity", "changed"),
)
_GOODS: Final = _schema(
    {
        "id": pa.int64(),
        "tiny": pa.int8(),
        "tinyu": pa.int16(),
        "flag": pa.int8(),
        "small": pa.int16(),
        "smallu": pa.int32(),
        "medium": pa.int32(),
        "mediumu": pa.int32(),
        "plain": pa.int32(),
        "plainu": pa.int64(),
        "big": pa.int64(),
        "bigu": pa.decimal128(20, 0),
        "zero": pa.int64(),
        "price": pa.decimal128(10, 2),
        "wide": pa.decimal128(38, 10),
        "tally": pa.decimal128(20, 0),
        "f": pa.float32(),
        "d": pa.float64(),
        "onebit": pa.bool_(),
        "bits": pa.string(),
        "day": pa.date32(),
        "at": pa.timestamp("s"),
        "at6": _US,
        "stamp": pa.timestamp("s", "UTC"),
        "stamp3": pa.timestamp("ms", "UTC"),
        "t": pa.int64(),
        "t6": pa.int64(),
        "y": pa.int32(),
        **dict.fromkeys(("c", "v", "txt", "longt"), pa.string()),
        **dict.fromkeys(("b", "vb", "bl"), pa.binary()),
        "js": pa.string(),
        "colour": pa.string(),
        "sizes": pa.list_(pa.string()),
        "latin": pa.string(),
        "spot": _POINT,
    },
    ("id", "flag", "price"),
)
_CLIENTS: Final = _schema(
    {
        "region": pa.string(),
        "no": pa.decimal128(20, 0),
        "name": pa.string(),
        "note": pa.string(),
        "since": pa.date32(),
        "vip": pa.int8(),  # the name of gold_member before it was renamed
        "gold_member": pa.int8(),
        "limit_": pa.decimal128(12, 3),
    },
    ("region", "no", "name"),
)
_CARTS: Final = _schema(
    {
        "cart_id": pa.string(),
        "client_region": pa.string(),
        "client_no": pa.decimal128(20, 0),
        "state": pa.string(),
        "touched": _US_UTC,
        "total": pa.decimal128(18, 6),
        "channel": pa.string(),  # added later, NOT NULL at the source: older rows never say it
    },
    ("cart_id", "state", "touched"),
)
_CART_GOODS: Final = _schema(
    {"cart_id": pa.string(), "good_id": pa.int64(), "n": pa.int32()}, ("cart_id", "good_id", "n")
)
_AUDIT: Final = _schema({"message": pa.string(), "at": pa.timestamp("ms")}, ())
_LATEST: Final = _schema({"id": pa.int32(), "what": pa.string()}, ("id",))
_ORDERS_100K: Final = _schema(
    {
        "order_id": pa.int64(),
        "customer_id": pa.int64(),
        "status": pa.string(),
        "amount": pa.decimal128(12, 2),
        "quantity": pa.int32(),
        "currency": pa.string(),
        "note": pa.string(),
        "paid": pa.bool_(),
        "created": _US,
        "updated": _US_UTC,
    },
    ("order_id", "customer_id", "status", "amount", "quantity", "currency", "paid", "created", "updated"),
)


# ---------------------------------------------------------------- the recordings

_PG_PREFIX: Final = {
    "json-schema": "shopjs",
    "json-schema-numeric": "shopnu",
    "json-schema-connect": "shopco",
    "json-plain": "shoppl",
    "avro": "shopav",
}
_MY_PREFIX: Final = {"json-schema": "myjs", "json-schema-numeric": "mynu", "json-plain": "mypl", "avro": "myav"}


def _pg_shop(variant: str, prefix: str) -> list[RecordedTable]:
    plain = variant == "json-plain"
    settings = {"binary_handling_mode": "hex"} if variant == "json-schema-connect" else {}
    bits = {"mask": "bits(12)", "loose": "bits varying"} if plain else {}

    def table(name: str, schema: pa.Schema, *key: str, source_types: Mapping[str, str]) -> RecordedTable:
        topics = (f"{prefix}.public.{name}",)
        return RecordedTable("pg-shop", variant, name, topics, schema, key, source_types, settings)

    return [
        table("customers", _customers(variant), "id", source_types=bits),
        table("orders", _PG_ORDERS, "id", source_types={}),
        table("order_items", _ORDER_ITEMS, "order_id", "line_no", source_types={}),
        table("inventory", _INVENTORY, "sku", source_types={}),
    ]


def _mysql_shop(variant: str, prefix: str) -> list[RecordedTable]:
    plain = variant == "json-plain"
    precise = variant == "json-schema-numeric"  # bigint.unsigned.handling.mode=precise: as decimals, nothing to mend
    settings = {"binary_handling_mode": "hex"} if plain else {}

    def table(name: str, schema: pa.Schema, *key: str, unsigned: str = "", bits: str = "") -> RecordedTable:
        source_types = {unsigned: "bigint unsigned"} if unsigned and not precise else {}
        source_types |= {bits: "bits(10)"} if bits and plain else {}
        topics = (f"{prefix}.shop.{name}",)
        truncates = name == "audit" and not plain
        return RecordedTable("mysql-shop", variant, name, topics, schema, key, source_types, settings, truncates)

    return [
        table("goods", _GOODS, "id", unsigned="bigu", bits="bits"),
        table("clients", _CLIENTS, "region", "no", unsigned="no"),
        table("carts", _CARTS, "cart_id", unsigned="client_no"),
        table("cart_goods", _CART_GOODS, "cart_id", "good_id"),
        table("audit", _AUDIT),
        table("latest", _LATEST, "id"),
    ]


RECORDED_TABLES: Final[tuple[RecordedTable, ...]] = (
    *(table for variant, prefix in _PG_PREFIX.items() for table in _pg_shop(variant, prefix)),
    *(table for variant, prefix in _MY_PREFIX.items() for table in _mysql_shop(variant, prefix)),
    RecordedTable("orders-100k", None, "orders", ("bench.public.orders",), _ORDERS_100K, ("order_id",)),
)


# ---------------------------------------------------------------- what the records cannot tell


@dataclass(frozen=True)
class Unrecoverable:
    """A column of some variants whose truth is not in the records.

    variants: a tuple of names, () for all. excused: for a differing cell, (row as printed by the database, row as the
    table holds it) to whether the difference is the one that `reason` explains.
    """

    capture: str
    variants: tuple[str, ...]
    table: str
    column: str
    reason: str
    excused: Callable[[Row, Row], bool]


def _cut_to_ms(column: str, database_type: str) -> Callable[[Row, Row], bool]:
    """The value printed with its digits after the milliseconds taken off, downwards."""

    def excused(printed: Row, held: Row) -> bool:
        text = printed[column]
        head, _, fraction = text.partition(".")
        return same_value(database_type, f"{head}.{fraction[:3]}" if fraction else head, held[column])

    return excused


def _julian_us(printed: str) -> int:
    """Microseconds since 1970 of a time that is wrongly read by the Julian calendar."""
    year, month = int(printed[:4]), int(printed[5:7])
    century = (year - (month <= 2)) // 100
    return timestamp_us(printed) + (century - century // 4 - 2) * 86_400_000_000


def _as_double(column: str) -> Callable[[Row, Row], bool]:
    return lambda printed, held: (
        abs(Decimal(printed[column]) - Decimal(held[column])) <= abs(Decimal(printed[column]) * Decimal(2) ** -52)
    )


UNRECOVERABLE: Final = (
    Unrecoverable(
        "pg-shop",
        (),
        "customers",
        "signup",
        "the snapshot counts times before 1582 in the Julian calendar: two days less in year 1",
        lambda printed, held: held["signup"] == _julian_us(printed["signup"]),
    ),
    Unrecoverable(
        "pg-shop",
        ("json-schema-connect",),
        "customers",
        "signup",
        "time.precision.mode=connect cuts microseconds to milliseconds",
        _cut_to_ms("signup", "timestamp without time zone"),
    ),
    Unrecoverable(
        "pg-shop",
        ("json-schema-connect",),
        "customers",
        "wakes",
        "time.precision.mode=connect cuts microseconds to milliseconds",
        _cut_to_ms("wakes", "time without time zone"),
    ),
    Unrecoverable(
        "pg-shop",
        ("json-schema-connect",),
        "customers",
        "huge",
        "decimal.handling.mode=double has 53 bits",
        _as_double("huge"),
    ),
    Unrecoverable(
        "pg-shop",
        ("json-schema-connect",),
        "customers",
        "score",
        "decimal.handling.mode=double has 53 bits",
        _as_double("score"),
    ),
    Unrecoverable(
        "mysql-shop",
        (),
        "goods",
        "day",
        "the zero date 0000-00-00 is no date; Debezium sends null",
        lambda printed, held: printed["day"] == "0000-00-00" and held["day"] is None,
    ),
    Unrecoverable(
        "mysql-shop",
        ("json-plain",),
        "goods",
        "flag",
        "a converter makes tinyint(1) a boolean, and 2 is true",
        lambda printed, held: printed["flag"] == "2" and held["flag"] == 1,
    ),
    Unrecoverable(
        "mysql-shop",
        ("json-plain",),
        "goods",
        "colour",
        "the binlog's label of an enum has its comma escaped, and without a schema nothing tells it from a backslash",
        lambda printed, held: held["colour"] == printed["colour"].replace(",", r"\,"),
    ),
    Unrecoverable(
        "mysql-shop",
        (),
        "clients",
        "gold_member",
        "a renamed column: rows unchanged since hold the value under its old name, vip",
        lambda printed, held: held["gold_member"] is None and str(held["vip"]) == printed["gold_member"],
    ),
    Unrecoverable(
        "mysql-shop",
        (),
        "carts",
        "channel",
        "an added column with a default: the source fills older rows without a record",
        lambda printed, held: held["channel"] is None and printed["channel"] == "web",
    ),
)

# ---------------------------------------------------------------- comparison


def differences(recorded: RecordedTable, held: pa.Table, excused: Counter[str] | None = None) -> list[str]:
    """What is wrong with a table's final rows, in words; empty when they are the truth.

    held: all columns of `recorded.schema`, any order of rows. excused: counts the cells that UNRECOVERABLE explains,
    by column.
    """
    truth = recorded.truth
    types = {column["name"]: column["type"] for column in truth["columns"]}
    printed_rows = [dict(zip(types, row, strict=True)) for row in truth["rows"]]
    held_rows = rows_of(held)
    if not recorded.primary_key:
        return _differences_without_key(recorded, types, printed_rows, held_rows)
    by_key: dict[tuple[Any, ...], Row] = {tuple(row[name] for name in recorded.primary_key): row for row in held_rows}
    found = [] if len(by_key) == len(held_rows) else [f"{len(held_rows) - len(by_key)} keys occur twice"]
    missing = []
    for printed in printed_rows:
        row = _take_row(by_key, printed, recorded.primary_key, types)
        if row is None:
            missing.append(printed)
        else:
            found += _cell_differences(recorded, types, printed, row, Counter() if excused is None else excused)
    if recorded.name == "latest":  # rows written while it was called `late` went to another topic
        late = {str(row["id"]) for row in _created(recorded, recorded.topics[0].replace("latest", "late"))}
        missing = [printed for printed in missing if printed["id"] not in late]
    found += [f"row missing: {_named(printed, recorded.primary_key)}" for printed in missing]
    return found + [f"row too many: {key}" for key in by_key]


def _created(recorded: RecordedTable, topic: str) -> list[Row]:
    """The after images of a topic's c and r records."""
    lines = recorded_lines(recorded_topics(recorded.capture, recorded.variant)[topic])
    payloads = [_payload(recorded, value) for line in lines if (value := recorded_bytes(line, "value")) is not None]
    return [payload["after"] for payload in payloads if payload["op"] in ("c", "r")]


def _payload(recorded: RecordedTable, value: bytes) -> Row:
    if recorded.schemas is None:
        parsed = json.loads(value)
        payload: Row = parsed.get("payload", parsed)
        return payload
    schemas = json.loads(recorded.schemas.read_text(encoding="utf-8"))["schemas"]
    schema = fastavro.parse_schema(json.loads(schemas[str(int.from_bytes(value[1:5], "big"))]))
    decoded: Any = fastavro.schemaless_reader(BytesIO(value[5:]), schema, None)
    return dict(decoded)


def rows_of(table: pa.Table | pa.RecordBatch) -> list[dict[str, Any]]:
    """Rows as dicts, timestamps as microseconds since 1970: Python knows no year before 1 or after 9999, Arrow does."""
    columns = [
        column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
        if pa.types.is_timestamp(column.type)
        else column
        for column in table.columns
    ]
    rows: list[dict[str, Any]] = pa.Table.from_arrays(columns, table.schema.names).to_pylist()
    return rows


def _take_row(
    by_key: dict[tuple[Any, ...], Row], printed: Row, primary_key: Sequence[str], types: Mapping[str, str]
) -> Row | None:
    key = tuple(
        printed[name] if types[name] in ("text", "varchar(8)", "char(36)") else int(printed[name])
        for name in primary_key
    )
    return by_key.pop(key, None)


def _cell_differences(
    recorded: RecordedTable, types: Mapping[str, str], printed: Row, row: Row, excused: Counter[str]
) -> list[str]:
    found = []
    for column, database_type in types.items():
        if same_value(database_type, printed[column], row[column]):
            continue
        if any(_excuses(entry, recorded, column, printed, row) for entry in UNRECOVERABLE):
            excused[column] += 1
        else:
            where = _named(printed, recorded.primary_key)
            found.append(f"{where}: {column} is {row[column]!r}, not {printed[column]!r}")
    return found


def _excuses(entry: Unrecoverable, recorded: RecordedTable, column: str, printed: Row, row: Row) -> bool:
    applies = (entry.capture, entry.table, entry.column) == (recorded.capture, recorded.name, column)
    return applies and (not entry.variants or recorded.variant in entry.variants) and entry.excused(printed, row)


def _differences_without_key(
    recorded: RecordedTable, types: Mapping[str, str], printed_rows: Sequence[Row], held_rows: Sequence[Row]
) -> list[str]:
    """Of a table to which only creates were written: a truncate has no rows to delete, and may not even be sent.

    So the table has the rows at the end, and all that were ever created.
    """
    left = list(held_rows)
    found = []
    for printed in printed_rows:
        equal = next((r for r in left if all(same_value(types[c], printed[c], r[c]) for c in types)), None)
        if equal is None:
            found.append(f"row missing: {printed}")
        else:
            left.remove(equal)
    created = sum(len(_created(recorded, topic)) for topic in recorded.topics)
    if len(held_rows) != created:
        found.append(f"{len(held_rows)} rows of {created} created ones")
    return found


def _named(printed: Row, primary_key: Sequence[str]) -> str:
    return ", ".join(f"{name}={printed[name]}" for name in primary_key)
