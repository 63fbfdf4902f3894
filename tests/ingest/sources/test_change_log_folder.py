"""A folder of change logs is read once, in order and completely, for any file form and while files grow."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import subprocess
import sys
import zlib
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from tests.support.manual_clock import ManualClock
from tidelake.checkpoint.offsets import TopicPartition
from tidelake.errors import BadInput, CorruptFile
from tidelake.ingest.formats.debezium.debezium_json import DebeziumJson
from tidelake.ingest.raw_batch import RawBatch
from tidelake.ingest.sources import change_log_file, change_log_record
from tidelake.ingest.sources.change_log_file import MAX_RECORD_BYTES
from tidelake.ingest.sources.change_log_folder import ChangeLogFolder
from tidelake.ingest.sources.change_log_record import parse_lines, parse_records
from tidelake.ingest.sources.source import AtOffsets, Earliest, Latest

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def line(offset: int, *, topic: str = "t", partition: int = 0, **members: object) -> bytes:
    record = {"topic": topic, "partition": partition, "offset": offset, "timestamp_ms": 1_000 + offset}
    record |= {"key": f"k{offset}", "value": f"v{offset}", "headers": []} | members
    return json.dumps(record, ensure_ascii=False).encode() + b"\n"


def lines(*offsets: int, partition: int = 0) -> bytes:
    return b"".join(line(offset, partition=partition) for offset in offsets)


def read_all(
    folder: Path, positions: Mapping[TopicPartition, int] | None = None, max_record_bytes: int = MAX_RECORD_BYTES
) -> list[RawBatch]:
    async def read() -> list[RawBatch]:
        source = ChangeLogFolder(
            folder, follow=False, kept_headers=DebeziumJson.KEPT_HEADERS, max_record_bytes=max_record_bytes
        )
        await source.open()
        async with aclosing(source.read(positions or {})) as batches:
            return [batch async for batch in batches]

    return asyncio.run(read())


def offsets_of(batches: list[RawBatch]) -> dict[TopicPartition, list[int]]:
    found: dict[TopicPartition, list[int]] = {}
    for batch in batches:
        found.setdefault(TopicPartition(batch.topic, batch.partition), []).extend(batch.offsets.tolist())
    return found


def compressed_gz(data: bytes) -> bytes:
    return gzip.compress(data)


def compressed_zst(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


FORMS: dict[str, Callable[[bytes], bytes]] = {".jsonl": bytes, ".jsonl.gz": compressed_gz, ".jsonl.zst": compressed_zst}
COMPRESSED = {suffix: form for suffix, form in FORMS.items() if suffix != ".jsonl"}


# ---------------------------------------------------------------- what a line says


def test_a_written_record_is_read_back(tmp_path: Path) -> None:
    headers = [["__debezium.oldkey", '{"id":1}'], ["__debezium.newkey", None], ["connector", "pg"]]
    (tmp_path / "a.jsonl").write_bytes(
        line(3, key="schlüssel", value='{"a":"\\u2028"}', headers=headers)
        + line(7, key=None, value=None, timestamp_ms=-1)
    )
    announcement, batch = read_all(tmp_path)
    assert (len(announcement), announcement.next_offset) == (0, 0)
    assert batch.keys.to_pylist() == ["schlüssel".encode(), None]
    assert batch.values.to_pylist() == [b'{"a":"\\u2028"}', None]
    assert batch.offsets.tolist() == [3, 7]
    assert batch.timestamps_ms.tolist() == [1_003, -1]
    assert batch.next_offset == 8
    assert batch.headers == {0: (("__debezium.oldkey", b'{"id":1}'), ("__debezium.newkey", None))}


def test_only_a_line_feed_ends_a_line(tmp_path: Path) -> None:
    value = "line\u2028separator\u2029paragraph\x85next\x0bline\x1cfile"
    (tmp_path / "a.jsonl").write_bytes(line(0, value=value) + line(1))
    assert read_all(tmp_path)[1].values.to_pylist() == [value.encode(), b"v1"]


def test_binary_values_are_base64(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(
        b'{"topic":"t","partition":0,"offset":0,"key_base64":"AAE=","value_base64":"/w=="}\n'
        b'{"topic":"t","partition":0,"offset":1,"key_base64":null,"value_base64":""}\n' + line(2)
    )
    batch = read_all(tmp_path)[1]
    assert batch.keys.to_pylist() == [b"\x00\x01", None, b"k2"]
    assert batch.values.to_pylist() == [b"\xff", b"", b"v2"]


def test_missing_members_are_null_and_unknown_members_are_ignored(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'{"topic":"t","partition":0,"offset":0,"timestamp_type":1,"headers":null}\n')
    batch = read_all(tmp_path)[1]
    assert (batch.keys.to_pylist(), batch.values.to_pylist(), batch.timestamps_ms.tolist()) == ([None], [None], [-1])


def test_a_line_may_contain_the_timestamp_type(tmp_path: Path) -> None:
    reported = ['"CreateTime"', '"LogAppendTime"', '"create"', "1", "null"]
    lines = [
        f'{{"topic":"t","partition":0,"offset":{at},"timestamp_type":{text}}}\n'.encode()
        for at, text in enumerate(reported)
    ]
    (tmp_path / "a.jsonl").write_bytes(b"".join(lines) + line(len(reported)))
    batch = read_all(tmp_path)[1]
    types = [batch.timestamp_type(row) for row in range(len(batch))]
    assert types == ["CreateTime", "LogAppendTime", None, None, None, None]


def test_blank_lines_and_windows_line_ends_are_ignored(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"\n\r\n" + line(0).replace(b"\n", b"\r\n") + b"  \n" + line(1) + b"\n")
    assert offsets_of(read_all(tmp_path)) == {T0: [0, 1]}


@given(st.lists(st.tuples(st.none() | st.text(), st.none() | st.text()), min_size=1, max_size=5))
def test_any_string_is_preserved(records: list[tuple[str | None, str | None]]) -> None:
    block = b"".join(line(offset, key=key, value=value) for offset, (key, value) in enumerate(records))
    (found,) = parse_records(block, DebeziumJson.KEPT_HEADERS)
    assert found.keys.to_pylist() == [None if key is None else key.encode() for key, _ in records]
    assert found.values.to_pylist() == [None if value is None else value.encode() for _, value in records]


@given(st.lists(st.tuples(st.integers(0, 2), st.none() | st.text(), st.booleans()), min_size=1, max_size=30), st.data())
def test_a_block_may_be_read_in_pieces_of_any_size(
    records: list[tuple[int, str | None, bool]], data: st.DataObject
) -> None:
    block = b"".join(
        line(
            offset, partition=partition, value=value, headers=[["__debezium.oldkey", str(offset)]] if has_moved else []
        )
        for offset, (partition, value, has_moved) in enumerate(records)
    )
    whole = parse_records(block, DebeziumJson.KEPT_HEADERS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(change_log_record, "PIECE_BYTES", data.draw(st.integers(0, len(block))))
        in_pieces = parse_records(block, DebeziumJson.KEPT_HEADERS)
        as_lines = parse_lines(pa.array(block.decode().split("\n")), DebeziumJson.KEPT_HEADERS)
    for found, expected in [*zip(in_pieces, whole, strict=True), *zip(as_lines, whole, strict=True)]:
        assert found.partition == expected.partition
        assert found.offsets.tolist() == expected.offsets.tolist()
        assert found.timestamps_ms.tolist() == expected.timestamps_ms.tolist()
        assert (found.keys, found.values, found.headers) == (expected.keys, expected.values, expected.headers)
    assert {row for records in whole for row in records.offsets[list(records.headers)].tolist()} == {
        offset for offset, (_, _, has_moved) in enumerate(records) if has_moved
    }


# ---------------------------------------------------------------- files


@pytest.mark.parametrize("suffix", FORMS)
def test_plain_and_compressed_files_give_the_same(tmp_path: Path, suffix: str) -> None:
    (tmp_path / f"a{suffix}").write_bytes(FORMS[suffix](lines(*range(1000))))
    assert offsets_of(read_all(tmp_path)) == {T0: list(range(1000))}


@pytest.mark.parametrize("suffix", COMPRESSED)
def test_a_compressed_file_may_have_several_parts(tmp_path: Path, suffix: str) -> None:
    form = COMPRESSED[suffix]
    cut = lines(1)[:20]
    (tmp_path / f"a{suffix}").write_bytes(form(lines(0) + cut) + form(lines(1)[20:] + lines(2)) + form(b""))
    assert offsets_of(read_all(tmp_path)) == {T0: [0, 1, 2]}


@pytest.mark.parametrize("suffix", FORMS)
def test_lines_are_complete_across_block_boundaries(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_log_file, "BLOCK_BYTES", 150)
    monkeypatch.setattr(change_log_file, "READ_BYTES", 7)
    monkeypatch.setattr(change_log_file, "COMPRESSED_READ_BYTES", 5)
    (tmp_path / f"a{suffix}").write_bytes(FORMS[suffix](b"".join(line(n, value="x" * n) for n in range(200))))
    batches = read_all(tmp_path)
    assert offsets_of(batches) == {T0: list(range(200))}
    assert [len(value) for batch in batches for value in batch.values.to_pylist()] == list(range(200))


def test_files_are_read_in_the_order_of_their_names(tmp_path: Path) -> None:
    (tmp_path / "b.jsonl.zst").write_bytes(compressed_zst(lines(2, 3)))
    (tmp_path / "a.jsonl").write_bytes(lines(0, 1))
    (tmp_path / "c.jsonl.gz").write_bytes(compressed_gz(lines(9)))
    assert offsets_of(read_all(tmp_path)) == {T0: [0, 1, 2, 3, 9]}


def test_other_files_and_folders_are_ignored(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(lines(0))
    (tmp_path / "b.jsonl.tmp").write_bytes(b"garbage")
    (tmp_path / "schemas.json").write_bytes(b"garbage")
    (tmp_path / "d.jsonl").mkdir()
    assert offsets_of(read_all(tmp_path)) == {T0: [0]}


@pytest.mark.parametrize("suffix", FORMS)
def test_an_empty_file_has_no_records(tmp_path: Path, suffix: str) -> None:
    (tmp_path / f"a{suffix}").write_bytes(FORMS[suffix](b""))
    (tmp_path / "b.jsonl.gz").write_bytes(b"")
    assert read_all(tmp_path) == []


def test_partitions_are_separated_and_announced(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(line(5, partition=1) + line(0) + line(6, partition=1) + line(1, topic="u"))
    batches = read_all(tmp_path)
    assert [(b.topic, b.partition, b.offsets.tolist(), b.next_offset) for b in batches] == [
        ("t", 1, [], 0),
        ("t", 1, [5, 6], 7),
        ("t", 0, [], 0),
        ("t", 0, [0], 1),
        ("u", 0, [], 0),
        ("u", 0, [1], 2),
    ]


def test_a_last_line_without_line_end_is_a_record(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(lines(0, 1).rstrip())
    assert offsets_of(read_all(tmp_path)) == {T0: [0, 1]}


# ---------------------------------------------------------------- positions


def test_records_below_the_position_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(lines(0, 1, 2) + lines(0, 1, partition=1))
    (tmp_path / "b.jsonl").write_bytes(lines(3, 4))
    batches = read_all(tmp_path, {T0: 2, T1: 2})
    assert offsets_of(batches) == {T0: [2, 3, 4]}
    assert all(len(batch) for batch in batches), "partitions with a position are not announced"


def test_already_read_files_may_be_missing(tmp_path: Path) -> None:
    (tmp_path / "b.jsonl").write_bytes(lines(3, 4))
    assert offsets_of(read_all(tmp_path, {T0: 3})) == {T0: [3, 4]}


async def test_a_folder_starts_at_offset_zero_or_at_given_offsets_only(tmp_path: Path) -> None:
    source = ChangeLogFolder(tmp_path, follow=False, kept_headers=DebeziumJson.KEPT_HEADERS, known=[T1])
    assert await source.open({T0}) == {T0, T1}
    assert source.identity.cluster_id == tmp_path.as_uri()
    assert await source.offsets([T0, T1], Earliest()) == {T0: 0, T1: 0}
    assert await source.offsets([T0, T1], AtOffsets({T1: 7})) == {T0: 0, T1: 7}
    with pytest.raises(BadInput, match="from its beginning or from offsets"):
        await source.offsets([T0], Latest())


async def test_a_missing_folder_raises(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="nowhere is not a folder"):
        await ChangeLogFolder(tmp_path / "nowhere", follow=False, kept_headers=DebeziumJson.KEPT_HEADERS).open()


# ---------------------------------------------------------------- what is refused

GARBAGE: dict[str, tuple[bytes, str]] = {
    "no JSON": (b"oops\n", "JSON is malformed"),
    "no object": (b"[1]\n", "Expected `object`"),
    "no offset": (b'{"topic":"t","partition":0}\n', "missing required field `offset`"),
    "an offset below zero": (line(-1), ">= 0"),
    "an offset that is no number": (line(0).replace(b'"offset": 0', b'"offset": "0"'), "Expected `int`"),
    "a value that is an object": (line(0, value={"a": 1}), "Expected `str | null`"),
    "broken base64": (b'{"topic":"t","partition":0,"offset":2,"value_base64":"@"}\n', "base64"),
    "bytes that are no text": (line(0).replace(b"v0", b"\xff"), "utf-8"),
    "half a character": (line(0).replace(b"v0", b"\\ud800"), "surrogate"),
    "headers of another form": (line(0, headers={"a": "b"}), "Expected `array"),
}


@pytest.mark.parametrize("suffix", FORMS)
@pytest.mark.parametrize(("bad", "reason"), GARBAGE.values(), ids=GARBAGE)
def test_an_invalid_line_is_named_by_file_and_line(tmp_path: Path, suffix: str, bad: bytes, reason: str) -> None:
    (tmp_path / f"a{suffix}").write_bytes(FORMS[suffix](lines(0, 1) + b"\n" + bad + lines(2)))
    with pytest.raises(BadInput) as raised:
        read_all(tmp_path)
    assert f"a{suffix}:4: not a change record: " in str(raised.value)
    assert reason in str(raised.value)


def test_the_line_number_is_correct_in_later_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_log_file, "BLOCK_BYTES", 500)
    monkeypatch.setattr(change_log_file, "READ_BYTES", 64)
    (tmp_path / "a.jsonl").write_bytes(lines(*range(100)) + b"oops\n")
    with pytest.raises(BadInput, match=r"a\.jsonl:101: not a change record"):
        read_all(tmp_path)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        pytest.param({"a": lines(0, 1, 1)}, "offset 1 of t-0 comes after 1", id="twice in a row"),
        pytest.param({"a": lines(5, 4)}, "offset 4 of t-0 comes after 5", id="backwards in a file"),
        pytest.param(
            {"a": lines(0, 1), "b": lines(1, 2)}, r"offset 1 of t-0 comes after 1 of .*a\.jsonl", id="overlap"
        ),
        pytest.param(
            {"a": lines(5, 6), "b": lines(0, 1)}, r"offset 0 of t-0 comes after 6 of .*a\.jsonl", id="wrong order"
        ),
    ],
)
def test_non_increasing_offsets_are_refused(tmp_path: Path, files: dict[str, bytes], message: str) -> None:
    for name, data in files.items():
        (tmp_path / f"{name}.jsonl").write_bytes(data)
    with pytest.raises(BadInput, match=message):
        read_all(tmp_path)


def test_non_increasing_offsets_are_refused_among_skipped_records_too(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(lines(5, 4))
    with pytest.raises(BadInput, match="offset 4 of t-0 comes after 5"):
        read_all(tmp_path, {T0: 5})


def test_a_truncated_last_line_raises_at_the_end(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(lines(0) + lines(1)[:30])
    with pytest.raises(BadInput, match=r"a\.jsonl:2: the last line is incomplete"):
        read_all(tmp_path)


@pytest.mark.parametrize("suffix", COMPRESSED)
def test_truncated_compression_raises_at_the_end(tmp_path: Path, suffix: str) -> None:
    (tmp_path / f"a{suffix}").write_bytes(COMPRESSED[suffix](lines(*range(100)))[:-5])
    with pytest.raises(BadInput, match="ends within its compressed data"):
        read_all(tmp_path)


@pytest.mark.parametrize("suffix", COMPRESSED)
def test_an_uncompressed_file_with_a_compressed_name_raises(tmp_path: Path, suffix: str) -> None:
    (tmp_path / f"a{suffix}").write_bytes(lines(0))
    with pytest.raises(CorruptFile, match=f"a{suffix}"):
        read_all(tmp_path)


@pytest.mark.parametrize("suffix", FORMS)
@pytest.mark.parametrize("block_bytes", [1 << 10, 1 << 20], ids=["longer than a block", "within a block"])
def test_a_line_longer_than_max_record_bytes_is_refused_by_file_and_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, block_bytes: int
) -> None:
    monkeypatch.setattr(change_log_file, "BLOCK_BYTES", block_bytes)
    fits, long = line(1, value="x" * 19_000).strip(), line(2, value="x" * 20_000).strip()
    for last in (b"", b"\n", b"\n" + lines(3, 4)):
        (tmp_path / f"a{suffix}").write_bytes(FORMS[suffix](lines(0) + fits + b"\n" + long + last))
        assert offsets_of(read_all(tmp_path, max_record_bytes=len(long)))[T0][:3] == [0, 1, 2]
        with pytest.raises(BadInput) as caught:
            read_all(tmp_path, max_record_bytes=len(long) - 1)
        assert f"a{suffix}:3: a record has more than {len(long) - 1} bytes" in str(caught.value)
        assert "`source.max_record_bytes`" in str(caught.value)


# A process of its own, whose peak is that of reading.
READ: Final = """
import resource, sys
from pathlib import Path
from tidelake.ingest.sources.change_log_file import ChangeLogFile
from benchmarks.clock import peak_memory_mib
before, refused = peak_memory_mib(), ""
try:
    for block in ChangeLogFile(Path(sys.argv[1]), int(sys.argv[2])).blocks():
        pass
except Exception as error:
    refused = str(error)
print(int(peak_memory_mib() - before), refused)
"""


@pytest.mark.parametrize("suffix", [".jsonl.gz", ".jsonl.zst"])
@pytest.mark.parametrize("text", ["blank lines", "one line"])
def test_a_file_that_is_a_decompression_bomb_takes_little_memory(tmp_path: Path, suffix: str, text: str) -> None:
    path = tmp_path / f"a{suffix}"
    piece = (b"\n" if text == "blank lines" else b" ") * (1 << 20)
    inflated_mib = 128 if suffix == ".jsonl.gz" else 512  # zlib is that much slower
    with gzip.open(path, "wb", 1) if suffix == ".jsonl.gz" else zstandard.open(path, "wb") as file:
        for _ in range(inflated_mib):
            file.write(piece)
    assert path.stat().st_size < 1 << 20
    command = [sys.executable, "-c", READ, str(path), str(16 << 20)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=Path(__file__).parents[3])
    taken_mib, _, refused = done.stdout.partition(" ")
    assert int(taken_mib) < (110 if suffix == ".jsonl.gz" else 160)
    assert ("a record has more than 16777216 bytes" in refused) == (text == "one line"), refused


# ---------------------------------------------------------------- while running


class Following:
    """A folder that is followed, batch by batch, on a clock that the test moves."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock()
        self._source = ChangeLogFolder(folder, follow=True, kept_headers=DebeziumJson.KEPT_HEADERS, clock=self.clock)
        self._batches: AsyncGenerator[RawBatch, None] | None = None
        self._next: asyncio.Task[Any] | None = None

    async def poll(self) -> list[int]:
        """Offsets of everything up to the next time the source sleeps."""
        if self._batches is None:
            await self._source.open()
            self._batches = self._source.read({})
        else:
            self.clock.advance(1_000)
        offsets: list[int] = []
        while True:
            self._next = self._next or asyncio.ensure_future(anext(self._batches))
            sleeps = asyncio.ensure_future(self.clock.sleeper())
            await asyncio.wait({self._next, sleeps}, return_when=asyncio.FIRST_COMPLETED)
            sleeps.cancel()
            if not self._next.done():
                return offsets
            batch: RawBatch = self._next.result()
            self._next = None
            offsets += batch.offsets.tolist()

    async def close(self) -> None:
        if self._next is not None:
            self._next.cancel()
            await asyncio.gather(self._next, return_exceptions=True)
        if self._batches is not None:
            await self._batches.aclose()


@pytest.fixture
async def following(tmp_path: Path) -> AsyncGenerator[Following, None]:
    subject = Following(tmp_path)
    yield subject
    await subject.close()


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


async def put(path: Path, data: bytes) -> None:
    await asyncio.to_thread(append, path, data)


async def test_new_files_are_read_when_they_appear(tmp_path: Path, following: Following) -> None:
    assert await following.poll() == []
    await put(tmp_path / "b.jsonl", lines(0, 1))
    assert await following.poll() == [0, 1]
    await put(tmp_path / "c.jsonl.gz", compressed_gz(lines(2)))
    await put(tmp_path / "a.jsonl", lines(0, 1, partition=1))  # its name sorts first, its partition is new
    assert await following.poll() == [0, 1, 2]
    assert await following.poll() == []


async def test_appended_lines_are_read_once_and_a_partial_line_waits(tmp_path: Path, following: Following) -> None:
    path = tmp_path / "a.jsonl"
    await put(path, lines(0) + lines(1)[:30])
    assert await following.poll() == [0]
    await put(path, lines(1)[30:] + lines(2)[:-1])
    assert await following.poll() == [1, 2]  # the second is whole but for its line end
    await put(path, b"\n")
    assert await following.poll() == []
    await put(path, lines(3))
    assert await following.poll() == [3]


@pytest.mark.parametrize("suffix", COMPRESSED)
async def test_a_compressed_file_may_be_read_while_it_is_written(
    tmp_path: Path, following: Following, suffix: str
) -> None:
    data = COMPRESSED[suffix](b"".join(line(n, value=str(zlib.crc32(b"%d" % n)) * 50) for n in range(2_000)))
    path = tmp_path / f"a{suffix}"
    offsets: list[int] = []
    for start in range(0, len(data), len(data) // 4):
        await put(path, data[start : start + len(data) // 4])
        offsets += await following.poll()
    assert offsets == list(range(2_000))


async def test_a_file_may_be_removed_while_the_folder_is_listed(
    tmp_path: Path, following: Following, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Removed:
        name = "0.jsonl"
        is_file = staticmethod(lambda: True)

        def stat(self) -> os.stat_result:
            raise FileNotFoundError(self.name)

    scandir = os.scandir

    @contextmanager
    def and_one_deleted(path: Path) -> Iterator[Iterator[object]]:
        with scandir(path) as entries:
            yield iter([Removed(), *entries])

    monkeypatch.setattr(os, "scandir", and_one_deleted)
    await put(tmp_path / "a.jsonl", lines(0))
    assert await following.poll() == [0]


async def test_a_file_that_shrinks_is_refused(tmp_path: Path, following: Following) -> None:
    path = tmp_path / "a.jsonl"
    await put(path, lines(0, 1))
    await following.poll()
    await asyncio.to_thread(path.write_bytes, lines(0))
    with pytest.raises(BadInput, match=r"a\.jsonl shrank"):
        await following.poll()


async def test_a_file_may_be_removed_after_it_was_read(tmp_path: Path, following: Following) -> None:
    await put(tmp_path / "a.jsonl", lines(0))
    assert await following.poll() == [0]
    await asyncio.to_thread((tmp_path / "a.jsonl").unlink)
    await put(tmp_path / "b.jsonl", lines(1))
    assert await following.poll() == [1]
