"""Dead letters in files: records that could not be decoded, each kept once, with its reason.

A dead letter is on disk before any table's position passes its record. A file holds dead letters of one partition and
is named after it, with the first and the last offset: `shop.orders-3-17_42-1a2b3c4d.jsonl`. A line is

    {"topic", "partition", "offset", "timestamp_ms", "reason", "kind", "key", "value", "headers"}

in the form of a change-log line (`value_base64` where bytes are no text, `timestamp_type` where it is known), so that a
corrected file can be read again as a source.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final
from urllib.parse import quote, unquote
from uuid import uuid4

import msgspec

from checkpoint.offsets import TopicPartition
from ingest.clock import Clock, SystemClock
from ingest.formats.base import DecodeFailure
from ingest.raw_batch import RawBatch
from storage.errors import CorruptFile
from storage.fileio.base import FileIO
from storage.logs import get_logger

_log = get_logger(__name__)

_SUFFIX: Final = ".jsonl"
_QUIET_MS: Final = 10_000  # between two log lines
HELD_BYTES_MAX: Final = 16 << 20
_WRITTEN_AT_ONCE: Final = 8
# Not the names that earlier releases gave, `<topic>-<partition>-<first offset>-<…>`: they may hold dead letters of
# other partitions, of any offset. Nor those that the Spark sink gives.
_RANGE: Final = re.compile(r"(?P<topic>.+)-(?P<partition>\d+)-\d+_(?P<last>\d+)-[0-9a-f]{8}\.jsonl")


class _DeadLetter(msgspec.Struct, frozen=True):
    """What a dead letter says of its record."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: Any = None
    key: Any = None
    value: Any = None
    key_base64: Any = None
    value_base64: Any = None


class DeadLetters:
    """Gathers dead letters, and writes them at each checkpoint. Methods block; call them from one thread at a time.

    location: a folder that belongs to this pipeline alone. Records that are read again after a restart fail again:
    those that are dead letters already are passed over. A record is one if place, time, key and value are the same:
    the same place in another cluster or folder, or in a topic created again, holds another record.
    """

    def __init__(
        self, io: FileIO | None, location: str, clock: Clock | None = None, *, logs_reasons: bool = False
    ) -> None:
        self._io = io
        self._location = location.rstrip("/")
        self._limited_log = _RateLimitedLog(self._location, clock or SystemClock(), logs_reasons)
        # By partition: rising offsets, and lines.
        self._waiting: dict[TopicPartition, list[tuple[int, bytes]]] = {}
        self._waiting_bytes = 0
        self._written: set[bytes] = set()  # digests of dead letters of earlier runs that may come again

    def recover(self, resume_offsets: Mapping[TopicPartition, int]) -> None:
        """Read which records are dead letters already.

        resume_offsets: where reading goes on; nothing below comes again.

        Files that are below by their name are not read. Raises CorruptFile for a file that holds something else.
        """
        assert self._io is not None
        for entry in self._io.list_directory(self._location):
            if entry.is_directory or not entry.name.endswith(_SUFFIX) or _is_below(entry.name, resume_offsets):
                continue
            path = f"{self._location}/{entry.name}"
            for line in self._io.read(path).split(b"\n"):
                if line.strip():
                    dead_letter = _parse_dead_letter(line, path)
                    if dead_letter.offset >= resume_offsets.get(
                        TopicPartition(dead_letter.topic, dead_letter.partition), 0
                    ):
                        self._written.add(_digest(dead_letter))

    def contains(self, batch: RawBatch, failure: DecodeFailure) -> bool:
        """Whether an earlier run wrote the record as a dead letter."""
        return bool(self._written) and dead_letter_id(batch, failure) in self._written

    def add(self, batch: RawBatch, failures: Iterable[DecodeFailure]) -> list[DecodeFailure]:
        """Keep these records of a batch in memory until `flush`, but those that are dead letters already; returns those
        kept. See `should_flush`.
        """
        added = []
        partition = TopicPartition(batch.topic, batch.partition)
        for failure in failures:
            if self.contains(batch, failure):
                continue
            self._limited_log.log_limited(partition, failure)
            self._waiting_bytes += self._keep(batch, failure)
            added.append(failure)
        return added

    def _keep(self, batch: RawBatch, failure: DecodeFailure) -> int:
        """Returns how many bytes that takes."""
        line = msgspec.json.encode(dead_letter_members(batch, failure)) + b"\n"
        self._waiting.setdefault(TopicPartition(batch.topic, batch.partition), []).append((failure.offset, line))
        return len(line)

    @property
    def has_unflushed(self) -> bool:
        return self._waiting_bytes > 0

    @property
    def should_flush(self) -> bool:
        """Whether those in memory should be written down before more come."""
        return self._waiting_bytes >= HELD_BYTES_MAX

    def flush(self) -> None:
        """Make all dead letters durable: when this returns, positions may pass their records.

        They stay valid if the checkpoint then fails: records that are read again are recognised.
        """
        if self._waiting:
            with ThreadPoolExecutor(min(len(self._waiting), _WRITTEN_AT_ONCE), "dead-letters") as threads:
                list(threads.map(self._write, self._waiting))
        self._waiting, self._waiting_bytes = {}, 0

    def _write(self, partition: TopicPartition) -> None:
        dead_letters = self._waiting[partition]
        (first, _), (last, _) = dead_letters[0], dead_letters[-1]
        where = f"{quote(partition.topic, safe='')}-{partition.partition}-{first}_{last}"
        path = f"{self._location}/{where}-{uuid4().hex[:8]}{_SUFFIX}"
        # whole or not there: `recover` reads what it finds
        assert self._io is not None
        self._io.create_if_absent(path, b"".join(line for _, line in dead_letters))


class _RateLimitedLog:
    """Logs dead letters, one line at a time: the first at once, then the next after
    _QUIET_MS, with how many came in between. Thousands may fail for one reason.
    """

    def __init__(self, location: str, clock: Clock, with_reasons: bool) -> None:
        self._with_reasons = with_reasons
        self._location = location
        self._clock = clock
        self._quiet_until_ms: int | None = None
        self._unlogged = 0

    def log_limited(self, partition: TopicPartition, failure: DecodeFailure) -> None:
        now_ms = self._clock.now_ms()
        if self._quiet_until_ms is not None and now_ms < self._quiet_until_ms:
            self._unlogged += 1
            return
        _log.warning(
            "a record becomes a dead letter",
            topic=partition.topic,
            partition=partition.partition,
            offset=failure.offset,
            code=failure.code,
            **({"reason": failure.reason} if self._with_reasons else {}),
            unlogged_before=self._unlogged,
            kept_in=self._location,
        )
        self._quiet_until_ms, self._unlogged = now_ms + _QUIET_MS, 0


def _is_below(file_name: str, resume_offsets: Mapping[TopicPartition, int]) -> bool:
    found = _RANGE.fullmatch(file_name)
    if found is None:
        return False
    partition = TopicPartition(unquote(found["topic"]), int(found["partition"]))
    return int(found["last"]) < resume_offsets.get(partition, 0)


def _parse_dead_letter(line: bytes, path: str) -> _DeadLetter:
    try:
        return msgspec.json.decode(line, type=_DeadLetter)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CorruptFile(path, "dead letters", f"{line[:80]!r} ({error})") from None


def _digest(dead_letter: _DeadLetter) -> bytes:
    """Stands for a dead letter in memory, where there may be many large ones."""
    return hashlib.blake2b(msgspec.msgpack.encode(dead_letter), digest_size=16).digest()


def dead_letter_id(batch: RawBatch, failure: DecodeFailure) -> bytes:
    """The same for a record that is read again, and for no other: of place, time, key and value."""
    return _digest(msgspec.convert(dead_letter_members(batch, failure), _DeadLetter))


def dead_letter_id_of_line(line: str) -> bytes:
    """Of a record whose dead letter is written already."""
    return _digest(msgspec.json.decode(line, type=_DeadLetter))


def dead_letter_members(batch: RawBatch, failure: DecodeFailure) -> dict[str, Any]:
    """The members of a dead letter's line."""
    row = failure.row
    return {
        "topic": batch.topic,
        "partition": batch.partition,
        "offset": failure.offset,
        "timestamp_ms": int(batch.timestamps_ms[row]),
        **({} if (timestamp_type := batch.timestamp_type(row)) is None else {"timestamp_type": timestamp_type}),
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
