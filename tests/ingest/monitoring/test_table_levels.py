"""Files by bucket and level follow the table, for commits of any writer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidelake
from tidelake.ingest.monitoring import table_levels
from tidelake.ingest.monitoring.table_levels import LevelFiles, TableLevelsReader
from tidelake.storage.catalog.opening import open_catalog
from tidelake.storage.commit.manifests.snapshot_files import live_entries, live_entries_of


@pytest.fixture
def table(tmp_path: Path) -> tidelake.Table:
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("db")
    columns = pa.schema([("id", pa.int64()), ("v", pa.string())])
    options = {"bucket": "2", "num-sorted-run.compaction-trigger": "100"}
    return catalog.create_table("db.t", columns, primary_key=["id"], options=options)


def write(table: tidelake.Table, value: str) -> None:
    with table.writer(commit_user=value) as writer:
        writer.write(pa.table({"id": list(range(20)), "v": [value] * 20}))
        writer.commit(identifier=1)


def files_of(tmp_path: Path) -> dict[tuple[int, int], LevelFiles]:
    """As a reader of the newest snapshot finds them."""
    context = open_catalog(str(tmp_path)).load("db.t")
    latest = context.snapshots.latest()
    assert latest is not None
    found: dict[tuple[int, int], LevelFiles] = {}
    for entry in live_entries(context, latest):
        place = entry.bucket, entry.file.level
        before = found.get(place, LevelFiles(0, 0))
        found[place] = LevelFiles(before.files + 1, before.nbytes + entry.file.file_size)
    return found


def seen(reader: TableLevelsReader) -> dict[tuple[int, int], LevelFiles]:
    buckets = reader.read().buckets
    return {(key.bucket, level): files for key, levels in buckets.items() for level, files in levels.items()}


def test_level_metrics_follow_writes_and_compactions(tmp_path: Path, table: tidelake.Table) -> None:
    reader = TableLevelsReader(open_catalog(str(tmp_path)).load("db.t"))
    assert seen(reader) == {}
    for value in ("a", "b"):
        write(table, value)
        assert seen(reader) == files_of(tmp_path)
    assert reader.read().sorted_runs_max() == 2
    table.compact(full=True)
    assert seen(reader) == files_of(tmp_path)
    (level,) = reader.read().by_level()
    assert level > 0
    assert (reader.read().sorted_runs_max(), reader.read().snapshot_id) == (1, 3)


def test_only_changes_are_read_again_unless_snapshots_expired(
    tmp_path: Path, table: tidelake.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = TableLevelsReader(open_catalog(str(tmp_path)).load("db.t"))
    write(table, "a")
    reader.read()
    whole: list[int] = []

    def read_whole(*arguments: Any) -> Any:
        whole.append(1)
        return live_entries_of(*arguments)

    monkeypatch.setattr(table_levels, "live_entries_of", read_whole)
    write(table, "b")
    assert (seen(reader), whole) == (files_of(tmp_path), [])
    for value in "cdef":
        write(table, value)
    table.expire(retain_max=1, retain_min=1, retain_ms=0)
    assert (seen(reader), len(whole)) == (files_of(tmp_path), 1)


@dataclass(frozen=True)
class CountedTable:
    """options, key: of a table of the columns id and v. rows: after ten rows are written three times."""

    name: str
    options: dict[str, str]
    key: Sequence[str] = ("id",)
    rows: int = 10


@pytest.mark.parametrize(
    "case",
    [
        CountedTable("a key", {}),
        CountedTable("a key, compacted", {"full-compaction.delta-commits": "1"}),
        CountedTable("deletion vectors", {"deletion-vectors.enabled": "true"}),
        CountedTable("first row", {"merge-engine": "first-row"}),
        CountedTable("dynamic buckets", {"bucket": "-1"}),
        CountedTable("no key", {"bucket": "-1"}, (), 30),
        CountedTable("no key, rows with ids", {"bucket": "-1", "row-tracking.enabled": "true"}, (), 30),
    ],
    ids=lambda case: case.name,
)
@pytest.mark.parametrize("is_large", [False, True], ids=["small", "large"])
def test_rows_are_those_of_the_table(
    tmp_path: Path, case: CountedTable, is_large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a large table that merges rows only an upper bound is known."""
    if is_large:
        monkeypatch.setattr(table_levels, "_ROWS_READ_MAX", 1)
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("db")
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])
    table = catalog.create_table("db.t", columns, primary_key=case.key, options={"bucket": "1", **case.options})
    reader = TableLevelsReader(open_catalog(str(tmp_path)).load("db.t"))
    assert reader.read().rows_in_files == 0
    for number in range(3):
        with table.writer(commit_user="etl") as writer:
            writer.write(pa.table({"id": range(10), "v": ["x"] * 10}, columns))
            writer.commit(identifier=number + 1)
        reader.read()
    counted = reader.count_rows()
    assert table.scan().to_arrow().num_rows == case.rows
    if is_large and case.key:
        assert (counted.is_exact, counted.rows >= case.rows) == (False, True)
    else:
        assert counted == (case.rows, True)


def test_write_amplification_and_uncompacted_bytes_are_those_of_the_snapshots(
    table: tidelake.Table, tmp_path: Path
) -> None:
    write(table, "before the first look")
    reader = TableLevelsReader(open_catalog(str(tmp_path)).load("db.t"))
    first = reader.read()
    assert (first.flushed_bytes, first.compacted_bytes, first.write_amplification) == (0, 0, None)
    write(table, "a")
    write(table, "b")
    flushed = reader.read()
    assert flushed.write_amplification == 1
    assert flushed.uncompacted_bytes == sum(nbytes for _, nbytes in flushed.by_level().values())
    assert flushed.flushed_bytes == flushed.uncompacted_bytes - (first.uncompacted_bytes or 0)
    table.compact(full=True)
    compacted = reader.read()
    written = sum(nbytes for _, nbytes in compacted.by_level().values())
    assert compacted.uncompacted_bytes == 0
    assert compacted.compacted_bytes == written
    assert compacted.write_amplification == (flushed.flushed_bytes + written) / flushed.flushed_bytes


def test_a_file_that_only_moves_to_another_level_was_not_written(tmp_path: Path) -> None:
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("db")
    table = catalog.create_table(
        "db.t", pa.schema([("id", pa.int64()), ("v", pa.string())]), primary_key=["id"], options={"bucket": "1"}
    )
    reader = TableLevelsReader(open_catalog(str(tmp_path)).load("db.t"))
    reader.read()
    with tidelake.Table(table.context.with_options({"write-only": "true"})).writer() as writer:
        writer.write(pa.table({"id": [1], "v": ["a"]}))
        writer.commit()
    reader.read()
    table.compact(full=True)  # one file without deletes: it moves
    moved = reader.read()
    assert moved.uncompacted_bytes == 0
    assert moved.compacted_bytes == 0


def test_a_table_without_a_key_has_no_levels_to_compact(tmp_path: Path) -> None:
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("db")
    table = catalog.create_table("db.t", pa.schema([("id", pa.int64())]))
    table.append(pa.table({"id": [1]}))
    assert TableLevelsReader(open_catalog(str(tmp_path)).load("db.t")).read().uncompacted_bytes is None
