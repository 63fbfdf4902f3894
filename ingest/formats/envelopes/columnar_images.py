"""Decodes row images of many records at once: JSON to typed structs, structs to columns, columns to Arrow.

It refuses all records together, unless it reads each one exactly as `row_changes` does.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import compress, repeat
from operator import attrgetter, is_not
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import UNSET
from numpy.typing import NDArray

from tidelake.ingest.formats.columnar import refused_columns
from tidelake.ingest.formats.decoded_rows import DecodedRows
from tidelake.ingest.formats.envelopes.envelope import Envelope, ImageTypes, Op, RowImages
from tidelake.ingest.formats.envelopes.omitted_columns import Omitted, OmittedColumns
from tidelake.ingest.formats.record_schema import RecordSchema, ignored_fields
from tidelake.ingest.formats.values.conversion import float_hook
from tidelake.storage.model.format import RowKind

_KIND_OF_OP: Final = np.full(max(Op) + 1, -1, np.int8)
_KIND_OF_OP[[Op.INSERT, Op.UPDATE, Op.UPDATE_AFTER, Op.UPDATE_BEFORE, Op.DELETE]] = (
    RowKind.INSERT,
    RowKind.UPDATE_AFTER,
    RowKind.UPDATE_AFTER,
    RowKind.UPDATE_BEFORE,
    RowKind.DELETE,
)


class ColumnarImages:
    """A decoder of row images of records of one shape.

    omitted: the rule for columns that an update leaves out.
    by_value: columns that are read value by value, because their column decoder refused values before.

    The constructor raises ValueError if msgspec can't match a column's name.
    """

    def __init__(
        self, record_schema: RecordSchema, omitted: OmittedColumns, by_value: frozenset[str] = frozenset()
    ) -> None:
        self._record_schema = record_schema
        self._omitted = omitted
        self.by_value = by_value
        self._decoders = [
            column.by_value if column.decode_column is None or column.name in by_value else column.decode_column
            for column in record_schema.columns
        ]
        fields = [
            (f"f{i}", decoder.json_type, msgspec.field(default=UNSET, name=column.name))
            for i, (column, decoder) in enumerate(zip(record_schema.columns, self._decoders, strict=True))
        ]
        ignored = ignored_fields(record_schema.target)
        image = msgspec.defstruct("Image", fields + ignored, forbid_unknown_fields=True, gc=False)
        key = msgspec.defstruct("Key", [fields[place] for place in record_schema.primary_key_places], gc=False)
        # The hook keeps all digits of numbers in untyped (decimal) columns.
        self._images: Any = msgspec.json.Decoder(image, float_hook=float_hook).decode_lines
        self._keys: Any = msgspec.json.Decoder(key, float_hook=float_hook).decode_lines
        target = record_schema.target
        self._keeps_left_out = bool(target.schema.primary_keys) and target.holds_source_rows
        self._wants_old_rows = target.emit_update_before or target.needs_retractions
        # One getter for each field: a getter of several fields would create a tuple for each image.
        self._key_fields = [attrgetter(f"f{place}") for place in record_schema.primary_key_places]
        whole = [(name, type_, msgspec.field(name=field.name)) for name, type_, field in fields]
        self.types = ImageTypes(
            whole=msgspec.defstruct("WholeImage", whole + ignored, forbid_unknown_fields=True, gc=False),
            partial=image,
            old=image if self._wants_old_rows else key,  # most tables need only the key of an update's old image
        )
        self._wants_whole_old_rows = target.needs_retractions or target.is_ordered_by_columns

    def read(self, records: Sequence[Envelope], rows: NDArray[np.int64]) -> DecodedRows:
        """Return the rows of records. rows: the records' rows in the batch. Raises one of COLUMNAR_FAILURES."""
        return self.read_images(_images_of(records, self._record_schema.by_name), rows, records[0])

    def read_images(self, images: RowImages, rows: NDArray[np.int64], like: Envelope) -> DecodedRows:
        """Return the rows of images.

        images: raw, or decoded into the structs of `types`.
        rows: the records' rows in the batch.
        like: one of the records.

        Raises one of COLUMNAR_FAILURES.
        """
        new, old, codes, counts = images
        is_update = codes == Op.UPDATE
        columns = self._columns_of(new)
        given = [raw for raw in old if raw is not None]
        has_old = np.fromiter(map(is_not, old, repeat(None)), np.bool_, len(old))
        if np.any(is_update & ~has_old) and self._wants_old_rows:
            raise ValueError("an update without its old image")
        if given:
            if self._record_schema.target.needs_retractions and not self._omitted.knows_old_values(type(like)):
                raise ValueError("old images that may not be whole")
            self._check_keys(columns, given, has_old)
        is_update |= codes == Op.UPDATE_AFTER
        left_out: dict[str, NDArray[np.bool_]] = {}
        if not new or type(new[0]) is not self.types.whole:
            columns, left_out = self._fill_omitted_columns(columns, is_update, given, has_old, like)
        kinds = _KIND_OF_OP[codes]
        source_rows = np.repeat(rows, counts)
        if given and self._record_schema.target.emit_update_before:
            return self._with_old_rows(columns, given, has_old, kinds, source_rows, left_out, like)
        return self._decoded(columns, kinds, source_rows, left_out)

    def _columns_of(self, images: Sequence[Any]) -> list[Sequence[Any]]:
        """Return the values of the table's columns, in the table's order."""
        columns = _columns(self._images(b"".join(images)) if _are_raw_values(images) else images, len(images))
        del columns[len(self._decoders) :]  # the last ones are ignored columns
        return columns

    def _old_columns_of(self, given: Sequence[Any]) -> list[Sequence[Any]]:
        """Return the values of the table's columns in old images. Raises ValueError if only keys were decoded."""
        if not _are_raw_values(given) and not isinstance(given[0], self.types.partial):
            raise ValueError("old images of which only the key was read")
        return self._columns_of(given)

    def columns_to_read_by_value(self, records: Sequence[Envelope]) -> frozenset[str]:
        """Return the columns whose column decoders refuse values of these valid records. Slow."""
        raw_images: Any = msgspec.json.Decoder(dict[str, msgspec.Raw])
        images = [
            raw_images.decode(raw)
            for record in records
            for new_or_old in record.images(self._record_schema.by_name)
            for raw in new_or_old or ()
            if bytes(raw) != b"null"
        ]
        names = (column.name for column in self._record_schema.columns)
        return refused_columns(zip(names, self._decoders, strict=True), images)

    def _check_keys(
        self, columns: Sequence[Sequence[Any]], given: Sequence[msgspec.Raw], has_old: NDArray[np.bool_]
    ) -> None:
        """Raise ValueError if an update may change the primary key. Such a record must be read alone."""
        if not self._record_schema.primary_key:
            return
        if _are_raw_values(given):
            old_keys = _columns(self._keys(b"".join(given)), len(given))
        else:
            old_keys = [[*map(field_of, given)] for field_of in self._key_fields]
        flags = has_old.tolist()
        for place, old in zip(self._record_schema.primary_key_places, old_keys, strict=True):
            if old.count(UNSET) == len(old):
                continue
            for before, after in zip(old, compress(columns[place], flags), strict=True):
                if before is not UNSET and before is not None and before != after:
                    raise ValueError("an update that may change the key")

    def _fill_omitted_columns(
        self,
        columns: list[Sequence[Any]],
        is_update: NDArray[np.bool_],
        given: Sequence[Any],
        has_old: NDArray[np.bool_],
        like: Envelope,
    ) -> tuple[list[Sequence[Any]], dict[str, NDArray[np.bool_]]]:
        """Return the columns with nulls for missing values, and flags of missing values that did not change.

        given: the old images, of the records for which `has_old` is True.

        Raises ValueError if a record must be read alone.
        """
        left_out: dict[str, NDArray[np.bool_]] = {}
        old_columns: list[Sequence[Any]] | None = None
        for place, column in enumerate(self._record_schema.columns):
            values = columns[place]
            if UNSET not in values:
                continue
            flags = np.fromiter((value is UNSET for value in values), np.bool_, len(values))
            if column.in_primary_key or (self._wants_whole_old_rows and np.any(flags & ~is_update)):
                raise ValueError("an image that lacks what it must have")
            columns[place] = [None if value is UNSET else value for value in values]
            unchanged = flags & is_update & (self._omitted.otherwise is Omitted.UNCHANGED)
            if np.any(flags & has_old):
                if not like.OLD_LISTS_CHANGES:
                    raise ValueError("a new image whose old one may know more")
                if old_columns is None:
                    old_columns = self._old_columns_of(given)
                unchanged[has_old] &= np.fromiter((v is UNSET for v in old_columns[place]), np.bool_, len(given))
            if self._keeps_left_out and np.any(unchanged):
                left_out[column.name] = unchanged
        return columns, left_out

    def _with_old_rows(
        self,
        columns: Sequence[Sequence[Any]],
        given: Sequence[msgspec.Raw],
        has_old: NDArray[np.bool_],
        kinds: NDArray[np.int8],
        source_rows: NDArray[np.int64],
        left_out: dict[str, NDArray[np.bool_]],
        like: Envelope,
    ) -> DecodedRows:
        """Return the rows with a -U row before each +U row that has an old image."""
        flags = has_old.tolist()
        both: list[Sequence[Any]] = []
        for new, old in zip(columns, self._columns_of(given), strict=True):
            if UNSET in old:
                if not like.OLD_IS_PARTIAL or left_out:
                    raise ValueError("an old image that lacks columns")
                completed = zip(old, compress(new, flags), strict=True)
                both.append([*new, *(after if before is UNSET else before for before, after in completed)])
            else:
                both.append([*new, *old])
        n = len(kinds)
        order = np.argsort(np.concatenate([np.arange(n), np.flatnonzero(has_old) - 0.5]), kind="stable")
        kinds = np.concatenate([kinds, np.full(len(given), RowKind.UPDATE_BEFORE, np.int8)])[order]
        source_rows = np.concatenate([source_rows, source_rows[has_old]])[order]
        all_present = np.zeros(len(given), np.bool_)
        left_out = {name: np.concatenate([of_new, all_present])[order] for name, of_new in left_out.items()}
        return self._decoded(both, kinds, source_rows, left_out, pa.array(order))

    def _decoded(
        self,
        columns: Sequence[Sequence[Any]],
        kinds: NDArray[np.int8],
        source_rows: NDArray[np.int64],
        left_out: dict[str, NDArray[np.bool_]],
        order: pa.Array | None = None,
    ) -> DecodedRows:
        arrays = []
        for column, decoder, values in zip(self._record_schema.columns, self._decoders, columns, strict=True):
            array, _ = decoder.to_arrow(values)
            column.check_nulls(array, left_out.get(column.name))
            arrays.append(array if order is None else array.take(order))
        return DecodedRows(self._record_schema.target, source_rows, kinds, arrays, left_out)


def _are_raw_values(images: Sequence[Any]) -> bool:
    return bool(images) and type(images[0]) is msgspec.Raw


def _images_of(records: Sequence[Envelope], names: Collection[str]) -> RowImages:
    new: list[msgspec.Raw] = []
    old: list[msgspec.Raw | None] = []
    ops: list[Op] = []
    counts: list[int] = []
    for record in records:
        op = record.event()
        if not isinstance(op, Op) or op is Op.TRUNCATE:
            raise ValueError("no row change")
        images, old_images = record.images(names)
        n = len(images)
        new += images
        old += [None] * n if old_images is None else old_images
        ops += [op] * n
        counts.append(n)
    if len(old) != len(new):
        raise ValueError("more old images than new ones, or fewer")
    return new, old, np.fromiter(ops, np.int8, len(ops)), counts


def _columns(images: Sequence[Any], n: int) -> list[Sequence[Any]]:
    if len(images) != n:
        raise ValueError("not one image each")
    return list(zip(*map(msgspec.structs.astuple, images), strict=True))
