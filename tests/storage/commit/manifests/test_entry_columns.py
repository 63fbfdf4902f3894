"""The files of a snapshot as columns equal those of its entries, on both read paths."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.storage.model.snapshots.tables import committer, data_file, latest, make_table, partition
from tests.support.cases import GoldenTable, golden_tables
from tests.support.levels import examples
from tidelake.errors import CorruptFile
from tidelake.storage.commit.commit_increment import CommitIncrement, CompactResult
from tidelake.storage.commit.commit_message import CommitMessage, Committable
from tidelake.storage.commit.manifests import entry_columns, record_file
from tidelake.storage.commit.manifests.entry_columns import columns_of_entries, live_entry_columns
from tidelake.storage.commit.manifests.manifest_store import ManifestStore
from tidelake.storage.commit.manifests.snapshot_files import live_entries, table_manifests
from tidelake.storage.fileio import open_file_io
from tidelake.storage.fileio.memory import MemoryFileIO
from tidelake.storage.files.data_file import SimpleStats
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.metadata_cache import MetadataCache
from tidelake.storage.model.table import TableContext

AVRO_TABLES: Final = [table for table in golden_tables() if table.id != "java/manifest_merge"]  # that one is Parquet


@pytest.fixture
def few_blocks_count() -> Iterator[None]:
    """Manifests are read by blocks however few these are."""
    with patch.object(entry_columns, "_ENTRIES_MIN", 0), patch.object(entry_columns, "_BLOCKS_MIN", 1):
        yield


def by_entries(context: TableContext) -> list[dict[str, Any]]:
    entries = sorted(live_entries(context, latest(context)), key=lambda entry: entry.bucket_id)
    found: list[dict[str, Any]] = columns_of_entries(entries).to_pylist()
    return found


def by_blocks(context: TableContext) -> list[dict[str, Any]]:
    """As another process reads them. It must not need entries."""
    fresh = context.with_cache(MetadataCache())
    with patch.object(entry_columns, "live_entries", side_effect=AssertionError("read entry by entry")):
        found: list[dict[str, Any]] = live_entry_columns(fresh, latest(fresh)).to_pylist()
    return found


_NUMBERS: Final = itertools.count()  # of tables: memory is one for all
STEPS: Final = st.lists(
    st.tuples(st.sampled_from("+-^"), st.integers(0, 7), st.sampled_from([None, "p", "q"])), max_size=12
)


@pytest.mark.usefixtures("few_blocks_count")
@settings(max_examples=examples(60))
@given(STEPS, st.integers(1, 2000))
def test_columns_equal_the_merged_entries(steps: list[tuple[str, int, str | None]], block_bytes: int) -> None:
    """`+` adds a file, `-` deletes it, `^` moves it to another level."""
    context = make_table(MemoryFileIO(), f"memory://{next(_NUMBERS)}/t", primary_key=True, partitioned=True)
    commit = committer(context)
    there: dict[tuple[str | None, int], int] = {}
    with patch.object(record_file, "_SYNC_INTERVAL_BYTES", block_bytes):
        commit.commit(Committable(1))
        for identifier, (step, number, name) in enumerate(steps, 2):
            place, level = (name, number), there.get((name, number))
            file = data_file(
                *(f"data-{name}-{number}.parquet",),
                level=level or 0,
                value_stats=SimpleStats(bytes(12), bytes(12), (None, number)),
                value_stats_columns=None if number % 2 else ("k",),
                first_row_id=number if number % 3 else None,
            )
            increment = CommitIncrement()
            if step == "+" and level is None:
                increment, there[place] = CommitIncrement(new_files=(file,)), 0
            elif step == "-" and level is not None:
                increment = CommitIncrement(compacted=CompactResult((file,)))
                del there[place]
            elif step == "^" and level == 0:
                moved = data_file(file.file_name, level=5)
                increment, there[place] = CommitIncrement(compacted=CompactResult((file,), (moved,))), 5
            message = CommitMessage(BucketId(partition(name), number % 2), increment)
            commit.commit(Committable(identifier, [message]))
    assert len(by_entries(context)) == len(there)
    if table_manifests(context.shared(ManifestStore), latest(context)):
        assert by_blocks(context) == by_entries(context)


@pytest.mark.usefixtures("few_blocks_count")
@pytest.mark.parametrize("golden", AVRO_TABLES, ids=lambda table: table.id)
def test_manifests_of_other_writers_are_read_by_blocks_too(golden: GoldenTable, tmp_path: Path) -> None:
    warehouse = golden.unpack(tmp_path)
    database, _, name = golden.identifier.partition(".")
    context = TableContext.open(open_file_io(str(warehouse)), f"{warehouse}/{database}.db/{name}", golden.identifier)
    if context.snapshots.latest() is not None:
        assert by_blocks(context) == by_entries(context)


@pytest.mark.usefixtures("few_blocks_count")
@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda data: data[:-40], id="cut short"),
        pytest.param(lambda data: b"Obj\x01" + bytes(60), id="zeros"),
        pytest.param(lambda data: data[:-30] + bytes(30), id="another end"),
        pytest.param(None, id="gone"),
    ],
)
def test_a_corrupt_manifest_is_named(damage: Any, tmp_path: Path) -> None:
    context = make_table(open_file_io(str(tmp_path)), f"{tmp_path}/t")
    committer(context).commit(
        Committable(1, [CommitMessage(BucketId(bytes(12), 0), CommitIncrement(new_files=(data_file("a.parquet"),)))])
    )
    (manifest,) = (path for path in (tmp_path / "t/manifest").iterdir() if "list" not in path.name)
    data = manifest.read_bytes()
    manifest.unlink()
    if damage is not None:
        manifest.write_bytes(damage(data))
    fresh = context.with_cache(MetadataCache())
    with pytest.raises(CorruptFile, match=manifest.name):
        live_entry_columns(fresh, latest(fresh))
