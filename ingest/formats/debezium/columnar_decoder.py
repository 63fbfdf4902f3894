"""Many records of one schema at once: JSON into typed structs, structs into columns, columns into Arrow.

Takes only what it reads exactly as `row_decoder` would, and refuses the whole lot otherwise.
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

from ingest.formats.columnar import garbage_collection_paused, refused_columns
from ingest.formats.concatenated_json import concatenate_objects
from ingest.formats.debezium.record_key import KeyColumnsCheck
from ingest.formats.debezium.replica_identity import has_values_outside_key
from ingest.formats.decoded_rows import DecodedRows
from ingest.formats.record_schema import RecordSchema, ignored_fields
from ingest.formats.source_table import SourceTable
from ingest.formats.values.column_decoders import float_hook
from ingest.raw_batch import RawBatch
from storage.format import RowKind

_KIND_OF_OP: Final = np.full(256, -1, np.int8)
_KIND_OF_OP[[ord("c"), ord("r"), ord("u"), ord("d")]] = (
    RowKind.INSERT,
    RowKind.INSERT,
    RowKind.UPDATE_AFTER,
    RowKind.DELETE,
)


class ColumnarDecoder:
    """Reads payloads of one record schema. Raises ValueError on construction when a column's name can't be matched
    fast.

    by_value: columns whose values are known to be beyond their column decoder; they are read value by value.
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
                    ("source", *_only(source, record_schema.connector)),
                    ("schema", msgspec.UnsetType, msgspec.UNSET),  # its presence would mean a payload inside
                ],
                gc=False,
                kw_only=True,
            )
            # Numbers of untyped (decimal) columns keep their digits.
            return msgspec.json.Decoder(envelope, float_hook=float_hook).decode_lines

        self._decode_whole = decoder_of(image)
        self._decode_old_keys = decoder_of(key)
        # Old images are half of a record, and of updates mostly nothing but the key counts.
        self._needs_old_images = (
            record_schema.target.emit_update_before
            or record_schema.needs_old_images
            or record_schema.needs_old_images_of_deletes
        )
        names = record_schema.target.schema.names
        # a getter each: one of several fields makes a tuple a record
        self._key_fields = [attrgetter(f"f{names.index(name)}") for name in record_schema.target.schema.primary_keys]
        self._keys = KeyColumnsCheck(record_schema.key_columns)
        self._fields_outside_key = [f"f{i}" for i, name in enumerate(names) if name not in record_schema.key_columns]

    def read(self, batch: RawBatch, rows: NDArray[np.int64], prefix: bytes = b"") -> DecodedRows:
        """The rows of n records. Old keys of moved rows are left out. Raises one of NOT_COLUMNAR.

        rows (n,): where they are in the batch.
        prefix: what each value begins with, in front of its payload (see `concatenate_objects`).
        """
        with garbage_collection_paused():
            return self._read(batch, rows, prefix)

    def _read(self, batch: RawBatch, rows: NDArray[np.int64], prefix: bytes) -> DecodedRows:
        decode = self._decode_whole if self._needs_old_images else self._decode_old_keys
        records = decode(concatenate_objects(batch.values, rows, prefix))
        if len(records) != len(rows):
            raise ValueError("not one record each")
        # Short loops over one field each: what touches a record costs more than the parser took to make it.
        ops = np.frombuffer("".join([record.op for record in records]).encode(), np.uint8)
        befores = [record.before for record in records]
        images = [record.after for record in records]
        deletes = np.flatnonzero(ops == ord("d"))
        if len(deletes):
            olds: Sequence[Any] = [befores[row] for row in deletes.tolist()]
            if not self._needs_old_images:
                olds = [o.before for o in self._decode_whole(concatenate_objects(batch.values, rows[deletes], prefix))]
            for row, image in zip(deletes.tolist(), olds, strict=True):
                images[row] = image
        written, source_rows, kinds = images, np.arange(len(records)), _KIND_OF_OP[ops]
        if self.record_schema.target.emit_update_before:
            written, source_rows, kinds = _with_old_images(befores, images, ops)
        columns, flags = self._columns(written)  # from here on no image is missing
        self._check_keys(befores, images, ops, rows, batch.keys)
        return DecodedRows(self.record_schema.target, rows[source_rows], kinds, columns, flags)

    def _columns(self, images: Sequence[Any]) -> tuple[list[pa.Array], dict[str, NDArray[np.bool_]]]:
        columns, flags_of = [], {}
        by_column = list(zip(*map(msgspec.structs.astuple, images), strict=True))  # a missing image is a TypeError
        del by_column[len(self._decoders) :]  # of ignored columns
        for column, decoder, values in zip(self.record_schema.columns, self._decoders, by_column, strict=True):
            cells, flags = decoder.to_arrow(values)
            if flags is not None:
                flags_of[column.name] = flags
            column.check_nulls(cells, flags)
            columns.append(cells)
        return columns, flags_of

    def columns_to_read_by_value(self, payloads: bytes | memoryview) -> frozenset[str]:
        """Which columns of these good records their decoders refuse. Not fast itself."""
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
        """Every update must keep its key, every row that goes must be named whole; else the row decoder decides.

        befores, images (n,): the old image of each record or None, and the one that it leaves: of a delete the old one.
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
        if any([*map(of, old)] != [*map(of, new)] for of in self._key_fields):
            raise ValueError("an update changes the key")
        deletes = ops == ord("d")
        by_record_key = deletes | lacks_before
        if by_record_key.any():  # what these mean depends on the columns in the record's key
            self._keys.check(keys.take(pa.array(rows[by_record_key])))
        if self.record_schema.needs_old_images and lacks_before.any():
            raise ValueError("an update without its old image")
        if self.record_schema.needs_old_images_of_deletes:
            for row in np.flatnonzero(deletes).tolist():
                image = images[row]
                if not has_values_outside_key(_json(getattr(image, name)) for name in self._fields_outside_key):
                    raise ValueError("a delete that may know only its key")


def _json(value: Any) -> bytes:
    """A decoded value as JSON again; numbers with a fraction are their text already."""
    return value if type(value) is bytes else msgspec.json.encode(value)


def _only(source: SourceTable, connector: str) -> tuple[Any, ...]:
    """(type, default) of a `source` that names exactly this table; with any other the record fails to decode."""
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
    """Images with a -U before each +U that has one, the record each came from, and the kinds."""
    doubled = (ops == ord("u")) & np.fromiter((before is not None for before in befores), np.bool_, len(befores))
    with_old: list[Any] = []
    for before, image, is_doubled in zip(befores, images, doubled.tolist(), strict=True):
        with_old += (before, image) if is_doubled else (image,)
    source_rows = np.repeat(np.arange(len(images)), 1 + doubled)
    kinds = _KIND_OF_OP[ops][source_rows]
    first_of_two = np.flatnonzero(doubled) + np.arange(np.count_nonzero(doubled))
    kinds[first_of_two] = RowKind.UPDATE_BEFORE
    return with_old, source_rows, kinds
