"""What is kept of a quarantined table: a log of its records in the order of the source, and a notice about its failure.

    <location>/<table>/0000000003-1a2b3c4d.arrow      a segment: records of [start, end) of each partition
    <location>/<table>/notice.json                    since when, and why; it is shown even if no pipeline runs

A segment is created atomically, and begins where the previous one ended. So after a crash the log consists of the
segments that join. This includes segments of another process of the pipeline, written before it was fenced, if they
join. Records that the log lacks are read from the source again: the pipeline starts at the end of the log.

Records of a quarantined table are not decoded. So if a batch has anything for the table, all records are kept that no
other table took. Records that are kept needlessly (tombstones, records of no table) give no rows when they are decoded
later.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Final
from urllib.parse import quote, unquote

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelake.checkpoint.offsets import OffsetRange, SourceIdentity, SourcePosition, TopicPartition
from tidelake.errors import CorruptFile
from tidelake.ingest.formats.base import DecodedBatch, Skipped
from tidelake.ingest.quarantine.failures import OwnerOf
from tidelake.ingest.quarantine.segments import SegmentHead, decode_batches, decode_head, encode_segment
from tidelake.ingest.raw_batch import RawBatch
from tidelake.ingest.tables.table_router import TableRouter
from tidelake.storage.base import env
from tidelake.storage.fileio.base import FileIO
from tidelake.storage.fileio.requests import map_requests

SEGMENT_BYTES: Final = 16 << 20  # bytes of undecoded records, in memory and in one segment
_SUFFIX: Final = ".arrow"
_NOTICE: Final = "notice.json"
_NOTICE_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class _Segment:
    number: int
    path: str
    nbytes: int
    head: SegmentHead


class RecordLog:
    """The log of a table's records. Methods that read or write files block. Call them from one thread at a time.

    starts: the first offset of each partition in the log.
    ends: the next offset after the records in the log, including those in memory.
    base_id: see `SegmentHead`.
    base_manifest_list: see `SegmentHead`.
    """

    def __init__(
        self,
        io: FileIO,
        directory: str,
        table: str,
        starts: Mapping[TopicPartition, int],
        base_id: int | None = None,
        base_manifest_list: str | None = None,
        segments: Sequence[_Segment] = (),
        identity: SourceIdentity | None = None,
        unused: Sequence[str] = (),
    ) -> None:
        self._io = io
        self._directory = directory
        self.table = table
        self.starts = dict(starts)
        self.base_id, self.base_manifest_list = base_id, base_manifest_list
        self._segments = list(segments)
        self._unused = list(unused)
        self.identity = identity or SourceIdentity()
        self.durable_ends: dict[TopicPartition, int] = dict(starts)
        for segment in segments:
            self.durable_ends.update(segment.head.position.ends)
        self.ends: dict[TopicPartition, int] = dict(self.durable_ends)
        self._held: list[RawBatch] = []
        self._held_bytes = 0
        self._next_number = 1 + max((segment.number for segment in segments), default=0)

    @classmethod
    def open(cls, io: FileIO, directory: str, table: str) -> RecordLog | None:
        """Open the log of an earlier process. Returns None if no log exists. Raises CorruptFile for an unreadable
        segment.
        """
        found = sorted(
            (
                _Segment(number, path, entry.size_bytes, decode_head(io.read(path), path))
                for entry in io.list_directory(directory)
                if (number := _number(entry.name)) is not None and (path := f"{directory}/{entry.name}")
            ),
            key=lambda segment: (segment.number, segment.path),
        )
        if not found:
            return None
        if (other := next((s for s in found if s.head.table != table), None)) is not None:
            raise CorruptFile(other.path, f"records of {table}", f"those of {other.head.table}")
        chain, unused, ends = list[_Segment](), list[str](), dict[TopicPartition, int]()
        for segment in found:
            if all(ends.get(p, start) == start for p, (start, _) in segment.head.position.ranges.items()):
                chain.append(segment)
                ends.update(segment.head.position.ends)
            else:
                unused.append(segment.path)
        head = chain[0].head
        starts = {p: range_.start for s in reversed(chain) for p, range_ in s.head.position.ranges.items()}
        identity = chain[-1].head.position.identity
        return cls(io, directory, table, starts, head.base_id, head.base_manifest_list, chain, identity, unused)

    @property
    def has_its_beginning(self) -> bool:
        """Whether its first segment is there: not trimmed, and not deleted by a process that is about to be fenced."""
        return not self._segments or self._segments[0].number == 1

    @property
    def nbytes(self) -> int:
        """Bytes on disk and in memory."""
        return sum(segment.nbytes for segment in self._segments) + self._held_bytes

    @property
    def records(self) -> int:
        return sum(segment.head.records for segment in self._segments) + sum(map(len, self._held))

    @property
    def should_flush(self) -> bool:
        return self._held_bytes >= SEGMENT_BYTES

    @property
    def segments_written(self) -> int:
        """The number of segments written so far. It only rises."""
        return self._next_number - 1

    @property
    def held(self) -> Sequence[RawBatch]:
        """The records that are only in memory."""
        return self._held

    @property
    def held_bytes(self) -> int:
        return self._held_bytes

    def add_partition(self, partition: TopicPartition, start: int) -> None:
        """Add a partition whose records begin at `start`. A known partition is not changed."""
        for offsets in (self.starts, self.durable_ends, self.ends):
            offsets.setdefault(partition, start)

    def append(self, partition: TopicPartition, records: RawBatch | None, next_offset: int) -> None:
        """Append records, and extend the log to `next_offset`.

        records: the table's records between the log's end and `next_offset`; None if none exist.
        """
        self.starts.setdefault(partition, next_offset if records is None else int(records.offsets[0]))
        self.ends[partition] = max(next_offset, self.ends.get(partition, next_offset))
        if records is not None:
            self._held.append(records)
            self._held_bytes += records.nbytes

    def flush(self, identity: SourceIdentity, *, force: bool = False) -> None:
        """Make the log durable up to `ends`.

        force: write a segment even if the log has no new records.
        """
        if not self._held and not (force and self.ends != self.durable_ends):
            return
        ranges = {p: OffsetRange(self.durable_ends.get(p, self.starts[p]), end) for p, end in self.ends.items()}
        position = SourcePosition(ranges=ranges).with_identity(identity)
        head = SegmentHead(self.table, position, self.base_id, self.base_manifest_list, sum(map(len, self._held)))
        data = encode_segment(head, self._held)
        path = f"{self._directory}/{self._next_number:010d}-{env.new_uuid().hex[:8]}{_SUFFIX}"
        self._unused.append(path)  # it may exist also after an error
        self._io.create_if_absent(path, data)
        self._unused.pop()
        self._segments.append(_Segment(self._next_number, path, len(data), head))
        self._next_number += 1
        self.identity = position.identity
        self.durable_ends = dict(self.ends)
        self._held, self._held_bytes = [], 0

    def store_start(self, identity: SourceIdentity) -> None:
        """Store the start of a new log, although it has no records."""
        self.durable_ends = {}
        self.flush(identity, force=True)

    def read_after(self, reached: Mapping[TopicPartition, int]) -> Iterator[RawBatch]:
        """Yield the durable records from these offsets on, batch by batch, in order."""
        return self._read_after(list(self._segments), reached)

    def _read_after(self, segments: Sequence[_Segment], reached: Mapping[TopicPartition, int]) -> Iterator[RawBatch]:
        for segment in segments:
            if all(reached.get(p, 0) >= end for p, end in segment.head.position.ends.items()):
                continue
            yield from decode_batches(self._io.read(segment.path), segment.path)

    def trim(self, ends: Mapping[TopicPartition, int]) -> None:
        """Delete segments that are completely below `ends`: the table has their records."""
        done = 0
        for segment in self._segments:
            if any(ends.get(p, 0) < end for p, end in segment.head.position.ends.items()):
                break
            done += 1
        removed, self._segments = self._segments[:done], self._segments[done:]
        for segment in removed:
            self.starts.update(segment.head.position.ends)
        self._io.delete_all([segment.path for segment in removed])

    def delete(self) -> None:
        """Delete the log, because the table doesn't need it any more. Segments of another process stay: it may have
        taken over, and begun its own log, before this call.
        """
        paths = [segment.path for segment in self._segments] + self._unused
        delete_files(self._io, self._directory, [*paths, f"{self._directory}/{_NOTICE}"])


def directory_of(location: str, table: str) -> str:
    return f"{location}/{quote(table, safe='')}"


def tables_with_directory(io: FileIO, location: str) -> list[str]:
    """Return the tables with a directory in this location. Blocks."""
    return sorted(unquote(entry.name) for entry in io.list_directory(location) if entry.is_directory)


def delete_files(io: FileIO, directory: str, paths: Sequence[str]) -> None:
    """Delete these files of a table, and its directory if no others are left. Blocks."""
    io.delete_all(paths)
    io.delete_empty_directory(directory)


def _number(name: str) -> int | None:
    head, _, _ = name.removesuffix(_SUFFIX).partition("-")
    return int(head) if name.endswith(_SUFFIX) and head.isdigit() else None


# ---------------------------------------------------------------- the notice


@dataclass(frozen=True, slots=True)
class QuarantineNotice:
    """The notice of a quarantined table.

    state: `failed`, or `catching up`.
    since_ms: time of its first failure, epoch milliseconds.
    reason: its last error, with the remedy.
    attempts: number of failed attempts.
    records: number of records kept for it at the last update.
    nbytes: bytes of these records.
    sources: full names of the source tables whose records belong to the table, as far as they are known.
    """

    table: str
    state: str
    since_ms: int
    reason: str
    attempts: int = 0
    records: int = 0
    nbytes: int = 0
    sources: Sequence[str] = ()


def write_notice(io: FileIO, location: str, notice: QuarantineNotice) -> None:
    """Write the notice. Blocks."""
    members = {"version": _NOTICE_VERSION, **asdict(notice)}
    path = f"{directory_of(location, notice.table)}/{_NOTICE}"
    io.write(path, json.dumps(members, ensure_ascii=False, indent=2).encode())


def read_notice(io: FileIO, location: str, table: str) -> QuarantineNotice | None:
    """Return the notice of a table; None if it has none. Blocks. Raises CorruptFile for an invalid notice."""
    path = f"{directory_of(location, table)}/{_NOTICE}"
    try:
        members = {"sources": (), **json.loads(io.read(path))}  # older releases did not write the sources
        return QuarantineNotice(**{name: members[name] for name in QuarantineNotice.__dataclass_fields__})
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptFile(path, "why a table is in quarantine", str(error)) from error


def kept_sources(io: FileIO, location: str) -> dict[str, Sequence[str] | None]:
    """Return the tables with kept records, and the source tables of these records; None: unknown. Blocks."""

    def of(table: str) -> Sequence[str] | None:
        try:
            notice = read_notice(io, location, table)
        except CorruptFile:
            return None
        return None if notice is None else notice.sources or None

    tables = tables_with_directory(io, location)
    return dict(zip(tables, map_requests(location, of, tables), strict=True))


def read_notices(io: FileIO, location: str) -> list[QuarantineNotice]:
    """Return the notices of all quarantined tables, in the order of their names. Blocks."""
    found = map_requests(location, partial(read_notice, io, location), tables_with_directory(io, location))
    return [notice for notice in found if notice is not None]


# ---------------------------------------------------------------- the records of a batch that may be the table's


def kept_records(
    table: str, raw: RawBatch, decoded: DecodedBatch, start: int, stop: int, router: TableRouter, owner: OwnerOf
) -> RawBatch | None:
    """Return the records to keep, with offsets in [start, stop); None if no record is to be kept."""
    if not _has_rows_of(table, raw, decoded, router, owner):
        return None
    keep = (raw.offsets >= start) & (raw.offsets < stop)
    with_same_sources = {table, *router.sharing(table)}  # a record of another one may also be a record of the table
    others = [part.offsets for part in decoded.tables if part.target.name not in with_same_sources]
    if others:  # one search for all: a search for each of a thousand tables would take longer than decoding
        keep[np.searchsorted(raw.offsets, np.concatenate(others))] = False
    for failure in decoded.failures:
        if owner(failure, raw) not in {None, *with_same_sources}:
            keep[failure.row] = False
    return _select_records(raw, keep, min(stop, raw.next_offset)) if keep.any() else None


def _has_rows_of(table: str, raw: RawBatch, decoded: DecodedBatch, router: TableRouter, owner: OwnerOf) -> bool:
    with_same_sources = {table, *router.sharing(table)}
    if any(part.target.name in with_same_sources for part in decoded.tables):
        return True
    if any(table in router.tables_for(source) for source in decoded.unrouted):
        return True
    if any(owner(failure, raw) in {None, *with_same_sources} for failure in decoded.failures):
        return True
    # The tables of these records are unknown.
    other = decoded.skipped.get(Skipped.SCHEMA_CHANGE, 0) + decoded.skipped.get(Skipped.TRUNCATE, 0)
    return other > 0 and table in router.tables_of(raw.topic)


def _select_records(raw: RawBatch, keep: NDArray[np.bool_], next_offset: int) -> RawBatch:
    if keep.all():
        return raw
    mask = pa.array(keep)
    rows = np.flatnonzero(keep).tolist()
    numbers = {row: number for number, row in enumerate(rows)}
    return RawBatch(
        raw.topic,
        raw.partition,
        raw.offsets[keep],
        raw.timestamps_ms[keep],
        raw.keys.filter(mask),
        raw.values.filter(mask),
        next_offset,
        {numbers[row]: headers for row, headers in raw.headers.items() if row in numbers},
        None if raw.timestamp_types is None else raw.timestamp_types[keep],
    )
