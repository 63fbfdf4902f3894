"""Decodes records of formats with envelopes, by columns if possible, else record by record.

A batch is divided into chunks. The envelopes of a chunk are decoded at once, with their row images left raw, and are
grouped by source table and declared types. The images of each group are then read as columns (`columnar_images`). If
this refuses a group, smaller and smaller parts of it are tried. The remaining records are read one by one. Both ways
give the same rows. Reading one by one defines what a record means.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelake.ingest.formats.base import DecodedBatch, Skipped, Target, TargetOf
from tidelake.ingest.formats.columnar import COLUMNAR_FAILURES, garbage_collection_paused
from tidelake.ingest.formats.concatenated_json import concatenate_objects, split_rows
from tidelake.ingest.formats.connect_schema import JSON_VALUE, ConnectorSettings
from tidelake.ingest.formats.decoded_rows import merge_decoded
from tidelake.ingest.formats.envelopes.columnar_images import ColumnarImages
from tidelake.ingest.formats.envelopes.envelope import DirectReader, Envelope, NotThisFormat, Op
from tidelake.ingest.formats.envelopes.envelope_options import EnvelopeOptions
from tidelake.ingest.formats.envelopes.envelope_reader import EnvelopeReader
from tidelake.ingest.formats.envelopes.omitted_columns import OmittedColumns
from tidelake.ingest.formats.envelopes.written_rows import rows_of_change
from tidelake.ingest.formats.found_rows import DecodeState, Truncated
from tidelake.ingest.formats.record_schema import RecordSchema
from tidelake.ingest.formats.registry import other_format_hint
from tidelake.ingest.formats.source_table import SourceTable
from tidelake.ingest.formats.values.json_text import BadValue
from tidelake.ingest.formats.values.unavailable_placeholders import NoPlaceholders
from tidelake.ingest.raw_batch import RawBatch

CHUNK_RECORDS_MAX: Final = 4_096  # as for Debezium: structs that fit in the processor's cache decode faster
CHUNK_BYTES_MAX: Final = 32 << 20
_MAX_UNSPLIT_RECORDS: Final = 64  # a part of at most so many records is not divided any more
_PARTS: Final = 8
_SHAPES_MAX: Final = 1_000  # in the cache of one decoder; if it is full, it is cleared


@dataclass(slots=True, eq=False)
class _KnownShape:
    """The cached readers of records of one shape. columnar: None if the records must be read one by one."""

    record_schema: RecordSchema
    columnar: ColumnarImages | None


@dataclass(slots=True, eq=False)
class _Group:
    """Records of one shape. known: None for records without a row change, or without a target."""

    known: _KnownShape | None
    source: SourceTable | None
    rows: list[int] = field(default_factory=list)
    records: list[Envelope] = field(default_factory=list)


class _LastShape:
    """The shape of a topic's last records, and a reader of more records of this shape.

    known: the shape.
    source: the source table.
    record: one of the last records.
    reader: decodes records of this shape at once.
    """

    def __init__(self, known: _KnownShape, source: SourceTable, record: Envelope, reader: DirectReader) -> None:
        assert known.columnar is not None
        self.known = known
        self.columnar = known.columnar
        self.source = source
        self.record = record
        self.reader = reader


_Targets: TypeAlias = dict[SourceTable, Target | None]  # results of `target_of` for the current batch


class EnvelopeDecoder:
    """The decoder of formats with envelopes. See `tidelake.ingest.formats.base.Decoder`.

    target_of: returns the target of a source table.
    omitted: the rule for columns that an update leaves out.
    """

    def __init__(
        self, target_of: TargetOf, reader: EnvelopeReader, options: EnvelopeOptions, omitted: OmittedColumns
    ) -> None:
        self._target_of = target_of
        self._reader = reader
        self._options = options
        self._omitted = omitted
        self._settings = ConnectorSettings(binary_handling_mode=options.binary_handling_mode)
        self._known: dict[tuple[str, Hashable], _KnownShape] = {}
        self._last_of_topic: dict[str, _LastShape] = {}
        self.row_decoded_records = 0
        """Number of records that were read one by one since construction. Benchmarks and tests use it."""

    def decode(self, batch: RawBatch) -> DecodedBatch:
        """Return the decoded batch.

        No content of a record makes it raise. Raises UnsupportedFeature or BadInput for a target that it can't decode
        into.
        """
        state = DecodeState(batch)
        present = np.flatnonzero(batch.values.is_valid().to_numpy(zero_copy_only=False))
        if tombstones := len(batch) - len(present):
            state.found.skip(Skipped.TOMBSTONE, tombstones)
        for chunk in split_rows(batch.values, present, CHUNK_RECORDS_MAX, CHUNK_BYTES_MAX):
            with garbage_collection_paused():
                self._decode_chunk(state, chunk)
        return DecodedBatch(
            tuple(merge_decoded(pieces, batch) for pieces in state.pieces.values()),
            tuple(sorted(state.found.failures, key=lambda failure: failure.row)),
            state.found.skipped,
            state.found.unrouted,
            state.found.unrouted_records,
            frozenset(state.found.only_deleted),
        )

    def _decode_chunk(self, state: DecodeState, rows: NDArray[np.int64]) -> None:
        if self._try_direct(state, rows):
            return
        try:
            records = self._reader.read_rows(state.batch.values, rows)
        except COLUMNAR_FAILURES:
            for row in rows.tolist():
                self._decode_unread(state, row)
            self._take_pieces(state)
            return
        if records and records[0].KEY_NAMES_COLUMNS:
            keys = state.batch.keys.take(pa.array(rows)).to_pylist()
            records = [record.keyed(key) for record, key in zip(records, keys, strict=True)]
        groups: dict[Hashable, _Group] = {}
        for row, record in zip(rows.tolist(), records, strict=True):
            shape = record.shape()
            group = groups.get(shape)
            if group is None:
                group = groups[shape] = self._group_of(state, shape, record)
            group.rows.append(row)
            group.records.append(record)
        for group in groups.values():
            self._decode_group(state, group, 0, len(group.rows))
        if len(groups) == 1:
            self._remember(state.batch.topic, *groups.values())

    def _remember(self, topic: str, group: _Group) -> None:
        """Keep the group's shape: the next records of the topic may have the same."""
        if group.known is None or group.known.columnar is None or group.source is None:
            return
        reader = group.records[0].direct_reader(group.known.columnar.types)
        if reader is not None:
            self._last_of_topic[topic] = _LastShape(group.known, group.source, group.records[0], reader)

    def _try_direct(self, state: DecodeState, rows: NDArray[np.int64]) -> bool:
        """Read the records at once if all have the shape of the topic's last records. Return whether this worked."""
        last = self._last_of_topic.get(state.batch.topic)
        if last is None or last.known.columnar is None or last.columnar is not last.known.columnar:
            return False
        if self._target(state, last.source) is not last.known.record_schema.target:
            return False
        try:
            images = last.reader.read(concatenate_objects(state.batch.values, rows), len(rows))
            state.add(last.columnar.read_images(images, rows, last.record))
        except COLUMNAR_FAILURES:
            del self._last_of_topic[state.batch.topic]
            return False
        return True

    def _group_of(self, state: DecodeState, shape: Hashable, record: Envelope) -> _Group:
        try:
            event = record.event()
            source = record.source_table(state.batch.topic)
            return _Group(self._known_shape(state, shape, source, record) if isinstance(event, Op) else None, source)
        except BadValue:
            return _Group(None, None)  # reading its records one by one gives each its failure

    # ------------------------------------------------------------ columnar

    def _decode_group(self, state: DecodeState, group: _Group, begin: int, end: int) -> None:
        """Decode the records from index `begin` to before `end`."""
        if group.known is None or group.known.columnar is None:
            self._decode_by_record(state, group, begin, end)
        elif self._try_columnar(state, group.known, group.records[begin:end], group.rows[begin:end]):
            pass
        elif end - begin <= _MAX_UNSPLIT_RECORDS:
            self._decode_by_record(state, group, begin, end)
        else:
            step = max(_MAX_UNSPLIT_RECORDS, -(-(end - begin) // _PARTS))
            for at in range(begin, end, step):
                self._decode_group(state, group, at, min(at + step, end))

    def _try_columnar(
        self, state: DecodeState, known: _KnownShape, records: Sequence[Envelope], rows: Sequence[int]
    ) -> bool:
        assert known.columnar is not None
        try:
            piece = known.columnar.read(records, np.array(rows, np.int64))
        except COLUMNAR_FAILURES:
            return False
        state.add(piece)
        return True

    # ------------------------------------------------------------ record by record

    def _decode_by_record(self, state: DecodeState, group: _Group, begin: int, end: int) -> None:
        failures = len(state.found.failures)
        for row, record in zip(group.rows[begin:end], group.records[begin:end], strict=True):
            self._decode_record(state, row, record)
        self._take_pieces(state)
        known = group.known
        if known is not None and known.columnar is not None and len(state.found.failures) == failures:
            # Valid records were refused. From now on, columns whose decoders refuse them are read value by value.
            with suppress(*COLUMNAR_FAILURES):  # the records were refused for another reason than their columns
                refused = known.columnar.columns_to_read_by_value(group.records[begin:end])
                if not refused <= known.columnar.by_value:
                    known.columnar = ColumnarImages(
                        known.record_schema, self._omitted, known.columnar.by_value | refused
                    )

    def _decode_unread(self, state: DecodeState, row: int) -> None:
        try:
            record = self._reader.read(state.batch.values[row].as_py())
        except BadValue as error:
            state.found.fail(row, int(state.batch.offsets[row]), error, None)
            return
        self._decode_record(state, row, record)

    def _decode_record(self, state: DecodeState, row: int, record: Envelope) -> None:
        """Add the record's rows or failure, or count it as skipped. No content of the record makes it raise."""
        self.row_decoded_records += 1
        source: SourceTable | None = None
        try:
            event = record.event()
            source = record.source_table(state.batch.topic)
            record = record.keyed(state.batch.keys[row].as_py())
            if event is Skipped.SCHEMA_CHANGE:
                offset = int(state.batch.offsets[row])
                state.found.skip_schema_change(row, offset, source, partial(self._target, state), record.ddl_text())
            elif not isinstance(event, Op):
                state.found.skip(event)
            elif (known := self._known_shape(state, record.shape(), source, record)) is None:
                if event is Op.TRUNCATE:  # no table exists, and a truncate creates none
                    state.found.skip(Skipped.TRUNCATE)
                else:
                    state.found.skip_unrouted(row, source, is_delete=event in (Op.DELETE, Op.UPDATE_BEFORE))
            else:
                self._change(state, row, record, event, known.record_schema, source)
        except NotThisFormat as error:
            value: bytes = state.batch.values[row].as_py()
            reason = BadValue(
                f"not a valid {self._reader.format} record: {error}{other_format_hint(value, self._reader.format)}"
            )
            state.found.fail(row, int(state.batch.offsets[row]), reason, source)
        except BadValue as error:
            state.found.fail(row, int(state.batch.offsets[row]), error, source)

    def _change(
        self,
        state: DecodeState,
        row: int,
        record: Envelope,
        op: Op,
        record_schema: RecordSchema,
        source: SourceTable,
    ) -> None:
        if op is not Op.TRUNCATE:
            record_schema.check_types()
            changes = record.changes(op, record_schema.by_name.keys())
            self._check_identity(record_schema.target, record)
            if not self._omitted.knows_old_values(type(record)):
                changes = [replace(change, knows_old_row=False) for change in changes]
            rows = [changed for change in changes for changed in rows_of_change(change, record_schema, self._omitted)]
            record_schema.check_key()
            state.found.add(row, rows, record_schema.target)
        elif self._options.truncates != "skip":
            raise Truncated(source, record_schema.target)
        else:
            state.found.skip(Skipped.TRUNCATE)

    def _check_identity(self, target: Target, record: Envelope) -> None:
        """Raise BadValue for a row that the table couldn't tell from another row of the source."""

    def _take_pieces(self, state: DecodeState) -> None:
        for piece in state.found.take_pieces():
            state.add(piece)

    # ------------------------------------------------------------ shapes

    def _target(self, state: DecodeState, source: SourceTable) -> Target | None:
        if source not in state.targets:
            state.targets[source] = self._target_of(source)
        return state.targets[source]

    def _known_shape(
        self, state: DecodeState, shape: Hashable, source: SourceTable, record: Envelope
    ) -> _KnownShape | None:
        """Return the known shape; None if the source table has no target.

        Raises BadValue if the declared types can't be read.
        """
        target = self._target(state, source)
        if target is None:
            return None
        key = (state.batch.topic, shape)
        known = self._known.get(key)
        if known is None or known.record_schema.target is not target:
            if len(self._known) >= _SHAPES_MAX:
                self._known.clear()
            known = self._known[key] = self._new(target, record)
        return known

    def _new(self, target: Target, record: Envelope) -> _KnownShape:
        record_schema = RecordSchema(
            target,
            record.declared_types(),
            frozenset(record.primary_key(None)),
            "",
            self._settings,
            placeholders=NoPlaceholders(),
            undeclared=JSON_VALUE,
            rounds=self._options.inexact_values == "round",
            zero_dates_are_null=self._options.zero_dates == "null",
        )
        columnar = None
        if not record_schema.narrow and not record_schema.has_wider_key and not record.ROW_BY_ROW_ONLY:
            with suppress(ValueError):  # msgspec can't match some characters in column names
                columnar = ColumnarImages(record_schema, self._omitted)
        return _KnownShape(record_schema, columnar)
