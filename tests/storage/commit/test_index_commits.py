"""Index files in commits: the index manifest after each commit, and commits that would lose deleted rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from uuid import uuid4

import pytest

from tests.storage.model.snapshots.tables import added, committer, data_file, latest, live_names, make_table, partition
from tidelake.errors import CommitConflict
from tidelake.storage.commit.commit_increment import CommitIncrement, CompactResult
from tidelake.storage.commit.commit_message import CommitMessage, Committable
from tidelake.storage.commit.manifests.index_manifest import read_index_manifest
from tidelake.storage.commit.manifests.manifest_store import ManifestStore
from tidelake.storage.fileio.memory import MemoryFileIO
from tidelake.storage.files.data_file import EMPTY_ROW, DataFileMeta
from tidelake.storage.files.index_file import IndexFileMeta
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.deletion_vectors.vector_file import DeletionVectorMeta
from tidelake.storage.model.format import CommitKind
from tidelake.storage.model.table import TableContext

IO = MemoryFileIO()


def vectors_of(name: str, *data_files: str) -> IndexFileMeta:
    """An index file with a vector for each of the data files."""
    vectors = tuple(DeletionVectorMeta(data_file, 1 + 30 * i, 22, 1) for i, data_file in enumerate(data_files))
    return IndexFileMeta("DELETION_VECTORS", name, 1 + 30 * len(vectors), len(vectors), vectors)


def deletes(
    new: Sequence[IndexFileMeta] = (),
    old: Sequence[IndexFileMeta] = (),
    *,
    bucket: int = 0,
    in_partition: bytes = EMPTY_ROW,
) -> CommitMessage:
    return CommitMessage(
        BucketId(in_partition, bucket), CommitIncrement(new_index_files=tuple(new), deleted_index_files=tuple(old))
    )


def compaction(
    before: Iterable[DataFileMeta],
    after: Iterable[DataFileMeta],
    new: Sequence[IndexFileMeta] = (),
    old: Sequence[IndexFileMeta] = (),
) -> CommitMessage:
    return CommitMessage(
        BucketId(EMPTY_ROW, 0),
        CommitIncrement(
            compacted=CompactResult(
                before=tuple(before), after=tuple(after), new_index_files=tuple(new), deleted_index_files=tuple(old)
            )
        ),
    )


def commit(table: TableContext, *messages: CommitMessage, user: str = "etl") -> None:
    committer(table, user).commit(Committable(2**63 - 1, messages))


def index_names(table: TableContext) -> list[str]:
    return [entry.file.file_name for entry in read_index_manifest(table, latest(table).index_manifest)]


@pytest.fixture(params=["without buckets", "in buckets", "with a primary key"])
def table(request: pytest.FixtureRequest) -> TableContext:
    bucket = {"without buckets": "-1", "in buckets": "1", "with a primary key": "1"}[request.param]
    has_key = request.param == "with a primary key"
    options = {"bucket": bucket, **({} if has_key or bucket == "-1" else {"bucket-key": "k"})}
    return make_table(IO, f"memory://{uuid4()}/t", primary_key=has_key, options=options)


def test_a_written_index_manifest_is_read_back(table: TableContext) -> None:
    commit(table, added("a", "b"))
    file = vectors_of("index-1", "a", "b")
    commit(table, deletes([file]))
    assert latest(table).commit_kind is CommitKind.OVERWRITE
    (entry,) = read_index_manifest(table, latest(table).index_manifest)
    assert (entry.partition, entry.bucket, entry.file) == (EMPTY_ROW, 0, file)
    name = latest(table).index_manifest
    commit(table, added("c", base=2))
    assert latest(table).index_manifest == name, "what doesn't change the index keeps its manifest"


def test_a_global_index_is_carried_over_unchanged(table: TableContext) -> None:
    global_index = {
        "_ROW_RANGE_START": 0,
        "_ROW_RANGE_END": 9,
        "_INDEX_FIELD_ID": 1,
        "_EXTRA_FIELD_IDS": [2],
        "_INDEX_META": b"m",
        "_SOURCE_META": None,
    }
    commit(table, added("a"))
    foreign = IndexFileMeta("btree", "index-9", 3, 4, global_index=global_index)
    commit(table, deletes([foreign]))
    commit(table, deletes([vectors_of("index-1", "a")]))
    files = [entry.file for entry in ManifestStore(table).read_index(latest(table).index_manifest)]
    assert files == [foreign, vectors_of("index-1", "a")]


def test_new_vectors_replace_the_index_files_they_reference(table: TableContext) -> None:
    commit(table, added("a", "b"))
    first = vectors_of("index-1", "a")
    commit(table, deletes([first]))
    commit(table, deletes([vectors_of("index-2", "a", "b")], [first]))
    assert index_names(table) == ["index-2"]


def test_vectors_of_another_commit_are_never_lost(table: TableContext) -> None:
    commit(table, added("a", "b"))
    first = vectors_of("index-1", "a")
    commit(table, deletes([first]))
    commit(table, deletes([vectors_of("index-2", "a", "b")], [first]), user="quicker")
    with pytest.raises(CommitConflict, match=r"index file index-1 must be replaced, but another commit has"):
        commit(table, deletes([vectors_of("index-3", "a")], [first]))
    with pytest.raises(CommitConflict, match=r"two deletion vectors|another commit wrote deletion vectors \(index-2\)"):
        commit(table, deletes([vectors_of("index-3", "b")]))
    assert index_names(table) == ["index-2"]


def test_rows_of_a_concurrently_replaced_file_cannot_be_deleted(table: TableContext) -> None:
    commit(table, added("a"))
    new = data_file("c", keys=(0, 0), level=5)
    commit(table, compaction([data_file("a", keys=(0, 0))], [new]), user="compaction")
    with pytest.raises(CommitConflict, match=r"rows of a must be deleted, but another commit replaced the file"):
        commit(table, deletes([vectors_of("index-1", "a")]))
    assert live_names(table) == ["c"]


def test_deleted_rows_do_not_reappear_through_a_concurrent_compaction(table: TableContext) -> None:
    commit(table, added("a"))
    old, new = data_file("a", keys=(0, 0)), data_file("c", keys=(0, 0), level=5)
    vectors = vectors_of("index-1", "a")
    commit(table, deletes([vectors]), user="delete")
    with pytest.raises(CommitConflict, match=r"another commit deleted rows of a, and they would reappear"):
        commit(table, compaction([old], [new]))
    commit(table, compaction([old], [new], [vectors_of("index-2")], [vectors]))
    assert live_names(table) == ["c"]


def test_a_vector_is_kept_for_an_upgraded_file() -> None:
    table = make_table(IO, f"memory://{uuid4()}/t", primary_key=True, options={"bucket": "1"})
    low, high = data_file("a", keys=(0, 0), level=4), data_file("a", keys=(0, 0), level=5)
    commit(table, CommitMessage(BucketId(EMPTY_ROW, 0), CommitIncrement(new_files=(low,))))
    commit(table, deletes([vectors_of("index-1", "a")]))
    commit(table, compaction([low], [high]))
    assert (index_names(table), live_names(table)) == (["index-1"], ["a"])


def test_tables_without_buckets_may_have_many_index_files() -> None:
    table = make_table(IO, f"memory://{uuid4()}/t")
    commit(table, added("a", "b", "c"))
    commit(table, deletes([vectors_of("index-1", "a"), vectors_of("index-2", "b")]))
    commit(table, deletes([vectors_of("index-3", "c")]), user="another")
    commit(table, deletes([vectors_of("index-4", "b")], [vectors_of("index-2", "b")]))
    assert index_names(table) == ["index-1", "index-3", "index-4"]


def test_a_new_hash_index_replaces_that_of_its_bucket() -> None:
    table = make_table(IO, f"memory://{uuid4()}/t", primary_key=True)
    commit(table, deletes([IndexFileMeta("HASH", "index-1", 4, 1)]), deletes([IndexFileMeta("HASH", "i")], bucket=1))
    assert latest(table).commit_kind is CommitKind.APPEND
    commit(table, deletes([IndexFileMeta("HASH", "index-2", 8, 2)]))
    assert sorted(index_names(table)) == ["i", "index-2"]


@pytest.mark.parametrize(
    ("specs", "left"), [([{"p": "x"}], ["index-y"]), (None, [])], ids=["a partition", "everything"]
)
def test_overwritten_buckets_are_removed_from_the_index(specs: list[dict[str, str]] | None, left: list[str]) -> None:
    table = make_table(IO, f"memory://{uuid4()}/t", partitioned=True)
    for name in ("x", "y"):
        commit(table, added(name, in_partition=partition(name)))
        commit(table, deletes([vectors_of(f"index-{name}", name)], in_partition=partition(name)))
    commits = committer(table)
    if specs is None:
        commits.truncate()
    else:
        commits.drop_partitions(specs)
    assert index_names(table) == left


def test_index_files_of_an_aborted_commit_are_deleted() -> None:
    table = make_table(IO, f"memory://{uuid4()}/t")
    path = table.paths.index("index-1")
    IO.write(path, b"\1")
    committer(table).abort([deletes([vectors_of("index-1", "a")])])
    assert not IO.exists(path)


def test_a_replay_keeps_the_published_index_files() -> None:
    table = make_table(IO, f"memory://{uuid4()}/t")
    commits = committer(table)
    commits.commit(Committable(1, [added("a")]))
    published = Committable(2, [deletes([vectors_of("index-1", "a")])])
    commits.commit(published)
    IO.write(table.paths.index("index-1"), b"\1")
    IO.write(table.paths.index("index-2"), b"\1")
    assert commits.commit(published) is None
    commits.discard_already_committed(published)
    commits.discard_already_committed(Committable(2, [deletes([vectors_of("index-2", "a")])]))
    assert IO.exists(table.paths.index("index-1"))
    assert not IO.exists(table.paths.index("index-2"))
