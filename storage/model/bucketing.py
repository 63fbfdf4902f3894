"""Computes the bucket of a row in its partition.

Source: Java `bucket/*BucketFunction.java`, `bucket/HiveHasher.java`, `schema/SchemaValidation.java` (validateBucket),
`schema/TableSchema.java` (bucketKeys).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelake.errors import BadInput
from tidelake.storage.model.binary_row import hash_rows
from tidelake.storage.model.binary_row.hive_hash import hive_hash_rows
from tidelake.storage.model.format import POSTPONE_BUCKET, UNAWARE_BUCKET
from tidelake.storage.model.schema.table_schema import TableSchema
from tidelake.storage.model.types import CONSTRUCTED_ROOTS, DataType, Root
from tidelake.storage.model.types.arrow_buffers import check_form, fixed_width_values, null_mask, to_single_array

_NO_BUCKET_KEYS: Final = CONSTRUCTED_ROOTS | {Root.VARIANT, Root.BLOB}


class BucketMode(Enum):
    FIXED = auto()  # option bucket >= 1: a function of the bucket key
    UNAWARE = auto()  # -1 on an append table: all rows are in bucket 0, which has no meaning
    DYNAMIC = auto()  # -1 on a primary-key table: an index maps each key to its bucket
    CROSS_PARTITION = auto()  # like DYNAMIC, but a key may also move to another partition
    POSTPONE = auto()  # -2: rows are staged in `bucket-postpone` until a compaction job chooses their buckets


class BucketFunction(StrEnum):
    """Values of option `bucket-function.type`."""

    DEFAULT = "default"
    MOD = "mod"
    HIVE = "hive"


@dataclass(frozen=True)
class Bucketing:
    """How a table assigns rows to buckets.

    num_buckets: the value of option `bucket`. Existing partitions may have another number, which their files record.
    key_columns: the columns that determine the bucket, in order; empty if no columns determine it.
    """

    mode: BucketMode
    num_buckets: int
    key_columns: tuple[str, ...]
    key_types: tuple[DataType, ...]
    function: BucketFunction

    @classmethod
    def of(cls, schema: TableSchema, options: Mapping[str, str]) -> Bucketing:
        """Raise BadInput for options that contradict each other or the schema."""
        mode = bucket_mode(schema, options)
        names = _bucket_key(schema, options, mode)
        bucketing = cls(
            mode,
            _num_buckets(options),
            names,
            tuple(f.type for f in schema.select(names)),
            _function(options),
        )
        if bucketing.function is BucketFunction.MOD and mode is BucketMode.FIXED:
            _check_mod_key(bucketing.key_types)
        return bucketing

    @property
    def total_buckets(self) -> int:
        """The value of `_TOTAL_BUCKETS` in manifest entries of new files, also for -1 and -2."""
        return self.num_buckets

    def bucket_ids(
        self, columns: Sequence[pa.Array | pa.ChunkedArray], *, num_buckets: int | None = None
    ) -> NDArray[np.int32]:
        """Return the bucket of each row of a table with fixed buckets.

        columns: the columns of the bucket key, in order.
        num_buckets: the number of the rows' partition, if it differs from the option's after a rescale.
        """
        count = self.num_buckets if num_buckets is None else num_buckets
        return bucket_ids(columns, self.key_types, count, self.function)


def bucket_mode(schema: TableSchema, options: Mapping[str, str]) -> BucketMode:
    """Return the bucket mode. Raises BadInput for an invalid number of buckets."""
    num_buckets = _num_buckets(options)
    if num_buckets >= 1:
        return BucketMode.FIXED
    if num_buckets == UNAWARE_BUCKET:
        if not schema.has_primary_key:
            return BucketMode.UNAWARE
        crosses = not set(schema.partition_keys) <= set(schema.primary_keys)
        return BucketMode.CROSS_PARTITION if crosses else BucketMode.DYNAMIC
    if num_buckets == POSTPONE_BUCKET and schema.has_primary_key:
        return BucketMode.POSTPONE
    raise BadInput(
        f"option bucket = {num_buckets}: use 1 or more for a fixed number of buckets, -1 to let the writer choose, or "
        "-2 (primary-key tables only) to choose buckets later"
    )


def check_new_table(schema: TableSchema, options: Mapping[str, str]) -> None:
    """Check what Java requires only of new tables, and what `Bucketing.of` requires of all. Raises BadInput.

    An append table with one bucket and no bucket key can be opened (Paimon 0.7 created such tables), but not created.
    """
    bucketing = Bucketing.of(schema, options)
    if bucketing.mode is BucketMode.FIXED and not bucketing.key_columns:
        raise _no_bucket_key(bucketing.num_buckets)


def _num_buckets(options: Mapping[str, str]) -> int:
    text = options.get("bucket", str(UNAWARE_BUCKET))
    try:
        return int(text)
    except ValueError:
        raise BadInput(f"option bucket = {text!r}: expected a whole number") from None


def _function(options: Mapping[str, str]) -> BucketFunction:
    text = options.get("bucket-function.type", BucketFunction.DEFAULT)
    try:
        return BucketFunction(text.strip().lower())
    except ValueError:
        raise BadInput(f"option bucket-function.type = {text!r}: expected one of {', '.join(BucketFunction)}") from None


def _bucket_key(schema: TableSchema, options: Mapping[str, str], mode: BucketMode) -> tuple[str, ...]:
    text = options.get("bucket-key")
    if text is not None and mode not in (BucketMode.FIXED, BucketMode.POSTPONE):
        raise BadInput(f"option bucket-key = {text!r} needs a fixed number of buckets: set bucket, or unset bucket-key")
    names = _named_bucket_key(schema, text) if text is not None and text.strip() else schema.trimmed_primary_keys
    for field in schema.select(names):
        if field.type.root in _NO_BUCKET_KEYS:
            raise BadInput(
                f"column {field.name} {field.type} can't be in the bucket key; set bucket-key to other columns"
            )
    num_buckets = _num_buckets(options)
    if not names and num_buckets > 1:
        raise _no_bucket_key(num_buckets)
    return names


def _named_bucket_key(schema: TableSchema, text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))  # Java does not strip blanks either, so it would not find the column
    for name in names:
        if name not in schema.by_name:
            hint = "; don't put spaces around names" if name.strip() in schema.by_name else ""
            raise BadInput(
                f"option bucket-key = {text!r}: no column {name!r}; the table has {', '.join(schema.names)}{hint}"
            )
        if name in schema.partition_keys:
            raise BadInput(
                f"option bucket-key = {text!r}: {name} is a partition column, whose value is the same in all buckets"
            )
        if schema.has_primary_key and name not in schema.primary_keys:
            raise BadInput(
                f"option bucket-key = {text!r}: {name} is not in the primary key ({', '.join(schema.primary_keys)}); "
                "a row whose value changes would change its bucket"
            )
    return names


def _no_bucket_key(num_buckets: int) -> BadInput:
    return BadInput(
        f"option bucket = {num_buckets} on a table without primary key needs bucket-key, the columns that choose the "
        "bucket; or set bucket = -1"
    )


# ---------------------------------------------------------------- functions


def bucket_ids(
    columns: Sequence[pa.Array | pa.ChunkedArray],
    types: Sequence[DataType],
    num_buckets: int,
    function: str = BucketFunction.DEFAULT,
) -> NDArray[np.int32]:
    """Return the bucket of each row, 0 to num_buckets - 1.

    columns: the bucket key, in the in-memory form of its types.
    function: a value of option `bucket-function.type`. Raises BadInput for types that it does not accept.
    """
    if num_buckets < 1:
        raise ValueError(f"the number of buckets must be 1 or more, not {num_buckets}")
    if num_buckets == 1:
        return np.zeros(len(columns[0]) if columns else 0, np.int32)
    match BucketFunction(function):
        case BucketFunction.DEFAULT:
            remainders = np.fmod(hash_rows(columns, types), np.int32(num_buckets))  # with the sign of Java's remainder
            return np.abs(remainders).astype(np.int32, copy=False)
        case BucketFunction.MOD:
            _check_mod_key(types)
            return _mod(to_single_array(columns[0]), types[0], num_buckets)
        case BucketFunction.HIVE:
            return ((hive_hash_rows(columns, types) & 0x7FFF_FFFF) % num_buckets).astype(np.int32)


def _check_mod_key(types: Sequence[DataType]) -> None:
    if len(types) != 1 or types[0].root not in (Root.INT, Root.BIGINT):
        spelled = ", ".join(map(str, types))
        raise BadInput(f"bucket-function.type = mod needs one INT or BIGINT column, but the bucket key is ({spelled})")


def _mod(column: pa.Array, data_type: DataType, num_buckets: int) -> NDArray[np.int32]:
    check_form(column, data_type)
    values = fixed_width_values(column, np.int32 if data_type.root is Root.INT else np.int64)
    nulls = null_mask(column)
    if nulls is not None:
        values = np.where(nulls, 0, values)
    buckets: NDArray[np.int32] = np.mod(values, num_buckets).astype(np.int32)
    return buckets
