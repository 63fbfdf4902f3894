"""A decoder that gives tables their shape: columns are left out and renamed, values masked, rows filtered.

The format's decoder gets targets with the columns and names of the records. What a filter or a mask needs is then in
Arrow columns, so nothing of it is done row by row.

A filter has the meaning of a view: an update whose new row doesn't match deletes the row under its key. In a table
without a key, such rows are left out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelake.ingest.formats.base import (
    KEY_CHANGE_ID_BYTES,
    DecodedBatch,
    DecodeFailure,
    Decoder,
    FailureKind,
    InferredTable,
    JsonView,
    KeyChange,
    OpenedFormat,
    Skipped,
    TableRows,
    Target,
    TargetOf,
)
from tidelake.ingest.formats.ddl_statements import ColumnStatement
from tidelake.ingest.formats.renamed_columns import (
    WrappingFormat,
    failure_with_table_names,
    rows_with_table_names,
    with_record_names,
)
from tidelake.ingest.formats.source_table import SourceTable
from tidelake.ingest.formats.table_rows import keep_records
from tidelake.ingest.raw_batch import RawBatch
from tidelake.ingest.shaping.shaped_columns import ShapedColumns
from tidelake.storage.model.format import KIND_COLUMN, RowKind
from tidelake.storage.read.conditions import as_predicate
from tidelake.storage.read.predicate import Predicate

HIDDEN_KEY = "not shown, as the table masks a column of its key"


@dataclass(frozen=True)
class ShapedFormat(WrappingFormat):
    """A format whose decoders give tables their shape.

    shapes: shapes by the table's name. Rows of other tables are passed on unchanged. It may grow.
    """

    shapes: Mapping[str, ShapedColumns]

    def decoder(self, target_of: TargetOf) -> Decoder:
        return ShapingDecoder(self.format, target_of, self.shapes)

    def infer_table(self, batch: RawBatch, row: int) -> InferredTable:
        """Return the table of a record, without the shape: the table's name is not known yet."""
        return self.format.infer_table(batch, row)


@dataclass(frozen=True)
class _Shaped:
    """A table and its shape.

    whole: the target with the table's columns.
    ignored: columns of the records that the shape leaves out, as far as records had them.
    """

    whole: Target
    shape: ShapedColumns
    ignored: frozenset[str] = frozenset()

    @cached_property
    def target(self) -> Target:
        """The target with the records' names, into which records are decoded."""
        found = with_record_names(self.whole, self.shape.source_name)
        return replace(found, ignored_columns=found.ignored_columns | self.ignored)

    @cached_property
    def filter(self) -> Predicate | None:
        text = self.shape.filter
        return None if text is None else as_predicate(text, self.whole.schema.arrow)

    def left_out(self, failure: DecodeFailure) -> frozenset[str]:
        """Return the record's columns of a failure that the shape leaves out."""
        if failure.kind is not FailureKind.UNKNOWN_COLUMN:
            return frozenset()
        return frozenset(one.path[0] for one in failure.needed if not self.shape.takes(one.path[0]))

    # ------------------------------------------------------------ failures

    def failure(self, found: DecodeFailure) -> DecodeFailure | None:
        """Return a failure of `target` with the table's names. None for DDL of columns that the table doesn't take."""
        renamed = failure_with_table_names(found, self.whole, self.shape.table_name, self._statements)
        if renamed is None:
            return None
        if reason := self._why_it_stops(found, renamed):
            return replace(renamed, reason=reason, statements=(), shadow=None, needed=(), columns=())
        known = self.whole.schema.by_name
        if taken := [one.path[0] for one in renamed.needed if one.found is None and one.path[0] in known]:
            reason = (
                f"the records have a new column {taken[0]}, and another column was renamed to this name. Choose "
                "another name in `rename_columns`, or exclude the new column (`drop_columns`)"
            )
            return replace(renamed, reason=reason, needed=(), columns=())
        return renamed

    def _why_it_stops(self, found: DecodeFailure, renamed: DecodeFailure) -> str:
        """Return why values of a renamed column would be unmasked, or no longer left out; "" if they would not."""
        for statement in renamed.statements:
            if statement.old in self.shape.masks and statement.new is not None:
                return (
                    f"column {statement.old} of {self.whole.name} is masked, and was renamed to {statement.new} at the "
                    f"source. Write `rename_columns: {{{statement.new}: {statement.old}}}`, or rename {statement.old} "
                    f"with `tidelake table alter`, and mask {statement.new}"
                )
        for statement in (*found.statements, *(found.shadow.statements if found.shadow is not None else ())):
            if statement.new is not None and statement.old in self.shape.dropped and self.shape.takes(statement.new):
                return (
                    f"{self.whole.name} leaves out column {statement.old}, which was renamed to {statement.new} at the "
                    f"source. Add {statement.new} to `drop_columns`, or take {statement.old} out of it"
                )
        return ""

    def _statements(self, statements: Sequence[ColumnStatement]) -> tuple[ColumnStatement, ...]:
        """Return the statements with the table's names, without those of columns that the table doesn't take."""
        shape = self.shape
        renamed = (
            ColumnStatement(
                shape.table_name(one.old) if one.old is not None and shape.takes(one.old) else None,
                # A taken column that is renamed to one that isn't stops the table where the statement is followed.
                shape.table_name(one.new) if one.new is not None and self._takes_either(one) else None,
                one.type,
            )
            for one in statements
        )
        return tuple(one for one in renamed if one.old != one.new)

    def _takes_either(self, statement: ColumnStatement) -> bool:
        return any(name is not None and self.shape.takes(name) for name in (statement.old, statement.new))

    # ------------------------------------------------------------ rows

    def rows(self, found: TableRows, batch: RawBatch) -> tuple[TableRows | None, list[DecodeFailure]]:
        """Return rows of `target` as rows of the table, and failures of records that the filter can't judge."""
        part = rows_with_table_names(found, self.whole, self.shape.table_name)
        failures: list[DecodeFailure] = []
        filtered: TableRows | None = part
        if self.filter is not None:
            filtered, failures = self._filtered(part, self.filter, batch)
        return None if filtered is None else self._masked(filtered), failures

    def _filtered(
        self, part: TableRows, condition: Predicate, batch: RawBatch
    ) -> tuple[TableRows | None, list[DecodeFailure]]:
        failures: list[DecodeFailure] = []
        unknown = self._unknown_to_filter(part, condition)
        if unknown:
            at = sorted({int(part.offsets[row]) for row in unknown})
            names = ", ".join(sorted(set(unknown.values())))
            reason = (
                f"the filter of {self.whole.name} needs column {names}, which the record leaves out because it did not "
                "change. Let the source send all columns (PostgreSQL: REPLICA IDENTITY FULL)"
            )
            kind = FailureKind.UNKNOWN_VALUE
            of, rows = self.whole.name, np.searchsorted(batch.offsets, at).tolist()
            failures = [DecodeFailure(r, o, kind, reason, table=of) for r, o in zip(rows, at, strict=True)]
            part = keep_records(part, ~np.isin(part.offsets, at))
        matches = _matches(part.rows, condition)
        kinds = part.rows.column(KIND_COLUMN).to_numpy(zero_copy_only=False)
        if not self.whole.schema.has_primary_key:
            return (part if matches.all() else keep_records(part, matches)), failures
        leaves = ~matches & (kinds != RowKind.DELETE)
        if not leaves.any():
            return part, failures
        kinds = np.where(leaves, np.int8(RowKind.DELETE), kinds)
        rows = part.rows.set_column(part.rows.num_columns - 1, part.rows.schema.field(KIND_COLUMN), pa.array(kinds))
        changes, unavailable = part.key_changes, part.unavailable
        if changes is not None:  # a row that does not arrive under its new key: only its old key is deleted
            kept = [i for i, row in enumerate(changes.rows.tolist()) if not leaves[row]]
            changes = replace(changes, rows=changes.rows[kept], changes=[changes.changes[i] for i in kept])
            changes = changes if kept else None
        if unavailable is not None:
            stays = ~leaves[unavailable.rows]
            unavailable = unavailable.only({name: flags & stays for name, flags in unavailable.columns.items()})
        return replace(part, rows=rows, key_changes=changes, unavailable=unavailable), failures

    def _unknown_to_filter(self, part: TableRows, condition: Predicate) -> dict[int, str]:
        """Return the rows that lack a value of the filter, with the column."""
        if part.unavailable is None:
            return {}
        return {
            int(part.unavailable.rows[at]): name
            for name in sorted(condition.columns & part.unavailable.columns.keys())
            for at in np.flatnonzero(part.unavailable.columns[name]).tolist()
        }

    def _masked(self, part: TableRows) -> TableRows:
        masks = {name: mask for name, mask in self.shape.masks.items() if name in self.whole.schema.by_name}
        if not masks:
            return part
        rows = _masked_columns(part.rows, self.shape)
        unavailable, changes = part.unavailable, part.key_changes
        if unavailable is not None and unavailable.keys.num_columns:
            unavailable = replace(unavailable, keys=_masked_columns(unavailable.keys, self.shape))
        if changes is not None and not masks.keys().isdisjoint(self.whole.schema.primary_keys):
            changes = replace(changes, changes=[self._masked_change(change) for change in changes.changes])
        return replace(part, rows=rows, unavailable=unavailable, key_changes=changes)

    def _masked_change(self, change: KeyChange) -> KeyChange:
        """Return the key change without its keys. Its id can't be computed from them without the salt."""
        salt = self.shape.salt
        assert salt is not None, "a column of a key can only be hashed"
        key = hashlib.sha256(salt.reveal().encode()).digest()
        hashed = hashlib.blake2b(change.id, digest_size=KEY_CHANGE_ID_BYTES - 1, key=key).digest()
        return KeyChange(change.id[:1] + hashed, change.is_exact, HIDDEN_KEY, HIDDEN_KEY)


def _masked_columns(rows: pa.RecordBatch, shape: ShapedColumns) -> pa.RecordBatch:
    columns = [
        shape.masks[name].applied(column, shape.salt) if name in shape.masks else column
        for name, column in zip(rows.schema.names, rows.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)


def _matches(rows: pa.RecordBatch, condition: Predicate) -> NDArray[np.bool_]:
    """Return (n,) whether each row matches. A condition that is unknown, because a value is null, doesn't match."""
    number = "\0row"
    numbered = pa.table([*rows.columns, pa.array(np.arange(rows.num_rows))], names=[*rows.schema.names, number])
    found = numbered.filter(condition.expression(numbered.schema)).column(number).to_numpy()
    matches = np.zeros(rows.num_rows, np.bool_)
    matches[found] = True
    return matches


class ShapingDecoder:
    """A decoder that gives tables their shape. See `tidelake.ingest.formats.base.Decoder`.

    Which columns of the records are left out is learned from the first record that has them: the batch is then decoded
    again.

    format_: the format of the records.
    shapes: shapes by the table's name. It may grow.
    """

    def __init__(self, format_: OpenedFormat, target_of: TargetOf, shapes: Mapping[str, ShapedColumns]) -> None:
        self._target_of = target_of
        self._shapes = shapes
        self._shaped: dict[str, _Shaped] = {}
        self._decoder = format_.decoder(self._source_target_of)

    def value_as_json(self, batch: RawBatch, row: int) -> bytes:
        """Return a record's value as JSON. See `JsonView`."""
        if isinstance(self._decoder, JsonView):
            return self._decoder.value_as_json(batch, row)
        value: bytes = batch.values[row].as_py()
        return value

    def decode(self, batch: RawBatch) -> DecodedBatch:
        decoded = self._decoder.decode(batch)
        while self._learn(decoded.failures):
            decoded = self._decoder.decode(batch)
        failures: list[DecodeFailure] = []
        skipped = dict(decoded.skipped)
        for failure in decoded.failures:
            shaped = None if failure.target is None else self._shaped.get(failure.target.name)
            reported = failure if shaped is None else shaped.failure(failure)
            if reported is None:
                skipped[Skipped.SCHEMA_CHANGE] = skipped.get(Skipped.SCHEMA_CHANGE, 0) + 1
            else:
                failures.append(reported)
        tables: list[TableRows] = []
        for part in decoded.tables:
            shaped = self._shaped.get(part.target.name)
            rows, failed = (part, []) if shaped is None else shaped.rows(part, batch)
            failures += failed
            if rows is not None and len(rows.rows):
                tables.append(rows)
        failures.sort(key=lambda failure: failure.row)
        return replace(decoded, tables=tuple(tables), failures=tuple(failures), skipped=skipped)

    def _learn(self, failures: Collection[DecodeFailure]) -> bool:
        """Ignore columns of the records that a shape leaves out. Returns whether there are new ones."""
        learned = False
        for failure in failures:
            shaped = None if failure.target is None else self._shaped.get(failure.target.name)
            new = frozenset() if shaped is None else shaped.left_out(failure) - shaped.ignored
            if shaped is not None and new:
                self._shaped[shaped.whole.name] = replace(shaped, ignored=shaped.ignored | new)
                learned = True
        return learned

    def _source_target_of(self, source: SourceTable) -> Target | None:
        whole = self._target_of(source)
        shape = None if whole is None else self._shapes.get(whole.name)
        if whole is None or not shape:
            return whole
        known = self._shaped.get(whole.name)
        if known is None or known.whole is not whole:
            known = self._shaped[whole.name] = _Shaped(whole, shape, frozenset() if known is None else known.ignored)
        return known.target
