"""The order of rows in a sort compaction: by columns, or along a space-filling curve through all of them.

Sorted by (a, b), each file has a small range of `a` and a large range of `b`. A curve keeps rows that are near in every
column near in the files, so that a condition on any of the columns skips files.

    order     by the columns, ordered like keys
    zorder    the bits of the columns' ranks, interleaved
    hilbert   the same ranks along Hilbert's curve: no jumps, a little more work

A rank is the position of a value among all rows (estimated from a sample), so that all columns have the same weight
whatever their values. Java interleaves the bits of the values: there a column of small numbers, or of texts with a
common prefix, has no weight. Nulls are first.

Hilbert's curve: J. Skilling, Programming the Hilbert curve (2004), AIP Conference Proceedings 707, 381.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelake.errors import BadInput
from tidelake.storage.merge.normalized_keys import normalize_column

CURVE_COLUMN: Final = "_CURVE_POSITION"
CURVE_FIELD: Final = pa.field(CURVE_COLUMN, pa.int64(), nullable=False)

_CURVE_BITS: Final = 63  # a position must be a positive int64
_RANK_BITS_MAX: Final = 16
_COLUMNS_MAX: Final = 16
_WORDS_MAX: Final = 4  # words of a text: its first 28 bytes

Ranks = NDArray[np.uint64]


class ClusteringStrategy(StrEnum):
    ORDER = "order"
    ZORDER = "zorder"
    HILBERT = "hilbert"

    @classmethod
    def parse(cls, name: str) -> ClusteringStrategy:
        """Return the strategy of this name. Raises BadInput."""
        if name not in set(cls):
            raise BadInput(f"there is no clustering strategy {name!r}; the strategies are {', '.join(cls)}")
        return cls(name)

    @classmethod
    def choose(cls, columns: Sequence[str], given: ClusteringStrategy | None) -> ClusteringStrategy:
        """Return the given strategy, or the default: order for one column, zorder for up to four, hilbert for more.

        This is the default of `clustering.strategy`, too. Raises BadInput for a curve through one column, or too many.
        """
        count = len(columns)
        chosen = given or (cls.ORDER if count == 1 else cls.ZORDER if count < 5 else cls.HILBERT)
        if chosen is not cls.ORDER and not 2 <= count <= _COLUMNS_MAX:
            raise BadInput(f"{chosen} takes 2 to {_COLUMNS_MAX} columns, not {count}; sort by order instead")
        return chosen


@dataclass(frozen=True, slots=True)
class RankScale:
    """Converts the values of one column to ranks of `bits` bits. The rank of null is 0.

    bounds: ascending, in the form of `_comparable`.
    """

    bounds: NDArray[Any]
    bits: int

    @classmethod
    def of(cls, samples: Iterable[pa.Array], bits: int) -> RankScale:
        """Make a scale of as many equally frequent ranks as the bits allow.

        samples: randomly chosen values of the column.
        """
        values = np.concatenate([_comparable(sample.drop_null()) for sample in samples])
        distinct = np.unique(values)
        most = (1 << bits) - 2  # bounds: null and the values below the first one have ranks, too
        if len(distinct) > most:
            values.sort()
            distinct = np.unique(values[np.linspace(0, len(values) - 1, most).astype(np.intp)])
        return cls(distinct, bits)

    def ranks(self, column: pa.Array) -> Ranks:
        """Return the ranks (n,), spread over all bits: a column of few distinct values must not have less weight."""
        found = 1 + np.searchsorted(self.bounds, _comparable(column), side="right").astype(np.uint64)
        found[~column.is_valid().to_numpy(zero_copy_only=False)] = 0
        spread: Ranks = found * np.uint64((1 << self.bits) - 1) // np.uint64(len(self.bounds) + 1)
        return spread


@dataclass(frozen=True, slots=True)
class Curve:
    """Computes a position for every row. Made from samples (`from_samples`)."""

    columns: tuple[str, ...]
    strategy: ClusteringStrategy
    scales: tuple[RankScale, ...]

    @classmethod
    def from_samples(
        cls, columns: Sequence[str], strategy: ClusteringStrategy, samples: Sequence[pa.RecordBatch]
    ) -> Curve:
        bits = rank_bits(len(columns))
        scales = [RankScale.of([sample.column(name) for sample in samples], bits) for name in columns]
        return cls(tuple(columns), strategy, tuple(scales))

    def positions(self, rows: pa.RecordBatch) -> NDArray[np.int64]:
        ranks = [scale.ranks(rows.column(name)) for name, scale in zip(self.columns, self.scales, strict=True)]
        bits = self.scales[0].bits
        if self.strategy is ClusteringStrategy.HILBERT:
            ranks = hilbert_transposed(ranks, bits)
        return interleaved(ranks, bits).astype(np.int64)

    def with_positions(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        return rows.append_column(CURVE_FIELD, pa.array(self.positions(rows)))


def rank_bits(columns: int) -> int:
    return min(_RANK_BITS_MAX, _CURVE_BITS // columns)


def interleaved(ranks: Sequence[Ranks], bits: int) -> Ranks:
    """Interleave bits: the highest bit of each rank, then the next of each, and so on.

    Returns len(ranks) * bits bits for each row.
    """
    result = np.zeros_like(ranks[0])
    for bit in reversed(range(bits)):
        for rank in ranks:
            result = (result << np.uint64(1)) | ((rank >> np.uint64(bit)) & np.uint64(1))
    return result


def hilbert_transposed(point: Sequence[Ranks], bits: int) -> list[Ranks]:
    """Convert points to positions on Hilbert's curve, in the form for `interleaved` (Skilling's algorithm)."""
    x = [axis.copy() for axis in point]
    for bit in reversed(range(1, bits)):
        side = np.uint64(1 << bit)
        below = np.uint64((1 << bit) - 1)
        for i in range(len(x)):
            is_set = (x[i] & side) != 0
            swap = np.where(is_set, np.uint64(0), (x[0] ^ x[i]) & below)
            x[0] = np.where(is_set, x[0] ^ below, x[0] ^ swap)
            if i:
                x[i] = x[i] ^ swap
    for i in range(1, len(x)):
        x[i] = x[i] ^ x[i - 1]
    turn = np.zeros_like(x[0])
    for bit in reversed(range(1, bits)):
        turn = np.where((x[-1] & np.uint64(1 << bit)) != 0, turn ^ np.uint64((1 << bit) - 1), turn)
    return [axis ^ turn for axis in x]


def _comparable(column: pa.Array) -> NDArray[Any]:
    """Return values as numbers, or as byte strings of one length, that compare as the values do.

    Arbitrary for nulls.
    """
    words = normalize_column(column, nullable=False)
    kind = column.type
    is_wide = pa.types.is_string(kind) or pa.types.is_binary(kind) or words.width > 1
    if not is_wide:
        (word,) = words
        return word
    rows = np.zeros((len(column), _WORDS_MAX), ">u8")
    for i, word in enumerate(words.first(_WORDS_MAX)):
        # the sign bit is flipped, so that signed words compare as unsigned ones
        rows[:, i] = word if word.dtype == np.uint64 else word.view(np.uint64) ^ np.uint64(1 << 63)
    return rows.reshape(-1).view(f"S{8 * _WORDS_MAX}")
