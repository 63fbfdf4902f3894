"""Changelogs that compaction makes: which rows, in which snapshots, in which files."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
import pytest

import tidelake
from tests.support.changelog_fold import check_changelog
from tidelake.compaction.jobs.compact_job import compact_table
from tidelake.storage.commit.manifests.manifest_entry import ManifestEntry
from tidelake.storage.commit.manifests.snapshot_files import changelog_entries
from tidelake.storage.maintenance.verify import changelog_check, verify
from tidelake.storage.model.format import CommitKind, FileSource
from tidelake.storage.read.snapshot_reader import SnapshotReader
from tidelake.storage.write.lookup import file_parts
from tidelake.storage.write.lookup.file_parts import LookupFilePart
from tidelake.storage.write.lookup.lookup_cache import LookupCache, Span
from tidelake.storage.write.lookup.lookup_file import FileLookupResult, Keys, LookupFile
from tidelake.writer import Writer

SCHEMA: Final = pa.schema([("k", pa.int64()), ("v", pa.int64())])
WITH_KIND: Final = SCHEMA.append(pa.field("_VALUE_KIND", pa.int8()))
INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE = range(4)
Row = tuple[int, int, int]  # kind, k, v
FULL: Final = {"changelog-producer": "full-compaction"}
LOOKUP: Final = {"changelog-producer": "lookup"}
BOTH: Final = [pytest.param(FULL, id="full-compaction"), pytest.param(LOOKUP, id="lookup")]


def new_table(options: Mapping[str, str]) -> tidelake.Table:
    catalog = tidelake.open_catalog(f"memory://{uuid4().hex}/lake")
    catalog.create_database("db")
    return catalog.create_table("db.t", SCHEMA, primary_key=["k"], options={"bucket": "1", **options})


def write(table: tidelake.Table, *commits: Sequence[Row]) -> None:
    with table.writer() as writer:
        for rows in commits:
            values = [{"_VALUE_KIND": kind, "k": k, "v": v} for kind, k, v in rows]
            writer.write(pa.Table.from_pylist(values, WITH_KIND))
            writer.commit()


def changes(table: tidelake.Table) -> list[list[Row]]:
    """Of each snapshot that has any."""
    found: dict[int, list[Row]] = defaultdict(list)
    for batch in table.changes(start=1):
        found[batch.snapshot_id] += [(row["_VALUE_KIND"], row["k"], row["v"]) for row in batch.rows.to_pylist()]
    return list(found.values())


def seen(table: tidelake.Table) -> dict[int, int]:
    return {row["k"]: row["v"] for row in table.scan().to_arrow().to_pylist()}


def changelog_files(table: tidelake.Table) -> list[ManifestEntry]:
    return [entry for snapshot in table.snapshots() for entry in changelog_entries(table.context, snapshot)]


# ---------------------------------------------------------------- rows


@pytest.mark.parametrize("producer", BOTH)
def test_a_changelog_contains_the_changes_that_readers_see(producer: dict[str, str]) -> None:
    """The worked example of the format's description."""
    table = new_table(producer)
    write(
        table,
        [(INSERT, 1, 10), (INSERT, 2, 20)],
        [(INSERT, 1, 11)],
        [(DELETE, 2, 20)],
        [(DELETE, 3, 0)],
        [(INSERT, 1, 11)],
        [(INSERT, 1, 12), (DELETE, 1, 12)],
    )
    assert changes(table) == [
        [(INSERT, 1, 10), (INSERT, 2, 20)],
        [(UPDATE_BEFORE, 1, 10), (UPDATE_AFTER, 1, 11)],
        [(DELETE, 2, 20)],
        [(UPDATE_BEFORE, 1, 11), (UPDATE_AFTER, 1, 11)],
        [(DELETE, 1, 11)],
    ]
    assert verify(table.context, deep=True) == []


@pytest.mark.parametrize("producer", BOTH)
@pytest.mark.parametrize(
    ("engine", "rows", "expected"),
    [
        pytest.param(
            {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"},
            [[(INSERT, 1, 5)], [(INSERT, 1, 3)], [(DELETE, 1, 8)]],
            [
                [(INSERT, 1, 5)],
                [(UPDATE_BEFORE, 1, 5), (UPDATE_AFTER, 1, 8)],
                [(UPDATE_BEFORE, 1, 8), (UPDATE_AFTER, 1, 0)],
            ],
            id="aggregation",
        ),
        pytest.param(
            {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"},
            [[(INSERT, 1, 5)], [(INSERT, 1, None)], [(DELETE, 1, 5)]],
            [[(INSERT, 1, 5)], [(UPDATE_BEFORE, 1, 5), (UPDATE_AFTER, 1, 5)], [(DELETE, 1, 5)]],
            id="partial-update",
        ),
    ],
)
def test_changelog_rows_are_the_merged_rows(
    producer: dict[str, str], engine: dict[str, str], rows: list[list[Any]], expected: list[list[Row]]
) -> None:
    table = new_table(producer | engine)
    write(table, *rows)
    assert changes(table) == expected


@pytest.mark.parametrize("producer", BOTH)
def test_row_deduplicate_omits_updates_without_effect(producer: dict[str, str]) -> None:
    table = new_table(producer | {"changelog-producer.row-deduplicate": "true"})
    write(table, [(INSERT, 1, 10), (INSERT, 2, 20)], [(INSERT, 1, 10), (INSERT, 2, 21)])
    assert changes(table)[1:] == [[(UPDATE_BEFORE, 2, 20), (UPDATE_AFTER, 2, 21)]]


def test_commits_compacted_together_give_one_change() -> None:
    table = new_table(FULL | {"write-only": "true"})
    write(table, [(INSERT, 1, 10), (INSERT, 2, 1)], [(INSERT, 1, 11)], [(DELETE, 2, 1)])
    assert changes(table) == []
    table.compact(full=True)
    assert changes(table) == [[(INSERT, 1, 11)]]


# ---------------------------------------------------------------- snapshots


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param({}, [2, 4, 6, 8], id="at every commit unless said otherwise"),
        pytest.param({"full-compaction.delta-commits": "2"}, [3, 6], id="at every other commit"),
        pytest.param(
            {"compaction.optimization-interval": "1 ms", "full-compaction.delta-commits": "100"},
            [3, 5, 7],
            id="by time",
        ),
        pytest.param({"write-only": "true"}, [], id="write-only leaves it to a job"),
    ],
)
def test_which_snapshots_carry_a_changelog(options: dict[str, str], expected: list[int]) -> None:
    table = new_table(FULL | {"commit.force-compact": "true"} | options)
    with table.writer() as writer:
        for identifier in range(1, 5):
            writer.write(pa.table({"k": [1], "v": [identifier]}, SCHEMA))
            writer.commit(identifier)
    snapshots = table.snapshots()
    carrying = [snapshot for snapshot in snapshots if snapshot.changelog_manifest_list is not None]
    assert {snapshot.commit_kind for snapshot in carrying} <= {CommitKind.COMPACT}
    assert [snapshot.id for snapshot in carrying] == expected


@pytest.mark.parametrize(("producer", "full"), [(FULL, True), (LOOKUP, False), (LOOKUP, True)])
def test_a_job_makes_the_changelog_that_a_write_only_writer_left_to_it(producer: dict[str, str], full: bool) -> None:
    table = new_table(producer | {"write-only": "true"})
    write(table, [(INSERT, 1, 10)], [(INSERT, 2, 20)])
    table.compact(full=full)
    write(table, [(INSERT, 1, 11)], [(DELETE, 2, 20)])
    table.compact(full=full)
    assert changes(table) == [
        [(INSERT, 1, 10), (INSERT, 2, 20)],
        [(UPDATE_BEFORE, 1, 10), (UPDATE_AFTER, 1, 11), (DELETE, 2, 20)],
    ]


def test_only_a_due_bucket_emits_its_changelog() -> None:
    """A job without `full`: a follower has the rows of the highest level, but not yet those of lower levels."""
    table = new_table(FULL | {"bucket": "2", "write-only": "true", "num-sorted-run.compaction-trigger": "3"})
    write(table, [(INSERT, k, 0) for k in range(8)])
    table.compact(full=True)
    due, other = (
        next(SnapshotReader(table.context, ("k",)).read([split]))["k"][0].as_py() for split in table.scan().splits()
    )
    write(table, [(DELETE, other, 0), (INSERT, due, 1)], [(INSERT, due, 2)], [(INSERT, due, 3)])
    table.compact()
    assert changes(table)[1:] == [[(UPDATE_BEFORE, due, 0), (UPDATE_AFTER, due, 3)]]
    assert seen(table) == {k: 3 if k == due else 0 for k in range(8) if k != other}
    assert check_changelog(table) == 2
    assert changelog_check.check_changelog(table.context).is_sound
    table.compact(full=True)
    assert changes(table)[2:] == [[(DELETE, other, 0)]]
    assert check_changelog(table) == 3


def test_an_overwrite_makes_no_changelog_and_later_changes_build_on_it() -> None:
    table = new_table(FULL)
    write(table, [(INSERT, 1, 10), (INSERT, 2, 20)])
    with table.writer(overwrite=True) as writer:
        writer.write(pa.table({"k": [1], "v": [100]}, SCHEMA))
        writer.commit()
    assert [batch.is_break for batch in table.changes(start=1)] == [False, True]
    write(table, [(INSERT, 1, 101)])
    assert changes(table)[-1] == [(UPDATE_BEFORE, 1, 100), (UPDATE_AFTER, 1, 101)]


def test_first_row_emits_only_the_first_row_of_a_key() -> None:
    table = new_table(LOOKUP | {"merge-engine": "first-row"})
    write(table, [(INSERT, 1, 10)], [(INSERT, 1, 11), (INSERT, 2, 20)], [(INSERT, 2, 21)])
    assert changes(table) == [[(INSERT, 1, 10)], [(INSERT, 2, 20)]]


def test_without_lookup_wait_changes_are_emitted_later() -> None:
    table = new_table(LOOKUP | {"lookup-wait": "false"})
    with table.writer() as writer:
        for identifier in range(1, 6):
            writer.write(pa.table({"k": [1], "v": [identifier]}, SCHEMA))
            writer.commit(identifier)
    with table.writer() as writer:  # ends with what was left
        writer.commit()
    rows: dict[int, int] = {}
    for kind, k, v in [row for of_snapshot in changes(table) for row in of_snapshot]:
        assert kind not in (UPDATE_BEFORE, DELETE) or rows[k] == v
        rows[k] = v
    assert rows == {1: 5} == seen(table)


def test_level_0_rows_of_a_crashed_writer_are_looked_up_by_the_next_one() -> None:
    """It died between its rows and their compaction. The next one writes to another bucket, or nothing at all."""
    table = new_table(LOOKUP)
    write(table, [(INSERT, 1, 10)])
    context = table.context.with_options({"write-only": "true"})
    with Writer(context, "etl") as writer:
        writer.write(pa.table({"k": [1], "v": [11]}, SCHEMA))
        writer.commit(1)
    assert len(changes(table)) == 1
    with table.writer(commit_user="etl") as writer:
        writer.commit(2)
    assert changes(table)[1:] == [[(UPDATE_BEFORE, 1, 10), (UPDATE_AFTER, 1, 11)]]


def test_an_expired_row_is_not_reported_as_a_previous_row() -> None:
    """`record-level.expire-time`: an expired row does not exist, for a lookup too."""
    table = new_table(LOOKUP | {"record-level.expire-time": "1 h", "record-level.time-field": "v", "num-levels": "3"})
    write(table, [(INSERT, 1, 0), (INSERT, 2, 4_000_000_000)])
    write(table, [(INSERT, 1, 4_000_000_001), (INSERT, 2, 4_000_000_001)])
    assert (INSERT, 1, 4_000_000_001) in changes(table)[-1]
    assert (UPDATE_BEFORE, 2, 4_000_000_000) in changes(table)[-1]


def test_a_new_writer_decodes_only_the_row_groups_that_contain_its_keys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(file_parts, "PART_ROWS", 1_000)
    monkeypatch.setattr("tidelake.storage.files.writer.ROW_GROUP_ROWS", 1_000)
    table = new_table(LOOKUP)
    write(table, [(INSERT, k, 0) for k in range(0, 20_000, 2)])
    table.compact(full=True)
    decoded: list[LookupFilePart] = []
    keep = LookupCache._keep

    def noted(self: LookupCache, span: Span, asked: Any, part: LookupFilePart, *rest: Any) -> LookupFile | None:
        decoded.append(part)
        return keep(self, span, asked, part, *rest)

    monkeypatch.setattr(LookupCache, "_keep", noted)
    write(table, [(INSERT, 4_000, 1), (INSERT, 4_001, 1), (DELETE, 16_002, 0)], [(INSERT, 4_002, 1)])
    of_large_file, of_small_one = (
        [LookupFilePart(2_000, 1_000, range(2, 3)), LookupFilePart(8_000, 1_000, range(8, 9))],
        [LookupFilePart(0, 3)],
    )
    assert decoded == of_large_file + of_small_one
    assert changes(table)[-2:] == [
        [(UPDATE_BEFORE, 4_000, 0), (UPDATE_AFTER, 4_000, 1), (INSERT, 4_001, 1), (DELETE, 16_002, 0)],
        [(UPDATE_BEFORE, 4_002, 0), (UPDATE_AFTER, 4_002, 1)],
    ]
    assert check_changelog(table)


def test_a_job_leaves_no_lookup_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    table = new_table(LOOKUP | {"bucket": "3", "write-only": "true"})
    with table.writer() as writer:
        writer.write(pa.table({"k": range(30_000), "v": range(30_000)}, SCHEMA))
        writer.commit()
    table.compact(full=True)
    write(table, [(INSERT, k, -1) for k in range(30)])
    kept: list[int] = []
    made = LookupFile.find

    def find(self: LookupFile, keys: Keys) -> Iterator[FileLookupResult]:
        kept.append(len(list(tmp_path.rglob("*.arrow"))))
        return made(self, keys)

    monkeypatch.setattr(LookupFile, "find", find)
    compact_table(table.context, threads=1)
    assert set(kept) == {1}
    assert not list(tmp_path.rglob("*.arrow"))


# ---------------------------------------------------------------- files


def test_changelog_files_follow_their_options() -> None:
    table = new_table(
        FULL
        | {
            "changelog-file.prefix": "told-",
            "changelog-file.format": "avro",
            "file.format.per.level": "5:orc",
            "changelog-file.stats-mode": "none",
        }
    )
    write(table, [(INSERT, 1, 10)], [(INSERT, 1, 11)])
    files = [entry.file for entry in changelog_files(table)]
    assert [(file.level, file.file_source, file.row_count) for file in files] == [
        (5, FileSource.APPEND, 1),
        (5, FileSource.APPEND, 2),
    ]
    assert all(file.file_name.startswith("told-") and file.file_name.endswith(".avro") for file in files)
    assert [entry.file.delete_row_count for entry in changelog_files(table)] == [0, 1]


def test_changelog_files_have_the_format_of_data_files_of_their_level() -> None:
    table = new_table(FULL | {"file.format.per.level": "5:orc"})
    write(table, [(INSERT, 1, 10)])
    assert [entry.file.file_name.rpartition(".")[2] for entry in changelog_files(table)] == ["orc"]


def test_an_upgraded_file_is_read_for_its_changes() -> None:
    table = new_table(FULL | {"write-only": "true"})
    write(table, [(INSERT, 1, 10), (INSERT, 2, 20)])
    (written,) = table.scan().splits()
    table.compact(full=True)
    (raised,) = table.scan().splits()
    assert [file.file_name for file in raised.files] == [file.file_name for file in written.files]
    assert [file.level for file in raised.files] == [5]
    assert changes(table) == [[(INSERT, 1, 10), (INSERT, 2, 20)]]
