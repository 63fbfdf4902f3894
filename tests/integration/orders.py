"""The recorded orders in one pipeline of four tables, one per merge engine, and the expected rows at the end.

Every table has a topic of its own with the same records, so that one pipeline feeds them all. A key that deduplicates
hides a repeated record; an append table and exact sums don't.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

import tidelake
from tests.support.cases import recorded_lines
from tests.support.recorded_truth import differences, own_recorded
from tidelake.checkpoint.offsets import POSITION_PROPERTY, chain_breaks, position_from_text
from tidelake.verification import inspect_table

ORDERS: Final = own_recorded("orders-100k/orders")
PARTITIONS: Final = 4
_EACH: Final = ("order_id", "customer_id", "status", "amount", "quantity", "note", "created")

Line = Mapping[str, Any]
"""A record, as a change-log file holds it."""


@cache
def lines() -> Sequence[Line]:
    (path,) = ORDERS.files
    return list(recorded_lines(path))


def taken(count: int, passes: int) -> Iterator[Line]:
    """The first `count` records, repeated. Offsets continue from one pass to the next."""
    of_partition = Counter(line["partition"] for line in lines()[:count])
    for number in range(passes):
        for line in lines()[:count]:
            yield {**line, "offset": line["offset"] + number * of_partition[line["partition"]]}


# ---------------------------------------------------------------- the truth


@dataclass(frozen=True)
class Stream:
    """What was sent to each topic: the first `count` records, `passes` times."""

    count: int
    passes: int

    def lines(self) -> Iterator[Line]:
        return taken(self.count, self.passes)

    @property
    def ends(self) -> Mapping[int, int]:
        """Next offset of each partition."""
        ends = Counter(line["partition"] for line in lines()[: self.count])
        return {partition: length * self.passes for partition, length in ends.items()}

    @property
    def changes(self) -> list[Mapping[str, Any]]:
        """Of one pass: envelopes, without the tombstones."""
        return [json.loads(line["value"]) for line in lines()[: self.count] if line["value"] is not None]


def _latest_is_wrong(stream: Stream, held: pa.Table) -> list[str]:
    if stream.count == len(lines()):
        return differences(ORDERS, held)
    rows: dict[int, Mapping[str, Any]] = {}
    for change in stream.changes:
        if change["op"] == "d":
            del rows[change["before"]["order_id"]]
        else:
            rows[change["after"]["order_id"]] = change["after"]
    return _unequal(Counter(map(_plain, rows.values())), _counted(held))


def _log_is_wrong(stream: Stream, held: pa.Table) -> list[str]:
    """Without keys: every image after a change, as often as it was sent."""
    images = Counter(_plain(change["after"]) for change in stream.changes if change["op"] != "d")
    return _unequal(Counter({row: stream.passes * count for row, count in images.items()}), _counted(held))


def _sums_are_wrong(stream: Stream, held: pa.Table) -> list[str]:
    """What every order's amounts and quantities add up to: added with each image after, taken back with each before."""
    return _unequal(_sums(stream), {row["order_id"]: (row["amount"], row["quantity"]) for row in held.to_pylist()})


def _pieces_are_wrong(stream: Stream, held: pa.Table) -> list[str]:
    """Deletes are dropped: each order's newest note that is not null, and its quantities of all times added up."""
    pieces: dict[int, tuple[str | None, int]] = {}
    for change in stream.changes:
        if (image := change["after"]) is not None:
            note, quantity = pieces.get(image["order_id"], (None, 0))
            added = stream.passes * image["quantity"]
            pieces[image["order_id"]] = note if image["note"] is None else image["note"], quantity + added
    return _unequal(pieces, {row["order_id"]: (row["note"], row["quantity"]) for row in held.to_pylist()})


def _sums(stream: Stream) -> dict[int, tuple[Decimal, int]]:
    sums: dict[int, tuple[Decimal, int]] = {}
    for change in stream.changes:
        for image, sign in ((change["before"], -stream.passes), (change["after"], stream.passes)):
            if image is not None:
                amount, quantity = sums.get(image["order_id"], (Decimal(0), 0))
                sums[image["order_id"]] = amount + sign * Decimal(image["amount"]), quantity + sign * image["quantity"]
    return sums


def _plain(image: Mapping[str, Any]) -> tuple[Any, ...]:
    values = {**image, "amount": Decimal(image["amount"])}
    return tuple(values[name] for name in _EACH)


def _counted(held: pa.Table) -> Counter[tuple[Any, ...]]:
    created = pc.cast(held["created"], pa.int64())
    columns = held.select(_EACH[:-1]).append_column("created", created)
    counted = columns.group_by(_EACH).aggregate([([], "count_all")])
    rows = zip(*(counted[name].to_pylist() for name in _EACH), strict=True)
    return Counter(dict(zip(rows, counted["count_all"].to_pylist(), strict=True)))


def _unequal(wanted: Mapping[Any, Any], found: Mapping[Any, Any]) -> list[str]:
    """In words, only some of it."""
    wrong = [key for key in wanted.keys() | found.keys() if wanted.get(key) != found.get(key)]
    return [f"{key}: {found.get(key)} instead of {wanted.get(key)}" for key in wrong[:5]] + (
        [f"and {len(wrong) - 5} more"] if len(wrong) > 5 else []
    )


# ---------------------------------------------------------------- the tables


_NULLABLE: Final = pa.schema([column.with_nullable(column.name not in ORDERS.primary_key) for column in ORDERS.schema])
_MANY_COMPACTIONS: Final = {"bucket": "2", "num-sorted-run.compaction-trigger": "3"}


@dataclass(frozen=True)
class OrdersTable:
    """is_wrong: describes errors in the table's rows. expires: whether its first snapshots have expired at the end."""

    name: str
    schema: pa.Schema
    primary_key: Sequence[str]
    options: Mapping[str, str]
    is_wrong: Callable[[Stream, pa.Table], list[str]] = field(repr=False)

    @property
    def expires(self) -> bool:
        return "snapshot.num-retained.max" in self.options

    def create(self, catalog: tidelake.Catalog) -> tidelake.Table:
        return catalog.create_table(
            f"shop.{self.name}", self.schema, primary_key=self.primary_key, options=dict(self.options)
        )


TABLES: Final = (
    OrdersTable("latest", ORDERS.schema, ORDERS.primary_key, _MANY_COMPACTIONS, _latest_is_wrong),
    OrdersTable("log", ORDERS.schema, (), {"ignore-delete": "true"}, _log_is_wrong),
    OrdersTable(
        "sums",
        _NULLABLE,
        ORDERS.primary_key,
        {
            **_MANY_COMPACTIONS,
            "merge-engine": "aggregation",
            "fields.amount.aggregate-function": "sum",
            "fields.quantity.aggregate-function": "sum",
        },
        _sums_are_wrong,
    ),
    OrdersTable(
        "pieces",
        _NULLABLE,
        ORDERS.primary_key,
        {
            **_MANY_COMPACTIONS,
            "merge-engine": "partial-update",
            "ignore-delete": "true",
            "fields.updated.sequence-group": "status,amount,quantity",
            "fields.quantity.aggregate-function": "sum",
            "snapshot.num-retained.min": "3",
            "snapshot.num-retained.max": "10",
        },
        _pieces_are_wrong,
    ),
)


def assert_exactly_once(kind: OrdersTable, table: tidelake.Table, stream: Stream) -> None:
    """Truth in the table, every record in exactly one checkpoint, every file where it should be."""
    assert kind.is_wrong(stream, table.scan().to_arrow()) == []
    snapshots = table.snapshots()
    assert len({snapshot.commit_user for snapshot in snapshots}) == 1
    history = [
        (s.commit_identifier, position_from_text(s.properties[POSITION_PROPERTY], f"snapshot {s.id}"))
        for s in snapshots
    ]
    assert chain_breaks(history) == []
    (_, first), (_, last) = history[0], history[-1]
    assert kind.expires or {found.start for found in first.ranges.values()} <= {0}
    assert {partition.partition: end for partition, end in last.ends.items()} == stream.ends
    assert [str(problem) for problem in inspect_table(table, deep=True).problems] == []
