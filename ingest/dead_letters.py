"""Records that gave no row, kept for people, each once.

A dead letter is on disk before any table's position passes its record. Files are named after their first
letter. A line is

    {"topic", "partition", "offset", "timestamp_ms", "reason", "kind", "key", "value", "headers"}

in the form of a change-log line (`value_base64` where bytes are no text), so that a mended file can be read again as
a source.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import quote
from uuid import uuid4

import msgspec

from checkpoint.offsets import TopicPartition
from ingest.formats.base import Failure
from ingest.raw_batch import RawBatch
from storage.errors import CorruptFile
from storage.fileio.base import FileIO

_SUFFIX: Final = ".jsonl"
_HELD_BYTES_MAX: Final = 16 << 20


class _Where(msgspec.Struct):
    topic: str
    partition: int
    offset: int


class DeadLetters:
    """Gathers dead letters, and writes them at each checkpoint. Methods block; call them from one thread at a time.

    location: a folder that belongs to this pipeline alone. The key of a letter is (topic, partition, offset). Records
    that are read again after a restart fail again: those that have their letter already are passed over.
    """

    def __init__(self, io: FileIO, location: str) -> None:
        self._io = io
        self._location = location.rstrip("/")
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._first = ""  # names the next file
        self._written: set[tuple[str, int, int]] = set()  # keys from an earlier life that may come again
        self.count = 0  # of this life

    def recover(self, read_from: Mapping[TopicPartition, int]) -> None:
        """Learn which records have their letter. read_from: where reading goes on; nothing below comes again.

        Raises CorruptFile for a file that holds something else.
        """
        for entry in self._io.list_directory(self._location):
            if entry.is_directory or not entry.name.endswith(_SUFFIX):
                continue
            path = f"{self._location}/{entry.name}"
            for line in self._io.read(path).split(b"\n"):
                if line.strip():
                    where = _where(line, path)
                    if where.offset >= read_from.get(TopicPartition(where.topic, where.partition), 0):
                        self._written.add((where.topic, where.partition, where.offset))

    def add(self, batch: RawBatch, failures: Iterable[Failure]) -> None:
        """Keep these records of a batch in memory until `flush`; see `are_many`."""
        for failure in failures:
            if (batch.topic, batch.partition, failure.offset) in self._written:
                continue
            letter = msgspec.json.encode(letter_of(batch, failure)) + b"\n"
            self._first = self._first or f"{quote(batch.topic, safe='')}-{batch.partition}-{failure.offset}"
            self._waiting.append(letter)
            self._waiting_bytes += len(letter)
            self.count += 1

    @property
    def are_many(self) -> bool:
        """Whether those in memory should be written down before more come."""
        return self._waiting_bytes >= _HELD_BYTES_MAX

    def flush(self) -> None:
        """Make all letters durable: when this returns, positions may pass their records.

        The letters stay valid if the checkpoint then fails; their records find them when they come again.
        """
        if not self._waiting:
            return
        path = f"{self._location}/{self._first}-{uuid4().hex[:8]}{_SUFFIX}"
        self._io.create_if_absent(path, b"".join(self._waiting))  # whole or not there: `recover` reads what it finds
        self._waiting, self._waiting_bytes, self._first = [], 0, ""


def _where(line: bytes, path: str) -> _Where:
    try:
        return msgspec.json.decode(line, type=_Where)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CorruptFile(path, "dead letters", f"{line[:80]!r} ({error})") from None


def letter_of(batch: RawBatch, failure: Failure) -> dict[str, Any]:
    """The members of a dead letter's line."""
    row = failure.row
    return {
        "topic": batch.topic,
        "partition": batch.partition,
        "offset": failure.offset,
        "timestamp_ms": int(batch.timestamps_ms[row]),
        "kind": failure.kind.value,
        "reason": failure.reason,
        **_text_or_base64("key", batch.keys[row].as_py()),
        **_text_or_base64("value", batch.values[row].as_py()),
        "headers": [[name, value and value.decode(errors="replace")] for name, value in batch.headers.get(row, ())],
    }


def _text_or_base64(name: str, data: bytes | None) -> dict[str, str | None]:
    try:
        return {name: data if data is None else data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data or b"").decode()}
