"""Java and Tidelake alternately write a table whose keys move between partitions: no key has two rows.

Java's side is its own GlobalIndexAssigner, as one task of Flink's sink has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any, Final

import pyarrow as pa
import pytest

import tidelake
from tests.interop.columns import Column
from tests.interop.conftest import NewTable
from tests.interop.killed_writer import KilledWriter
from tests.interop.layouts import NAMED
from tests.interop.naive_table import NaiveTable
from tests.interop.shared_table import KIND, Reader, SharedTable, changes
from tests.support.expected import Json
from tests.support.java_oracle import JavaOracle
from tests.support.levels import rounds
from tidelake.storage.model.binary_row import serialize_row
from tidelake.storage.model.bucket_id import BucketId

OPTIONS: Final = {"bucket": "-1", "dynamic-bucket.target-row-num": "5", "num-sorted-run.compaction-trigger": "3"}
# No slash: Java names its local lookup files after the partition's value and fails below a folder that isn't there.
DAY: Final = Column("day", "STRING", pa.string(), ("mon", "tue", "wed", "a=b c%"))
COLUMNS: Final = (DAY, NAMED["string"], NAMED["k"], Column("v", "INT", pa.int32(), (1, 2, 3)), NAMED["double"])
KEYS: Final = {"one number": ("k",), "text and number": ("string", "k")}


class MergedTable(NaiveTable):
    """A key keeps its partition; v is added (aggregation), set where given (partial-update), or stays (first-row)."""

    def __init__(self, columns: list[str], keys: tuple[str, ...], engine: str) -> None:
        super().__init__(columns, keys)
        self._engine = engine

    def write(self, rows: Any, *, kind: str = "_kind") -> None:
        for given in rows:
            row: dict[str, Json] = {name: given.get(name) for name in self.columns}
            key = self._key(row)
            old = self._rows.get(key)
            if old is None:
                self._rows[key] = row
            elif self._engine == "partial-update":
                self._rows[key] = {
                    name: old[name] if value is None or name == "day" else value for name, value in row.items()
                }
            elif self._engine == "aggregation":
                one, other = old["v"], row["v"]
                assert isinstance(one, int | None)
                assert isinstance(other, int | None)
                total = None if one is None and other is None else (one or 0) + (other or 0)
                doubles = old["double"] if row["double"] is None else row["double"]
                self._rows[key] = {**old, "v": total, "double": doubles}


def made(new_table: NewTable, key: tuple[str, ...], options: Mapping[str, str]) -> SharedTable:
    table = new_table(COLUMNS, primary_key=key, partition_by=["day"], options={**OPTIONS, **options})
    engine = options.get("merge-engine", "deduplicate")
    if engine != "deduplicate":
        table.model = MergedTable([column.name for column in COLUMNS], key, engine)
    return table


def rows(random: Random, turn: int, kinds: list[int]) -> pa.Table:
    numbers = random.choices(range(turn * 2 + 15), k=random.choice([1, 5, 30]))
    texts = [NAMED["string"].values[number % 3] for number in numbers]
    return pa.table(
        {
            "day": pa.array(random.choices(DAY.values, k=len(numbers)), pa.string()),
            "string": pa.array(texts, pa.string()),
            "k": pa.array([number // 3 for number in numbers] if kinds == [] else numbers, pa.int32()),
            "v": pa.array(random.choices([1, 2, 3, None], k=len(numbers)), pa.int32()),
            "double": pa.array(random.choices([0.5, 2.5, None], k=len(numbers)), pa.float64()),
            KIND: pa.array(random.choices(kinds or [0], k=len(numbers)), pa.int8()),
        }
    )


ENGINES: Final = {
    "deduplicate": {},
    "changelog of the input": {"changelog-producer": "input"},
    "changelog by lookup": {"changelog-producer": "lookup"},
    "deletion vectors": {"deletion-vectors.enabled": "true"},
    "partial-update": {"merge-engine": "partial-update"},
    "aggregation": {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"},
    "first-row": {"merge-engine": "first-row"},
}


@pytest.mark.sampled
@pytest.mark.parametrize("key", KEYS.values(), ids=list(KEYS))
@pytest.mark.parametrize("options", ENGINES.values(), ids=list(ENGINES))
def test_java_and_tidelake_write_alternately(
    options: Mapping[str, str], key: tuple[str, ...], new_table: NewTable
) -> None:
    take_turns(made(new_table, key, options), options, turns=max(4, rounds(6)))


@pytest.mark.long
@pytest.mark.parametrize("options", ENGINES.values(), ids=list(ENGINES))
def test_java_and_tidelake_write_alternately_fifty_times(options: Mapping[str, str], new_table: NewTable) -> None:
    take_turns(made(new_table, ("string", "k"), options), options, turns=50)


def take_turns(table: SharedTable, options: Mapping[str, str], turns: int) -> None:
    """Java compacts as it writes; our writer stays open until it dies, another one of ours comes between."""
    random = Random(str(options))
    kinds = [0, 0, 2, 3] if options.get("merge-engine") is None else [0]
    writer = KilledWriter(table, "open", random)
    for turn in range(turns):
        batch = rows(random, turn, kinds)
        match turn % 4:
            case 0:
                writer.write(batch, identifier=turn)
            case 2:
                other = KilledWriter(table, "etl", random)
                other.write(batch, identifier=turn)
                writer.deaths += other.deaths
                other.close()
            case _:
                table.java_writes(batch, full=turn % 8 == 5)
        table.check([Reader.JAVA])
    writer.close()
    assert writer.deaths >= turns // 25
    table.check()


def test_both_put_each_row_into_the_same_bucket(new_table: NewTable) -> None:
    """Row by row, for a batch of ours has the room of keys that leave a bucket for the next one only."""
    random, java = Random(7), made(new_table, ("k",), {})
    ours = new_table(COLUMNS, primary_key=("k",), partition_by=["day"], options=OPTIONS, folder="ours")
    batch = rows(random, 30, [0, 0, 2, 3])
    java.java_writes(batch)
    with ours.ours.writer(commit_user="one") as writer:
        for number in range(len(batch)):
            writer.write(batch.slice(number, 1))
        writer.commit(1)
    ours.model.write(changes(batch))

    def places(table: SharedTable) -> dict[BucketId, list[Any]]:
        found: dict[BucketId, list[Any]] = {}
        scan = table.ours.scan()
        for split in scan.splits():
            for part in scan.to_batches(splits=[split]):
                found.setdefault(split.bucket_id, []).extend(part.column("k").to_pylist())
        return {place: sorted(keys) for place, keys in found.items()}

    assert places(java) == places(ours)
    assert {partition for partition, _ in places(ours)} <= {
        serialize_row([day], [java.ours.context.schema.by_name["day"].type]) for day in DAY.values
    }
    ours.check([Reader.JAVA])


@pytest.mark.parametrize(
    "options", [{}, {"changelog-producer": "lookup"}, {"deletion-vectors.enabled": "true"}], ids=str
)
def test_with_fixed_buckets_a_key_has_a_row_in_each_partition(
    options: Mapping[str, str], java_oracle: JavaOracle, tmp_path: Path
) -> None:
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("db")
    columns = pa.schema([pa.field("k", pa.int64(), False), pa.field("day", pa.string(), False), ("v", pa.int64())])
    options = {"bucket": "2", **options}
    table = catalog.create_table("db.t", columns, primary_key=["k"], partition_by=["day"], options=options)
    expected: dict[tuple[int, str], int] = {}
    for turn in range(4):
        new = {(k, "ab"[(k + turn) % 2]): 10 * turn + k for k in range(turn, turn + 6)}
        expected |= new
        rows = [{"k": k, "day": day, "v": v} for (k, day), v in new.items()]
        if turn % 2:
            java_oracle.write(tmp_path, "db.t", [{**row, "_kind": "+I"} for row in rows], wait_compaction=True)
        else:
            table.upsert(rows)
        for found in (table.scan().to_arrow().to_pylist(), java_oracle.read(tmp_path, "db.t")):
            assert {(row["k"], row["day"]): row["v"] for row in found} == expected
            assert len(found) == len(expected)
    table.delete("k = 3 and day = 'a'")
    table.compact(full=True)
    del expected[3, "a"]
    assert {(row["k"], row["day"]): row["v"] for row in java_oracle.read(tmp_path, "db.t")} == expected
