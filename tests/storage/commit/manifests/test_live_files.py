"""The live files after a commit are those before it, changed by the commit. The incremental result equals a
full read.
"""

from __future__ import annotations

import uuid

import pytest

from tests.storage.model.snapshots.tables import added, committer, data_file, latest, make_table
from tidelake.errors import CorruptFile
from tidelake.storage.commit.commit_increment import CommitIncrement, CompactResult
from tidelake.storage.commit.commit_message import CommitMessage, Committable
from tidelake.storage.commit.manifests import live_files
from tidelake.storage.commit.manifests.manifest_entry import ManifestEntry
from tidelake.storage.commit.manifests.manifest_store import ManifestStore
from tidelake.storage.commit.manifests.snapshot_files import live_entries_of, merged, table_manifests
from tidelake.storage.fileio.memory import MemoryFileIO
from tidelake.storage.files.data_file import EMPTY_ROW
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.format import FileKind
from tidelake.storage.model.metadata_cache import MetadataCache
from tidelake.storage.model.table import TableContext


def new_table(options: dict[str, str] | None = None) -> TableContext:
    return make_table(MemoryFileIO(), f"memory://{uuid.uuid4()}/t", options=options)


def found(context: TableContext) -> list[str]:
    """As `live_entries_of` gives them; what it says is compared with all manifests merged."""
    store = context.shared(ManifestStore)
    entries = live_entries_of(store, latest(context), None, context.name)
    fresh = merged(
        context.with_cache(MetadataCache()).shared(ManifestStore), table_manifests(store, latest(context)), ""
    )
    assert entries == [entry for entry in fresh if entry.kind is FileKind.ADD]
    return [entry.file.file_name for entry in entries]


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of manifests whose entries were merged in."""
    names: list[str] = []
    add = live_files.MergedManifests.add

    def noted(self: live_files.MergedManifests, name: str, entries: list[ManifestEntry]) -> None:
        names.append(name)
        add(self, name, entries)

    monkeypatch.setattr(live_files.MergedManifests, "add", noted)
    return names


def test_only_the_manifest_of_a_new_commit_is_read(read: list[str]) -> None:
    context = new_table()
    commit = committer(context)
    for number in range(1, 6):
        commit.commit(Committable(number, [added(f"f{number}")]))
        read.clear()
        assert found(context) == [f"f{n}" for n in range(1, number + 1)]
        assert len(read) == 1
    read.clear()
    assert len(found(context)) == 5
    assert read == []


def test_a_deleted_file_is_no_longer_live(read: list[str]) -> None:
    context = new_table()
    commit = committer(context)
    old, other, new = data_file("old"), data_file("other"), data_file("new")
    commit.commit(Committable(1, [CommitMessage(BucketId(EMPTY_ROW, 0), CommitIncrement(new_files=(old, other)))]))
    assert found(context) == ["old", "other"]
    message = CommitMessage(
        BucketId(EMPTY_ROW, 0), CommitIncrement(compacted=CompactResult(before=(old,), after=(new,)))
    )
    commit.commit(Committable(2, [message]))
    assert found(context) == ["other", "new"]


def test_after_a_manifest_merge_all_manifests_are_read_again() -> None:
    context = new_table({"manifest.merge-min-count": "3"})
    commit = committer(context)
    for number in range(1, 12):
        commit.commit(Committable(number, [added(f"f{number}")]))
        assert sorted(found(context)) == sorted(f"f{n}" for n in range(1, number + 1))


def test_after_a_rollback_only_current_files_are_live() -> None:
    context = new_table()
    commit = committer(context)
    commit.commit(Committable(1, [added("kept")]))
    commit.commit(Committable(2, [added("undone")]))
    assert found(context) == ["kept", "undone"]
    context.io.delete(context.paths.snapshot(2))
    context.io.delete(context.paths.latest_hint)
    again = committer(context, "again")
    again.commit(Committable(1, [added("instead")]))
    assert found(context) == ["kept", "instead"]


def test_a_contradiction_is_raised_each_time_and_never_cached() -> None:
    context = new_table()
    commit = committer(context)
    twice = added("f")
    commit.commit(Committable(1, [twice]))
    assert found(context) == ["f"]
    commit.commit(Committable(2, [twice]))
    for _ in range(2):
        with pytest.raises(CorruptFile, match="already exists"):
            live_entries_of(context.shared(ManifestStore), latest(context), None, context.name)


def test_entries_that_exceed_the_cache_are_read_each_time(read: list[str]) -> None:
    context = new_table().with_cache(MetadataCache(max_bytes=10))
    committer(context).commit(Committable(1, [added("f")]))
    assert found(context) == found(context) == ["f"]
    assert len(read) == 2
