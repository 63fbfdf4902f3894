"""Dead letters in files: records that could not be decoded, each kept once, with its reason.

A dead letter is on disk before any table's position passes its record. A file holds dead letters of one partition and
is named after it, with the first and the last offset: `shop.orders-3-17_42-1a2b3c4d.jsonl`. A line is

    {"topic", "partition", "offset", "timestamp_ms", "reason", "kind", "key", "value", "headers"}

in the form of a change-log line, so that a corrected file can be read again as a source. Bytes that are no text have
the member `value_base64`. A known timestamp type has the member `timestamp_type`. Key and value
are null if the record's table masks columns. A record of a source table with several tables has the member `table`, and
a dead letter for each table that can't take it.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import quote, unquote

import msgspec

from tidelake.checkpoint.offsets import TopicPartition
from tidelake.errors import CorruptFile
from tidelake.ingest.clock import Clock, SystemClock
from tidelake.ingest.formats.base import DecodeFailure
from tidelake.ingest.raw_batch import RawBatch
from tidelake.storage.base import env
from tidelake.storage.base.logs import get_logger
from tidelake.storage.fileio.base import FileIO

_log = get_logger(__name__)

_SUFFIX: Final = ".jsonl"
_LOG_INTERVAL_MS: Final = 10_000  # least time between two log lines
BUFFER_BYTES_MAX: Final = 16 << 20
_WRITE_PARALLELISM: Final = 8
# It doesn't match the file names of earlier releases, `<topic>-<partition>-<first offset>-<…>`: such files may hold
# dead letters of other partitions, with any offset. It doesn't match the names of the Spark sink either.
_RANGE: Final = re.compile(r"(?P<topic>.+)-(?P<partition>\d+)-\d+_(?P<last>\d+)-[0-9a-f]{8}\.jsonl")


class _DeadLetter(msgspec.Struct, frozen=True):
    """The identity of a dead letter's record."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: Any = None
    key: Any = None
    value: Any = None
    key_base64: Any = None
    value_base64: Any = None
    table: Any = None


class DeadLetters:
    """Collects dead letters, and writes them at each checkpoint. Methods block; call them from one thread at a time.

    location: a folder that belongs only to this pipeline.

    Records that are read again after a restart fail again. They are skipped if they are dead letters already. A record
    is the same if topic, partition, offset, time, key, value and table are the same: the same offset in another cluster
    or folder, or in a topic that was created again, holds another record.
    """

    def __init__(
        self, io: FileIO | None, location: str, clock: Clock | None = None, *, logs_reasons: bool = False
    ) -> None:
        self._io = io
        self._location = location.rstrip("/")
        self._limited_log = _RateLimitedLog(self._location, clock or SystemClock(), logs_reasons)
        # For each partition: lines with their offsets, which rise.
        self._waiting: dict[TopicPartition, list[tuple[int, bytes]]] = {}
        self._waiting_bytes = 0
        self._written: set[bytes] = set()  # digests of others' dead letters whose records may be read again
        self._looked_at = set[str]()  # names of files

    def recover(self, resume_offsets: Mapping[TopicPartition, int]) -> None:
        """Read which records are dead letters already.

        resume_offsets: where reading of the source continues. Records below are not read again.

        Files whose names show that all their offsets are below are not read. Raises CorruptFile for a file with other
        contents.
        """
        assert self._io is not None
        for entry in self._io.list_directory(self._location):
            is_file = not entry.is_directory and entry.name.endswith(_SUFFIX) and entry.name not in self._looked_at
            self._looked_at.add(entry.name)
            if not is_file or _is_below(entry.name, resume_offsets):
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
        """Return whether another run wrote the record as a dead letter."""
        return bool(self._written) and dead_letter_id(batch, failure) in self._written

    def add(self, batch: RawBatch, failures: Iterable[DecodeFailure]) -> list[DecodeFailure]:
        """Keep these records of a batch in memory until `flush`, and return them.

        Records that are dead letters already are left out. See `should_flush`.
        """
        added = []
        partition = TopicPartition(batch.topic, batch.partition)
        for failure in failures:
            if self.contains(batch, failure):
                continue
            self._limited_log.log_limited(partition, failure)
            self._waiting_bytes += self._store(batch, failure)
            added.append(failure)
        return added

    def _store(self, batch: RawBatch, failure: DecodeFailure) -> int:
        """Keep the record in memory. Returns the number of bytes that this takes."""
        line = msgspec.json.encode(dead_letter_members(batch, failure)) + b"\n"
        self._waiting.setdefault(TopicPartition(batch.topic, batch.partition), []).append((failure.offset, line))
        return len(line)

    @property
    def has_unflushed(self) -> bool:
        return self._waiting_bytes > 0

    @property
    def should_flush(self) -> bool:
        """Whether the dead letters in memory should be written before more are added."""
        return self._waiting_bytes >= BUFFER_BYTES_MAX

    def flush(self) -> None:
        """Make all dead letters durable. After this, positions may pass their records.

        The dead letters stay valid if the checkpoint fails afterwards: records that are read again are recognized.
        """
        if self._waiting:
            self._leave_out_known()
            with env.ThreadPoolExecutor(_WRITE_PARALLELISM, "dead-letters") as threads:
                list(threads.map(self._write, list(self._waiting)))
        self._waiting, self._waiting_bytes = {}, 0

    def _leave_out_known(self) -> None:
        """Forget lines that a process which took over, or the one before, has written meanwhile."""
        self.recover({partition: lines[0][0] for partition, lines in self._waiting.items()})
        if self._written:
            for partition, lines in list(self._waiting.items()):
                kept = [one for one in lines if dead_letter_id_of_line(one[1].decode()) not in self._written]
                self._waiting[partition] = kept
                if not kept:
                    del self._waiting[partition]

    def _write(self, partition: TopicPartition) -> None:
        dead_letters = self._waiting[partition]
        (first, _), (last, _) = dead_letters[0], dead_letters[-1]
        where = f"{quote(partition.topic, safe='')}-{partition.partition}-{first}_{last}"
        path = f"{self._location}/{where}-{env.new_uuid().hex[:8]}{_SUFFIX}"
        # The file is created atomically, because `recover` reads every file that it finds.
        assert self._io is not None
        self._io.create_if_absent(path, b"".join(line for _, line in dead_letters))
        self._looked_at.add(path.rpartition("/")[2])
        del self._waiting[partition]  # also if that of another one fails


class _RateLimitedLog:
    """Logs the first dead letter at once, and then at most one every _LOG_INTERVAL_MS, with the count of unlogged ones.

    The rate is limited because thousands of records may fail for one reason.
    """

    def __init__(self, location: str, clock: Clock, with_reasons: bool) -> None:
        self._with_compact_reason = with_reasons
        self._location = location
        self._clock = clock
        self._next_log_ms: int | None = None
        self._unlogged = 0

    def log_limited(self, partition: TopicPartition, failure: DecodeFailure) -> None:
        now_ms = self._clock.now_ms()
        if self._next_log_ms is not None and now_ms < self._next_log_ms:
            self._unlogged += 1
            return
        _log.warning(
            "a record becomes a dead letter",
            topic=partition.topic,
            partition=partition.partition,
            offset=failure.offset,
            code=failure.code,
            **({"reason": failure.reason} if self._with_compact_reason else {}),
            unlogged_before=self._unlogged,
            kept_in=self._location,
        )
        self._next_log_ms, self._unlogged = now_ms + _LOG_INTERVAL_MS, 0


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
    """Return a digest that represents a dead letter in memory, because many large ones may exist."""
    members = msgspec.structs.asdict(dead_letter)
    if members["table"] is None:  # as the first releases, whose dead letters have no table
        del members["table"]
    return hashlib.blake2b(msgspec.msgpack.encode(members), digest_size=16).digest()


def dead_letter_id(batch: RawBatch, failure: DecodeFailure) -> bytes:
    """Return an id of the record from topic, partition, offset, time, key, value, and the table if it has several.

    It is the same if the record is read again. No other record has it.
    """
    return _digest(msgspec.convert(dead_letter_members(batch, failure), _DeadLetter))


def dead_letter_id_of_line(line: str) -> bytes:
    """Return the `dead_letter_id` of a dead letter that was written."""
    return _digest(msgspec.json.decode(line, type=_DeadLetter))


def dead_letter_members(batch: RawBatch, failure: DecodeFailure) -> dict[str, Any]:
    """Return the members of a dead letter's line. A withheld record has no key, value and headers."""
    row, is_withheld = failure.row, failure.is_withheld
    return {
        "topic": batch.topic,
        "partition": batch.partition,
        "offset": failure.offset,
        "timestamp_ms": int(batch.timestamps_ms[row]),
        **({} if (timestamp_type := batch.timestamp_type(row)) is None else {"timestamp_type": timestamp_type}),
        "kind": failure.kind.value,
        "reason": failure.reason,
        **({"table": failure.table_name} if failure.is_shared else {}),
        **_text_or_base64("key", None if is_withheld else batch.keys[row].as_py()),
        **_text_or_base64("value", None if is_withheld else batch.values[row].as_py()),
        "headers": [
            [name, value and value.decode(errors="replace")]
            for name, value in (() if is_withheld else batch.headers.get(row, ()))
        ],
    }


def _text_or_base64(name: str, data: bytes | None) -> dict[str, str | None]:
    try:
        return {name: data if data is None else data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data or b"").decode()}
