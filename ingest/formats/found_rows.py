"""The results of the row decoder: rows, failures, and records skipped on purpose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from tidelake.ingest.formats.base import DecodeFailure, FailureKind, Skipped, Target, TargetOf
from tidelake.ingest.formats.changed_row import ChangedRow
from tidelake.ingest.formats.ddl_statements import column_statements
from tidelake.ingest.formats.decoded_rows import DecodedRows
from tidelake.ingest.formats.narrow_columns import NarrowColumns
from tidelake.ingest.formats.online_ddl import shadow_changes
from tidelake.ingest.formats.record_schema import UnknownColumns
from tidelake.ingest.formats.source_keys import WiderSourceKey
from tidelake.ingest.formats.source_table import SourceTable
from tidelake.ingest.formats.values.json_text import BadValue
from tidelake.ingest.raw_batch import RawBatch


class FoundRows:
    """A collector of rows, failures and skipped records.

    In all methods `row` is the record's row in the raw batch.
    """

    def __init__(self) -> None:
        self._rows: dict[str, _TargetRows] = {}
        self.failures: list[DecodeFailure] = []
        self.skipped: dict[Skipped, int] = {}
        self.unrouted: dict[SourceTable, int] = {}
        self.unrouted_records: dict[SourceTable, int] = {}
        self.only_deleted: set[SourceTable] = set()

    def add(self, row: int, changed: Sequence[ChangedRow], target: Target) -> None:
        self._rows.setdefault(target.name, _TargetRows(target)).add(row, changed)

    def skip(self, kind: Skipped, count: int = 1) -> None:
        self.skipped[kind] = self.skipped.get(kind, 0) + count

    def skip_unrouted(self, row: int, source: SourceTable, count: int = 1, *, is_delete: bool = False) -> None:
        """Count records of a source table without a target.

        row: of the first of them; of the first that is no delete, if there is one.
        is_delete: whether all of them are deletes.
        """
        self.skip(Skipped.UNROUTED, count)
        if source not in self.unrouted:
            self.unrouted[source] = row
            if is_delete:
                self.only_deleted.add(source)
        elif source in self.only_deleted and not is_delete:
            self.unrouted[source] = row
            self.only_deleted.remove(source)
        self.unrouted_records[source] = self.unrouted_records.get(source, 0) + count

    def fail(self, row: int, offset: int, error: BadValue, source: SourceTable | None) -> None:
        kind = FailureKind.BAD_RECORD
        match error:
            case UnknownColumns() | NarrowColumns():
                is_new = isinstance(error, UnknownColumns)
                kind = FailureKind.UNKNOWN_COLUMN if is_new else FailureKind.NARROW_COLUMN
                about = (source, error.columns, error.needed, error.target)
                self.failures.append(DecodeFailure(row, offset, kind, str(error), *about))
                return
            case WiderSourceKey():
                about = (source, (), (), error.target)
                self.failures.append(DecodeFailure(row, offset, FailureKind.WIDER_KEY, str(error), *about))
                return
            case Truncated():
                about = (source, (), (), error.target)
                self.failures.append(DecodeFailure(row, offset, FailureKind.TRUNCATE, str(error), *about))
                return
        self.failures.append(DecodeFailure(row, offset, kind, str(error), source))

    def skip_schema_change(
        self, row: int, offset: int, source: SourceTable, target_of: TargetOf, sql: str | None
    ) -> None:
        """Add a record of DDL.

        The record is a failure if the statement adds, renames or drops columns in a table of the pipeline, or if the
        statement is a step of an online schema change of such a table. All other statements are counted as skipped.
        """
        kind, target = FailureKind.SCHEMA_CHANGE, target_of(source)
        if target is not None and (statements := column_statements(sql)):
            reason = f"columns of {source} were changed at the source: {', '.join(map(str, statements))}"
            self.failures.append(DecodeFailure(row, offset, kind, reason, source, target=target, statements=statements))
            return
        for shadow in shadow_changes(sql, source) if target is None or not source.is_shadow else ():
            if (target := target_of(shadow.table)) is not None:
                failure = DecodeFailure(row, offset, kind, str(shadow), shadow.table, target=target, shadow=shadow)
                self.failures.append(failure)
                return
        self.skip(Skipped.SCHEMA_CHANGE)

    def take_pieces(self) -> list[DecodedRows]:
        """Return the rows added since the last call, as one piece for each target."""
        pieces = [rows.to_decoded_rows() for rows in self._rows.values()]
        self._rows.clear()
        return pieces


class Truncated(BadValue):
    """The source emptied a table."""

    def __init__(self, source: SourceTable, target: Target) -> None:
        self.target = target
        super().__init__(
            f"the source truncated {source}, but {target.name} still has its rows. Delete them, or keep them and skip "
            "truncates (truncates: skip)"
        )


@dataclass(slots=True)
class _TargetRows:
    """The rows of one target that were added so far."""

    target: Target
    numbers: list[int] = field(default_factory=list)
    rows: list[ChangedRow] = field(default_factory=list)

    def add(self, number: int, rows: Sequence[ChangedRow]) -> None:
        self.numbers += [number] * len(rows)
        self.rows += rows

    def to_decoded_rows(self) -> DecodedRows:
        flags: dict[str, Any] = {}
        for place, row in enumerate(self.rows):
            for name in row.flagged:
                flags.setdefault(name, np.zeros(len(self.rows), np.bool_))[place] = True
        columns = zip(*(row.cells for row in self.rows), strict=True)
        return DecodedRows(
            self.target,
            np.array(self.numbers, np.int64),
            np.array([row.kind for row in self.rows], np.int8),
            [pa.array(values, f.type) for values, f in zip(columns, self.target.schema.arrow, strict=True)],
            flags,
            {place: row.old_key for place, row in enumerate(self.rows) if row.old_key is not None},
        )


@dataclass(slots=True, eq=False)
class DecodeState:
    """The results of one `decode` call so far.

    found: results of the row decoder.
    targets: the results of `target_of` for this batch.
    pieces: the target's name to its parts of the batch.
    """

    batch: RawBatch
    found: FoundRows = field(default_factory=FoundRows)
    targets: dict[SourceTable, Target | None] = field(default_factory=dict)
    pieces: dict[str, list[DecodedRows]] = field(default_factory=dict)

    def add(self, piece: DecodedRows) -> None:
        self.pieces.setdefault(piece.target.name, []).append(piece)
