"""Decodes one record at a time, and gives a reason for each record that can't be decoded."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from tidelake.ingest.formats.base import Skipped, Target
from tidelake.ingest.formats.debezium.debezium_envelope import (
    DELETE_OP,
    ROW_OPS,
    TRUNCATE_OP,
    DebeziumEnvelope,
    check_connector,
    control_record_kind,
    read_envelope,
    split_schema,
)
from tidelake.ingest.formats.debezium.row_changes import decode_change
from tidelake.ingest.formats.found_rows import FoundRows, Truncated
from tidelake.ingest.formats.record_schema import RecordSchema
from tidelake.ingest.formats.source_table import SourceTable
from tidelake.ingest.formats.values.json_text import BadValue
from tidelake.ingest.raw_batch import Headers

RecordSchemaOf: TypeAlias = Callable[[SourceTable, str, bytes | None, bytes | None], RecordSchema | None]
"""Returns the record schema; None if the source table has no target. Its arguments:

- the source table
- the connector
- the schema as JSON
- the record's key
"""


class RowDecoder:
    """A decoder of single records of one topic.

    record_schema_of: called for each row change.
    fail_on_truncate: whether a truncate is a failure. Otherwise it is skipped.
    found: collects the results; None for a new collector.
    """

    def __init__(
        self, topic: str, record_schema_of: RecordSchemaOf, fail_on_truncate: bool, found: FoundRows | None = None
    ) -> None:
        self._topic = topic
        self._record_schema_of = record_schema_of
        self._fail_on_truncate = fail_on_truncate
        self.found = found or FoundRows()

    def read(self, row: int, offset: int, key: bytes | None, value: bytes, headers: Headers) -> None:
        """Add the record's rows or failure, or count it as skipped. No content of the record makes it raise."""
        source: SourceTable | None = None
        try:
            schema, payload = split_schema(value)
            envelope = read_envelope(payload)
            check_connector(envelope)
            source = envelope.source.source_table(self._topic)
            if envelope.op != TRUNCATE_OP and envelope.op not in ROW_OPS:
                kind = control_record_kind(envelope, payload)
                if kind is Skipped.SCHEMA_CHANGE and envelope.ddl:
                    self.found.skip_schema_change(row, offset, source, self._target_of, envelope.ddl)
                else:
                    self.found.skip(kind)
            elif (
                record_schema := self._record_schema_of(source, envelope.source.connector or "", schema, key)
            ) is None:
                if envelope.op == TRUNCATE_OP:  # no table exists, and a truncate creates none
                    self.found.skip(Skipped.TRUNCATE)
                else:
                    self.found.skip_unrouted(row, source, is_delete=envelope.op == DELETE_OP)
            else:
                self._change(envelope, record_schema, source, row, key, headers)
        except BadValue as error:
            self.found.fail(row, offset, error, source)

    def _target_of(self, source: SourceTable) -> Target | None:
        known = self._record_schema_of(source, "", None, None)
        return None if known is None else known.target

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
            rows = decode_change(envelope, record_schema, key, headers)
            record_schema.check_key()
            self.found.add(row, rows, record_schema.target)
        elif self._fail_on_truncate:
            raise Truncated(source, record_schema.target)
        else:
            self.found.skip(Skipped.TRUNCATE)
