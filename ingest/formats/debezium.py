"""Debezium JSON, with and without schemas: fast where records are alike, record by record where they are not.

A batch is cut into chunks. Each chunk is first tried as records of one shape (see `debezium_fast`); if that fails its
records are told apart by source table and schema and each kind is tried alone; what still fails is read by
`debezium_careful`, which decides what every record means. Both ways give the same rows.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ingest.formats.adjacent_objects import adjacent_objects, runs_of_rows
from ingest.formats.base import DecodedBatch, Skipped, Target, TargetOf
from ingest.formats.cells.json_text import BadValue
from ingest.formats.connect_schema import ConnectorSettings
from ingest.formats.debezium_careful import CarefulReader
from ingest.formats.debezium_envelope import ROW_OPS, image_schema, read_envelope, split_schema
from ingest.formats.debezium_fast import CANT_READ_FAST, FastReader
from ingest.formats.debezium_options import InexactValues, Truncates
from ingest.formats.debezium_shape import Shape
from ingest.formats.decoded_piece import Piece, assemble
from ingest.formats.record_key import columns_of_key
from ingest.formats.source_table import SourceTable
from ingest.raw_batch import RawBatch

# The structs of a chunk should stay in the processor's cache: 4,096 of 800 bytes decode 1.6 times as fast as 100,000.
CHUNK_RECORDS_MAX: Final = 4_096
CHUNK_BYTES_MAX: Final = 32 << 20
_SHAPES_MAX: Final = 1_000  # of one decoder; beyond that all are forgotten, and made again as needed
_WRAPPED_START: Final = b'{"schema":'


@dataclass(frozen=True, slots=True)
class _ShapeKey:
    """What decides how a record is read, apart from its target."""

    source: SourceTable
    connector: str
    schema: bytes | None
    key_columns: frozenset[str]


@dataclass(slots=True, eq=False)
class _Known:
    """A shape, its fast reader (None: nothing fast), and what its records begin with when they carry their schema."""

    key: _ShapeKey
    shape: Shape
    fast: FastReader | None
    prefix: bytes


_Targets: TypeAlias = dict[SourceTable, Target | None]  # as `target_of` gave them for the batch at hand


@dataclass(slots=True, eq=False)
class _Work:
    """What one `decode` has found so far."""

    batch: RawBatch
    targets: _Targets
    careful: CarefulReader
    pieces: dict[str, list[Piece]] = field(default_factory=dict)

    def add(self, piece: Piece) -> None:
        self.pieces.setdefault(piece.target.name, []).append(piece)


class DebeziumJsonDecoder:
    """Decodes Debezium JSON; see `ingest.formats.base.Decoder`.

    target_of: where a source table's rows go. settings: what the records don't say about their connector.
    truncates: what an op `t` is: a failure, or skipped and counted. A truncate has no place among the records of other
        partitions, so it is never carried out.
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
        self._known: dict[_ShapeKey, _Known] = {}
        self._last_of_topic: dict[str, _Known] = {}
        self.careful_records = 0
        """Records that took the careful way since construction; for benchmarks and tests."""

    def decode(self, batch: RawBatch) -> DecodedBatch:
        """Never raises for what a record holds; raises UnsupportedFeature or BadInput for a target it can't serve."""
        targets: _Targets = {}
        careful = CarefulReader(batch.topic, partial(self._shape_of, targets), self._fail_on_truncate)
        work = _Work(batch, targets, careful)
        present = np.flatnonzero(batch.values.is_valid().to_numpy(zero_copy_only=False))
        for chunk in runs_of_rows(batch.values, present, CHUNK_RECORDS_MAX, CHUNK_BYTES_MAX):
            self._decode_chunk(work, chunk)
        tombstones = len(batch) - len(present)
        return DecodedBatch(
            tuple(assemble(pieces, batch) for pieces in work.pieces.values()),
            tuple(sorted(careful.failures, key=lambda failure: failure.row)),
            careful.skipped | ({Skipped.TOMBSTONE: tombstones} if tombstones else {}),
            careful.unrouted,
        )

    def _decode_chunk(self, work: _Work, rows: NDArray[np.int64]) -> None:
        last = self._last_of_topic.get(work.batch.topic)
        if last is not None and self._try_fast(work, last, rows):
            return
        first = self._known_for(work, int(rows[0]))
        if first is not None and first is not last and self._try_fast(work, first, rows):
            return
        for known, group in self._told_apart(work, rows):
            tried = len(group) == len(rows) and known in (last, first)
            if known is None or tried or not self._try_fast(work, known, group):
                self._read_carefully(work, known, group)

    # ------------------------------------------------------------ the fast way

    def _try_fast(self, work: _Work, known: _Known, rows: NDArray[np.int64]) -> bool:
        target = self._target(work.targets, known.key.source)
        if known.fast is None or target is None or target is not known.shape.target:
            return False
        try:
            piece = known.fast.read(adjacent_objects(work.batch.values, rows, known.prefix), rows, work.batch.keys)
            if _any_moved(piece, work.batch):
                return False
        except CANT_READ_FAST:
            return False
        work.add(piece)
        self._last_of_topic[work.batch.topic] = known
        return True

    def _told_apart(self, work: _Work, rows: NDArray[np.int64]) -> list[tuple[_Known | None, NDArray[np.int64]]]:
        """Rows by shape, in order of first appearance; None for records that are no row change or go nowhere."""
        groups: dict[_ShapeKey | None, list[int]] = {}
        shapes: dict[_ShapeKey | None, _Known | None] = {None: None}
        for row in rows.tolist():
            known = self._known_for(work, row)
            key = None if known is None else known.key
            shapes[key] = known
            groups.setdefault(key, []).append(row)
        return [(shapes[key], np.array(members, np.int64)) for key, members in groups.items()]

    def _known_for(self, work: _Work, row: int) -> _Known | None:
        try:
            schema, payload = split_schema(work.batch.values[row].as_py())
            envelope = read_envelope(payload)
            if envelope.op not in ROW_OPS:
                return None
            source = envelope.source.source_table(work.batch.topic)
            key: bytes | None = work.batch.keys[row].as_py()
            return self._find(work.targets, source, envelope.source.connector or "", schema, key)
        except BadValue:
            return None  # the careful way will say what is wrong

    # ------------------------------------------------------------ the careful way

    def _read_carefully(self, work: _Work, known: _Known | None, rows: NDArray[np.int64]) -> None:
        batch, careful = work.batch, work.careful
        failures = len(careful.failures)
        for row in rows.tolist():
            key: bytes | None = batch.keys[row].as_py()
            careful.read(row, int(batch.offsets[row]), key, batch.values[row].as_py(), batch.headers.get(row, ()))
        self.careful_records += len(rows)
        for piece in careful.take_pieces():
            work.add(piece)
        if known is not None and len(careful.failures) == failures:
            self._learn(known, batch, rows)

    def _learn(self, known: _Known, batch: RawBatch, rows: NDArray[np.int64]) -> None:
        """Good records were not read fast: from now on the columns at fault go cell by cell, the others by kernels."""
        if known.fast is None:
            return
        try:
            slow = known.fast.columns_beyond_kernels(adjacent_objects(batch.values, rows, known.prefix))
        except CANT_READ_FAST:  # it is not for their columns
            return
        if not slow <= known.fast.by_cells:
            known.fast = FastReader(known.shape, known.key.source, known.fast.by_cells | slow)

    # ------------------------------------------------------------ shapes

    def _target(self, targets: _Targets, source: SourceTable) -> Target | None:
        if source not in targets:
            targets[source] = self._target_of(source)
        return targets[source]

    def _shape_of(
        self, targets: _Targets, source: SourceTable, connector: str, schema: bytes | None, key: bytes | None
    ) -> Shape | None:
        known = self._find(targets, source, connector, schema, key)
        return None if known is None else known.shape

    def _find(
        self, targets: _Targets, source: SourceTable, connector: str, schema: bytes | None, key: bytes | None
    ) -> _Known | None:
        """Raises BadValue when the schema is none."""
        target = self._target(targets, source)
        if target is None:
            return None
        shape_key = _ShapeKey(source, connector, schema, columns_of_key(key))
        known = self._known.get(shape_key)
        if known is None or known.shape.target is not target:
            if len(self._known) >= _SHAPES_MAX:
                self._known.clear()
            known = self._known[shape_key] = self._new(shape_key, target)
        return known

    def _new(self, key: _ShapeKey, target: Target) -> _Known:
        declared = None if key.schema is None else image_schema(key.schema)
        shape = Shape(target, declared, key.key_columns, key.connector, self._settings, rounds=self._rounds)
        fast = None
        if not shape.narrow:
            with suppress(ValueError):  # a column's name has characters that msgspec cannot match
                fast = FastReader(shape, key.source)
        prefix = b"" if key.schema is None else _WRAPPED_START + key.schema + b',"payload":'
        return _Known(key, shape, fast, prefix)


def _any_moved(piece: Piece, batch: RawBatch) -> bool:
    """Whether a row with values to be looked up came from another key; finding that key is left to the careful way."""
    if not piece.flags or not batch.headers:
        return False
    flagged = np.logical_or.reduce(list(piece.flags.values()))
    return any(row in batch.headers for row in piece.rows[flagged].tolist())
