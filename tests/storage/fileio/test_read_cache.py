"""The memory of a process for immutable remote files."""

from __future__ import annotations

from uuid import uuid4

import pytest

from tests.support.s3_server import S3Server
from tidelake.storage.fileio import open_file_io, uncached
from tidelake.storage.fileio.read_cache import KnownPart, ReadCache, is_immutable

UUID = "3f1d2c4b-0f68-4e8c-9a52-6f2f1be0a001"


@pytest.mark.parametrize(
    ("name", "is_kept"),
    [
        (f"data-{UUID}-0.parquet", True),
        (f"data-{UUID}-12.snappy.orc", True),
        (f"data-u-me-s-1-w-{UUID}-0.avro", True),
        (f"changelog-{UUID}-3.parquet", True),
        (f"data-{UUID}-0.parquet.index", True),
        (f"manifest-{UUID}-0", True),
        (f"manifest-list-{UUID}-1", True),
        (f"index-manifest-{UUID}-0", True),
        (f"index-{UUID}-0", True),
        ("snapshot-1", False),
        ("schema-0", False),
        ("LATEST", False),
        ("tag-x", False),
        (f"tag-{UUID}", False),
        (f"part-00000-{UUID}-c000.snappy.parquet", False),
        (f"{UUID}.csv", False),
        (f".data-{UUID}-0.parquet.{UUID}.tmp", False),
        (f"branch-{UUID}-1/snapshot/snapshot-1", False),
    ],
)
def test_only_a_name_that_is_given_once_is_kept(name: str, is_kept: bool) -> None:
    assert is_immutable(f"s3://b/db.db/t/{name}") is is_kept


def path(number: int) -> str:
    return f"s3://b/t/manifest-{UUID}-{number}"


def test_memory_stays_within_the_limit_and_the_last_used_is_kept() -> None:
    cache = ReadCache(max_bytes=1_000)
    for number in range(5):
        cache.put("store", path(number), KnownPart(200, 0, bytes(200)))
    assert cache.get("store", path(0)) is not None
    cache.put("store", path(9), KnownPart(300, 100, bytes(200)))
    assert cache.size_bytes == 1_000
    assert cache.get("store", path(1)) is None
    assert cache.get("store", path(0)) is not None


def test_another_store_has_other_files() -> None:
    cache = ReadCache()
    cache.put("one", path(1), KnownPart(3, 0, b"abc"))
    assert cache.get("other", path(1)) is None


def test_a_deleted_file_is_forgotten() -> None:
    cache = ReadCache()
    for number in range(3):
        cache.put("store", path(number), KnownPart(3, 0, b"abc"))
    cache.forget("store", [path(0)])
    assert (cache.get("store", path(0)), cache.size_bytes) == (None, 6)
    cache.forget_below("store", "s3://b/t")
    assert cache.size_bytes == 0


@pytest.mark.needs("S3 server")
def test_a_lost_file_is_missing_for_checks_and_after_a_delete_of_this_process(s3_server: S3Server) -> None:
    bucket = s3_server.new_bucket()
    io = open_file_io("s3://", s3_server.options)
    names = [f"s3://{bucket}/t/manifest-{uuid4()}-0" for _ in range(2)]
    for name in names:
        with io.open_output(name) as output:
            output.write(b"content")
        assert io.read(name) == b"content"
    lost, deleted = names
    s3_server.client().delete_object(Bucket=bucket, Key=lost.removeprefix(f"s3://{bucket}/"))
    assert io.read(lost) == b"content"  # it is immutable
    with pytest.raises(FileNotFoundError):
        uncached(io).read(lost)
    io.delete(deleted)
    with pytest.raises(FileNotFoundError):
        io.read(deleted)
