"""Key columns as machine words, so that NumPy can sort, compare and search rows by key.

A column becomes one or more arrays of 64-bit words; comparing rows word by word, as integers, gives Paimon's key
order, and equal words are equal keys. Words stand for themselves: rows of different files compare through them.

    integers, dates, times, timestamps     the value, int64
    DECIMAL up to 18 digits                the unscaled value, int64; longer ones two words, high then low
    FLOAT, DOUBLE                          the bits, folded so that -inf < .. < -0.0 < 0.0 < .. < inf < NaN (one NaN)
    strings and bytes                      groups of 7 bytes and a mark: the number of bytes in the last group, 8 where
                                           more follow. Words past the end are 0, so columns of unlike widths line up.
    nullable columns                       one word before the others: 0 for null, 1 else (nulls are smallest)

Source of the order: data-files notes 1.3; Java `codegen/GenerateUtils.scala`. The words are ours and never stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from storage.errors import UnsupportedFeature

Word: TypeAlias = NDArray[Any]  # (n,) int64 or uint64
ColumnWords: TypeAlias = tuple[Word, ...]
RowWords: TypeAlias = tuple[Word, ...]

_BYTES_PER_WORD = 7
_CONTINUES = 8


def column_words(column: pa.Array, *, nullable: bool, descending: bool = False) -> ColumnWords:
    """Order words of one column.

    nullable: whether nulls may occur, here or in other batches these words will be compared with.
    descending: turn the order of values around. Nulls stay smallest: so Java sorts by `sequence.field.sort-order`.
    Raises UnsupportedFeature for types without an order (nested ones, VARIANT).
    """
    words = _value_words(column)
    if descending:
        words = tuple(~word for word in words)
    if nullable:
        present = column.is_valid().to_numpy(zero_copy_only=False)
        words = (present.astype(np.uint64), *(np.where(present, word, word.dtype.type(0)) for word in words))
    return words


def aligned_words(batches: Sequence[Sequence[ColumnWords]]) -> list[RowWords]:
    """Words of many batches, made equally many for each column.

    batches: per batch, per column, its words. Returns per batch all its words, most significant first.
    """
    if not batches:
        return []
    widths = [max(len(words) for words in column) for column in zip(*batches, strict=True)]
    return [
        tuple(chain.from_iterable(_padded(words, width) for words, width in zip(columns, widths, strict=True)))
        for columns in batches
    ]


def count_up_to(words: RowWords, last: Sequence[Any]) -> int:
    """How many rows of a sorted batch have a key <= `last` (one number a word)."""
    start, stop = 0, len(words[0])
    for word, bound in zip(words, last, strict=True):
        part = word[start:stop]
        exact = word.dtype.type(bound)  # a Python int would meet uint64 as a float, and lose its last digits
        below = int(np.searchsorted(part, exact, side="left"))
        equal = int(np.searchsorted(part, exact, side="right"))
        if below == equal:
            return start + below
        start, stop = start + below, start + equal
    return stop


def _padded(words: ColumnWords, width: int) -> ColumnWords:
    missing = width - len(words)
    return words + (np.zeros(len(words[0]), np.uint64),) * missing if missing else words


def _value_words(column: pa.Array) -> ColumnWords:
    kind = column.type
    if pa.types.is_boolean(kind):
        return (column.cast(pa.int8()).fill_null(0).to_numpy().astype(np.int64),)
    if pa.types.is_floating(kind):
        return (_float_words(_fixed_width(column, np.float32 if pa.types.is_float32(kind) else np.float64)),)
    if pa.types.is_decimal128(kind):
        halves = _buffer(column, 1, np.int64)[2 * column.offset : 2 * (column.offset + len(column))].reshape(-1, 2)
        low = np.ascontiguousarray(halves[:, 0])
        return (low,) if kind.precision <= 18 else (np.ascontiguousarray(halves[:, 1]), low.view(np.uint64))
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _bytes_words(column)
    if pa.types.is_primitive(kind):
        return (_fixed_width(column, np.dtype(f"i{kind.bit_width // 8}")).astype(np.int64, copy=False),)
    raise UnsupportedFeature(f"ordering by a column of type {kind}", "it has no order", "choose another column")


def _buffer(column: pa.Array, index: int, dtype: Any) -> NDArray[Any]:
    buffer = column.buffers()[index]
    return np.frombuffer(buffer, dtype) if buffer is not None and buffer.size else np.zeros(0, dtype)


def _fixed_width(column: pa.Array, dtype: Any) -> NDArray[Any]:
    """The values as they lie in memory; what stands under a null is arbitrary."""
    return _buffer(column, 1, dtype)[column.offset : column.offset + len(column)]


def _float_words(values: NDArray[Any]) -> Word:
    doubles = values.astype(np.float64)  # widening keeps the order, and always copies
    doubles[np.isnan(doubles)] = np.nan
    bits = doubles.view(np.int64)
    return np.where(bits < 0, bits ^ np.int64(2**63 - 1), bits)


def _bytes_words(column: pa.Array) -> ColumnWords:
    offsets = _buffer(column, 1, np.int32)[column.offset : column.offset + len(column) + 1].astype(np.int64)
    if len(column) == 0:
        return (np.zeros(0, np.uint64),)
    begin, lengths = offsets[:-1], np.diff(offsets)
    longest = int(lengths.max())
    used = _buffer(column, 2, np.uint8)[: int(offsets[-1])]
    text = np.zeros(len(used) + longest + 8, np.uint8)  # so that the 8 bytes read below always exist
    text[: len(used)] = used
    eight_from = np.ndarray((len(text) - 7,), dtype=">u8", buffer=text, strides=(1,))
    words = []
    for group in range(max(1, -(-longest // _BYTES_PER_WORD))):
        left = lengths - group * _BYTES_PER_WORD
        inside = np.clip(left, 0, _BYTES_PER_WORD)
        taken = eight_from[np.where(left > 0, begin + group * _BYTES_PER_WORD, 0)].astype(np.uint64)
        keep = ((np.uint64(1) << (inside * 8).astype(np.uint64)) - np.uint64(1)) << ((8 - inside) * 8).astype(np.uint64)
        keep[inside == 0] = 0
        mark = np.where(left > _BYTES_PER_WORD, _CONTINUES, inside).astype(np.uint64)
        words.append((taken & keep) | mark)
    return tuple(words)
