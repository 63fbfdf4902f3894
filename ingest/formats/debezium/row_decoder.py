"""One record at a time: what each is, and a reason for each that can't be decoded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from ingest.formats.base import DecodeFailure, FailureKind, Skipped, Target
from ingest.formats.debezium.decoded_rows import DecodedRows
from ingest.formats.debezium.envelope import (
    ROW_OPS,
    TRUNCATE_OP,
    DebeziumEnvelope,
    control_record_kind,
    read_envelope,
    split_schema,
)
from ingest.formats.debezium.record_schema import RecordSchema, UnknownColumns
from ingest.formats.debezium.row_changes import ChangedRow, decode_change
from ingest.formats.narrow_columns import NarrowColumns
from ingest.formats.source_table import SourceTable
from ingest.formats.values.json_text import BadValue
from ingest.raw_batch import Headers

RecordSchemaOf: TypeAlias = Callable[[SourceTable, str, bytes | None, bytes | None], RecordSchema | None]
"""(source table, connector, schema JSON, key) to the record schema; None where the table goes nowhere."""


class RowDecoder:
    """Collects what records of one topic give. `record_schema_of` is asked for each row change."""

    def __init__(self, topic: str, record_schema_of: RecordSchemaOf, fail_on_truncate: bool) -> None:
        self._topic = topic
        self._record_schema_of = record_schema_of
        self._fail_on_truncate = fail_on_truncate
        self._rows: dict[str, _TargetRows] = {}
        self.failures: list[DecodeFailure] = []
        self.skipped: dict[Skipped, int] = {}
        self.unrouted: dict[SourceTable, int] = {}

    def read(self, row: int, offset: int, key: bytes | None, value: bytes, headers: Headers) -> None:
        """Adds the record's rows, or counts it, or adds a failure; never raises for what it holds."""
        source: SourceTable | None = None
        try:
            schema, payload = split_schema(value)
            envelope = read_envelope(payload)
            source = envelope.source.source_table(self._topic)
            if envelope.op != TRUNCATE_OP and envelope.op not in ROW_OPS:
                self._skip(control_record_kind(envelope, payload))
            elif (
                record_schema := self._record_schema_of(source, envelope.source.connector or "", schema, key)
            ) is None:
                self._skip(Skipped.UNROUTED)
                self.unrouted.setdefault(source, row)
            else:
                self._change(envelope, record_schema, source, row, key, headers)
        except UnknownColumns as e:
            self.failures.append(DecodeFailure(row, offset, FailureKind.UNKNOWN_COLUMN, str(e), source, e.columns))
        except NarrowColumns as e:
            self.failures.append(DecodeFailure(row, offset, FailureKind.NARROW_COLUMN, str(e), source, e.columns))
        except _Truncated as e:
            self.failures.append(DecodeFailure(row, offset, FailureKind.TRUNCATE, str(e), source))
        except BadValue as e:
            self.failures.append(DecodeFailure(row, offset, FailureKind.BAD_RECORD, str(e), source))

    def _change(
        self,
        envelope: DebeziumEnvelope,
        record_schema: RecordSchema,
        source: SourceTable,
        row: int,
        key: bytes | None,
        headers: Headers,
    ) -> None:
        if envelope.op != TRUNCATE_OP:
            record_schema.check_types()
            changed = decode_change(envelope, record_schema, key, headers)
            self._rows.setdefault(record_schema.target.name, _TargetRows(record_schema.target)).add(row, changed)
        elif self._fail_on_truncate:
            raise _Truncated(source, record_schema.target)
        else:
            self._skip(Skipped.TRUNCATE)

    def _skip(self, kind: Skipped) -> None:
        self.skipped[kind] = self.skipped.get(kind, 0) + 1

    def take_pieces(self) -> list[DecodedRows]:
        """The rows found since the last call, one piece a target."""
        pieces = [rows.piece() for rows in self._rows.values()]
        self._rows.clear()
        return pieces


class _Truncated(BadValue):
    def __init__(self, source: SourceTable, target: Target) -> None:
        super().__init__(
            f"the source emptied {source}; {target.name} still has its rows. Delete them, or leave them and skip "
            "truncates (truncates: skip)"
        )


@dataclass(slots=True)
class _TargetRows:
    """Rows of one target as they are found."""

    target: Target
    numbers: list[int] = field(default_factory=list)
    rows: list[ChangedRow] = field(default_factory=list)

    def add(self, number: int, rows: list[ChangedRow]) -> None:
        self.numbers += [number] * len(rows)
        self.rows += rows

    def piece(self) -> DecodedRows:
        flags: dict[str, Any] = {}
        for place, row in enumerate(self.rows):
            for name in row.flagged:
                flags.setdefault(name, np.zeros(len(self.rows), np.bool_))[place] = True
        by_column = zip(*(row.cells for row in self.rows), strict=True)
        return DecodedRows(
            self.target,
            np.array(self.numbers, np.int64),
            np.array([row.kind for row in self.rows], np.int8),
            [pa.array(cells, f.type) for cells, f in zip(by_column, self.target.schema.arrow, strict=True)],
            flags,
            {place: row.old_key for place, row in enumerate(self.rows) if row.old_key is not None},
        )
