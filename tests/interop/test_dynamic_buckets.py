"""Java and Tidelake alternately write a table with dynamic buckets. Each continues from the key index of the other."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Final

import pyarrow as pa
import pytest

from tests.interop.conftest import NewTable
from tests.interop.killed_writer import KilledWriter
from tests.interop.layouts import Layout, primary_key
from tests.interop.shared_table import Reader, SharedTable
from tests.support.levels import sample
from tidelake.storage.commit.manifests.index_manifest import read_index_manifest
from tidelake.storage.model.binary_row import hash_rows
from tidelake.storage.model.format import HASH_INDEX
from tidelake.storage.write.assigners.hash_index_file import read_hash_file

OPTIONS: Final = {"bucket": "-1", "dynamic-bucket.target-row-num": "7", "num-sorted-run.compaction-trigger": "3"}

LAYOUTS: Final = (
    primary_key(
        "partitioned, two columns in the key", key=["string", "tinyint"], partition=["boolean"], options=OPTIONS
    ),
    primary_key("index beside the data", ["int"], options={**OPTIONS, "index-file-in-data-file-dir": "true"}),
)


def check_index(table: SharedTable) -> None:
    """Every key is in one bucket, and that bucket's index file has its hash."""
    context = table.ours.context
    latest = context.snapshots.latest()
    assert latest is not None
    indexed = {
        (entry.partition, int(one)): entry.bucket
        for entry in read_index_manifest(context, latest.index_manifest)
        if entry.file.index_type == HASH_INDEX
        for one in read_hash_file(context, entry.partition, entry.bucket, entry.file)
    }
    total = sum(
        entry.file.row_count
        for entry in read_index_manifest(context, latest.index_manifest)
        if entry.file.index_type == HASH_INDEX
    )
    assert total == len(indexed), "a key in the index of two buckets"
    names = context.schema.trimmed_primary_keys
    types = [field.type for field in context.schema.select(names)]
    found: Counter[tuple[bytes, int]] = Counter()
    scan = table.ours.scan()
    for split in scan.splits():
        rows = pa.Table.from_batches(list(scan.to_batches(splits=[split])), table.ours.schema)
        if rows.num_rows:
            hashes = hash_rows([rows.column(name) for name in names], types)
            for one in set(hashes.tolist()):
                assert indexed[split.partition, one] == split.bucket
                found[split.partition, one] += 1
    assert found


@pytest.mark.sampled
@pytest.mark.parametrize("layout", LAYOUTS[:1], ids=lambda layout: layout.id)
def test_java_and_tidelake_write_alternately(layout: Layout, new_table: NewTable) -> None:
    take_turns(layout, new_table, turns=len(list(sample(range(20)))))


@pytest.mark.long
@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.id)
def test_java_and_tidelake_write_alternately_fifty_times(layout: Layout, new_table: NewTable) -> None:
    take_turns(layout, new_table, turns=50)


def take_turns(layout: Layout, new_table: NewTable, turns: int) -> None:
    """Java compacts as it writes; our writer stays open until it dies, another one of ours comes between."""
    options = {**layout.options, "snapshot.num-retained.min": "100"}
    table = new_table(layout.columns, primary_key=layout.key, partition_by=layout.partition, options=options)
    random = Random(layout.id)

    def rows(turn: int) -> pa.Table:
        numbers = random.choices(range(turn * 3 + 20), k=random.choice([1, 5, 30]))
        return layout.rows(numbers, random.choices([0, 2, 3], weights=[2, 4, 2], k=len(numbers)), turn=turn)

    writer = KilledWriter(table, "open", random)
    for turn in range(turns):
        match turn % 4:
            case 0:
                writer.write(rows(turn), identifier=turn)
            case 2:
                other = KilledWriter(table, "etl", random)
                other.write(rows(turn), identifier=turn)
                writer.deaths += other.deaths
                other.close()
            case _:
                table.java_writes(rows(turn), full=turn % 8 == 5)
        table.check([Reader.JAVA])
        check_index(table)
    writer.close()
    assert writer.deaths >= turns // 25
    table.check()
    table.check_history()
