"""Decodes Debezium's records in Avro, by columns if possible, else record by record.

A batch is divided into chunks, and a chunk by the writer's schema. Records of one schema are read as columns
(`storage.model.avro`), grouped by source table and key columns, and converted to the table's columns
(`column_images`). If the conversion refuses a group, smaller and smaller parts of it are tried. The remaining records
are converted to JSON one by one, and Debezium's row decoder reads them. Both ways give the same rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidelake.ingest.formats.avro.arrow_columns import CONVERSION_ERRORS
from tidelake.ingest.formats.avro.change_records import ChangeRecords, ChangeSchema
from tidelake.ingest.formats.avro.column_images import (
    Changes,
    ColumnImages,
    constant_columns,
    ops_of,
)
from tidelake.ingest.formats.avro.debezium_envelope_schema import SOURCE_NAMES, envelope_schema
from tidelake.ingest.formats.avro.framing import VALUE_SCHEMA_HEADER, ConfluentFraming, SchemaId, schema_ids
from tidelake.ingest.formats.avro.schema_cache import SchemaCache, wrapped
from tidelake.ingest.formats.avro.value_reader import read_record
from tidelake.ingest.formats.base import DecodedBatch, Skipped, Target, TargetOf
from tidelake.ingest.formats.concatenated_json import split_rows
from tidelake.ingest.formats.connect_schema import ConnectorSettings
from tidelake.ingest.formats.debezium.cells import has_cells, is_plain, value_type
from tidelake.ingest.formats.debezium.debezium_envelope import NEW_KEY_HEADER, OLD_KEY_HEADER
from tidelake.ingest.formats.debezium.debezium_json_decoder import (
    CHUNK_BYTES_MAX,
    CHUNK_RECORDS_MAX,
    InexactValues,
    Truncates,
)
from tidelake.ingest.formats.debezium.key_changes import find_key_changes
from tidelake.ingest.formats.debezium.record_key import columns_of_key
from tidelake.ingest.formats.debezium.row_decoder import RowDecoder
from tidelake.ingest.formats.decoded_rows import merge_decoded
from tidelake.ingest.formats.found_rows import DecodeState
from tidelake.ingest.formats.record_schema import RecordSchema, RecordSchemaKey
from tidelake.ingest.formats.registry import other_format_hint
from tidelake.ingest.formats.source_table import SourceTable
from tidelake.ingest.formats.values.json_text import BadValue
from tidelake.ingest.formats.values.unavailable_placeholders import Placeholders, UnavailablePlaceholders
from tidelake.ingest.raw_batch import RawBatch
from tidelake.storage.model.avro.avro_type import AvroType
from tidelake.storage.model.avro.decoded_columns import DecodedColumn, Places

_SCHEMAS_MAX: Final = 1_000  # in the cache of one decoder; if it is full, it is cleared
_NO_KEY: Final = -2
_TOMBSTONE: Final = -3  # instead of the id of a schema
_DELETE: Final = b'{"op":"d"}'
_MAX_UNSPLIT_RECORDS: Final = 64  # a part of at most so many records is not divided any more
_PARTS: Final = 8
_ROW_OPS: Final = np.isin(np.arange(256), list(b"crud"))
_KEY_HEADERS: Final = frozenset({OLD_KEY_HEADER, NEW_KEY_HEADER})

_Names: TypeAlias = tuple[str | None, ...]  # in the order of SOURCE_NAMES


@dataclass(slots=True, eq=False)
class _CachedReaders:
    """The cached readers of one record schema. columnar: None if all records must be read one by one."""

    record_schema: RecordSchema
    columnar: ColumnImages | None


class Envelopes:
    """The structure of Debezium's records. See `ChangeRecords`."""

    ARE_KEYED: ClassVar = True

    def schema_of(self, type_: AvroType) -> ChangeSchema:
        return envelope_schema(type_)

    def changes(
        self, rows: NDArray[np.int64], schema: ChangeSchema, columns: Mapping[str, DecodedColumn]
    ) -> tuple[Changes, list[DecodedColumn | None]]:
        source = columns.get("source")
        source_columns = [] if source is None else [source.fields.get(name) for name in SOURCE_NAMES]
        return Changes(rows, ops_of(columns["op"]), columns["before"], columns["after"]), source_columns

    def payload(self, members: Mapping[str, bytes]) -> Mapping[str, bytes]:
        return members


class DebeziumAvroDecoder:
    """The decoder of change records in Avro. See `tidelake.ingest.formats.base.Decoder`.

    Parameters that are not listed here are described in `DebeziumJsonDecoder`.

    schemas: the schemas of records and keys.
    framing: where records contain their schema's id.
    records: the structure of the records.
    placeholders: the placeholders of values that records leave out; None for those of the connector's settings.
    tombstones_delete: whether a record with a key and no value is a delete.

    `decode` raises RegistryUnavailable if a schema is temporarily unavailable. The batch may be decoded again later.
    """

    def __init__(
        self,
        target_of: TargetOf,
        schemas: SchemaCache,
        settings: ConnectorSettings | None = None,
        truncates: Truncates = "fail",
        inexact_values: InexactValues = "fail",
        framing: ConfluentFraming | None = None,
        records: ChangeRecords | None = None,
        placeholders: Placeholders | None = None,
        *,
        tombstones_delete: bool = False,
    ) -> None:
        self._target_of = target_of
        self._schemas = schemas
        self._framing = framing or ConfluentFraming()
        self._settings = settings or ConnectorSettings()
        self._records: ChangeRecords = records or Envelopes()
        self._placeholders: Placeholders = placeholders or UnavailablePlaceholders(
            self._settings.unavailable_value_placeholder
        )
        self._fail_on_truncate = truncates != "skip"
        self._rounds = inexact_values == "round"
        self._tombstones_delete = tombstones_delete
        nothing = AvroType("null")
        self._envelopes: dict[SchemaId, ChangeSchema] = {_TOMBSTONE: ChangeSchema(nothing, nothing, {}, None)}
        self._known: dict[RecordSchemaKey[SchemaId], _CachedReaders] = {}
        self.row_decoded_records = 0
        """Number of records that were read one by one since construction. Benchmarks and tests use it."""

    def decode(self, batch: RawBatch) -> DecodedBatch:
        """Return the decoded batch.

        No content of a record makes it raise. Raises UnsupportedFeature or BadInput for a target that it can't decode
        into.
        """
        state = DecodeState(batch)
        present = np.flatnonzero(batch.values.is_valid().to_numpy(zero_copy_only=False))
        for chunk in split_rows(batch.values, present, CHUNK_RECORDS_MAX, CHUNK_BYTES_MAX):
            self._decode_chunk(state, chunk)
        if tombstones := len(batch) - len(present) - self._decode_tombstones(state):
            state.found.skip(Skipped.TOMBSTONE, tombstones)
        as_json = self._as_json(batch)
        return DecodedBatch(
            tuple(merge_decoded(pieces, as_json, find_key_changes) for pieces in state.pieces.values()),
            tuple(sorted(state.found.failures, key=lambda failure: failure.row)),
            state.found.skipped,
            state.found.unrouted,
            state.found.unrouted_records,
            frozenset(state.found.only_deleted),
        )

    def _decode_chunk(self, state: DecodeState, rows: NDArray[np.int64]) -> None:
        ids = self._framing.schema_ids(state.batch.values, rows)
        if state.batch.headers:  # halves of key changes, and records with the schema in a header, are read one by one
            ids[np.isin(rows, np.fromiter(state.batch.headers, np.int64, len(state.batch.headers)))] = -1
        for id_ in np.unique(ids).tolist():
            same = rows[ids == id_]
            envelope = None
            with suppress(BadValue):  # reading its records one by one gives each its failure
                envelope = None if id_ < 0 else self._envelope(id_)
            if envelope is None or envelope.reader is None:
                self._decode_by_row(state, same)
            else:
                self._decode_columns(state, id_, envelope, same)

    # ------------------------------------------------------------ columnar

    def _decode_columns(self, state: DecodeState, id_: int, envelope: ChangeSchema, rows: NDArray[np.int64]) -> None:
        """Decode records of one schema."""
        assert envelope.reader is not None
        columns, is_read = envelope.reader.read(state.batch.values, rows, self._framing.frame_bytes)
        try:
            changes, source_columns = self._records.changes(rows, envelope, columns)
        except (BadValue, *CONVERSION_ERRORS):  # an operation that is not UTF-8
            self._decode_by_row(state, rows)
            return
        columnar = is_read & _ROW_OPS[changes.ops]
        if not columnar.all():
            self._decode_by_row(state, rows[~columnar])
        places = np.flatnonzero(columnar)
        try:
            by_names = _by_names(source_columns, places)
        except CONVERSION_ERRORS:  # a name that is not UTF-8
            self._decode_by_row(state, rows[places])
            return
        for names, of_table in by_names:
            for key_columns, same in self._by_key_columns(state, rows[of_table], of_table):
                self._decode_table(state, id_, names, key_columns, changes.take(same))

    def _by_key_columns(
        self, state: DecodeState, rows: NDArray[np.int64], places: Places
    ) -> list[tuple[frozenset[str], Places]]:
        """Return the indexes of records, grouped by the columns in their keys.

        The columns are empty for records without a key, and for keys without column names.

        rows: rows of the batch.
        places: indexes of these records.
        """
        if not self._records.ARE_KEYED:
            return [(frozenset(), places)]
        keys = state.batch.keys.take(pa.array(rows))
        valid = keys.is_valid().to_numpy(zero_copy_only=False)
        ids = np.full(len(rows), _NO_KEY, np.int64)
        ids[valid] = schema_ids(keys, np.flatnonzero(valid))
        found: dict[frozenset[str], list[Places]] = {}
        for id_ in np.unique(ids).tolist():
            same = np.flatnonzero(ids == id_)
            if id_ >= 0 or id_ == _NO_KEY:
                found.setdefault(self._columns_of_key(id_), []).append(places[same])
                continue
            for place in same.tolist():  # the connector's key converter does not write Avro
                found.setdefault(columns_of_key(keys[place].as_py()), []).append(places[place : place + 1])
        return [(columns, np.sort(np.concatenate(parts))) for columns, parts in found.items()]

    def _columns_of_key(self, id_: int) -> frozenset[str]:
        with suppress(BadValue):
            return frozenset() if id_ == _NO_KEY else frozenset(self._schemas.type_of(id_).fields)
        return frozenset()

    def _decode_table(
        self, state: DecodeState, id_: int, names: _Names, key_columns: frozenset[str], changes: Changes
    ) -> None:
        database, schema, table, connector = names or (None,) * len(SOURCE_NAMES)
        source = SourceTable(state.batch.topic, database, schema, table)
        if self._target(state, source) is None:
            is_delete = changes.ops == ord("d")
            first = int(changes.rows[int(np.argmin(is_delete))])  # the first that is no delete, if there is one
            state.found.skip_unrouted(first, source, len(changes.rows), is_delete=bool(is_delete.all()))
            return
        known = self._find(state, RecordSchemaKey(source, connector or "", id_, key_columns))
        assert known is not None
        self._decode_part(state, known, changes)

    def _decode_part(self, state: DecodeState, known: _CachedReaders, changes: Changes) -> None:
        n = len(changes.rows)
        if known.columnar is None:
            self._decode_by_row(state, changes.rows)
            return
        try:
            piece, alone = known.columnar.read(changes)
        except CONVERSION_ERRORS:
            if n <= _MAX_UNSPLIT_RECORDS:
                self._decode_by_row(state, changes.rows)
                return
            step = max(_MAX_UNSPLIT_RECORDS, -(-n // _PARTS))
            for at in range(0, n, step):
                self._decode_part(state, known, changes.take(np.arange(at, min(at + step, n))))
            return
        if piece is not None:
            state.add(piece)
        self._decode_by_row(state, changes.rows[alone])

    # ------------------------------------------------------------ record by record

    def _decode_by_row(self, state: DecodeState, rows: NDArray[np.int64]) -> None:
        for row in rows.tolist():
            self._decode_record(state, row)
        self.row_decoded_records += len(rows)
        for piece in state.found.take_pieces():
            state.add(piece)

    def _decode_record(self, state: DecodeState, row: int) -> None:
        batch = state.batch
        headers = batch.headers.get(row, ())
        value: bytes = batch.values[row].as_py()
        try:
            id_, bare = self._framing.unframed(value, headers)
            members = self._members(id_, bare)
        except BadValue as e:
            error = BadValue(f"{e}{other_format_hint(value, '')}") if value[:1] == b"{" else e
            state.found.fail(row, int(batch.offsets[row]), error, None)
            return
        key = self._key_of(batch, row)
        decoder = RowDecoder(
            batch.topic, partial(self._record_schema_of, state, id_), self._fail_on_truncate, state.found
        )
        decoder.read(row, int(batch.offsets[row]), key, wrapped(members), self._headers_as_json(headers))

    def _decode_tombstones(self, state: DecodeState) -> int:
        """Decode tombstones with keys as deletes, if they are deletes. Return their number."""
        if not self._tombstones_delete:
            return 0
        batch = state.batch
        rows = np.flatnonzero((pc.is_null(batch.values).to_numpy(False)) & pc.is_valid(batch.keys).to_numpy(False))
        decoder = RowDecoder(
            batch.topic, partial(self._record_schema_of, state, _TOMBSTONE), self._fail_on_truncate, state.found
        )
        for row in rows.tolist():
            headers = batch.headers.get(row, ())
            key = self._key_of(batch, row)
            decoder.read(row, int(batch.offsets[row]), key, _DELETE, self._headers_as_json(headers))
        for piece in state.found.take_pieces():
            state.add(piece)
        return len(rows)

    def value_as_json(self, batch: RawBatch, row: int) -> bytes:
        """Return a record's value as JSON. See `JsonView`."""
        id_, bare = self._framing.unframed(batch.values[row].as_py(), batch.headers.get(row, ()))
        return wrapped(self._members(id_, bare))

    def _key_of(self, batch: RawBatch, row: int) -> bytes | None:
        if not self._records.ARE_KEYED:
            return None
        return self._schemas.key_as_json(batch.keys[row].as_py(), batch.headers.get(row, ()))

    def _members(self, id_: SchemaId, bare: bytes) -> Mapping[str, bytes]:
        type_ = self._schemas.type_of(id_)
        try:
            return self._records.payload(read_record(bare, type_))
        except BadValue as e:
            raise BadValue(f"schema {id_}: {e}") from None

    def _headers_as_json(self, headers: Sequence[tuple[str, bytes | None]]) -> tuple[tuple[str, bytes | None], ...]:
        """Return the headers with keys as JSON. Connect's header converter may write Avro as well."""
        return tuple(
            (name, self._schemas.key_as_json(value, ()) if name in _KEY_HEADERS else value) for name, value in headers
        )

    def _as_json(self, batch: RawBatch) -> RawBatch:
        """Return the batch with keys, values and headers as JSON, for records with headers only.

        Keys and values of all other records are null.
        """
        if not any(name in _KEY_HEADERS for headers in batch.headers.values() for name, _ in headers):
            return replace(batch, headers={}) if batch.headers else batch
        keys: list[bytes | None] = [None] * len(batch)
        values: list[bytes | None] = [None] * len(batch)
        for row, headers in batch.headers.items():
            keys[row] = self._schemas.key_as_json(batch.keys[row].as_py(), headers)
            value: bytes | None = batch.values[row].as_py()
            with suppress(BadValue):  # such a record gave no rows, so its value is not needed
                values[row] = (
                    None if value is None else wrapped(self._schemas.record(value, headers, VALUE_SCHEMA_HEADER)[1])
                )
        return replace(
            batch,
            keys=pa.array(keys, pa.binary()),
            values=pa.array(values, pa.binary()),
            headers={row: self._headers_as_json(headers) for row, headers in batch.headers.items()},
        )

    # ------------------------------------------------------------ schemas

    def _target(self, state: DecodeState, source: SourceTable) -> Target | None:
        if source not in state.targets:
            state.targets[source] = self._target_of(source)
        return state.targets[source]

    def _envelope(self, id_: SchemaId) -> ChangeSchema:
        if id_ not in self._envelopes:
            self._envelopes[id_] = self._records.schema_of(self._schemas.type_of(id_))
        return self._envelopes[id_]

    def _record_schema_of(
        self,
        state: DecodeState,
        id_: SchemaId,
        source: SourceTable,
        connector: str,
        _: bytes | None,
        key: bytes | None,
    ) -> RecordSchema | None:
        known = self._find(state, RecordSchemaKey(source, connector, id_, columns_of_key(key)))
        return None if known is None else known.record_schema

    def _find(self, state: DecodeState, key: RecordSchemaKey[SchemaId]) -> _CachedReaders | None:
        target = self._target(state, key.source)
        if target is None:
            return None
        known = self._known.get(key)
        if known is None or known.record_schema.target is not target:
            if len(self._known) >= _SCHEMAS_MAX:
                self._known.clear()
            known = self._known[key] = self._new(key, target)
        return known

    def _new(self, key: RecordSchemaKey[SchemaId], target: Target) -> _CachedReaders:
        envelope = self._envelope(key.schema)
        typed = value_type if has_cells(key.connector) else lambda source: source
        record_schema = RecordSchema(
            target,
            {name: typed(source) for name, source in envelope.columns.items()},
            key.key_columns,
            key.connector,
            self._settings,
            placeholders=self._placeholders,
            rounds=self._rounds,
        )
        columnar = None
        if envelope.reader is not None and is_plain(key.connector):
            with suppress(ValueError):  # all records must be read one by one
                columnar = ColumnImages(record_schema, envelope.image, self._settings)
        return _CachedReaders(record_schema, columnar)


def _by_names(columns: Sequence[DecodedColumn | None], places: Places) -> list[tuple[_Names, Places]]:
    """Return the indexes of records, grouped by their values in these columns of `source`.

    places: indexes of the records.
    """
    if not len(places):
        return []
    taken = [None if column is None else column.take(places) for column in columns]
    one = constant_columns(taken)
    if one is not None:
        return [(one, places)]
    arrays = [None if column is None else column.to_arrow() for column in taken]
    texts = [[None] * len(places) if array is None else array.to_pylist() for array in arrays]
    found: dict[_Names, list[int]] = {}
    for place, names in zip(places.tolist(), zip(*texts, strict=True), strict=True):
        found.setdefault(names, []).append(place)
    return [(names, np.array(members, np.int64)) for names, members in found.items()]
