"""Verification of the hash index of dynamic buckets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import tidelake
from tidelake.storage.commit.manifests.index_manifest import IndexEntry, index_entry_path, read_index_manifest
from tidelake.storage.maintenance.verify.index_check import check_hash_index
from tidelake.storage.maintenance.verify.inspection import verify
from tidelake.storage.model.format import HASH_INDEX
from tidelake.storage.model.table import TableContext
from tidelake.storage.write.assigners.hash_index_file import encode_hashes, read_hash_file

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False)])


@pytest.fixture
def context(tmp_path: Path) -> TableContext:
    """Two buckets with two keys each."""
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("db")
    options = {"bucket": "-1", "dynamic-bucket.target-row-num": "2"}
    table = catalog.create_table("db.t", SCHEMA, primary_key=["id"], options=options)
    with table.writer() as writer:
        writer.write(pa.table({"id": [1, 2, 3, 4]}, SCHEMA))
        writer.commit()
    return table.context


def entries(context: TableContext) -> list[IndexEntry]:
    latest = context.snapshots.latest()
    assert latest is not None
    found = [e for e in read_index_manifest(context, latest.index_manifest) if e.file.index_type == HASH_INDEX]
    return sorted(found, key=lambda entry: entry.bucket)


def test_a_sound_index_has_no_finding(context: TableContext) -> None:
    assert len(entries(context)) == 2
    assert verify(context, deep=True) == []


def test_a_key_in_the_index_of_two_buckets_is_found(context: TableContext) -> None:
    first, second = entries(context)
    of_first = read_hash_file(context, first.partition, first.bucket, first.file)
    of_second = read_hash_file(context, second.partition, second.bucket, second.file)
    mixed = np.array([of_first[0], of_second[0]], np.int32)
    Path(index_entry_path(context, second)).write_bytes(encode_hashes(mixed))
    (finding,) = verify(context)
    assert finding.check == "hash-index"
    assert "1 hashes of keys are in the index of two buckets of the table, as of buckets 0 and 1" in finding.what


def test_another_number_of_hashes_than_the_manifest_says_is_found(context: TableContext) -> None:
    first, second = entries(context)
    wrong = replace(first, file=replace(first.file, row_count=3))
    (finding,) = check_hash_index(context, [wrong, second], "snapshot 1")
    assert "holds 2 hashes, but its manifest says 3" in finding.what


def test_an_index_file_that_is_gone_is_found(context: TableContext) -> None:
    Path(index_entry_path(context, entries(context)[0])).unlink()
    (finding,) = verify(context)
    assert finding.check == "index-file"
