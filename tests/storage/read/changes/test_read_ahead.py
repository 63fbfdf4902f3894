"""Batches are read ahead of their reader, up to a limit."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import tidelake
from tidelake.storage.read.changes import change_reader
from tidelake.storage.read.changes.read_ahead import read_ahead


class Source:
    """Batches of 80 bytes. `fails_at`: which one raises."""

    def __init__(self, count: int, fails_at: int | None = None) -> None:
        self.count = count
        self.fails_at = fails_at
        self.read = 0
        self.is_closed = False
        self.more = threading.Condition()

    def batches(self) -> Iterator[pa.RecordBatch]:
        try:
            for number in range(self.count):
                if number == self.fails_at:
                    raise tidelake.CorruptFile("file", "rows", "none")
                with self.more:
                    self.read = number + 1
                    self.more.notify_all()
                yield pa.record_batch({"n": pa.array([number] * 10, pa.int64())})
        finally:
            self.is_closed = True

    def wait_until(self, read: int) -> None:
        with self.more:
            assert self.more.wait_for(lambda: self.read >= read, 60)


def numbers(batches: Iterator[pa.RecordBatch]) -> list[int]:
    return [batch["n"][0].as_py() for batch in batches]


@pytest.mark.parametrize("bytes_max", [1, 100, 10_000])
def test_all_batches_are_returned_in_order(bytes_max: int) -> None:
    source = Source(50)
    assert numbers(read_ahead(source.batches(), bytes_max)) == list(range(50))
    assert source.is_closed


def test_no_more_is_read_ahead_than_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(50)
    ahead = read_ahead(source.batches(), 240)
    assert next(ahead)["n"][0].as_py() == 0
    source.wait_until(5)  # three wait, and one more is in hand for when there is room
    assert source.read == 5
    assert next(ahead)["n"][0].as_py() == 1
    source.wait_until(6)
    ahead.close()
    assert source.read == 6
    assert source.is_closed


def test_an_error_is_raised_after_the_batches_before_it() -> None:
    ahead = read_ahead(Source(50, fails_at=3).batches())
    assert [next(ahead)["n"][0].as_py() for _ in range(3)] == [0, 1, 2]
    with pytest.raises(tidelake.CorruptFile):
        next(ahead)


def test_large_snapshots_are_read_ahead_with_the_same_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("db")
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    table = catalog.create_table("db.t", schema, primary_key=["id"], options={"bucket": "3"})
    with table.writer() as writer:
        writer.write(pa.table({"id": range(200)}, schema))
        writer.commit()
    whole = [row for change in table.changes(start=1) for row in change.rows["id"].to_pylist()]
    monkeypatch.setattr(change_reader, "BATCH_ROWS", 7)
    asked: list[int] = []

    def counted(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        asked.append(1)
        return read_ahead(rows)

    monkeypatch.setattr(change_reader, "read_ahead", counted)
    assert [row for change in table.changes(start=1) for row in change.rows["id"].to_pylist()] == whole
    assert asked == [1]
    following = table.follow(start=1, end=1)
    next(following)
    following.close()  # in the midst of it
    assert not [thread for thread in threading.enumerate() if thread.name == "read-ahead"]
