"""Key columns as machine words, so that NumPy can sort, compare and search rows by key.

A column becomes one or more arrays of 64-bit words. Comparing rows word by word, as integers, gives Paimon's order of
keys, and equal words mean equal keys. To compare rows of several batches, one call of `align_keys` must return the
words of all of them.

    integers, dates, times, timestamps     the value, int64
    DECIMAL up to 18 digits                the unscaled value, int64; longer ones two words, high then low
    FLOAT, DOUBLE                          the bits, folded so that -inf < .. < -0.0 < 0.0 < .. < inf < NaN (one NaN)
    strings and bytes                      groups of 7 bytes and a mark: the number of bytes in the last group, or 8 if
                                           more groups follow. Words after the end are 0, so columns of different
                                           widths can be compared. Values much longer than most have only the first
                                           words, and a rank among all long values.
    nullable columns                       one more word before the others: 0 for null, 1 otherwise (nulls are smallest)

Functions that sort and search take `keys`, the words of the key, most significant first, and `sequences`, the words
that order rows of equal keys: user-defined sequence fields first, then the sequence number.

Source of the order: Java `codegen/GenerateUtils.scala`; of the search: `mergetree/LookupUtils.java`, vectors
`lookup_file_search.json`. The encoding is Tidelake's, and is never stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidelake.errors import UnsupportedFeature
from tidelake.storage.model.types.arrow_buffers import fixed_width_values

Word: TypeAlias = NDArray[Any]  # (n,) int64 or uint64
KeyWords: TypeAlias = tuple[Word, ...]

_BYTES_PER_WORD = 7
_CONTINUATION = 8

# One long value among many short ones must not add as many words to every row. All words are made only if they take at
# most 4 times the size of the values, or if they are few. Otherwise the first words and a rank are made.
_WORDS_PER_MEAN_BYTE: Final = 4 / 8
_WORDS_ALWAYS: Final = 8
_WORDS_BEFORE_RANK: Final = 32
_WORDS_MAX: Final = 128  # each word costs some calls of NumPy, and a key of 1 MB would have 150,000


@dataclass(frozen=True, slots=True)
class NormalizedKey:
    """The words of a column of n rows, made by `normalize_column`. Each word is computed when it is first needed.

    Iterating yields words to compare these rows with one another. `align_keys` returns words to compare them with rows
    of other batches, too.
    """

    values: pa.Array
    _present: Word | None  # (n,) 0 for null, 1 otherwise; None for a column without nulls
    _descending: bool
    _made: list[Word]  # the first words, as far as they were needed
    _lengths: NDArray[np.int64] | None  # (n,) in bytes; None if the values aren't text: then `_made` has all words

    def __iter__(self) -> Iterator[Word]:
        (words,) = align_keys([[self]])
        return iter(words)

    def slice(self, start: int) -> NormalizedKey:
        """Return the key of the rows from `start` on."""
        present = None if self._present is None else self._present[start:]
        lengths = None if self._lengths is None else self._lengths[start:]
        made = [word[start:] for word in self._made]
        return NormalizedKey(self.values.slice(start), present, self._descending, made, lengths)

    @property
    def num_rows(self) -> int:
        return len(self.values)

    @property
    def value_bytes(self) -> int:
        """The total size of text values; 0 for other types."""
        return 0 if self._lengths is None else int(self._lengths.sum())

    @property
    def width(self) -> int:
        """The number of words that distinguish all values."""
        if self._lengths is None:
            return len(self._made)
        return max(1, -(-int(self._lengths.max(initial=0)) // _BYTES_PER_WORD))

    def first(self, count: int) -> KeyWords:
        """Return the word for nulls, if any, and the first `count` words. All batches can be compared by these.

        Values that differ only after these words have equal words. After `width` words no values differ.
        """
        missing = range(len(self._made), min(count, self.width))
        if missing:
            self._made.extend(map(self._finished, _text_words(self.values, missing)))
        words = self._made[:count]
        if len(words) < count:
            words += [self._finished(np.zeros(self.num_rows, np.uint64))] * (count - len(words))
        return tuple(words) if self._present is None else (self._present, *words)

    def longer_than(self, count: int) -> NDArray[np.intp]:
        """(m,) the rows whose values are longer than the first `count` words."""
        assert self._lengths is not None, "what isn't text has few words"
        return np.flatnonzero(self._lengths > count * _BYTES_PER_WORD)

    def scattered(self, rows: NDArray[np.intp], numbers: Word) -> Word:
        """Return a word that is `numbers` in the given rows, and 0 in the others."""
        word = np.zeros(self.num_rows, np.uint64)
        word[rows] = numbers
        return self._finished(word)

    def _finished(self, word: Word) -> Word:
        if self._descending:
            word = ~word
        return word if self._present is None else np.where(self._present, word, word.dtype.type(0))


def normalize_column(column: pa.Array, *, nullable: bool, descending: bool = False) -> NormalizedKey:
    """Return the order words of one column.

    nullable: whether nulls may occur, here or in other batches with which these words will be compared.
    descending: whether to reverse the order of values. Nulls stay smallest, as in Java's `sequence.field.sort-order`.

    Raises UnsupportedFeature for types without an order (nested types, VARIANT).
    """
    present = column.is_valid().to_numpy(zero_copy_only=False).astype(np.uint64) if nullable else None
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        return NormalizedKey(column, present, descending, [], np.diff(_offsets(column)))
    words = NormalizedKey(column, present, descending, [], None)
    words._made.extend(map(words._finished, _number_words(column)))
    return words


def align_keys(batches: Sequence[Sequence[NormalizedKey]]) -> list[KeyWords]:
    """Return words to compare the rows of these batches with one another. They can't be compared with other batches.

    batches: per batch, per column, its words.

    Returns per batch all its words, most significant first.
    """
    columns = [_aligned(column) for column in zip(*batches, strict=True)]
    return [tuple(chain.from_iterable(column[i] for column in columns)) for i in range(len(batches))]


def _aligned(column: Sequence[NormalizedKey]) -> list[KeyWords]:
    """Align the words of one column in many batches."""
    width = max(words.width for words in column)
    num_rows = sum(words.num_rows for words in column)
    mean_bytes = sum(words.value_bytes for words in column) / max(1, num_rows)
    affordable = min(max(_WORDS_ALWAYS, int(mean_bytes * _WORDS_PER_MEAN_BYTE)), _WORDS_MAX)
    if width <= affordable:
        return [words.first(width) for words in column]
    count = min(affordable, _WORDS_BEFORE_RANK)
    longer = [words.longer_than(count) for words in column]
    values = pa.chunked_array([words.values.take(pa.array(rows)) for words, rows in zip(column, longer, strict=True)])
    ranks = pc.rank(values, tiebreaker="dense").to_numpy()
    of_batches = np.split(ranks, np.cumsum([len(rows) for rows in longer])[:-1])
    return [
        (*words.first(count), words.scattered(rows, of_batch))
        for words, rows, of_batch in zip(column, longer, of_batches, strict=True)
    ]


def count_rows_up_to(words: KeyWords, last: Sequence[Any]) -> int:
    """Return how many rows of a sorted batch have a key <= `last` (one number per word)."""
    start, stop = 0, len(words[0])
    for word, bound in zip(words, last, strict=True):
        part = word[start:stop]
        exact = word.dtype.type(bound)  # a Python int and uint64 would be compared as floats, and lose the last digits
        below = int(np.searchsorted(part, exact, side="left"))
        equal = int(np.searchsorted(part, exact, side="right"))
        if below == equal:
            return start + below
        start, stop = start + below, start + equal
    return stop


def _number_words(column: pa.Array) -> tuple[Word, ...]:
    kind = column.type
    if pa.types.is_boolean(kind):
        return (column.cast(pa.int8()).fill_null(0).to_numpy().astype(np.int64),)
    if pa.types.is_floating(kind):
        return (_float_words(fixed_width_values(column, np.float32 if pa.types.is_float32(kind) else np.float64)),)
    if pa.types.is_decimal128(kind):
        halves = fixed_width_values(column, np.int64).reshape(-1, 2)
        low = np.ascontiguousarray(halves[:, 0])
        return (low,) if kind.precision <= 18 else (np.ascontiguousarray(halves[:, 1]), low.view(np.uint64))
    if pa.types.is_primitive(kind):
        return (fixed_width_values(column, np.dtype(f"i{kind.bit_width // 8}")).astype(np.int64, copy=False),)
    raise UnsupportedFeature(f"ordering by a column of type {kind}", "it has no order", "choose another column")


def _buffer(column: pa.Array, index: int, dtype: Any) -> NDArray[Any]:
    buffer = column.buffers()[index]
    return np.frombuffer(buffer, dtype) if buffer is not None and buffer.size else np.zeros(0, dtype)


def _float_words(values: NDArray[Any]) -> Word:
    doubles = values.astype(np.float64)  # widening keeps the order, and always copies
    doubles[np.isnan(doubles)] = np.nan
    bits = doubles.view(np.int64)
    return np.where(bits < 0, bits ^ np.int64(2**63 - 1), bits)


def _offsets(column: pa.Array) -> NDArray[np.int64]:
    """(n + 1,) the offset in the text buffer where each value begins, and where the last one ends."""
    if not len(column):
        return np.zeros(1, np.int64)
    return _buffer(column, 1, np.int32)[column.offset : column.offset + len(column) + 1].astype(np.int64)


def _text_words(column: pa.Array, groups: range) -> Iterator[Word]:
    """Yield the words of the given groups of 7 bytes."""
    offsets = _offsets(column)
    begin, lengths = offsets[:-1] - offsets[0], np.diff(offsets)
    used = _buffer(column, 2, np.uint8)[int(offsets[0]) : int(offsets[-1])]
    text = np.zeros(len(used) + 8, np.uint8)  # so that the 8 bytes read below always exist
    text[: len(used)] = used
    eight_from = np.ndarray((len(text) - 7,), dtype=">u8", buffer=text, strides=(1,))
    for group in groups:
        left = lengths - group * _BYTES_PER_WORD
        inside = np.clip(left, 0, _BYTES_PER_WORD)
        taken = eight_from[np.where(left > 0, begin + group * _BYTES_PER_WORD, 0)].astype(np.uint64)
        keep = ((np.uint64(1) << (inside * 8).astype(np.uint64)) - np.uint64(1)) << ((8 - inside) * 8).astype(np.uint64)
        keep[inside == 0] = 0
        mark = np.where(left > _BYTES_PER_WORD, _CONTINUATION, inside).astype(np.uint64)
        yield (taken & keep) | mark


RowIndices = NDArray[np.intp]


def merge_order(keys: KeyWords, sequences: Sequence[Word] = ()) -> tuple[RowIndices, NDArray[np.bool_]]:
    """Sort rows by key, then by sequence, then in the order given. Callers must pass older rows before newer ones.

    Returns (order (n,), is_last (n,)): row indices, and which positions of `order` end a group of equal keys.
    """
    if len(keys) == 1 and not sequences:
        order = np.argsort(keys[0], kind="stable")
    else:
        order = np.lexsort((*reversed(tuple(sequences)), *reversed(keys)))
    return order, group_ends(keys, order)


def group_ends(keys: KeyWords, order: RowIndices) -> NDArray[np.bool_]:
    """(n,): which positions of `order` are the last of their key.

    order (n,): row indices that sort by key.
    """
    ends = np.zeros(len(order), np.bool_)
    if len(order):
        ends[-1] = True
    for word in keys:
        ordered = word[order]
        ends[:-1] |= ordered[1:] != ordered[:-1]
    return ends


def first_not_less(sorted_keys: KeyWords, asked: KeyWords) -> NDArray[np.intp]:
    """(m,): for each key, the position of the first sorted key that is not less; n if none exists.

    Takes O(m log n): one binary search by the first word. Keys that are still undecided are searched further, all at
    once.

    sorted_keys: the words of n sorted keys.
    asked: the words of m keys.
    """
    low = np.searchsorted(sorted_keys[0], asked[0], side="left")
    if len(sorted_keys) == 1:
        return low
    high = np.searchsorted(sorted_keys[0], asked[0], side="right")
    open_keys = np.flatnonzero(low < high)
    while len(open_keys):
        middle = (low[open_keys] + high[open_keys]) // 2
        less = _is_less(sorted_keys, middle, asked, open_keys)
        low[open_keys[less]] = middle[less] + 1
        high[open_keys[~less]] = middle[~less]
        open_keys = open_keys[low[open_keys] < high[open_keys]]
    return low


def equal_keys(sorted_keys: KeyWords, places: NDArray[np.intp], asked: KeyWords) -> NDArray[np.bool_]:
    """(m,): whether each key equals the sorted key at its place.

    places (m,): the result of `first_not_less`.
    """
    inside = np.minimum(places, len(sorted_keys[0]) - 1)
    equal = places < len(sorted_keys[0])
    for word, wanted in zip(sorted_keys, asked, strict=True):
        equal &= word[inside] == wanted
    return equal


def _is_less(
    sorted_keys: KeyWords, places: NDArray[np.intp], asked: KeyWords, rows: NDArray[np.intp]
) -> NDArray[np.bool_]:
    less = np.zeros(len(places), np.bool_)
    for word, wanted in zip(reversed(sorted_keys), reversed(asked), strict=True):
        one: Word = word[places]
        other: Word = wanted[rows]
        less = (one < other) | ((one == other) & less)
    return less
