"""Row images of many records at once: JSON into typed structs, structs into columns, columns into Arrow.

Takes only what it reads exactly as `row_changes` would, and refuses the whole lot otherwise.
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

from ingest.formats.columnar import refused_columns
from ingest.formats.decoded_rows import DecodedRows
from ingest.formats.envelopes.envelope import Envelope, ImageTypes, Op, RowImages
from ingest.formats.record_schema import RecordSchema, ignored_fields
from ingest.formats.values.column_decoders import float_hook
from storage.format import RowKind

_KIND_OF_OP: Final = np.full(max(Op) + 1, -1, np.int8)
_KIND_OF_OP[[Op.INSERT, Op.UPDATE, Op.UPDATE_AFTER, Op.UPDATE_BEFORE, Op.DELETE]] = (
    RowKind.INSERT,
    RowKind.UPDATE_AFTER,
    RowKind.UPDATE_AFTER,
    RowKind.UPDATE_BEFORE,
    RowKind.DELETE,
)


class ColumnarImages:
    """Reads the images of one shape. Raises ValueError on construction when a column's name can't be matched fast.

    by_value: columns whose values are known to be beyond their column decoder; they are read value by value.
    """

    def __init__(self, record_schema: RecordSchema, by_value: frozenset[str] = frozenset()) -> None:
        self._record_schema = record_schema
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
        # Numbers of untyped (decimal) columns keep their digits.
        self._images: Any = msgspec.json.Decoder(image, float_hook=float_hook).decode_lines
        self._keys: Any = msgspec.json.Decoder(key, float_hook=float_hook).decode_lines
        target = record_schema.target
        self._keeps_left_out = bool(target.schema.primary_keys) and target.holds_source_rows
        self._wants_old_rows = target.emit_update_before or target.needs_retractions
        # a getter each: one of several fields makes a tuple an image
        self._key_fields = [attrgetter(f"f{place}") for place in record_schema.primary_key_places]
        whole = [(name, type_, msgspec.field(name=field.name)) for name, type_, field in fields]
        self.types = ImageTypes(
            whole=msgspec.defstruct("WholeImage", whole + ignored, forbid_unknown_fields=True, gc=False),
            partial=image,
            old=image if self._wants_old_rows else key,  # of updates mostly nothing but the key counts
        )
        self._wants_whole_old_rows = target.needs_retractions or target.is_ordered_by_columns

    def read(self, records: Sequence[Envelope], rows: NDArray[np.int64]) -> DecodedRows:
        """The rows of these records. rows: where they are in the batch. Raises one of NOT_COLUMNAR."""
        return self.read_images(_images_of(records, self._record_schema.by_name), rows, records[0])

    def read_images(self, images: RowImages, rows: NDArray[np.int64], like: Envelope) -> DecodedRows:
        """The same of images, raw or decoded into `types`. like: one of the records."""
        new, old, codes, counts = images
        is_update = codes == Op.UPDATE
        columns = self._columns_of(new)
        given = [raw for raw in old if raw is not None]
        has_old = np.fromiter(map(is_not, old, repeat(None)), np.bool_, len(old))
        if np.any(is_update & ~has_old) and self._wants_old_rows:
            raise ValueError("an update without its old image")
        if given:
            if self._record_schema.target.needs_retractions and not like.KNOWS_OLD_ROWS:
                raise ValueError("old images that may not be whole")
            self._check_keys(columns, given, has_old)
        is_update |= codes == Op.UPDATE_AFTER
        left_out: dict[str, NDArray[np.bool_]] = {}
        if not new or type(new[0]) is not self.types.whole:
            columns, left_out = self._without_left_out(columns, is_update, has_old, like)
        kinds = _KIND_OF_OP[codes]
        source_rows = np.repeat(rows, counts)
        if given and self._record_schema.target.emit_update_before:
            return self._with_old_rows(columns, given, has_old, kinds, source_rows, left_out, like)
        return self._decoded(columns, kinds, source_rows, left_out)

    def _columns_of(self, images: Sequence[Any]) -> list[Sequence[Any]]:
        """Those of the table, in its order."""
        columns = _columns(self._images(b"".join(images)) if _are_raw(images) else images, len(images))
        del columns[len(self._decoders) :]  # ignored ones
        return columns

    def columns_to_read_by_value(self, records: Sequence[Envelope]) -> frozenset[str]:
        """Which columns of these good records their decoders refuse. Not fast itself."""
        raw_images: Any = msgspec.json.Decoder(dict[str, msgspec.Raw])
        images = [
            raw_images.decode(raw)
            for record in records
            for some in record.images(self._record_schema.by_name)
            for raw in some or ()
            if bytes(raw) != b"null"
        ]
        names = (column.name for column in self._record_schema.columns)
        return refused_columns(zip(names, self._decoders, strict=True), images)

    def _check_keys(
        self, columns: Sequence[Sequence[Any]], given: Sequence[msgspec.Raw], has_old: NDArray[np.bool_]
    ) -> None:
        """Every update must keep its key; else reading it alone decides."""
        if not self._record_schema.primary_key:
            return
        if _are_raw(given):
            old_keys = _columns(self._keys(b"".join(given)), len(given))
        else:
            old_keys = [[*map(of, given)] for of in self._key_fields]
        flags = has_old.tolist()
        for place, old in zip(self._record_schema.primary_key_places, old_keys, strict=True):
            if old.count(UNSET) == len(old):
                continue
            for before, after in zip(old, compress(columns[place], flags), strict=True):
                if before is not UNSET and before is not None and before != after:
                    raise ValueError("an update that may change the key")

    def _without_left_out(
        self, columns: list[Sequence[Any]], is_update: NDArray[np.bool_], has_old: NDArray[np.bool_], like: Envelope
    ) -> tuple[list[Sequence[Any]], dict[str, NDArray[np.bool_]]]:
        """Columns that images leave out as nulls, and which of these are values that did not change."""
        left_out: dict[str, NDArray[np.bool_]] = {}
        for place, column in enumerate(self._record_schema.columns):
            values = columns[place]
            if UNSET not in values:
                continue
            flags = np.fromiter((value is UNSET for value in values), np.bool_, len(values))
            if column.in_primary_key or (self._wants_whole_old_rows and np.any(flags & ~is_update)):
                raise ValueError("an image that lacks what it must have")
            if not like.OLD_IS_PARTIAL and np.any(flags & has_old):
                raise ValueError("a new image whose old one may know more")
            columns[place] = [None if value is UNSET else value for value in values]
            if self._keeps_left_out and np.any(flags & is_update):
                left_out[column.name] = flags & is_update
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
        """A -U before each +U."""
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
        left_out = {name: np.concatenate([of, np.zeros(len(given), np.bool_)])[order] for name, of in left_out.items()}
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
            cells, _ = decoder.to_arrow(values)
            column.check_nulls(cells, left_out.get(column.name))
            arrays.append(cells if order is None else cells.take(order))
        return DecodedRows(self._record_schema.target, source_rows, kinds, arrays, left_out)


def _are_raw(images: Sequence[Any]) -> bool:
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
