"""Dead letters are readable, durable after a flush, and one per record."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.ingest.pipeline.fakes import raw_batch
from tests.support.faulty_file_io import Fault, FaultyFileIO
from tidelake.checkpoint.offsets import TopicPartition
from tidelake.errors import CorruptFile, TidelakeError
from tidelake.ingest import dead_letters
from tidelake.ingest.clock import SystemClock
from tidelake.ingest.dead_letter_table import DeadLetterTable, TableDeadLetters
from tidelake.ingest.dead_letters import DeadLetters
from tidelake.ingest.formats.base import DecodeFailure, FailureKind
from tidelake.ingest.raw_batch import RawBatch
from tidelake.storage.base.logs import FIELDS
from tidelake.storage.catalog.filesystem import FileSystemCatalog
from tidelake.storage.fileio.local import LocalFileIO

LOG = TopicPartition("log", 0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "p.dead-letters"


def open_dead_letters(folder: Path, read_from: dict[TopicPartition, int] | None = None) -> DeadLetters:
    kept = DeadLetters(LocalFileIO(), str(folder))
    kept.recover(read_from or {})
    return kept


def failure(row: int, offset: int) -> DecodeFailure:
    return DecodeFailure(row, offset, FailureKind.BAD_RECORD, "column price: text for a number")


def written(folder: Path) -> Iterator[dict[str, object]]:
    for path in sorted(folder.iterdir()) if folder.exists() else ():
        yield from map(json.loads, path.read_text(encoding="utf-8").splitlines())


def test_a_letter_is_a_change_log_line_with_a_reason(folder: Path) -> None:
    kept = open_dead_letters(folder)
    batch = raw_batch([7, 9], [b"v7", "ü".encode()], topic="shop/orders", partition=3)
    kept.add(batch, [failure(1, 9)])
    kept.flush()
    assert list(written(folder)) == [
        {
            "topic": "shop/orders",
            "partition": 3,
            "offset": 9,
            "timestamp_ms": 9,
            "kind": "bad record",
            "reason": "column price: text for a number",
            "key": "k9",
            "value": "ü",
            "headers": [],
        }
    ]
    (path,) = folder.iterdir()
    assert path.name.startswith("shop%2Forders-3-9_9-")


def test_bytes_and_nulls_are_preserved(folder: Path) -> None:
    kept = open_dead_letters(folder)
    kept.add(raw_batch([0, 1], [b"\xff\x00", None]), [failure(0, 0), failure(1, 1)])
    kept.flush()
    first, second = written(folder)
    assert (first["value_base64"], second["value"]) == ("/wA=", None)
    assert "value" not in first


def test_letters_are_stored_by_the_flush_and_only_once(folder: Path) -> None:
    kept = open_dead_letters(folder)
    kept.add(raw_batch([0]), [failure(0, 0)])
    assert list(written(folder)) == []
    kept.flush()
    kept.flush()
    assert len(list(written(folder))) == 1


def test_many_letters_request_a_flush(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "BUFFER_BYTES_MAX", 1_000)
    kept = open_dead_letters(folder)
    kept.add(raw_batch(range(20)), [failure(n, n) for n in range(2)])
    assert not kept.should_flush
    kept.add(raw_batch(range(20)), [failure(n, n) for n in range(2, 20)])
    assert kept.should_flush
    kept.flush()
    assert not kept.should_flush
    assert len(list(written(folder))) == 20


def test_reread_records_get_no_second_letter(folder: Path) -> None:
    before = open_dead_letters(folder)
    before.add(raw_batch([3, 5, 7]), [failure(0, 3), failure(1, 5), failure(2, 7)])
    before.flush()
    after = open_dead_letters(folder, {LOG: 5})
    added = after.add(raw_batch([5, 6, 7]), [failure(0, 5), failure(1, 6), failure(2, 7)])
    after.flush()
    assert sorted(str(letter["offset"]) for letter in written(folder)) == ["3", "5", "6", "7"]
    assert len(added) == 1


@dataclass(frozen=True)
class Place:
    """What is found at offset 3 of topic `log` in another life."""

    id: str
    record: RawBatch
    has_letter: bool


PLACES = [
    Place("the same record", raw_batch([3]), True),
    Place("bytes that are no text", raw_batch([3], [b"\xff"]), False),
    Place("another value, as of a topic created again", raw_batch([3], [b"v4"]), False),
    Place("no value", raw_batch([3], [None]), False),
    Place("another key", replace(raw_batch([3]), keys=pa.array([b"k4"], pa.binary())), False),
    Place("no key", replace(raw_batch([3]), keys=pa.array([None], pa.binary())), False),
    Place("another time", replace(raw_batch([3]), timestamps_ms=np.array([4], np.int64)), False),
]


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.id)
def test_a_letter_applies_only_to_its_own_record(folder: Path, place: Place) -> None:
    before = open_dead_letters(folder)
    before.add(raw_batch([3]), [failure(0, 3)])
    before.flush()
    for lives in (1, 2):  # what it left is another life's letter, too
        after = open_dead_letters(folder)
        added = after.add(place.record, [failure(0, 3)])
        after.flush()
        assert len(added) == (lives == 1 and not place.has_letter)
    assert len(list(written(folder))) == 2 - place.has_letter


def test_a_start_reads_only_files_with_letters_of_records_that_may_be_reread(folder: Path) -> None:
    before = open_dead_letters(folder)
    topics = [("log", 0), ("log", 1), ("a-1-2_3", 0), ("ü/b", 0)]
    for offsets in ([3, 5], [7, 9]):
        for topic, partition in topics:
            rows = [failure(row, offset) for row, offset in enumerate(offsets)]
            before.add(raw_batch(offsets, topic=topic, partition=partition), rows)
        before.flush()
    read_from = {LOG: 6, TopicPartition("log", 1): 5, TopicPartition("a-1-2_3", 0): 10, TopicPartition("ü/b", 0): 9}
    io = FaultyFileIO(LocalFileIO())
    DeadLetters(io, str(folder)).recover(read_from)
    read = [call.file_name.rpartition("-")[0] for call in io.calls if call.name == "read"]
    assert sorted(read) == ["%C3%BC%2Fb-0-7_9", "log-0-7_9", "log-1-3_5", "log-1-7_9"]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("log-0-3-1a2b3c4d.jsonl", id="by an earlier release"),
        pytest.param("log-2-0-3-1a2b3c4d.jsonl", id="by an earlier release, of a topic that ends like a partition"),
        pytest.param("spark-0-3.jsonl", id="by the Spark sink"),
        pytest.param("kept.jsonl", id="by a person"),
    ],
)
def test_files_with_unknown_names_are_read_completely(folder: Path, name: str) -> None:
    before = open_dead_letters(folder)
    for partition, offset in [(0, 3), (1, 900)]:
        before.add(raw_batch([offset], partition=partition), [failure(0, offset)])
    before.flush()
    text = "".join(path.read_text(encoding="utf-8") for path in folder.iterdir())
    for path in folder.iterdir():
        path.unlink()
    (folder / name).write_text(text, encoding="utf-8")
    after = open_dead_letters(folder, {LOG: 5_000, TopicPartition("log", 1): 900, TopicPartition("log", 2): 5_000})
    assert not after.add(raw_batch([900], partition=1), [failure(0, 900)])


def test_a_file_with_other_content_raises(folder: Path) -> None:
    folder.mkdir()
    (folder / "notes.jsonl").write_text("hello\n")
    with pytest.raises(CorruptFile, match=r"notes\.jsonl"):
        open_dead_letters(folder)


def test_files_that_are_not_dead_letters_are_ignored(folder: Path) -> None:
    folder.mkdir()
    (folder / "done.jsonl").mkdir()
    before = open_dead_letters(folder)
    before.add(raw_batch([3]), [failure(0, 3)])
    before.flush()
    (kept,) = (path for path in folder.iterdir() if path.is_file())
    kept.rename(folder / "README.txt")
    after = open_dead_letters(folder)
    assert len(after.add(raw_batch([3]), [failure(0, 3)])) == 1


def test_only_some_of_many_dead_letters_are_logged_with_the_count_of_the_others(
    folder: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    times_ms = (0, 100, 9_999, 10_000, 10_001, 25_000)
    now_ms = iter(times_ms)
    clock = SystemClock()
    monkeypatch.setattr(SystemClock, "now_ms", lambda _: next(now_ms))
    kept = DeadLetters(LocalFileIO(), str(folder), clock)
    for at_ms in times_ms:
        kept.add(raw_batch([at_ms]), [failure(0, at_ms)])
    reported = [getattr(record, FIELDS) for record in caplog.records]
    assert [(event["offset"], event["unlogged_before"]) for event in reported] == [(0, 0), (10_000, 2), (25_000, 1)]
    assert {event["kept_in"] for event in reported} == {str(folder)}


# ---------------------------------------------------------------- two processes, while one takes over from the other


@pytest.fixture(params=["file", "table"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], DeadLetters]:
    def in_table() -> DeadLetters:
        catalog = FileSystemCatalog(LocalFileIO(), str(tmp_path))
        kept = TableDeadLetters(DeadLetterTable(catalog, "ops.failed", "p"), "p")
        kept.recover({})
        return kept

    return in_table if request.param == "table" else lambda: open_dead_letters(tmp_path / "p.dead-letters")


def offsets_kept(root: Path) -> list[object]:
    """The offsets of the dead letters in files, and in the table."""
    catalog = FileSystemCatalog(LocalFileIO(), str(root))
    rows = DeadLetterTable(catalog, "ops.failed", "p").read()["offset"].to_pylist()
    return sorted([*rows, *(line["offset"] for line in written(root / "p.dead-letters"))])


@pytest.mark.parametrize(
    ("first", "second"), [([7], [7]), ([7], [7, 8]), ([7, 8], [8]), ([7], [8])], ids=["same", "more", "less", "others"]
)
def test_what_the_other_process_wrote_meanwhile_is_not_written_again(
    opened: Callable[[], DeadLetters], first: list[int], second: list[int], tmp_path: Path
) -> None:
    """Both have read the same records, before one of them wrote its dead letters."""
    offsets = [7, 8]
    before, after = opened(), opened()
    for kept, failed in ((before, first), (after, second)):
        kept.add(raw_batch(offsets, [b"v", b"w"]), [failure(offsets.index(offset), offset) for offset in failed])
    before.flush()
    after.flush()
    assert offsets_kept(tmp_path) == sorted({*first, *second})
    after.add(raw_batch([9], [b"x"]), [failure(0, 9)])
    after.flush()
    assert offsets_kept(tmp_path) == sorted({*first, *second, 9})


@pytest.mark.parametrize("fault", [Fault.BEFORE, Fault.AFTER])
def test_files_whose_write_failed_are_written_once_in_the_end(fault: Fault, tmp_path: Path) -> None:
    """Each partition has its file; one of them fails."""
    io = FaultyFileIO(LocalFileIO())
    kept = DeadLetters(io, str(tmp_path / "p.dead-letters"))
    for partition in (0, 1):
        kept.add(raw_batch([partition], [b"v"], partition=partition), [failure(0, partition)])
    io.fault = lambda call: fault if call.file_name.startswith("log-1-") else None
    with suppress(OSError):
        kept.flush()
    io.fault = lambda _: None
    kept.flush()
    assert offsets_kept(tmp_path) == [0, 1]


def test_rows_whose_commit_had_no_answer_are_not_written_again(tmp_path: Path) -> None:
    io = FaultyFileIO(LocalFileIO())
    kept = TableDeadLetters(DeadLetterTable(FileSystemCatalog(io, str(tmp_path)), "ops.failed", "p"), "p")
    kept.add(raw_batch([7], [b"v"]), [failure(0, 7)])
    io.fault = lambda call: Fault.AFTER if call.file_name == "snapshot-1" and call.name == "create_if_absent" else None
    with suppress(TidelakeError, OSError):
        kept.flush()
    assert offsets_kept(tmp_path) == [7]
    io.fault = lambda _: None
    kept.flush()
    assert offsets_kept(tmp_path) == [7]
