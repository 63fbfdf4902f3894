"""Decodes Debezium JSON with and without schemas, by columns if possible, else record by record.

A batch is divided into chunks. The decoder first tries to read a chunk as records of one schema (`columnar_decoder`).
If this fails, the records are grouped by source table and schema, and each group is tried. Records of a group that
fails are read one by one (`row_decoder`). Both ways give the same rows. The row decoder defines what a record means.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tidelake.ingest.formats.assumptions import Assumption, assumptions
from tidelake.ingest.formats.base import DecodedBatch, Skipped, Target, TargetOf
from tidelake.ingest.formats.columnar import COLUMNAR_FAILURES
from tidelake.ingest.formats.concatenated_json import concatenate_objects, split_rows
from tidelake.ingest.formats.connect_schema import ConnectorSettings, ConnectSchema, source_type
from tidelake.ingest.formats.debezium.cells import has_cells, is_plain, value_type
from tidelake.ingest.formats.debezium.columnar_decoder import ColumnarDecoder
from tidelake.ingest.formats.debezium.debezium_envelope import (
    ROW_OPS,
    check_connector,
    image_schema,
    read_envelope,
    split_schema,
    with_plain_tombstones,
)
from tidelake.ingest.formats.debezium.key_changes import find_key_changes
from tidelake.ingest.formats.debezium.record_key import columns_of_key
from tidelake.ingest.formats.debezium.row_decoder import RowDecoder
from tidelake.ingest.formats.decoded_rows import DecodedRows, merge_decoded
from tidelake.ingest.formats.found_rows import DecodeState
from tidelake.ingest.formats.record_schema import RecordSchema, RecordSchemaKey
from tidelake.ingest.formats.source_table import SourceTable
from tidelake.ingest.formats.values.json_text import BadValue
from tidelake.ingest.formats.values.unavailable_placeholders import Placeholders, UnavailablePlaceholders
from tidelake.ingest.raw_batch import RawBatch
from tidelake.storage.base.logs import get_logger

Truncates: TypeAlias = Literal["apply", "fail", "skip"]
InexactValues: TypeAlias = Literal["fail", "round"]
ColumnsOf: TypeAlias = Callable[[bytes], Sequence[ConnectSchema]]

# A chunk's structs should fit in the processor's cache: 4,096 records of 800 bytes decode 1.6 times as fast as 100,000.
CHUNK_RECORDS_MAX: Final = 4_096
CHUNK_BYTES_MAX: Final = 32 << 20
_SCHEMAS_MAX: Final = 1_000  # in the cache of one decoder; if it is full, it is cleared
_WRAPPED_START: Final = b'{"schema":'
_log = get_logger(__name__)


_Key: TypeAlias = RecordSchemaKey[bytes | None]


@dataclass(slots=True, eq=False)
class _KnownSchema:
    """A cached record schema.

    key: the properties that identify it.
    record_schema: the record schema.
    columnar: its columnar decoder; None if it has none.
    prefix: the first bytes of its records before the payload; empty if records contain no schema.
    """

    key: _Key
    record_schema: RecordSchema
    columnar: ColumnarDecoder | None
    prefix: bytes


_Targets: TypeAlias = dict[SourceTable, Target | None]  # results of `target_of` for the current batch


@dataclass(slots=True, eq=False)
class _DecodeState(DecodeState):
    """The results of one `decode` call so far. row_decoder: adds its results to this state."""

    row_decoder: RowDecoder = field(kw_only=True)


class DebeziumJsonDecoder:
    """The decoder of Debezium JSON. See `tidelake.ingest.formats.base.Decoder`.

    target_of: returns the target of a source table.
    settings: settings of the connector that its records don't contain.
    truncates: `skip` counts records with op `t` as skipped. Otherwise they are failures, and for `apply` a pipeline may
        truncate the table.
    inexact_values: whether a value with more digits than its column's type is a failure (`fail`) or is rounded.
    placeholders: the placeholders of values that records leave out; None for those of the connector's settings.
    columns_of: returns the columns of the row images from the member `schema` of records. Raises BadValue.
    """

    def __init__(
        self,
        target_of: TargetOf,
        settings: ConnectorSettings | None = None,
        truncates: Truncates = "fail",
        inexact_values: InexactValues = "fail",
        placeholders: Placeholders | None = None,
        columns_of: ColumnsOf = lambda schema: image_schema(schema).fields,
    ) -> None:
        self._target_of = target_of
        self._settings = settings or ConnectorSettings()
        self._placeholders: Placeholders = placeholders or UnavailablePlaceholders(
            self._settings.unavailable_value_placeholder
        )
        self._columns_of = columns_of
        self._fail_on_truncate = truncates != "skip"
        self._rounds = inexact_values == "round"
        self._known: dict[_Key, _KnownSchema] = {}
        self._assumed: set[tuple[str, str, Assumption]] = set()
        self._last_of_topic: dict[str, _KnownSchema] = {}
        self.row_decoded_records = 0
        """Number of records that the row decoder read since construction. Benchmarks and tests use it."""

    def decode(self, batch: RawBatch) -> DecodedBatch:
        """Return the decoded batch.

        No content of a record makes it raise. Raises UnsupportedFeature or BadInput for a target that it can't decode
        into.
        """
        batch = with_plain_tombstones(batch)
        targets: _Targets = {}
        row_decoder = RowDecoder(batch.topic, partial(self._record_schema_of, targets), self._fail_on_truncate)
        state = _DecodeState(batch, row_decoder.found, targets, row_decoder=row_decoder)
        present = np.flatnonzero(batch.values.is_valid().to_numpy(zero_copy_only=False))
        for chunk in split_rows(batch.values, present, CHUNK_RECORDS_MAX, CHUNK_BYTES_MAX):
            self._decode_chunk(state, chunk)
        tombstones = len(batch) - len(present)
        return DecodedBatch(
            tuple(merge_decoded(pieces, batch, find_key_changes) for pieces in state.pieces.values()),
            tuple(sorted(row_decoder.found.failures, key=lambda failure: failure.row)),
            row_decoder.found.skipped | ({Skipped.TOMBSTONE: tombstones} if tombstones else {}),
            row_decoder.found.unrouted,
            row_decoder.found.unrouted_records,
            frozenset(row_decoder.found.only_deleted),
        )

    def _decode_chunk(self, state: _DecodeState, rows: NDArray[np.int64]) -> None:
        last = self._last_of_topic.get(state.batch.topic)
        if last is not None and self._try_columnar(state, last, rows):
            return
        first = self._known_schema_of(state, int(rows[0]))
        if first is not None and first is not last and self._try_columnar(state, first, rows):
            return
        for known, group in self._grouped_by_schema(state, rows):
            was_tried = len(group) == len(rows) and known in (last, first)
            if known is None or was_tried or not self._try_columnar(state, known, group):
                self._decode_by_row(state, known, group)

    # ------------------------------------------------------------ columnar

    def _try_columnar(self, state: _DecodeState, known: _KnownSchema, rows: NDArray[np.int64]) -> bool:
        target = self._target(state.targets, known.key.source)
        if known.columnar is None or target is None or target is not known.record_schema.target:
            return False
        try:
            piece = known.columnar.read(state.batch, rows, known.prefix)
            if _may_have_moved_row(piece, state.batch):
                return False
        except COLUMNAR_FAILURES:
            return False
        state.add(piece)
        self._last_of_topic[state.batch.topic] = known
        return True

    def _grouped_by_schema(
        self, state: _DecodeState, rows: NDArray[np.int64]
    ) -> list[tuple[_KnownSchema | None, NDArray[np.int64]]]:
        """Return the rows grouped by record schema, in order of first appearance.

        The schema is None for records without a row change, or without a target.
        """
        groups: dict[_Key | None, list[int]] = {}
        known_schemas: dict[_Key | None, _KnownSchema | None] = {None: None}
        for row in rows.tolist():
            known = self._known_schema_of(state, row)
            key = None if known is None else known.key
            known_schemas[key] = known
            groups.setdefault(key, []).append(row)
        return [(known_schemas[key], np.array(members, np.int64)) for key, members in groups.items()]

    def _known_schema_of(self, state: _DecodeState, row: int) -> _KnownSchema | None:
        try:
            schema, payload = split_schema(state.batch.values[row].as_py())
            envelope = read_envelope(payload)
            check_connector(envelope)
            if envelope.op not in ROW_OPS:
                return None
            source = envelope.source.source_table(state.batch.topic)
            key: bytes | None = state.batch.keys[row].as_py()
            return self._find(state.targets, source, envelope.source.connector or "", schema, key)
        except BadValue:
            return None  # the row decoder finds the error

    # ------------------------------------------------------------ record by record

    def _decode_by_row(self, state: _DecodeState, known: _KnownSchema | None, rows: NDArray[np.int64]) -> None:
        batch, row_decoder = state.batch, state.row_decoder
        failures = len(row_decoder.found.failures)
        for row in rows.tolist():
            key: bytes | None = batch.keys[row].as_py()
            row_decoder.read(row, int(batch.offsets[row]), key, batch.values[row].as_py(), batch.headers.get(row, ()))
        self.row_decoded_records += len(rows)
        for piece in row_decoder.found.take_pieces():
            state.add(piece)
        if known is not None and len(row_decoder.found.failures) == failures:
            self._read_by_value(known, batch, rows)

    def _read_by_value(self, known: _KnownSchema, batch: RawBatch, rows: NDArray[np.int64]) -> None:
        """Read columns value by value from now on if their column decoders refuse values of these valid records."""
        if known.columnar is None:
            return
        try:
            refused = known.columnar.columns_to_read_by_value(concatenate_objects(batch.values, rows, known.prefix))
        except COLUMNAR_FAILURES:  # the records were refused for another reason than their columns
            return
        if not refused <= known.columnar.by_value:
            known.columnar = ColumnarDecoder(known.record_schema, known.key.source, known.columnar.by_value | refused)

    # ------------------------------------------------------------ record schemas

    def _target(self, targets: _Targets, source: SourceTable) -> Target | None:
        if source not in targets:
            targets[source] = self._target_of(source)
        return targets[source]

    def _record_schema_of(
        self, targets: _Targets, source: SourceTable, connector: str, schema: bytes | None, key: bytes | None
    ) -> RecordSchema | None:
        known = self._find(targets, source, connector, schema, key)
        return None if known is None else known.record_schema

    def _find(
        self, targets: _Targets, source: SourceTable, connector: str, schema: bytes | None, key: bytes | None
    ) -> _KnownSchema | None:
        """Return the known schema; None if the source table has no target. Raises BadValue for an invalid schema."""
        target = self._target(targets, source)
        if target is None:
            return None
        schema_key = RecordSchemaKey(source, connector, schema, columns_of_key(key))
        known = self._known.get(schema_key)
        if known is None or known.record_schema.target is not target:
            if len(self._known) >= _SCHEMAS_MAX:
                self._known.clear()
            known = self._known[schema_key] = self._new(schema_key, target)
        return known

    def _new(self, key: _Key, target: Target) -> _KnownSchema:
        if key.schema is None:
            self._log_assumptions(target, key.connector)
        fields = () if key.schema is None else self._columns_of(key.schema)
        typed = value_type if has_cells(key.connector) else lambda source: source
        record_schema = RecordSchema(
            target,
            {f.field: typed(source_type(f)) for f in fields if f.field},
            key.key_columns,
            key.connector,
            self._settings,
            placeholders=self._placeholders,
            rounds=self._rounds,
        )
        columnar = None
        is_columnar = is_plain(key.connector) and not target.key_columns
        if is_columnar and not record_schema.narrow and not record_schema.has_wider_key:
            with suppress(ValueError):  # msgspec can't match some characters in column names
                columnar = ColumnarDecoder(record_schema, key.source)
        prefix = b"" if key.schema is None else _WRAPPED_START + key.schema + b',"payload":'
        return _KnownSchema(key, record_schema, columnar, prefix)

    def _log_assumptions(self, target: Target, connector: str) -> None:
        """Log once for each column which unit or encoding is assumed, because records of the table have no schema."""
        for assumed in assumptions(target.schema.fields, target.source_types, connector, self._settings):
            if (target.name, connector, assumed) not in self._assumed:
                self._assumed.add((target.name, connector, assumed))
                _log.info(
                    "records without a schema",
                    table=target.name,
                    connector=connector,
                    column=assumed.column,
                    assumed=assumed.text,
                )


def _may_have_moved_row(piece: DecodedRows, batch: RawBatch) -> bool:
    """Return whether a row with unavailable values may be a moved row. Only the row decoder finds its old key."""
    if not piece.flags or not batch.headers:
        return False
    flagged = np.logical_or.reduce(list(piece.flags.values()))
    return any(row in batch.headers for row in piece.rows[flagged].tolist())
