"""Decodes many records of one schema at once: JSON to typed structs, structs to columns, columns to Arrow.

It refuses all records together, unless it reads each one exactly as `row_decoder` does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress
from operator import attrgetter
from typing import Any, Final, Literal

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelake.ingest.formats.columnar import garbage_collection_paused, refused_columns
from tidelake.ingest.formats.concatenated_json import concatenate_objects
from tidelake.ingest.formats.debezium.record_key import KeyColumnsCheck
from tidelake.ingest.formats.debezium.row_changes import has_values_outside_key
from tidelake.ingest.formats.decoded_rows import DecodedRows
from tidelake.ingest.formats.record_schema import RecordSchema, ignored_fields
from tidelake.ingest.formats.source_table import SourceTable
from tidelake.ingest.formats.values.conversion import float_hook
from tidelake.ingest.raw_batch import RawBatch
from tidelake.storage.model.format import RowKind

_KIND_OF_OP: Final = np.full(256, -1, np.int8)
_KIND_OF_OP[[ord("c"), ord("r"), ord("u"), ord("d")]] = (
    RowKind.INSERT,
    RowKind.INSERT,
    RowKind.UPDATE_AFTER,
    RowKind.DELETE,
)


class ColumnarDecoder:
    """A decoder of payloads of one record schema.

    by_value: columns that are read value by value, because their column decoder refused values before.

    The constructor raises ValueError if msgspec can't match a column's name.
    """

    def __init__(
        self, record_schema: RecordSchema, source: SourceTable, by_value: frozenset[str] = frozenset()
    ) -> None:
        self.record_schema = record_schema
        self.by_value = by_value
        self._decoders = [
            column.by_value if column.decode_column is None or column.name in by_value else column.decode_column
            for column in record_schema.columns
        ]
        fields: list[Any] = [
            (f"f{i}", decoder.json_type, msgspec.field(default=None, name=column.name))
            for i, (column, decoder) in enumerate(zip(record_schema.columns, self._decoders, strict=True))
        ]
        ignored = ignored_fields(record_schema.target)
        image = msgspec.defstruct("Image", fields + ignored, forbid_unknown_fields=True, gc=False)
        key = msgspec.defstruct("Key", [fields[place] for place in record_schema.primary_key_places], gc=False)

        def decoder_of(before: Any) -> Callable[[bytes | memoryview], list[Any]]:
            envelope = msgspec.defstruct(
                "Envelope",
                [
                    ("op", Literal["c", "r", "u", "d"]),
                    ("before", before | None, None),
                    ("after", image | None, None),
                    ("source", *_exact_source(source, record_schema.connector)),
                    ("schema", msgspec.UnsetType, msgspec.UNSET),  # refused: the record would have a payload inside
                ],
                gc=False,
                kw_only=True,
            )
            # The hook keeps all digits of numbers in untyped (decimal) columns.
            return msgspec.json.Decoder(envelope, float_hook=float_hook).decode_lines

        self._decode_whole = decoder_of(image)
        self._decode_old_keys = decoder_of(key)
        # Old images are half of a record, and most tables need only the key of an update's old image.
        self._needs_old_images = (
            record_schema.target.emit_update_before
            or record_schema.needs_old_images
            or record_schema.needs_old_images_of_deletes
        )
        names = record_schema.target.schema.names
        # One getter for each field: a getter of several fields would create a tuple for each record.
        self._key_fields = [attrgetter(f"f{names.index(name)}") for name in record_schema.target.schema.primary_keys]
        self._keys = KeyColumnsCheck(record_schema.key_columns)
        self._fields_outside_key = [f"f{i}" for i, name in enumerate(names) if name not in record_schema.key_columns]

    def read(self, batch: RawBatch, rows: NDArray[np.int64], prefix: bytes = b"") -> DecodedRows:
        """Return the rows of n records, without the old keys of moved rows.

        rows (n,): the records' rows in the batch.
        prefix: the beginning of each value before its payload (see `concatenate_objects`).

        Raises one of COLUMNAR_FAILURES if a record must be read by the row decoder.
        """
        with garbage_collection_paused():
            return self._read(batch, rows, prefix)

    def _read(self, batch: RawBatch, rows: NDArray[np.int64], prefix: bytes) -> DecodedRows:
        decode = self._decode_whole if self._needs_old_images else self._decode_old_keys
        records = decode(concatenate_objects(batch.values, rows, prefix))
        if len(records) != len(rows):
            raise ValueError("not one record each")
        # Each loop is short and reads one field: any access to a record in Python costs more than parsing it.
        ops = np.frombuffer("".join([record.op for record in records]).encode(), np.uint8)
        befores = [record.before for record in records]
        images = [record.after for record in records]
        deletes = np.flatnonzero(ops == ord("d"))
        if len(deletes):
            old_images: Sequence[Any] = [befores[row] for row in deletes.tolist()]
            if not self._needs_old_images:
                old_images = [
                    o.before for o in self._decode_whole(concatenate_objects(batch.values, rows[deletes], prefix))
                ]
            for row, image in zip(deletes.tolist(), old_images, strict=True):
                images[row] = image
        written, source_rows, kinds = images, np.arange(len(records)), _KIND_OF_OP[ops]
        if self.record_schema.target.emit_update_before:
            written, source_rows, kinds = _with_old_images(befores, images, ops)
        columns, flags = self._columns(written)  # raises if an image is missing
        if self.record_schema.target.compares_keys:
            self._keys.check_all(batch.keys, rows)
        self._check_keys(befores, images, ops, rows, batch.keys)
        return DecodedRows(self.record_schema.target, rows[source_rows], kinds, columns, flags)

    def _columns(self, images: Sequence[Any]) -> tuple[list[pa.Array], dict[str, NDArray[np.bool_]]]:
        arrays, flags_of = [], {}
        columns = list(zip(*map(msgspec.structs.astuple, images), strict=True))  # TypeError for a missing image
        del columns[len(self._decoders) :]  # the last ones are ignored columns
        for column, decoder, values in zip(self.record_schema.columns, self._decoders, columns, strict=True):
            array, flags = decoder.to_arrow(values)
            if flags is not None:
                flags_of[column.name] = flags
            column.check_nulls(array, flags)
            arrays.append(array)
        return arrays, flags_of

    def columns_to_read_by_value(self, payloads: bytes | memoryview) -> frozenset[str]:
        """Return the columns whose column decoders refuse values of these valid records. Slow."""
        image: Any = dict[str, msgspec.Raw] | None
        envelope = msgspec.defstruct("Images", [("before", image, None), ("after", image, None)], gc=False)
        records: list[Any] = msgspec.json.Decoder(envelope).decode_lines(payloads)
        images = [image for record in records for image in (record.before, record.after) if image is not None]
        names = (column.name for column in self.record_schema.columns)
        return refused_columns(zip(names, self._decoders, strict=True), images)

    def _check_keys(
        self,
        befores: Sequence[Any],
        images: Sequence[Any],
        ops: NDArray[np.uint8],
        rows: NDArray[np.int64],
        keys: pa.Array,
    ) -> None:
        """Check that the meaning of the records does not depend on rules that only the row decoder has.

        Updates must keep their primary key. Deletes, and updates without an old image, must have the expected columns
        in their record key. Old images must be complete where the target needs them.

        befores (n,): the old image of each record, or None.
        images (n,): the new image of each record, for a delete the old image.
        ops (n,): character codes of `op`.

        Raises ValueError, or an error of msgspec, if a check fails.
        """
        if not self._key_fields:
            return
        is_update = ops == ord("u")
        lacks_before = is_update & np.frombuffer(bytes([before is None for before in befores]), np.bool_)
        to_compare = is_update & ~lacks_before
        if to_compare.all():
            old, new = befores, images
        else:
            chosen = to_compare.tolist()
            old, new = [*compress(befores, chosen)], [*compress(images, chosen)]
        if any([*map(field_of, old)] != [*map(field_of, new)] for field_of in self._key_fields):
            raise ValueError("an update changes the key")
        deletes = ops == ord("d")
        needs_key = deletes | lacks_before
        if needs_key.any():  # the meaning of these records depends on the columns in their key
            self._keys.check(keys.take(pa.array(rows[needs_key])))
        if self.record_schema.needs_old_images and lacks_before.any():
            raise ValueError("an update without its old image")
        if self.record_schema.needs_old_images_of_deletes:
            for row in np.flatnonzero(deletes).tolist():
                image = images[row]
                if not has_values_outside_key(_json(getattr(image, name)) for name in self._fields_outside_key):
                    raise ValueError("a delete that may know only its key")


def _json(value: Any) -> bytes:
    """Return the JSON of a decoded value. A number with a fraction is its JSON text already."""
    return value if type(value) is bytes else msgspec.json.encode(value)


def _exact_source(source: SourceTable, connector: str) -> tuple[Any, ...]:
    """Return (type, default) of a struct's member `source` that accepts exactly this table and connector."""
    members = {"db": source.database, "schema": source.schema, "table": source.table, "connector": connector or None}
    if not any(members.values()):
        return None, None
    fields: list[Any] = [
        (name, None, None) if value is None else (name, Literal[value]) for name, value in members.items()
    ]
    return (msgspec.defstruct("Source", fields, gc=False, kw_only=True),)


def _with_old_images(
    befores: Sequence[Any], images: Sequence[Any], ops: NDArray[np.uint8]
) -> tuple[list[Any], NDArray[np.int64], NDArray[np.int8]]:
    """Return the images with old images inserted before the new images of updates.

    The result also has the index of each image's record, and the row kinds.
    """
    doubled = (ops == ord("u")) & np.fromiter((before is not None for before in befores), np.bool_, len(befores))
    with_old: list[Any] = []
    for before, image, is_doubled in zip(befores, images, doubled.tolist(), strict=True):
        with_old += (before, image) if is_doubled else (image,)
    source_rows = np.repeat(np.arange(len(images)), 1 + doubled)
    kinds = _KIND_OF_OP[ops][source_rows]
    first_of_two = np.flatnonzero(doubled) + np.arange(np.count_nonzero(doubled))
    kinds[first_of_two] = RowKind.UPDATE_BEFORE
    return with_old, source_rows, kinds
