"""The disk cache only saves requests: whatever happens to its files or its disk, a read returns the store's bytes."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import tidelake
from tests.support.counting_forwarder import counting_forwarder
from tests.support.s3_server import S3Server
from tidelake.errors import AccessDenied, BadInput
from tidelake.storage.fileio import open_file_io
from tidelake.storage.fileio.disk_cache import BLOCK_BYTES, DiskCache, DiskCacheSettings

KIB = 1 << 10
NAME = "s3://b/t/bucket-0/data-3f1d2c4b-0f68-4e8c-9a52-6f2f1be0a001-0.parquet"
CONTENT = os.urandom(3 * BLOCK_BYTES + 700)


@dataclass
class Store:
    """One file, and what was asked of it."""

    content: bytes = CONTENT
    asked: list[tuple[int, int]] = field(default_factory=list)

    def fetch(self, start: int, end: int) -> bytes:
        assert 0 <= start < end <= len(self.content)
        self.asked.append((start, end))
        return self.content[start:end]

    def read(self, cache: DiskCache, start: int, end: int, path: str = NAME) -> bytes:
        return bytes(cache.reading("http://store", path, len(self.content), self.fetch)(start, end))


@pytest.mark.parametrize(
    ("start", "end", "asked"),
    [
        pytest.param(5, 9, (0, BLOCK_BYTES), id="a few bytes bring their block"),
        pytest.param(BLOCK_BYTES - 1, BLOCK_BYTES + 1, (0, 2 * BLOCK_BYTES), id="two blocks come in one request"),
        pytest.param(0, len(CONTENT), (0, len(CONTENT)), id="the whole file"),
        pytest.param(len(CONTENT) - 8, len(CONTENT), (3 * BLOCK_BYTES, len(CONTENT)), id="the last block is shorter"),
    ],
)
def test_bytes_are_fetched_once(tmp_path: Path, start: int, end: int, asked: tuple[int, int]) -> None:
    store = Store()
    for _ in range(2):
        assert store.read(DiskCache(str(tmp_path)), start, end) == CONTENT[start:end]
    assert store.asked == [asked]


def test_only_missing_blocks_are_fetched(tmp_path: Path) -> None:
    store, cache = Store(), DiskCache(str(tmp_path))
    store.read(cache, BLOCK_BYTES, BLOCK_BYTES + 1)
    assert store.read(cache, 10, len(CONTENT)) == CONTENT[10:]
    assert store.asked[1:] == [(0, BLOCK_BYTES), (2 * BLOCK_BYTES, len(CONTENT))]


@pytest.mark.parametrize("name", ["snapshot-12", "schema-0", "LATEST", "tag-a", "part-0.csv", "EARLIEST"])
def test_a_file_whose_name_is_used_again_is_not_kept(tmp_path: Path, name: str) -> None:
    store, cache = Store(), DiskCache(str(tmp_path))
    for _ in range(2):
        store.read(cache, 0, 9, f"s3://b/t/{name}")
    assert len(store.asked) == 2
    assert not blocks(tmp_path)


def test_the_same_path_in_another_store_is_another_file(tmp_path: Path) -> None:
    cache, other = DiskCache(str(tmp_path)), Store(os.urandom(len(CONTENT)))
    Store().read(cache, 0, 9)
    assert bytes(cache.reading("http://other", NAME, len(CONTENT), other.fetch)(0, 9)) == other.content[:9]


def blocks(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file()]


def _torn(block: Path) -> None:
    block.write_bytes(block.read_bytes()[:5_000])


def _empty(block: Path) -> None:
    block.write_bytes(b"")


def _flipped(block: Path) -> None:
    data = bytearray(block.read_bytes())
    data[-1] ^= 1
    block.write_bytes(data)


def _deleted(block: Path) -> None:
    block.unlink()


def _unreadable(block: Path) -> None:
    block.unlink()
    block.mkdir()


@pytest.mark.parametrize(
    "damage", [_torn, _empty, _flipped, _deleted, _unreadable], ids=lambda damage: damage.__name__[1:]
)
def test_a_damaged_block_is_fetched_again(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    store = Store()
    store.read(DiskCache(str(tmp_path)), 0, 9)
    (block,) = blocks(tmp_path)
    damage(block)
    assert store.read(DiskCache(str(tmp_path)), 0, 9) == CONTENT[:9]
    assert len(store.asked) == 2


def test_a_full_disk_ends_nothing_but_the_cache_for_a_minute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 1_000.0
    store, cache = Store(), DiskCache(str(tmp_path), clock_s=lambda: now_s)
    writes: list[Path] = []

    def full(path: Path, data: bytes) -> int:
        writes.append(path)
        path.touch()
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_bytes", full)
        for _ in range(3):
            assert store.read(cache, 0, len(CONTENT)) == CONTENT
        assert len(writes) == 1
    assert not blocks(tmp_path)  # no half block is left
    now_s += 61
    store.read(cache, 0, 9)
    assert len(blocks(tmp_path)) == 1


def test_the_directory_may_disappear(tmp_path: Path) -> None:
    store, cache = Store(), DiskCache(str(tmp_path / "cache"))
    (tmp_path / "cache").rename(tmp_path / "elsewhere")
    assert store.read(cache, 0, 9) == CONTENT[:9]


def test_two_processes_stay_within_the_limit_together(tmp_path: Path) -> None:
    limit = 32 * BLOCK_BYTES
    caches = [DiskCache(str(tmp_path), limit), DiskCache(str(tmp_path), limit)]
    most = 0
    for number in range(50):
        store = Store(os.urandom(BLOCK_BYTES))
        path = NAME.replace("-0.parquet", f"-{number}.parquet")
        store.read(caches[number % 2], 0, 9, path)
        most = max(most, sum(block.stat().st_size for block in blocks(tmp_path)))
    assert 16 * BLOCK_BYTES < most <= limit


def test_blocks_that_were_used_least_recently_are_deleted_first(tmp_path: Path) -> None:
    cache = DiskCache(str(tmp_path))
    for number in range(8):
        Store().read(cache, 0, 9, NAME.replace("-0.parquet", f"-{number}.parquet"))
        for block in blocks(tmp_path):
            if block.stat().st_mtime > 10_000:
                os.utime(block, (number + 1, number + 1))
    store = Store()
    store.read(cache, 0, 9)  # the oldest one is used again
    DiskCache(str(tmp_path), 6 * BLOCK_BYTES)
    store.read(cache, 0, 9)
    assert store.asked == []
    Store().read(cache, 0, 9, NAME.replace("-0.parquet", "-7.parquet"))
    gone = Store()
    gone.read(cache, 0, 9, NAME.replace("-0.parquet", "-1.parquet"))
    assert len(gone.asked) == 1


def test_what_a_dead_process_left_is_deleted(tmp_path: Path) -> None:
    (left := tmp_path / ".x.tmp").write_bytes(b"half")
    os.utime(left, (1_000, 1_000))
    (tmp_path / ".y.tmp").write_bytes(b"another process is writing this")
    DiskCache(str(tmp_path))
    assert [path.name for path in blocks(tmp_path)] == [".y.tmp"]


# ---------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cache.max_bytes": "5000000"}, r"cache\.max_bytes = '5000000' needs cache\.directory"),
        ({"cache.directory": "here"}, r"cache\.directory = 'here': write an absolute path"),
        ({"cache.directory": "/x", "cache.max_bytes": "1 gb"}, r"cache\.max_bytes = '1 gb': write a number of bytes"),
        ({"cache.directory": "/x", "cache.max_bytes": "0"}, r"at least 2097152"),
    ],
)
def test_options_are_checked(options: dict[str, str], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        DiskCacheSettings.of(options)


def test_without_options_there_is_no_cache() -> None:
    assert DiskCacheSettings.of({"s3.endpoint": "http://x"}) is None


def test_a_directory_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(AccessDenied, match=r"cache\.directory"):
        open_file_io("s3://b", {"cache.directory": str(tmp_path / "file")})


# ---------------------------------------------------------------- in a real store


@pytest.mark.needs("S3 server")
def test_pages_of_a_table_are_read_from_the_disk_the_next_time(s3_server: S3Server, tmp_path: Path) -> None:
    host, port = s3_server.endpoint.removeprefix("http://").split(":")
    cache = {"cache.directory": str(tmp_path)}
    with counting_forwarder(host, int(port)) as wire:
        options = {**s3_server.options, **cache, "s3.endpoint": f"http://{wire.address}"}
        warehouse = f"s3://{s3_server.new_bucket()}/lake"
        catalog = tidelake.open_catalog(warehouse, **options)
        catalog.create_database("db")
        rows = pa.table({"x": np.random.default_rng(1).random(400_000)})
        with catalog.create_table("db.t", rows.schema).writer(commit_user="test") as writer:
            writer.write(rows)
            writer.commit(identifier=1)
        received = []
        for _ in range(2):
            before = wire.received_bytes
            assert tidelake.open_catalog(warehouse, **options).table("db.t").scan().to_arrow().equals(rows)
            received.append(wire.received_bytes - before)
    assert received[0] > 2 * BLOCK_BYTES
    assert received[1] < 300 * KIB
    assert blocks(tmp_path)
