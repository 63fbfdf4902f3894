"""Tables with dynamic buckets: a key keeps its bucket, with any other writers and after any aborted work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from random import Random
from uuid import uuid4

import pyarrow as pa
import pytest

import tidelake
from tests.support.levels import sample
from tidelake.errors import CommitConflict, CorruptFile, UnsupportedFeature
from tidelake.storage.commit.commit_message import Committable
from tidelake.storage.commit.manifests.index_manifest import IndexEntry, read_index_manifest
from tidelake.storage.commit.table_commit import TableCommit
from tidelake.storage.files.index_file import index_file_path
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.write.assigners.hash_index_file import read_hash_file
from tidelake.storage.write.table_writer import TableWriter

SCHEMA = pa.schema(
    [pa.field("p", pa.string(), nullable=False), pa.field("k", pa.int64(), nullable=False), ("v", pa.string())]
)
FOUR_KEYS = {"bucket": "-1", "dynamic-bucket.target-row-num": "4"}


def new_table(options: Mapping[str, str] | None = None, *, warehouse: str | None = None) -> tidelake.Table:
    catalog = tidelake.open_catalog(warehouse or f"memory://{uuid4().hex}/lake")
    catalog.create_database("db")
    return catalog.create_table(
        "db.t", SCHEMA, primary_key=["p", "k"], partition_by=["p"], options={**FOUR_KEYS, **(options or {})}
    )


def rows(keys: Iterable[int], value: str = "v", *, partition: str = "a", kind: int = 0) -> pa.Table:
    keys = list(keys)
    return pa.table(
        {
            "p": [partition] * len(keys),
            "k": keys,
            "v": [value] * len(keys),
            "_VALUE_KIND": pa.array([kind] * len(keys), pa.int8()),
        },
    )


def write(table: tidelake.Table, *batches: pa.Table, overwrite: bool = False) -> None:
    with table.writer(overwrite=overwrite or None) as writer:
        for batch in batches:
            writer.write(batch)
        writer.commit()


def hash_entries(table: tidelake.Table) -> list[IndexEntry]:
    context = table.context
    latest = context.snapshots.latest()
    assert latest is not None
    return [e for e in read_index_manifest(context, latest.index_manifest) if e.file.index_type == "HASH"]


def sizes(table: tidelake.Table) -> dict[BucketId, int]:
    """Keys of each bucket, by the index; no key is in two."""
    entries = hash_entries(table)
    found = [
        (entry.partition, int(one))
        for entry in entries
        for one in read_hash_file(table.context, entry.partition, entry.bucket, entry.file)
    ]
    assert not [key for key, count in Counter(found).items() if count > 1], "a key in two buckets"
    return {entry.bucket_id: entry.file.row_count for entry in entries}


def keys_in(table: tidelake.Table) -> dict[int, str]:
    return {row["k"]: row["v"] for row in table.scan().to_arrow().to_pylist()}


def test_new_buckets_are_opened_as_buckets_fill() -> None:
    table = new_table()
    write(table, rows(range(10)))
    assert sorted(sizes(table).values()) == [2, 4, 4]
    assert keys_in(table) == dict.fromkeys(range(10), "v")


def test_a_key_keeps_its_bucket_with_the_next_writer() -> None:
    table = new_table()
    write(table, rows(range(10)))
    write(table, rows(range(9, 12), "new"), rows([0], kind=3))
    assert sorted(sizes(table).values()) == [4, 4, 4]
    assert keys_in(table) == {**dict.fromkeys(range(1, 9), "v"), 9: "new", 10: "new", 11: "new"}


def test_an_index_file_is_written_only_for_new_keys() -> None:
    table = new_table()
    write(table, rows(range(4)))
    before = hash_entries(table)
    write(table, rows([2], "again"))
    assert hash_entries(table) == before
    write(table, rows([4]))
    assert before[0] in hash_entries(table)
    assert len(hash_entries(table)) == 2


def test_partitions_have_separate_buckets() -> None:
    table = new_table()
    write(table, pa.concat_tables([rows([1, 2, 3]), rows([1, 2, 3, 4, 5], partition="b"), rows([4, 5])]))
    assert sorted(bucket for _, bucket in sizes(table)) == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param({"dynamic-bucket.initial-buckets": "3"}, 3, id="initial-buckets"),
        pytest.param({"dynamic-bucket.assigner-parallelism": "3"}, 3, id="assigner-parallelism"),
        pytest.param({"dynamic-bucket.initial-buckets": "3", "dynamic-bucket.max-buckets": "2"}, 2, id="and no more"),
        pytest.param({"dynamic-bucket.max-buckets": "1", "dynamic-bucket.target-row-num": "10"}, 1, id="max-buckets"),
        pytest.param({"dynamic-bucket.target-row-num": "100"}, 1, id="target-row-num of more rows"),
        pytest.param({"dynamic-bucket.target-row-num": "20"}, 3, id="target-row-num"),
    ],
)
def test_options_decide_the_number_of_buckets(options: Mapping[str, str], expected: int) -> None:
    table = new_table({"dynamic-bucket.target-row-num": "1000", **options})
    write(table, rows(range(60)))
    assert {bucket for _, bucket in sizes(table)} == set(range(expected))
    assert len(keys_in(table)) == 60


def test_a_writer_that_stays_open_sees_what_others_wrote_between_its_commits() -> None:
    table = new_table()
    with table.writer(commit_user="one") as one, table.writer(commit_user="other") as other:
        for turn, writer in enumerate([one, other, one, other, other, one]):
            writer.write(rows(range(turn * 3, turn * 3 + 6), f"turn {turn}"))
            writer.commit(turn)
    assert sum(sizes(table).values()) == 21
    assert len(table.scan().to_arrow()) == 21


@pytest.mark.parametrize("theirs", [range(5), range(3, 8), range(5, 6)], ids=["same keys", "some", "others"])
def test_two_concurrent_writers_are_a_conflict(theirs: range) -> None:
    table = new_table()
    write(table, rows([100]))
    with table.writer(commit_user="one") as one:
        one.write(rows(range(5)))
        write(table, rows(theirs))
        with pytest.raises(
            CommitConflict,
            match=r"db\.t, partition p=a: another commit changed the index.*write the uncommitted",
        ):
            one.commit(1)
    assert sum(sizes(table).values()) == 1 + len(theirs)
    write(table, rows(range(5)))
    assert len(table.scan().to_arrow()) == len({100, *theirs, *range(5)})


def test_a_concurrently_emptied_partition_is_a_conflict_too() -> None:
    table = new_table()
    write(table, rows(range(3)))
    with table.writer(commit_user="one") as one:
        one.write(rows([0]))  # no new key: no index file would be written
        write(table, rows([9]), overwrite=True)
        with pytest.raises(CommitConflict, match=r"another commit changed the index"):
            one.commit(1)


def test_an_overwrite_starts_a_new_index() -> None:
    table = new_table()
    write(table, rows(range(10)), rows([1], partition="b"))
    with table.writer(overwrite=True) as writer:
        for commit in range(2):
            writer.write(rows(range(20, 25), f"{commit}"))
            writer.commit(commit)
    assert sorted(sizes(table).values()) == [1, 1, 4]
    assert keys_in(table) == {1: "v", **dict.fromkeys(range(20, 25), "1")}


def test_after_an_already_committed_identifier_the_index_is_correct() -> None:
    table = new_table()
    with table.writer(commit_user="etl") as writer:
        writer.write(rows(range(6)))
        writer.commit(1)
    with table.writer(commit_user="etl") as writer:
        writer.write(rows(range(6)))
        assert writer.commit(1) is None
        writer.write(rows(range(4, 9)))
        writer.commit(2)
    assert sum(sizes(table).values()) == 9
    assert len(table.scan().to_arrow()) == 9


def test_a_table_whose_index_is_missing_is_not_written_to(tmp_path: Path) -> None:
    table = new_table(warehouse=str(tmp_path))
    write(table, rows(range(3)))
    (entry,) = hash_entries(table)
    path = index_file_path(table.context, entry.partition, entry.bucket, entry.file)
    table.context.io.delete_all([path])
    with pytest.raises(CorruptFile, match=r"an index file that a snapshot references, found no file"):
        write(table, rows([7]))


def test_a_bucket_that_some_engine_wrote_without_an_index_is_refused() -> None:
    table = new_table({"bucket": "1"})
    write(table, rows(range(3)))
    context = table.context.with_options({"bucket": "-1"})
    with pytest.raises(UnsupportedFeature, match=r"partition p=a: bucket 0 has rows and no hash index"):
        TableWriter(context).write(rows([7]))


@pytest.mark.parametrize("in_data", ["false", "true"], ids=["under index/", "beside the data"])
def test_index_files_are_stored_in_the_configured_directory(in_data: str, tmp_path: Path) -> None:
    table = new_table({"index-file-in-data-file-dir": in_data}, warehouse=str(tmp_path))
    write(table, rows(range(3)))
    write(table, rows(range(5)))
    found = {path.parent.name for path in Path(table.location).rglob("index-*") if "manifest" not in path.name}
    assert found == ({"bucket-0", "bucket-1"} if in_data == "true" else {"index"})
    assert sum(sizes(table).values()) == 5


@pytest.mark.sampled
def test_rows_match_a_dict_with_alternating_writers() -> None:
    for seed in sample(range(10)):
        random, table, model = Random(seed), new_table(), dict[tuple[str, int], str]()
        for turn in range(6):
            batch = [(random.choice("ab"), random.randrange(40), f"{turn}") for _ in range(random.randrange(1, 15))]
            write(table, *[rows([k], v, partition=p) for p, k, v in batch])
            model.update({(p, k): v for p, k, v in batch})
            if turn == 3:
                table.compact(full=True)
        found = table.scan().to_arrow().to_pylist()
        assert {(row["p"], row["k"]): row["v"] for row in found} == model
        assert len(found) == len(model)
        assert sum(sizes(table).values()) == len(model)


def test_rows_may_be_written_between_prepare_and_commit() -> None:
    """As in the service, which reads on while it commits."""
    table = new_table()
    writer, commit = TableWriter(table.context), TableCommit(table.context, "service")
    for identifier in range(1, 6):
        (batch,) = rows(range(identifier * 3, identifier * 3 + 5), f"{identifier}").to_batches()
        writer.write(batch)
        messages = writer.prepare_commit(identifier)
        (between,) = rows([100 + identifier, identifier * 3 + 6]).to_batches()
        writer.write(between)
        published = commit.commit(Committable(identifier, messages))
        assert published is not None
        writer.committed(published)
        sizes(table)
    writer.abort()
    found = keys_in(table)
    assert len(found) == len(table.scan().to_arrow()) == len({*range(3, 20), *range(101, 105)})


@pytest.mark.parametrize("partition_by", [[], ["p"]], ids=["one partition", "partitions"])
def test_reads_files_is_false_only_if_no_file_is_read(monkeypatch: pytest.MonkeyPatch, partition_by: list[str]) -> None:
    """Callers that must not wait while they route rows rely on it. The partitions of the next rows are unknown."""
    catalog = tidelake.open_catalog(f"memory://{uuid4().hex}/lake")
    catalog.create_database("db")
    key = ["k", *partition_by]
    options = {**FOUR_KEYS, "sequence.field": "v"}  # another writer may commit to the same buckets
    table = catalog.create_table("db.t", SCHEMA, primary_key=key, partition_by=partition_by, options=options)
    reported = list[bool]()
    writer, commit = TableWriter(table.context), TableCommit(table.context, "one")
    for number in range(6):
        batch = rows(range(number * 2, number * 2 + 4))
        reported.append(writer.reads_files)
        with monkeypatch.context() as patched:
            if not reported[-1]:
                for name in ("read", "open_input", "exists", "size_bytes", "list_directory"):
                    patched.setattr(type(table.context.io), name, _no_file)
            writer.route(batch.to_batches()[0])
        writer.write(batch)
        if number % 3 == 2:
            published = commit.commit(Committable(number, writer.prepare_commit(number)))
            assert published is not None
            writer.committed(published)
            write(table, rows([100 + number]))
    writer.abort()
    by_batch = [True, False, False] * 2  # after a commit it reads what others wrote
    assert reported == ([True] * 6 if partition_by else by_batch)
    assert sum(sizes(table).values()) == 16


def _no_file(*_: object, **__: object) -> None:
    raise AssertionError("a file was asked for")
