"""A decoder that adds derived columns to the rows of another decoder.

The targets of the other decoder lack the derived columns. If a value is unavailable, because it did not change and the
source left it out, a column computed from it is unavailable, too: the old row has both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelake.ingest.derived.computed_columns import ComputedColumn
from tidelake.ingest.derived.derived_columns import DerivedColumns
from tidelake.ingest.derived.metadata_columns import change_times, metadata_arrays
from tidelake.ingest.formats.base import (
    DecodedBatch,
    DecodeFailure,
    Decoder,
    FailureKind,
    InferredTable,
    JsonView,
    OpenedFormat,
    TableRows,
    Target,
    TargetOf,
    UnavailableValues,
)
from tidelake.ingest.formats.renamed_columns import WrappingFormat
from tidelake.ingest.formats.source_table import SourceTable
from tidelake.ingest.formats.table_rows import keep_records
from tidelake.ingest.raw_batch import RawBatch
from tidelake.storage.model.format import KIND_COLUMN, RowKind

_ERRORS = (ValueError, pa.ArrowNotImplementedError)


@dataclass(frozen=True)
class DerivingFormat(WrappingFormat):
    """A format whose decoders add derived columns.

    derived: derived columns by the table's name. Rows of other tables are passed on unchanged. It may grow.
    """

    derived: Mapping[str, DerivedColumns]

    def decoder(self, target_of: TargetOf) -> Decoder:
        return DerivingDecoder(self.format, target_of, self.derived)

    def infer_table(self, batch: RawBatch, row: int) -> InferredTable:
        """Return the table of a record, without derived columns: the table's name is not known yet."""
        return self.format.infer_table(batch, row)


@dataclass(frozen=True, slots=True, eq=False)
class _Bound:
    """The two targets of a table.

    whole: the target with all columns.
    plain: the target without derived columns.
    columns: the computed columns.
    """

    whole: Target
    plain: Target
    columns: Sequence[ComputedColumn]


class DerivingDecoder:
    """A decoder that adds derived columns. See `tidelake.ingest.formats.base.Decoder`.

    format_: the format of the records.
    derived: derived columns by the table's name. Rows of other tables are passed on unchanged. It may grow.
    """

    def __init__(
        self,
        format_: OpenedFormat,
        target_of: TargetOf,
        derived: Mapping[str, DerivedColumns],
    ) -> None:
        self._target_of = target_of
        self._derived = derived
        self._origin_of = format_.CAPABILITIES.origin_of
        self._bound: dict[str, _Bound] = {}
        self._decoder = format_.decoder(self._plain_target_of)
        self._as_json = self._decoder if isinstance(self._decoder, JsonView) else None

    def decode(self, batch: RawBatch) -> DecodedBatch:
        """Decode a batch, with derived columns.

        Raises the errors of the other decoder, and BadInput for a table that can't have its derived columns.
        """
        decoded = self._decoder.decode(batch)
        failures = [self._of_whole_target(failure) for failure in decoded.failures]
        tables = []
        for part in decoded.tables:
            bound = self._bound.get(part.target.name)
            if bound is None:
                tables.append(part)
                continue
            added, failed = self._add(part, bound, batch)
            failures += failed
            if len(added.rows):
                tables.append(added)
        failures.sort(key=lambda failure: failure.row)
        return replace(decoded, tables=tuple(tables), failures=tuple(failures))

    def _deleted_at(self, kinds: pa.Array, batch: RawBatch, records: NDArray[np.intp]) -> pa.Array:
        """Return the time of each delete; null for other rows."""
        is_delete = kinds.to_numpy(zero_copy_only=False) == RowKind.DELETE
        times = change_times(batch, records[is_delete], self._origin_of, self._as_json)
        return times.take(pa.array(np.cumsum(is_delete) - 1, mask=~is_delete))

    def _plain_target_of(self, source: SourceTable) -> Target | None:
        target = self._target_of(source)
        columns = None if target is None else self._derived.get(target.name)
        if target is None or not columns:
            return target
        bound = self._bound.get(target.name)
        if bound is None or bound.whole is not target:
            computed = columns.bind(target.schema, target.name, target.location)
            bound = _Bound(target, replace(target, schema=columns.without_derived_columns(target.schema)), computed)
            self._bound[target.name] = bound
        return bound.plain

    def _of_whole_target(self, failure: DecodeFailure) -> DecodeFailure:
        bound = None if failure.target is None else self._bound.get(failure.target.name)
        return failure if bound is None else replace(failure, target=bound.whole)

    def _add(self, part: TableRows, bound: _Bound, batch: RawBatch) -> tuple[TableRows, list[DecodeFailure]]:
        """Return the rows with all columns, and the failures of records whose derived columns can't be computed."""
        records = np.searchsorted(batch.offsets, part.offsets)
        derived = self._derived[bound.whole.name]
        columns = {name: part.rows[name] for name in part.rows.schema.names}
        kinds = columns[KIND_COLUMN]
        columns |= metadata_arrays(derived.metadata, batch, records, self._origin_of, self._as_json, kinds)
        if bound.whole.is_history:
            columns[KIND_COLUMN] = pa.array(np.full(len(kinds), RowKind.INSERT, np.int8))
        if derived.deleted_at:
            columns[derived.deleted_at] = self._deleted_at(kinds, batch, records)
        if derived.versions:  # of a new version; `row_versions` knows the other versions of the row
            valid_from, valid_to, current = derived.versions
            columns[valid_from] = change_times(batch, records, self._origin_of, self._as_json)
            columns[valid_to] = pa.nulls(len(kinds), columns[valid_from].type)
            columns[current] = pa.array(np.ones(len(kinds), np.bool_))
        reasons: dict[int, str] = {}
        for computed in bound.columns:
            columns[computed.name] = _evaluated(computed, columns, part.rows, reasons)
        keys = [name for name in bound.whole.schema.primary_keys if name not in bound.plain.schema.primary_keys]
        for name in keys:
            for row in np.flatnonzero(columns[name].is_null().to_numpy(zero_copy_only=False)).tolist():
                reasons.setdefault(row, f"column {name} is part of the primary key, so it can't be computed from null")
        whole = bound.whole.schema.arrow
        fields = [*(field.with_nullable(True) for field in whole), part.rows.schema.field(KIND_COLUMN)]
        rows = pa.RecordBatch.from_arrays(
            [columns[field.name] for field in fields],
            schema=pa.schema(fields) if reasons else whole.append(part.rows.schema.field(KIND_COLUMN)),
        )
        unavailable = None if part.unavailable is None else _with_derived_flags(part.unavailable, bound, rows)
        changes = part.key_changes
        if derived.versions:  # the versions of a key say nothing about those of another one
            changes = None
            unavailable = None if unavailable is None else replace(unavailable, keys=unavailable.keys.select([]))
        added = TableRows(bound.whole, rows, part.offsets, unavailable, changes)
        if not reasons:
            return added, []
        offsets = {int(part.offsets[row]): reason for row, reason in sorted(reasons.items(), reverse=True)}
        failures = [
            DecodeFailure(
                int(np.searchsorted(batch.offsets, offset)),
                offset,
                FailureKind.BAD_RECORD,
                reason,
                table=bound.whole.name,
            )
            for offset, reason in offsets.items()
        ]
        kept = keep_records(added, ~np.isin(part.offsets, list(offsets)))
        schema = whole.append(part.rows.schema.field(KIND_COLUMN))
        return replace(kept, rows=pa.RecordBatch.from_arrays(kept.rows.columns, schema=schema)), failures


def _evaluated(
    computed: ComputedColumn, columns: Mapping[str, pa.Array], rows: pa.RecordBatch, reasons: dict[int, str]
) -> pa.Array:
    """Return the values of a computed column.

    reasons: gets the reason of each row whose value the function doesn't accept.
    """
    given = rows[KIND_COLUMN] if computed.depends_on is None else columns[computed.depends_on]
    try:
        return _combined(computed.evaluate(given))
    except _ERRORS:
        pass
    values = []
    for row in range(len(given)):  # row by row, to find those that fail
        try:
            values.append(_combined(computed.evaluate(given.slice(row, 1)))[0].as_py())
        except _ERRORS as error:
            reasons.setdefault(row, f"column {computed.name}: {error}")
            values.append(None)
    like = _combined(computed.evaluate(given.slice(0, 0)))
    return pa.array(values, like.type)


def _combined(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def _with_derived_flags(unavailable: UnavailableValues, bound: _Bound, rows: pa.RecordBatch) -> UnavailableValues:
    """Mark computed columns as unavailable if their column is, and add computed columns to the keys of lookups."""
    flags = dict(unavailable.columns)
    for computed in bound.columns:
        if computed.depends_on in flags:
            flags[computed.name] = flags[computed.depends_on]
    keys = {name: unavailable.keys[name] for name in unavailable.keys.schema.names}
    own = rows.take(pa.array(unavailable.rows))
    for computed in bound.columns:
        # For a moved row, the old key needs the value that is computed from the old values.
        if computed.depends_on in keys:
            keys[computed.name] = _combined(computed.evaluate(keys[computed.depends_on]))
    names = bound.whole.schema.primary_keys
    whole = [keys[name] if name in keys else own[name] for name in names]
    return UnavailableValues(unavailable.rows, flags, pa.RecordBatch.from_arrays(whole, names=list(names)))
