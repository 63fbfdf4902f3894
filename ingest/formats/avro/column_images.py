"""Converts row changes of one table and one schema from Avro columns to the table's columns.

It converts only records that it reads exactly as `tidelake.ingest.formats.debezium.row_changes` does. It reports all
others, and the caller reads them one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidelake.ingest.formats.avro.arrow_columns import ColumnConverter, ConversionContext, column_converter_for
from tidelake.ingest.formats.avro.value_reader import values_as_json
from tidelake.ingest.formats.connect_schema import UNDECLARED, ConnectorSettings
from tidelake.ingest.formats.decoded_rows import DecodedRows
from tidelake.ingest.formats.record_schema import RecordColumn, RecordSchema
from tidelake.ingest.formats.values.conversion import Flags
from tidelake.storage.model.avro.avro_type import AvroType
from tidelake.storage.model.avro.decoded_columns import DecodedColumn, Mask, Places
from tidelake.storage.model.format import RowKind


@dataclass(frozen=True, slots=True, eq=False)
class Changes:
    """The row changes of n records.

    rows (n,): their rows in the batch.
    ops (n,): character codes of `op`.
    before: old row images, null if missing.
    after: new row images, null if missing.
    """

    rows: Places
    ops: NDArray[np.uint8]
    before: DecodedColumn
    after: DecodedColumn

    def take(self, places: Places) -> Changes:
        return Changes(self.rows[places], self.ops[places], self.before.take(places), self.after.take(places))


class ColumnImages:
    """A reader of row images of one schema.

    image: the type of a row image in the record.

    The constructor raises ValueError if all records of the schema must be read one by one.
    """

    def __init__(self, record_schema: RecordSchema, image: AvroType, settings: ConnectorSettings) -> None:
        names = image.fields.keys()
        if record_schema.narrow or record_schema.has_wider_key or record_schema.target.key_columns:
            raise ValueError("records that must be checked, or completed, one by one")
        if names - record_schema.by_name.keys() - record_schema.target.ignored_columns:
            raise ValueError("columns that the table can't hold")
        if not names >= set(record_schema.target.schema.primary_keys):
            raise ValueError("no key in the image")
        self._record_schema = record_schema
        self._target = record_schema.target
        self._settings = settings
        self._converters: dict[tuple[str, str], ColumnConverter] = {}

    def read(self, changes: Changes) -> tuple[DecodedRows | None, Places]:
        """Return the rows of the changes, and the indexes of changes that must be read one by one.

        Raises one of CONVERSION_ERRORS if some values can't be converted.
        """
        alone = self._needs_row_decoder(changes)
        taken = changes.take(np.flatnonzero(~alone)) if alone.any() else changes
        return self._decoded(taken) if len(taken.rows) else None, np.flatnonzero(alone)

    def _needs_row_decoder(self, changes: Changes) -> Mask:
        deletes, updates = changes.ops == ord("d"), changes.ops == ord("u")
        alone: Mask = np.where(deletes, ~changes.before.valid, ~changes.after.valid)
        if self._record_schema.needs_old_images_of_deletes:
            alone |= deletes
        if self._record_schema.needs_old_images:
            alone |= updates & ~changes.before.valid
        both = np.flatnonzero(updates & changes.before.valid & ~alone)
        if len(both) and self._target.schema.primary_keys:
            old, new = changes.before.take(both), changes.after.take(both)
            for name in self._target.schema.primary_keys:
                same = pc.equal(_comparable(old.fields[name]), _comparable(new.fields[name]))
                alone[both] |= ~pc.fill_null(same, False).to_numpy(zero_copy_only=False)
        return alone

    def _decoded(self, changes: Changes) -> DecodedRows:
        deletes, updates = changes.ops == ord("d"), changes.ops == ord("u")
        old_images, new_images = deletes, ~deletes
        if self._target.emit_update_before:
            old_images = deletes | (updates & changes.before.valid)
        old_places, new_places = np.flatnonzero(old_images), np.flatnonzero(new_images)
        before = changes.before.take(old_places)
        after = changes.after if len(new_places) == len(changes.rows) else changes.after.take(new_places)
        order = np.argsort(np.concatenate([2 * old_places, 2 * new_places + 1]), kind="stable")
        kinds = np.concatenate(
            [
                np.where(deletes[old_places], RowKind.DELETE, RowKind.UPDATE_BEFORE).astype(np.int8),
                np.where(updates[new_places], RowKind.UPDATE_AFTER, RowKind.INSERT).astype(np.int8),
            ]
        )[order]
        columns, flags_of = [], {}
        for column in self._record_schema.columns:
            values, flags = self._column(column, before, after)
            if len(before):
                values = values.take(pa.array(order))
                flags = None if flags is None else flags[order]
            if flags is not None:
                flags_of[column.name] = flags
            column.check_nulls(values, flags)
            columns.append(values)
        rows = changes.rows[np.concatenate([old_places, new_places])[order]]
        return DecodedRows(self._target, rows, kinds, columns, flags_of)

    def _column(
        self, column: RecordColumn, before: DecodedColumn, after: DecodedColumn
    ) -> tuple[pa.Array, Flags | None]:
        """Return a column's values in the old images, followed by those in the new images, and the flags."""
        parts = [self._converted(column, image) for image in (before, after) if len(image)]
        if len(parts) == 1:
            return parts[0]
        values = pa.concat_arrays([part for part, _ in parts])
        if all(flags is None for _, flags in parts):
            return values, None
        return values, np.concatenate(
            [np.zeros(len(part), np.bool_) if flags is None else flags for part, flags in parts]
        )

    def _converted(self, column: RecordColumn, image: DecodedColumn) -> tuple[pa.Array, Flags | None]:
        decoded = image.fields.get(column.name)
        if decoded is None:
            return pa.nulls(len(image), column.in_memory), None
        if len(decoded) != len(image):
            raise ValueError("an image that is missing")
        name = (column.name, decoded.type.kind)
        if name not in self._converters:
            self._converters[name] = self._converter(column, decoded)
        return self._converters[name](decoded)

    def _converter(self, column: RecordColumn, decoded: DecodedColumn) -> ColumnConverter:
        schema = self._record_schema
        context = ConversionContext(
            schema.connector, self._settings, schema.placeholders, schema.rounds_inexact_values(column.name)
        )
        return column_converter_for(decoded.type, schema.source_type_of(column.name, UNDECLARED), column, context)


def _comparable(column: DecodedColumn) -> pa.Array:
    values = column.to_arrow()
    return pa.array(values_as_json(column), pa.binary()) if values is None else values


def ops_of(column: DecodedColumn) -> NDArray[np.uint8]:
    """Return the character code of each record's op; 0 for an op of several characters."""
    ops = np.zeros(len(column), np.uint8)
    if column.values is not None:
        one = np.flatnonzero(column.valid)[column.values == 1]
        ops[one] = column.octets[column.ends[column.values == 1] - 1]
    return ops


def constant_columns(columns: Sequence[DecodedColumn | None]) -> tuple[str | None, ...] | None:
    """Return the text of each column that is the same in all rows; None if rows of a column differ."""
    found: list[str | None] = []
    for column in columns:
        if column is None or not column.valid.any():
            found.append(None)
            continue
        if column.values is None or not column.valid.all() or np.any(column.values != column.values[0]):
            return None
        length = int(column.values[0])
        texts = column.octets[(column.ends - length)[:, None] + np.arange(length)]
        if np.any(texts != texts[0]):
            return None
        found.append(texts[0].tobytes().decode())
    return tuple(found)
