"""Debezium JSON, with and without schemas: columnar where records are alike, record by record where they are not.

A batch is cut into chunks. Each chunk is first tried as records of one schema (see `columnar_decoder`); if that fails
its records are grouped by source table and schema and each kind is tried alone; what still fails is read by
`row_decoder`, which decides what every record means. Both ways give the same rows.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ingest.formats.base import DecodedBatch, Skipped, Target, TargetOf
from ingest.formats.columnar import NOT_COLUMNAR
from ingest.formats.concatenated_json import concatenate_objects, split_rows
from ingest.formats.connect_schema import ConnectorSettings, source_type
from ingest.formats.debezium.columnar_decoder import ColumnarDecoder
from ingest.formats.debezium.envelope import ROW_OPS, image_schema, read_envelope, split_schema
from ingest.formats.debezium.key_changes import find_key_changes
from ingest.formats.debezium.record_key import columns_of_key
from ingest.formats.debezium.row_decoder import RowDecoder
from ingest.formats.decoded_rows import DecodedRows, merge_decoded
from ingest.formats.found_rows import DecodeState
from ingest.formats.record_schema import RecordSchema, RecordSchemaKey
from ingest.formats.source_table import SourceTable
from ingest.formats.values.json_text import BadValue
from ingest.formats.values.unavailable_placeholders import UnavailablePlaceholders
from ingest.raw_batch import RawBatch

Truncates: TypeAlias = Literal["apply", "fail", "skip"]
InexactValues: TypeAlias = Literal["fail", "round"]

# The structs of a chunk should stay in the processor's cache: 4,096 of 800 bytes decode 1.6 times as fast as 100,000.
CHUNK_RECORDS_MAX: Final = 4_096
CHUNK_BYTES_MAX: Final = 32 << 20
_SCHEMAS_MAX: Final = 1_000  # of one decoder; beyond that all are forgotten, and made again as needed
_WRAPPED_START: Final = b'{"schema":'


_Key: TypeAlias = RecordSchemaKey[bytes | None]


@dataclass(slots=True, eq=False)
class _KnownSchema:
    """A record schema, its columnar decoder (None where it has none), and what its records begin with when they carry
    their schema.
    """

    key: _Key
    record_schema: RecordSchema
    columnar: ColumnarDecoder | None
    prefix: bytes


_Targets: TypeAlias = dict[SourceTable, Target | None]  # as `target_of` gave them for the batch at hand


@dataclass(slots=True, eq=False)
class _DecodeState(DecodeState):
    """row_decoder: whose findings are the state's."""

    row_decoder: RowDecoder = field(kw_only=True)


class DebeziumJsonDecoder:
    """Decodes Debezium JSON; see `ingest.formats.base.Decoder`.

    target_of: where a source table's rows go.
    settings: what the records don't say about their connector.
    truncates: what an op `t` is: a failure, which a pipeline may carry out (`apply`), or skipped and counted.
    inexact_values: what a value is that has more digits than its column's type: a failure, or rounded.
    """

    def __init__(
        self,
        target_of: TargetOf,
        settings: ConnectorSettings | None = None,
        truncates: Truncates = "fail",
        inexact_values: InexactValues = "fail",
    ) -> None:
        self._target_of = target_of
        self._settings = settings or ConnectorSettings()
        self._fail_on_truncate = truncates != "skip"
        self._rounds = inexact_values == "round"
        self._known: dict[_Key, _KnownSchema] = {}
        self._last_of_topic: dict[str, _KnownSchema] = {}
        self.row_decoded_records = 0
        """Records that took the row decoder since construction; for benchmarks and tests."""

    def decode(self, batch: RawBatch) -> DecodedBatch:
        """Never raises for what a record holds; raises UnsupportedFeature or BadInput for a target it can't serve."""
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
        )

    def _decode_chunk(self, state: _DecodeState, rows: NDArray[np.int64]) -> None:
        last = self._last_of_topic.get(state.batch.topic)
        if last is not None and self._try_columnar(state, last, rows):
            return
        first = self._known_schema_of(state, int(rows[0]))
        if first is not None and first is not last and self._try_columnar(state, first, rows):
            return
        for known, group in self._grouped_by_schema(state, rows):
            tried = len(group) == len(rows) and known in (last, first)
            if known is None or tried or not self._try_columnar(state, known, group):
                self._decode_by_row(state, known, group)

    # ------------------------------------------------------------ columnar

    def _try_columnar(self, state: _DecodeState, known: _KnownSchema, rows: NDArray[np.int64]) -> bool:
        target = self._target(state.targets, known.key.source)
        if known.columnar is None or target is None or target is not known.record_schema.target:
            return False
        try:
            piece = known.columnar.read(state.batch, rows, known.prefix)
            if _any_from_another_key(piece, state.batch):
                return False
        except NOT_COLUMNAR:
            return False
        state.add(piece)
        self._last_of_topic[state.batch.topic] = known
        return True

    def _grouped_by_schema(
        self, state: _DecodeState, rows: NDArray[np.int64]
    ) -> list[tuple[_KnownSchema | None, NDArray[np.int64]]]:
        """Rows by record schema, in order of first appearance; None for records without a row change."""
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
            if envelope.op not in ROW_OPS:
                return None
            source = envelope.source.source_table(state.batch.topic)
            key: bytes | None = state.batch.keys[row].as_py()
            return self._find(state.targets, source, envelope.source.connector or "", schema, key)
        except BadValue:
            return None  # the row decoder will say what is wrong

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
        """Good records were not read fast: from now on the columns at fault are read value by value."""
        if known.columnar is None:
            return
        try:
            refused = known.columnar.columns_to_read_by_value(concatenate_objects(batch.values, rows, known.prefix))
        except NOT_COLUMNAR:  # it is not for their columns
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
        """Raises BadValue for an invalid schema."""
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
        fields = () if key.schema is None else image_schema(key.schema).fields
        record_schema = RecordSchema(
            target,
            {f.field: source_type(f) for f in fields if f.field},
            key.key_columns,
            key.connector,
            self._settings,
            placeholders=UnavailablePlaceholders(self._settings.unavailable_value_placeholder),
            rounds=self._rounds,
        )
        columnar = None
        if not record_schema.narrow:
            with suppress(ValueError):  # a column's name has characters that msgspec cannot match
                columnar = ColumnarDecoder(record_schema, key.source)
        prefix = b"" if key.schema is None else _WRAPPED_START + key.schema + b',"payload":'
        return _KnownSchema(key, record_schema, columnar, prefix)


def _any_from_another_key(piece: DecodedRows, batch: RawBatch) -> bool:
    """Whether a row with values to be looked up came from another key; finding that key is left to the row decoder."""
    if not piece.flags or not batch.headers:
        return False
    flagged = np.logical_or.reduce(list(piece.flags.values()))
    return any(row in batch.headers for row in piece.rows[flagged].tolist())
