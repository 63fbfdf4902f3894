"""A random history of rows, and the same history in every format."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Final

from hypothesis import strategies as st

from tests.ingest.formats.debezium.changes import Record, as_json, orders_schema

COLUMNS: Final = {
    "id": "BIGINT",
    "note": "STRING",
    "price": "DECIMAL(10, 2)",
    "qty": "INT",
    "ratio": "DOUBLE",
    "flag": "BOOLEAN",
    "at": "TIMESTAMP(3)",
    "day": "DATE",
    "data": "BYTES",
}
MYSQL_TYPES: Final = {
    "id": "bigint(20)",
    "note": "longtext",
    "price": "decimal(10,2)",
    "qty": "int(11)",
    "ratio": "double",
    "flag": "tinyint(1)",
    "at": "datetime(3)",
    "day": "date",
    "data": "blob",
}
SCHEMA: Final = orders_schema(COLUMNS)

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Change:
    """before: None for an insert. after: None for a delete."""

    before: Row | None
    after: Row | None

    @property
    def changed(self) -> Row:
        """Old values of the columns that differ."""
        assert self.before is not None
        assert self.after is not None
        after = self.after
        return {name: value for name, value in self.before.items() if value != after[name]}


_VALUES: Final = st.fixed_dictionaries(
    {
        "note": st.none() | st.text(st.characters(codec="utf-8"), max_size=6),
        "price": st.none() | st.decimals(-(10**7), 10**7, places=2),
        "qty": st.none() | st.integers(-(2**31), 2**31 - 1),
        "ratio": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "flag": st.none() | st.booleans(),
        "at": st.none()
        | st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1)).map(
            lambda at: at.replace(microsecond=at.microsecond // 1000 * 1000)
        ),
        "day": st.none() | st.dates(date(1900, 1, 1), date(2100, 1, 1)),
        "data": st.none() | st.binary(max_size=5),
    }
)


@st.composite
def histories(draw: st.DrawFn) -> Sequence[Change]:
    rows: dict[int, Row] = {}
    changes: list[Change] = []
    for _ in range(draw(st.integers(1, 20))):
        key, other = draw(st.integers(0, 4)), draw(st.integers(0, 4))
        before = rows.pop(key, None)
        after: Row | None = {"id": key, **draw(_VALUES)}
        if before is not None:
            match draw(st.sampled_from(["update", "same but one", "move", "delete"])):
                case "same but one":
                    after = {**before, "note": draw(st.none() | st.text("ab", max_size=2))}
                case "move" if other not in rows:
                    after = {**before, "id": other}
                case "delete":
                    after = None
        changes.append(Change(before, after))
        if after is not None:
            rows[after["id"]] = after
    return changes


# ---------------------------------------------------------------- as formats say it


def _debezium(changes: Sequence[Change]) -> Iterator[Record]:
    def image(row: Row | None) -> Row | None:
        return None if row is None else {name: _json(value) for name, value in row.items()}

    for change in changes:
        op = "c" if change.before is None else "d" if change.after is None else "u"
        source = {"connector": "mysql", "db": "depot", "table": "orders"}
        value = {"op": op, "before": image(change.before), "after": image(change.after), "source": source}
        yield Record(None, _with_decimals(value))


def _canal(changes: Sequence[Change]) -> Iterator[Record]:
    """Neighbours of one kind are rows of one message."""

    def image(row: Row) -> Row:
        return {name: _canal_text(value) for name, value in row.items()}

    def kind(change: Change) -> str:
        return "INSERT" if change.before is None else "DELETE" if change.after is None else "UPDATE"

    at = 0
    while at < len(changes):
        end = at + 1
        while end < len(changes) and end - at < 3 and kind(changes[end]) == kind(changes[at]):
            end += 1
        part = changes[at:end]
        value = {
            "data": [image(change.after or change.before or {}) for change in part],
            "old": [image(change.changed) for change in part] if kind(part[0]) == "UPDATE" else None,
            "type": kind(part[0]),
            "isDdl": False,
            "database": "depot",
            "table": "orders",
            "mysqlType": MYSQL_TYPES,
            "pkNames": ["id"],
            "sqlType": {},
            "sql": "",
            "ts": 1,
        }
        yield Record(None, as_json(value))
        at = end


def _maxwell(changes: Sequence[Change]) -> Iterator[Record]:
    for change in changes:
        value: dict[str, Any] = {"database": "depot", "table": "orders", "ts": 1, "xid": 1, "commit": True}
        value["type"] = "insert" if change.before is None else "delete" if change.after is None else "update"
        value["data"] = {name: _json(v) for name, v in (change.after or change.before or {}).items()}
        if value["type"] == "update":
            value["old"] = {name: _json(v) for name, v in change.changed.items()}
        yield Record(None, _with_decimals(value))


def _image(row: Row | None) -> dict[str, Any]:
    return {name: _json(value) for name, value in (row or {}).items()}


def _ogg(changes: Sequence[Change]) -> Iterator[Record]:
    for change in changes:
        value: dict[str, Any] = {"table": "depot.orders", "op_ts": "2024-03-01 08:00:00.000000"}
        value["op_type"] = "I" if change.before is None else "D" if change.after is None else "U"
        value |= {} if change.before is None else {"before": _image(change.before)}
        value |= {} if change.after is None else {"after": _image(change.after)}
        yield Record(None, _with_decimals(value))


_ALIYUN_TYPES: Final = {"id": "LONG", "qty": "LONG", "ratio": "DOUBLE", "flag": "BOOLEAN", "at": "DATE", "day": "DATE"}


def _aliyun(changes: Sequence[Change]) -> Iterator[Record]:
    columns = [{"name": name, "type": _ALIYUN_TYPES.get(name, "STRING")} for name in COLUMNS if name != "data"]
    source = {"dbType": "MySQL", "dbName": "depot", "tableName": "orders"}
    schema = {"dataColumn": [*columns, {"name": "data", "type": "BYTES"}], "primaryKey": ["id"], "source": source}
    for change in changes:
        payload: dict[str, Any] = {
            "op": "INSERT" if change.before is None else "DELETE" if change.after is None else "UPDATE_AFTER",
            "before": None if change.before is None else {"dataColumn": _image(change.before)},
            "after": None if change.after is None else {"dataColumn": _image(change.after)},
            "ddl": None,
        }
        yield Record(None, _with_decimals({"schema": schema, "payload": payload, "version": "0.0.1"}))


def _dms(changes: Sequence[Change]) -> Iterator[Record]:
    for change in changes:
        operation = "insert" if change.before is None else "delete" if change.after is None else "update"
        data = _image(change.after or change.before)
        if operation == "update":
            data |= {f"BI_{name}": value for name, value in _image(change.before).items()}
        metadata = {"record-type": "data", "operation": operation, "schema-name": "depot", "table-name": "orders"}
        yield Record(None, _with_decimals({"data": data, "metadata": metadata}))


def _json(value: Any) -> Any:
    match value:
        case datetime():
            return value.isoformat(" ", "milliseconds")
        case date():
            return value.isoformat()
        case bytes():
            return base64.b64encode(value).decode()
        case _:
            return value


def _with_decimals(value: Any) -> bytes:
    """JSON whose decimals are texts of their digits."""
    return json.dumps(value, ensure_ascii=False, default=str).encode()


def _canal_text(value: Any) -> str | None:
    match value:
        case None:
            return None
        case bool():
            return str(int(value))
        case bytes():
            return value.decode("latin-1")
        case float():
            return repr(value)
        case _:
            return str(_json(value))


RENDERED: Final[Mapping[str, Callable[[Sequence[Change]], Iterator[Record]]]] = {
    "canal-json": _canal,
    "maxwell-json": _maxwell,
    "ogg-json": _ogg,
    "aliyun-json": _aliyun,
    "aws-dms-json": _dms,
}


def plain_json(rows: Sequence[Row]) -> list[Record]:
    """The new rows of a history: `json` knows no others."""
    return [Record(None, _with_decimals(_image(row))) for row in rows]


debezium: Final = _debezium
