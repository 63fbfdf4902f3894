"""What a one-off job sees of a bucket that others write to or compact."""

from __future__ import annotations

from pathlib import Path

import tidelake
from tests.compaction.lakes import commits, new_table, write
from tidelake.compaction.jobs.compact_job import compact_table
from tidelake.compaction.jobs.job_scope import JobScope
from tidelake.compaction.jobs.request import CompactionRequest
from tidelake.storage.commit.manifests.manifest_entry import ManifestEntry
from tidelake.storage.commit.manifests.snapshot_files import live_entries
from tidelake.storage.files.data_file import EMPTY_ROW
from tidelake.storage.model.bucket_id import BucketId

KEY = BucketId(EMPTY_ROW, 0)
FULL = CompactionRequest(full=True)


def live(table: tidelake.Table) -> list[ManifestEntry]:
    latest = table.context.snapshots.latest()
    assert latest is not None
    return live_entries(table.context, latest)


def narrowed(table: tidelake.Table) -> tuple[JobScope, list[ManifestEntry]]:
    scope, first = JobScope(), live(table)
    assert scope.filter(first) == first
    scope.narrow(first, {KEY})
    return scope, first


def test_rows_committed_after_the_start_are_ignored(tmp_path: Path) -> None:
    table = new_table(tmp_path, keyed=True)
    write(table, *commits(3))
    scope, first = narrowed(table)
    write(table, *commits(2))
    assert scope.filter(live(table)) == first
    scope.refresh(KEY)
    assert scope.filter(live(table)) == live(table), "what was lost is planned again, with all there is"


def test_files_of_the_job_itself_are_seen(tmp_path: Path) -> None:
    table = new_table(tmp_path, keyed=True)
    write(table, *commits(3))
    scope, _ = narrowed(table)
    compact_table(table.context, FULL)
    made = live(table)
    scope.add(KEY, [entry.file for entry in made])
    write(table, *commits(2))
    assert scope.filter(live(table)) == made


def test_a_bucket_compacted_by_another_process_is_left_alone(tmp_path: Path) -> None:
    """Else older files could go below those of the other: what they deleted would come back."""
    table = new_table(tmp_path, keyed=True)
    write(table, *commits(3))
    scope, first = narrowed(table)
    write(table, *commits(1))
    compact_table(table.context, FULL)
    theirs = live(table)
    assert {entry.file.level > 0 for entry in theirs} == {True}
    assert scope.filter([*first[:1], *theirs]) == []


def test_buckets_in_which_nothing_was_due_are_left_out(tmp_path: Path) -> None:
    table = new_table(tmp_path, keyed=True)
    write(table, *commits(1))
    scope = JobScope()
    scope.narrow(live(table), set())
    assert scope.filter(live(table)) == []
