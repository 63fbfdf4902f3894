"""The errors of this project. Every message names the problem, the reason and the remedy.

There are few types: a new one is added only if a caller would act differently. All but those of the command line are
defined here, in the one module of `tidelake` that every other one may import: tracebacks, pickles and type checkers
show the name that users import.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

E = TypeVar("E", bound="TidelakeError")


class TidelakeError(Exception):
    """Base class of all errors that this project raises on purpose. All of them can be pickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self.args, self.__dict__)


def _restored(kind: type[E], args: tuple[object, ...], members: dict[str, object]) -> E:
    """Make an error again from its message: the arguments of its constructor may be others."""
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(members)
    return error


class BadInput(TidelakeError):
    """The input of the caller is invalid; the table is not changed. Correct the input and call again."""


class UnsupportedFeature(TidelakeError):
    """The table needs a feature that this release lacks, and continuing would give wrong rows or a wrong table.

    feature: the option or type, spelled as in the table
    reason: what would break
    remedy: what the user can do
    """

    def __init__(self, feature: str, reason: str, remedy: str) -> None:
        super().__init__(f"{feature}: {reason}. {remedy}")
        self.feature = feature
        self.reason = reason
        self.remedy = remedy


class CorruptFile(TidelakeError):
    """A file does not match its metadata. Files are never skipped silently.

    path: the file
    expected: expected content, in words
    found: actual content, in words
    offset: byte position if known, otherwise None
    """

    def __init__(self, path: str, expected: str, found: str, offset: int | None = None) -> None:
        at = "" if offset is None else f" at byte {offset}"
        super().__init__(f"{path}{at}: expected {expected}, found {found}")
        self.path = path
        self.expected = expected
        self.found = found
        self.offset = offset


class AccessDenied(TidelakeError, PermissionError):
    """The operating system or an object store denies access to a file. Nothing was changed there.

    Also an OSError, with `errno` and `filename`. The message names the path, the operation and the remedy.
    """

    def __init__(self, code: int, reason: str, path: str) -> None:
        super().__init__(code, reason, path)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.errno, self.strerror, self.filename), self.__dict__

    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}"


class SnapshotExpired(TidelakeError):
    """The snapshot no longer exists: it expired or was rolled back, maybe while it was read. Nothing is damaged: start
    again with an existing snapshot. Rows read so far are from a state that the table had.

    there: the table's snapshots now, in words
    """

    def __init__(self, table: str, snapshot_id: int, there: str) -> None:
        super().__init__(
            f"{table}: snapshot {snapshot_id} no longer exists: it expired or was rolled back ({there}). Start again: "
            "scan the table, and read its changes from that snapshot on. To keep the snapshots of slow readers, use "
            "a consumer (follow), a tag, or a longer 'snapshot.time-retained'"
        )
        self.table = table
        self.snapshot_id = snapshot_id
        self.there = there


class CommitConflict(TidelakeError):
    """Another commit conflicts with ours. Nothing was published: refresh, plan again, retry."""


class StaleSequenceNumbers(CommitConflict):
    """Another writer committed rows to a bucket after its sequence numbers were read. The same rows can be committed
    with newer numbers.
    """


class HistoryExpired(CommitConflict):
    """A snapshot expired before it was known whether another writer committed rows with it."""


class RecoveryOutdated(CommitConflict):
    """Another process of the pipeline committed after the table was read, or the table's position changed. Recover
    again.
    """


class BatchOutdated(CommitConflict):
    """The batch is based on outdated state; writing it again cannot succeed."""


class CommitOutcomeUnknown(TidelakeError):
    """The commit may have been published. Look for its commit identifier first; delete nothing until you know."""


class WriterFenced(TidelakeError):
    """A newer writer owns this pipeline. Stop writing; do not retry."""


class ReloadRefused(TidelakeError):
    """A running pipeline can't take a changed configuration, and continues as before. Restart it instead."""


class PositionRefused(TidelakeError):
    """The read position cannot be proven from the table.

    found: the problems
    ways_out: commands or settings to choose from
    """

    def __init__(self, found: str, ways_out: Sequence[str]) -> None:
        super().__init__("\n".join([found, "Options:", *(f"  {way}" for way in ways_out)]))
        self.found = found
        self.ways_out = tuple(ways_out)


# ---------------------------------------------------------------- pipelines


class ConfigError(BadInput):
    """The configuration can't be used. The message quotes the place of the error, with secrets hidden."""


class SourceUnavailable(TidelakeError):
    """The source didn't answer within its time limit. Nothing is lost: start again when it is back."""


class RegistryUnavailable(TidelakeError):
    """The schema registry did not answer, or refused the request. No later record was read. Start again later."""


class RecordRefused(BadInput):
    """A record stops the pipeline. The records before it are committed. It is read again at the next start.

    failure: the failure of the record, a `tidelake.ingest.formats.base.DecodeFailure`; None if it could be decoded
    """

    def __init__(self, message: str, failure: Any = None) -> None:
        super().__init__(message)
        self.failure = failure


class _Records(Protocol):
    """What `TableNotInferred` needs of a `tidelake.ingest.raw_batch.RawBatch`."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offsets(self) -> Any: ...


class TableNotInferred(BadInput):
    """No table can be derived from a record, because it does not define columns or a key.

    row: the record's row in its batch
    reason: what the record lacks, without the record's position
    table: name of the table; None if it is not known
    """

    table: str | None = None

    def __init__(self, batch: _Records, row: int, reason: str) -> None:
        where = f"topic {batch.topic}, partition {batch.partition}, offset {int(batch.offsets[row])}"
        super().__init__(f"{where}: {reason}. Fix the source, or create the table first (`tidelake table create`)")
        self.row = row
        self.reason = reason

    @classmethod
    def for_record(cls, batch: _Records, row: int, reason: str) -> TableNotInferred:
        """Return the error for a record. reason: what is wrong with the record."""
        return cls(batch, row, f"no table can be derived from this record: {reason}")


class TableUnusable(TidelakeError):
    """One table can't be read at startup. With a quarantine, the others continue."""

    def __init__(self, table: str, reason: str) -> None:
        super().__init__(
            f"{table} can't be opened, so its position is unknown: {reason}. Repair the table, or remove it from "
            "`tables` to let the other tables continue. Later it continues from its own position, if the source "
            "still has the records from there on"
        )
        self.table, self.reason = table, reason


class TableFailed(TidelakeError):
    """One table failed; `error` is the reason. The other tables can continue."""

    def __init__(self, table: str, error: Exception) -> None:
        super().__init__(f"{table}: {error}")
        self.table = table
        self.error = error


class QuarantineFull(TidelakeError):
    """Too many records wait for a table. Kept records stay; the next start continues to read the source after them."""


class TablePaused(TidelakeError):
    """An operator paused the table of a running pipeline. Its records wait."""

    def __init__(self, table: str) -> None:
        super().__init__(
            f"{table} is paused. `tidelake ingest resume CONFIG TABLE` continues it, or `paused: false` if the "
            "configuration pauses it"
        )
        self.table = table


class NotYetCaughtUp(TidelakeError):
    """The table was quarantined by an earlier process and is catching up."""

    def __init__(self) -> None:
        super().__init__("an earlier process left the table in quarantine; it is catching up")
