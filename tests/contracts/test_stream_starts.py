"""Any start of a stream and the changes behind it add up to the table.

For each producer, merge engine, bucket mode, with and without deletion vectors, with a writer that compacts or not, and
from each start at each snapshot: through follow, its async form, the command line, and micro-batches as Spark's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pytest

import tidelake
import tidelake.aio
from tests.support.command_line import Call
from tests.support.levels import sample
from tidelake.storage.model.format import KIND_COLUMN, RowKind
from tidelake.storage.read.stream.micro_batches import MicroBatches, StreamOffset, read_units
from tidelake.storage.read.stream.start import Start, first_position

SCHEMA: Final = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("day", pa.int64(), nullable=False),
        ("a", pa.int64()),
        ("b", pa.int64()),
    ]
)
Row = dict[str, Any]
Copy = dict[int, Row]

ENGINES: Final = ("deduplicate", "first-row", "partial-update", "aggregation")
PRODUCERS: Final = ("none", "input", "lookup", "full-compaction")
BUCKETS: Final = {
    "fixed": {"bucket": "2"},
    "dynamic": {"bucket": "-1"},
    "cross-partition": {"bucket": "-1"},
    "postpone": {"bucket": "-2", "postpone.batch-write-fixed-bucket": "false"},
}
NUMBER: Final = {kind.symbol: int(kind) for kind in RowKind}
SUMS: Final = {"fields.a.aggregate-function": "sum", "fields.b.aggregate-function": "sum"}
REFUSED: Final = {  # Java refuses these, too
    ("first-row", "input"),
    ("first-row", "full-compaction"),
}


class Case(NamedTuple):
    engine: str
    producer: str
    bucket: str
    vectors: bool
    write_only: bool
    overwrites: bool

    @property
    def is_possible(self) -> bool:
        if (self.engine, self.producer) in REFUSED:
            return False
        if self.vectors and (self.producer == "full-compaction" or self.engine == "first-row"):
            return False
        if self.overwrites and self.producer in ("lookup", "full-compaction"):
            return False  # streaming-read-overwrite is refused
        return not (self.bucket == "postpone" and self.write_only)

    @property
    def options(self) -> dict[str, str]:
        return {
            **BUCKETS[self.bucket],
            "merge-engine": self.engine,
            "changelog-producer": self.producer,
            "deletion-vectors.enabled": str(self.vectors).lower(),
            "write-only": str(self.write_only).lower(),
            **({"streaming-read-overwrite": "true", "dynamic-partition-overwrite": "false"} if self.overwrites else {}),
            **(SUMS if self.engine == "aggregation" else {}),
        }

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self._asdict().items())


CASES: Final = [
    case
    for case in (
        Case(*parts) for parts in product(ENGINES, PRODUCERS, BUCKETS, (False, True), (False, True), (False, True))
    )
    if case.is_possible
]


def write(table: tidelake.Table, rows: Sequence[tuple[int, int | None, int | None]], kind: RowKind) -> None:
    with table.writer() as writer:
        batch = rows_of(rows)
        writer.write(batch.append_column(KIND_COLUMN, pa.array([int(kind)] * len(rows), pa.int8())))
        writer.commit()


def rows_of(rows: Sequence[tuple[int, int | None, int | None]]) -> pa.Table:
    ids, a, b = zip(*rows, strict=True)
    return pa.table({"id": ids, "day": [1] * len(ids), "a": a, "b": b}, SCHEMA)


def history(catalog: tidelake.Catalog, case: Case) -> tidelake.Table:
    """Inserts, updates, deletes where the engine has them, compactions in between, and at the end of everything."""
    table = catalog.create_table(
        "d.t",
        SCHEMA,
        primary_key=["id"] if case.bucket == "cross-partition" else ["id", "day"],
        partition_by=["day"] if case.bucket == "cross-partition" else [],
        options=case.options,
    )
    compact = catalog.table("d.t", {"write-only": "false"}).compact
    is_postpone = case.bucket == "postpone"
    write(table, [(1, 1, None), (2, 2, 2), (3, 3, None)], RowKind.INSERT)
    write(table, [(2, None, 20), (4, 4, 4)], RowKind.INSERT)
    compact() if is_postpone else compact(full=True)
    write(table, [(1, 10, 10), (3, None, 30), (5, 5, None)], RowKind.INSERT)
    if case.engine == "deduplicate":
        if case.producer == "input":
            write(table, [(3, None, 30)], RowKind.UPDATE_BEFORE)
        write(table, [(3, 33, 33)], RowKind.UPDATE_AFTER)
        write(table, [(2, None, 20), (5, 5, None)], RowKind.DELETE)
    if case.overwrites:
        with table.writer(overwrite=True) as writer:
            writer.write(rows_of([(1, 7, 7), (6, 6, None)]))
            writer.commit()
    write(table, [(6, None, 60), (4, None, 40)], RowKind.INSERT)
    compact() if is_postpone else compact(full=True)
    return catalog.table("d.t")


def starts_of(table: tidelake.Table) -> list[str]:
    """Each mode that begins with all rows or with the first snapshot, at each snapshot that it can name."""
    ids = [snapshot.id for snapshot in table.snapshots()]
    return [
        *("earliest", "latest-full", "compacted-full", "from-file-creation-time:0", "from-creation-timestamp:0"),
        *(f"from-snapshot-full:{id}" for id in ids),
    ]


# ---------------------------------------------------------------- the copy of a follower


def copied(changes: Iterable[Row], case: Case) -> Copy:
    """What a reader has who merges rows as the producer's promise says."""
    is_exact = case.producer in ("lookup", "full-compaction")
    copy: Copy = {}
    for change in changes:
        kind = RowKind(change.pop(KIND_COLUMN))
        key = change["id"]
        if kind.is_retract:
            copy.pop(key, None)
        elif key not in copy or is_exact or case.engine == "deduplicate":
            copy[key] = change
        else:
            copy[key] = merged(copy[key], change, case.engine)
    return copy


def merged(old: Row, new: Row, engine: str) -> Row:
    if engine == "first-row":
        return old
    if engine == "partial-update":
        return {name: old[name] if value is None else value for name, value in new.items()}
    sums = {name: (old[name] or 0) + (new[name] or 0) for name in ("a", "b")}
    both_null = {name: None for name in sums if old[name] is None and new[name] is None}
    return {**new, **sums, **both_null}


def state(table: tidelake.Table) -> Copy:
    return {row["id"]: row for row in table.scan().to_arrow().to_pylist()}


# ---------------------------------------------------------------- the doors


def by_follow(table: tidelake.Table, start: str) -> Iterator[Row]:
    for change in table.follow(start=start, end=table.snapshots()[-1].id):
        assert not change.is_break
        yield from change.rows.to_pylist()


def by_micro_batches(table: tidelake.Table, start: str) -> Iterator[Row]:
    """One batch for each unit, as a limit of a stream makes them."""
    batches = MicroBatches(table.context)
    parsed = Start.of(start)
    position = first_position(table.context, parsed)
    assert position is not None
    begin = StreamOffset(position)
    for unit in batches.plan(begin, batches.newest(begin)):
        for rows in read_units(table.context, [unit]):
            yield from rows.to_pylist()


@pytest.fixture
def catalog(tmp_path: Path) -> tidelake.Catalog:
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("d")
    return catalog


@pytest.mark.exhaustive(kept=4)
@pytest.mark.sampled
@pytest.mark.parametrize("read", [by_follow, by_micro_batches], ids=["follow", "micro-batches"])
@pytest.mark.parametrize("producer", PRODUCERS)
@pytest.mark.parametrize("engine", ENGINES)
def test_any_start_and_its_changes_add_up_to_the_table(
    engine: str, producer: str, read: Callable[[tidelake.Table, str], Iterator[Row]]
) -> None:
    cases = [case for case in CASES if (case.engine, case.producer) == (engine, producer)]
    if not cases:
        assert (engine, producer) in REFUSED
        return
    catalog = tidelake.open_catalog("memory://stream-starts/lake")
    for case in sample(cases):
        catalog.create_database("d")
        try:
            table = history(catalog, case)
            expected = state(table)
            assert expected
            for start in starts_of(table):
                assert copied(read(table, start), case) == expected, f"{case}: {start}"
        finally:
            catalog.drop_database("d", cascade=True)


DOORS: Final = [
    Case("deduplicate", "none", "fixed", vectors=True, write_only=True, overwrites=False),
    Case("deduplicate", "input", "dynamic", vectors=True, write_only=False, overwrites=True),
    Case("first-row", "none", "fixed", vectors=False, write_only=True, overwrites=False),
    Case("deduplicate", "none", "postpone", vectors=False, write_only=False, overwrites=False),
    Case("partial-update", "lookup", "fixed", vectors=True, write_only=True, overwrites=False),
    Case("aggregation", "full-compaction", "fixed", vectors=False, write_only=False, overwrites=False),
]


@pytest.mark.parametrize("case", DOORS, ids=str)
async def test_async_readers_start_with_the_same_rows(case: Case, catalog: tidelake.Catalog, tmp_path: Path) -> None:
    def made() -> tuple[list[str], int, Copy]:
        table = history(catalog, case)
        return starts_of(table), table.snapshots()[-1].id, state(table)

    starts, end, expected = await asyncio.to_thread(made)
    opened = await (await tidelake.aio.open_catalog(str(tmp_path))).table("d.t")
    for start in starts:
        changes = [row async for change in opened.follow(start=start, end=end) for row in change.rows.to_pylist()]
        assert copied(changes, case) == expected, start


@pytest.mark.exhaustive(kept=2)
@pytest.mark.parametrize("case", DOORS, ids=str)
def test_the_command_line_starts_with_the_same_rows(
    case: Case, catalog: tidelake.Catalog, tmp_path: Path, call: Call
) -> None:
    table = history(catalog, case)
    end = table.snapshots()[-1].id
    for start in starts_of(table):
        said = call("table", "follow", "d.t", "-w", tmp_path, "--start", start, "--until", end, "--json")
        assert said.code == 0, said.err
        changes = [{**line["row"], KIND_COLUMN: NUMBER[line["kind"]]} for line in said.lines]
        assert copied(changes, case) == state(table), start
