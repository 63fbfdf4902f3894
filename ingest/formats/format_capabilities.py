"""What can be read from the records of a format in addition to rows: origin, transaction and order at the source."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Protocol, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.ingest.formats.connect_schema import ConnectorSettings


@dataclass(frozen=True, slots=True)
class TransactionRow:
    """The place of a change in its transaction.

    transaction: the transaction's id.
    collection: the source table.
    number: number of the change among the transaction's changes of that table, from 1.
    """

    transaction: str
    collection: str
    number: int


@dataclass(frozen=True, slots=True)
class TransactionEnd:
    """The end of a transaction.

    transaction: the transaction's id.
    counts: source table to the number of changes in the transaction.
    """

    transaction: str
    counts: Mapping[str, int]


TransactionOf: TypeAlias = Callable[[bytes], TransactionRow | TransactionEnd | None]
"""Reads the transaction from a record's value; None if the record is in no transaction, or doesn't name it."""


@dataclass(frozen=True, slots=True)
class SourceOrder:
    """The position of a change among all changes of its source. It orders records of several partitions.

    log: the source's log that contains the change. Positions in different logs can't be compared.
    place: the position in that log; a smaller one is earlier.
    """

    log: str
    place: tuple[int, ...]

    def is_before(self, other: SourceOrder) -> bool | None:
        """Return whether this change is earlier than the other; None if they can't be compared."""
        return self.place < other.place if self.log == other.log else None


SourceOrderOf: TypeAlias = Callable[[bytes], SourceOrder | None]
"""Returns the source order of a record's value; None if the record doesn't contain it."""


@dataclass(frozen=True, slots=True)
class RecordOrigin:
    """The source table and time of a change, as the record names them; None for what the record lacks.

    op_ts: time of the change at the source, in epoch milliseconds.
    """

    database_name: str | None = None
    schema_name: str | None = None
    table_name: str | None = None
    op_ts: int | None = None


OriginOf: TypeAlias = Callable[[bytes], RecordOrigin]
"""Returns the origin of a record that was decoded. The argument is the record's value as JSON."""


BinaryValues: TypeAlias = pa.BinaryArray | pa.LargeBinaryArray

LAST_WORDS: Final = ("last", "last_in_data_collection")
"""What Debezium writes into `source.snapshot` of the last record of a snapshot, and of the last one of a table."""


@dataclass(frozen=True, slots=True)
class SnapshotMarks:
    """What records show of the initial snapshot of their source.

    are_rows: whether all of these values are rows of a snapshot, not of the stream of changes. It may take a new row of
        the stream for one of the snapshot. No value is null.
    is_last: whether this value is the last row of its table, or of the whole snapshot; False if records don't say it.

    Both may block, if the format's decoding does.
    """

    are_rows: Callable[[BinaryValues], bool]
    is_last: Callable[[bytes], bool] = lambda _: False


SnapshotMarksOf: TypeAlias = Callable[[Mapping[str, Any]], SnapshotMarks]
"""Returns what reads the marks of records, for the format's `format_options`."""


def snapshot_marks(member: str, word: str, last: str | None = None) -> SnapshotMarksOf:
    """Return the marks of JSON records.

    member, word: this member has this word as its value in rows of a snapshot.
    last: this member has one of LAST_WORDS in the last one.
    """
    pattern = f'"{re.escape(member)}"\\s*:\\s*"{re.escape(word)}"'
    is_last = re.compile(f'"{re.escape(last or "")}"\\s*:\\s*"(?:{"|".join(LAST_WORDS)})"'.encode())

    def are_rows(values: BinaryValues) -> bool:
        return bool(pc.all(pc.match_substring_regex(values, pattern)).as_py())

    marks = SnapshotMarks(are_rows, lambda value: last is not None and is_last.search(value) is not None)
    return lambda _: marks


@dataclass(frozen=True, slots=True)
class FormatCapabilities:
    """What a format's records contain. A function is None, or empty, if they don't contain what it reads.

    origin_of: used by metadata columns.
    transaction_of: used by checkpoints that keep transactions whole.
    order_of: used for changes of a whole table, such as a truncate, while several partitions are read.
    members: sets of JSON members. Records of other formats never have all members of such a set. Used by messages about
        records that seem to be of another format than the configured one. If a record has the members of several
        sets, the largest set decides.
    connector_settings_of: returns the connector's settings from `format_options`, for records that may have no schema.
        Used by messages about what is then assumed.
    snapshot_marks_of: used by `bootstrap`, which ends when the source's snapshot ends.
    has_document_ids: whether records have ids of several types, which a table's snapshots record (`DocumentIds`).
    """

    origin_of: OriginOf | None = None
    transaction_of: TransactionOf | None = None
    order_of: SourceOrderOf | None = None
    members: tuple[frozenset[str], ...] = ()
    connector_settings_of: Callable[[Mapping[str, Any]], ConnectorSettings] | None = None
    has_document_ids: bool = False
    snapshot_marks_of: SnapshotMarksOf | None = None


class HasOrigin(Protocol):
    """A struct of a record that contains the record's origin."""

    def origin(self) -> RecordOrigin: ...


def origin_from(record: type[HasOrigin]) -> OriginOf:
    """Return a function that decodes a record into this struct and returns its origin."""
    decode = msgspec.json.Decoder(record).decode

    def read(value: bytes) -> RecordOrigin:
        try:
            return decode(value).origin()
        except msgspec.MsgspecError:  # a member has a type that the format does not allow: the origin is unknown
            return RecordOrigin()

    return read


def epoch_ms_of(text: str | None) -> int | None:
    """Return the epoch milliseconds of an ISO time, in UTC if it has no zone; None if the text is no such time."""
    try:
        moment = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000 // 1)
