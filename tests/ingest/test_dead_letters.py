"""Dead letters: readable, durable when told, one a record."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from checkpoint.offsets import TopicPartition
from ingest import dead_letters
from ingest.dead_letters import DeadLetters
from ingest.formats.base import Failure, FailureKind
from storage.errors import CorruptFile
from storage.fileio.local import LocalFileIO
from tests.ingest.fakes import raw_batch

LOG = TopicPartition("log", 0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "p.dead-letters"


def open_letters(folder: Path, read_from: dict[TopicPartition, int] | None = None) -> DeadLetters:
    letters = DeadLetters(LocalFileIO(), str(folder))
    letters.recover(read_from or {})
    return letters


def failure(row: int, offset: int) -> Failure:
    return Failure(row, offset, FailureKind.BAD_RECORD, "column price: text for a number")


def written(folder: Path) -> Iterator[dict[str, object]]:
    for path in sorted(folder.iterdir()) if folder.exists() else ():
        yield from map(json.loads, path.read_text(encoding="utf-8").splitlines())


def test_a_letter_has_the_form_of_a_change_log_line_and_says_why(folder: Path) -> None:
    letters = open_letters(folder)
    batch = raw_batch([7, 9], [b"v7", "ü".encode()], topic="shop/orders", partition=3)
    letters.add(batch, [failure(1, 9)])
    letters.flush()
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
    assert path.name.startswith("shop%2Forders-3-9-")


def test_bytes_and_nulls_survive(folder: Path) -> None:
    letters = open_letters(folder)
    letters.add(raw_batch([0, 1], [b"\xff\x00", None]), [failure(0, 0), failure(1, 1)])
    letters.flush()
    first, second = written(folder)
    assert (first["value_base64"], second["value"]) == ("/wA=", None)
    assert "value" not in first


def test_nothing_is_on_disk_before_the_flush_and_nothing_twice_after_it(folder: Path) -> None:
    letters = open_letters(folder)
    letters.add(raw_batch([0]), [failure(0, 0)])
    assert list(written(folder)) == []
    letters.flush()
    letters.flush()
    assert len(list(written(folder))) == 1


def test_many_letters_should_not_wait_in_memory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "_HELD_BYTES_MAX", 1_000)
    letters = open_letters(folder)
    letters.add(raw_batch(range(20)), [failure(n, n) for n in range(2)])
    assert not letters.are_many
    letters.add(raw_batch(range(20)), [failure(n, n) for n in range(2, 20)])
    assert letters.are_many
    letters.flush()
    assert not letters.are_many
    assert len(list(written(folder))) == 20


def test_records_that_come_again_have_their_letter_already(folder: Path) -> None:
    before = open_letters(folder)
    before.add(raw_batch([3, 5, 7]), [failure(0, 3), failure(1, 5), failure(2, 7)])
    before.flush()
    after = open_letters(folder, {LOG: 5})
    after.add(raw_batch([5, 6, 7]), [failure(0, 5), failure(1, 6), failure(2, 7)])
    after.flush()
    assert sorted(str(letter["offset"]) for letter in written(folder)) == ["3", "5", "6", "7"]
    assert after.count == 1


def test_a_file_of_something_else_is_an_error(folder: Path) -> None:
    folder.mkdir()
    (folder / "notes.jsonl").write_text("hello\n")
    with pytest.raises(CorruptFile, match=r"notes\.jsonl"):
        open_letters(folder)


def test_files_that_are_no_letters_are_passed_over(folder: Path) -> None:
    folder.mkdir()
    (folder / "README.txt").write_text("hello")
    (folder / "done.jsonl").mkdir()
    open_letters(folder)
