"""The kinds of indexes: their column types, options, writers and readers.

Source: Java `fileindex/*/*Factory.java`, `FileIndexerFactory.java`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from tidelake.errors import BadInput
from tidelake.storage.files.file_index.bit_sliced import BitSlicedIndex, BitSlicedWriter
from tidelake.storage.files.file_index.bitmap import VERSION_1, VERSION_2, BitmapIndex, BitmapWriter
from tidelake.storage.files.file_index.bloom_filter import BloomFilterIndex, BloomFilterWriter, bit_count
from tidelake.storage.files.file_index.column_index import ColumnIndex, EmptyIndex, IndexWriter, index_errors
from tidelake.storage.files.file_index.indexed_values import LONG_DECIMAL_DIGITS, MICROSECOND_DIGITS
from tidelake.storage.files.file_index.range_bitmap import RangeBitmapIndex, RangeBitmapWriter
from tidelake.storage.model.options.values import parse_fraction, parse_int, parse_size_bytes
from tidelake.storage.model.types import (
    BINARY_ROOTS,
    INTEGER_ROOTS,
    STRING_ROOTS,
    TIMESTAMP_ROOTS,
    AtomicType,
    DataType,
    Root,
)

T = TypeVar("T")

_NUMBER_ROOTS: Final = frozenset({*INTEGER_ROOTS, Root.DATE, Root.TIME, *TIMESTAMP_ROOTS})
_FLOAT_ROOTS: Final = frozenset({Root.FLOAT, Root.DOUBLE})
_SMALL_ROOTS: Final = frozenset({Root.BOOLEAN, Root.TINYINT, Root.SMALLINT})
_BITS_MAX: Final = 2**31 - 8  # bits of a Bloom filter, which Java counts in 32 bits


@dataclass(frozen=True, slots=True)
class IndexKind:
    """A kind of index.

    name: its name in options and containers.
    options: the names of its options.
    takes: whether values of a type can be indexed.
    writer: makes a writer for a column of a supported type. Raises BadInput, with the option but without its column.
    reader: makes a reader. May raise ValueError, struct.error or IndexError for invalid bytes.
    """

    name: str
    options: frozenset[str]
    takes: Callable[[AtomicType], bool]
    writer: Callable[[AtomicType, Mapping[str, str]], IndexWriter]
    reader: Callable[[bytes, AtomicType], ColumnIndex]

    def supports(self, data_type: DataType) -> bool:
        return isinstance(data_type, AtomicType) and self.takes(data_type)


def _bloom_filter(data_type: AtomicType, options: Mapping[str, str]) -> IndexWriter:
    items = _option(options, "items", parse_int, 1_000_000)
    false_positives = _option(options, "fpp", parse_fraction, 0.1)
    if items < 1:
        raise BadInput(f"items = {items}: expected the number of distinct values of a file, 1 or more")
    if not 0 < false_positives < 1:
        raise BadInput(f"fpp = {false_positives}: expected a share between 0 and 1")
    if bit_count(items, false_positives) > _BITS_MAX:
        raise BadInput(f"items = {items}, fpp = {false_positives}: the filter would have more bits than 32 bits count")
    return BloomFilterWriter(data_type, items, false_positives)


def _bitmap(data_type: AtomicType, options: Mapping[str, str]) -> IndexWriter:
    version = _option(options, "version", parse_int, VERSION_2)
    if version not in (VERSION_1, VERSION_2):
        raise BadInput(f"version = {version}: expected 1 or 2")
    return BitmapWriter(data_type, version, _option(options, "index-block-size", parse_size_bytes, 16 * 1024))


def _range_bitmap(data_type: AtomicType, options: Mapping[str, str]) -> IndexWriter:
    default = 0 if data_type.root in _SMALL_ROOTS else 16 * 1024
    return RangeBitmapWriter(data_type, _option(options, "chunk-size", parse_size_bytes, default))


def _option(options: Mapping[str, str], name: str, parse: Callable[[str], T], default: T) -> T:
    text = options.get(name)
    if text is None:
        return default
    try:
        return parse(text)
    except BadInput as error:
        raise BadInput(f"{name} = {text!r}: {error}") from None


def _in_bloom_filter(data_type: AtomicType) -> bool:
    return data_type.root in _NUMBER_ROOTS | _FLOAT_ROOTS | STRING_ROOTS | (BINARY_ROOTS - {Root.BLOB})


def _in_bitmap(data_type: AtomicType) -> bool:
    return data_type.root in _NUMBER_ROOTS | _FLOAT_ROOTS | STRING_ROOTS | {Root.BOOLEAN}


def _in_bit_slices(data_type: AtomicType) -> bool:
    return data_type.root in _NUMBER_ROOTS or _is_long_decimal(data_type)


def _in_range_bitmap(data_type: AtomicType) -> bool:
    if data_type.root in TIMESTAMP_ROOTS:
        return data_type.precision <= MICROSECOND_DIGITS
    return _in_bitmap(data_type) or _is_long_decimal(data_type)


def _is_long_decimal(data_type: AtomicType) -> bool:
    return data_type.root is Root.DECIMAL and data_type.precision <= LONG_DECIMAL_DIGITS


KINDS: Final = {
    kind.name: kind
    for kind in (
        IndexKind("bloom-filter", frozenset({"items", "fpp"}), _in_bloom_filter, _bloom_filter, BloomFilterIndex),
        IndexKind("bitmap", frozenset({"version", "index-block-size"}), _in_bitmap, _bitmap, BitmapIndex),
        IndexKind("bsi", frozenset(), _in_bit_slices, lambda kind, _: BitSlicedWriter(kind), BitSlicedIndex),
        IndexKind("range-bitmap", frozenset({"chunk-size"}), _in_range_bitmap, _range_bitmap, RangeBitmapIndex),
    )
}


def open_index(kind: str, data: bytes | None, data_type: DataType, path: str) -> ColumnIndex | None:
    """Open an index. Returns None for an unknown kind, and for a type that the kind does not support.

    data: the bytes of the index; None if nothing was written for the column.

    Raises CorruptFile.
    """
    if data is None:
        return EmptyIndex()
    found = KINDS.get(kind)
    if found is None or not isinstance(data_type, AtomicType) or not found.takes(data_type):
        return None
    with index_errors(path, kind):
        return found.reader(data, data_type)
