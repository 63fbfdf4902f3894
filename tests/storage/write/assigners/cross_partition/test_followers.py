"""Readers that keep a copy of a table whose keys move between partitions, as docs/buckets.md tells them to."""

from __future__ import annotations

from itertools import groupby
from random import Random
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest

import tidelake
from tests.support.levels import rounds

SCHEMA = pa.schema(
    [pa.field("k", pa.int64(), nullable=False), pa.field("p", pa.string(), nullable=False), ("v", pa.int64())]
)
RETRACTS = (1, 3)


def written_table(seed: int, producer: str) -> tidelake.Table:
    """A table that ten jobs have written, one after another. All changes are in the changelog."""
    random = Random(seed)
    catalog = tidelake.open_catalog(f"memory://{uuid4().hex}/lake")
    catalog.create_database("db")
    options = {"changelog-producer": producer, "num-sorted-run.compaction-trigger": "3"}
    if producer == "full-compaction":
        options["full-compaction.delta-commits"] = "2"
    table = catalog.create_table("db.t", SCHEMA, primary_key=["k"], partition_by=["p"], options=options)
    for job in range(10):
        keys = random.sample(range(12), random.randint(1, 6))
        table.append(pa.table({"k": keys, "p": [random.choice("xy") for _ in keys], "v": [job] * len(keys)}, SCHEMA))
    table.compact(full=True)
    return table


def snapshots_of(table: tidelake.Table) -> list[list[dict[str, Any]]]:
    found = groupby(table.changes(start=1), lambda change: change.snapshot_id)
    return [[row for change in changes for row in change.rows.to_pylist()] for _, changes in found]


def held(table: tidelake.Table) -> dict[int, tuple[str, int]]:
    return {row["k"]: (row["p"], row["v"]) for row in table.scan().to_arrow().to_pylist()}


@pytest.mark.sampled
def test_with_lookup_a_copy_by_key_applies_the_retracts_of_a_snapshot_first() -> None:
    for seed in range(rounds(15)):
        table = written_table(seed, "lookup")
        copy: dict[int, tuple[str, int]] = {}
        for changes in snapshots_of(table):
            for row in sorted(changes, key=lambda row: row["_VALUE_KIND"] not in RETRACTS):
                if row["_VALUE_KIND"] in RETRACTS:
                    copy.pop(row["k"], None)
                else:
                    copy[row["k"]] = (row["p"], row["v"])
        assert copy == held(table), seed


@pytest.mark.interop
@pytest.mark.sampled
@pytest.mark.parametrize("producer", ["full-compaction", "input", "none", "lookup"])
def test_a_copy_by_key_and_partition_is_exact_in_any_order_of_partitions(producer: str) -> None:
    for seed in range(rounds(15)):
        table = written_table(seed, producer)
        copy: dict[tuple[int, str], int] = {}
        for changes in snapshots_of(table):
            for row in sorted(changes, key=lambda row: row["p"], reverse=bool(seed % 2)):
                if row["_VALUE_KIND"] in RETRACTS:
                    copy.pop((row["k"], row["p"]), None)
                else:
                    copy[row["k"], row["p"]] = row["v"]
        assert {key: (p, v) for (key, p), v in copy.items()} == held(table), seed
        assert len(copy) == len(held(table)), "a copy has two rows of a key"
