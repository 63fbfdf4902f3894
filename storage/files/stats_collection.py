"""The statistics of a data file's columns, collected while it is written, in the form that manifests store.

They are null counts, and bounds: the smallest and the largest value, truncated as `metadata.stats-mode` says.

Source: Java `utils/StatsCollectorFactories.java`, `stats/SimpleStatsConverter.java`, `io/KeyValueDataFileWriter.java`,
`statistics/TruncateSimpleColStatsCollector.java`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final, Protocol, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import BadInput
from tidelake.storage.files.data_file import EMPTY_STATS, SimpleStats
from tidelake.storage.model.binary_row import serialize_rows
from tidelake.storage.model.format import SYSTEM_FIELD_ID_START
from tidelake.storage.model.options import TableOptions
from tidelake.storage.model.types import CONSTRUCTED_ROOTS, DataField, Root, arrow_type


@dataclass(frozen=True, slots=True)
class MinMax:
    """The exact smallest and largest value of a column, as valid scalars of the column's in-memory type."""

    minimum: pa.Scalar
    maximum: pa.Scalar


ColumnMinMax: TypeAlias = Mapping[str, MinMax]
"""Column -> its smallest and largest value. A column is missing if it has no values, or if its bounds are unknown."""


def has_nan(column: pa.Array | pa.ChunkedArray) -> bool:
    return pa.types.is_floating(column.type) and pc.any(pc.is_nan(column)).as_py() is True


def min_max_of(column: pa.Array | pa.ChunkedArray) -> MinMax | None:
    """Return the smallest and the largest value; None if there are only nulls.

    The order is that of Java: -0.0 before 0.0, and NaN last. (Arrow treats both zeros as equal, and ignores NaN.)
    """
    if len(column) == column.null_count:
        return None
    found = pc.min_max(column)
    minimum, maximum = found["min"], found["max"]
    if pa.types.is_floating(column.type):
        minimum = pa.scalar(-0.0, column.type) if minimum.as_py() == 0 else minimum
        maximum = pa.scalar(0.0, column.type) if maximum.as_py() == 0 else maximum
        maximum = pa.scalar(math.nan, column.type) if has_nan(column) else maximum
        if minimum.as_py() == math.inf and found["max"].as_py() == -math.inf:  # only NaN, with pyarrow 19
            minimum = maximum
    return MinMax(minimum, maximum)


def union_of(min_max: Iterable[MinMax]) -> MinMax | None:
    """Return the range that includes all ranges; None if none is given."""
    return reduce(_union, min_max, None)


def _union(known: MinMax | None, more: MinMax) -> MinMax:
    if known is None:
        return more
    lower, higher = _is_less(more.minimum, known.minimum), _is_less(known.maximum, more.maximum)
    return MinMax(more.minimum if lower else known.minimum, more.maximum if higher else known.maximum)


def _is_less(one: pa.Scalar, other: pa.Scalar) -> bool:
    if pa.types.is_floating(one.type) and math.isnan(other.as_py()):
        return not math.isnan(one.as_py())
    less: bool = pc.less(one, other).as_py()
    return less


class MinMaxCollector:
    """Collects the ColumnMinMax of a file's rows, batch by batch."""

    def __init__(self, columns: Collection[str]) -> None:
        self._columns = sorted(columns)
        self._min_max: dict[str, MinMax] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        for name in self._columns:
            min_max = min_max_of(batch.column(name))
            if min_max is not None:
                self._min_max[name] = _union(self._min_max.get(name), min_max)

    def min_max(self) -> ColumnMinMax:
        return self._min_max


_LAST_CODE_POINT: Final = 0x10FFFF
_SURROGATES: Final = range(0xD800, 0xE000)  # code points that UTF-8 can't encode


def truncate_bounds(minimum: pa.Scalar, maximum: pa.Scalar, length: int) -> tuple[pa.Scalar, pa.Scalar]:
    """Return bounds of at most `length` characters (code points) or bytes, which include the given bounds.

    Only strings and bytes change. Both bounds are null (unknown) if one is given as null, or if no short upper bound is
    large enough.
    """
    if not (minimum.is_valid and maximum.is_valid):
        return _null(minimum), _null(maximum)
    kind = minimum.type
    lower: str | bytes
    upper: str | bytes | None
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        lower, upper = minimum.as_py()[:length], _truncate_text_up(maximum.as_py(), length)
    elif pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        lower, upper = minimum.as_py()[:length], _truncate_bytes_up(maximum.as_py(), length)
    else:
        return minimum, maximum
    if upper is None:
        return _null(minimum), _null(maximum)
    return pa.scalar(lower, kind), pa.scalar(upper, kind)


def _null(value: pa.Scalar) -> pa.Scalar:
    return pa.scalar(None, value.type)


def _truncate_text_up(text: str, length: int) -> str | None:
    """Truncate a text, and increments its last character that can be incremented. None if no character can."""
    if len(text) <= length:
        return text
    for end in range(length, 0, -1):
        successor = ord(text[end - 1]) + 1
        if successor in _SURROGATES:
            successor = _SURROGATES.stop  # Java writes "?" for a lone surrogate, which is not an upper bound
        if successor <= _LAST_CODE_POINT:
            return text[: end - 1] + chr(successor)
    return None


def _truncate_bytes_up(value: bytes, length: int) -> bytes | None:
    if len(value) <= length:
        return value
    kept = value[:length].rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


_TRUNCATE: Final = re.compile(r"truncate\(\s*([1-9][0-9]*)\s*\)")
_NESTED: Final = CONSTRUCTED_ROOTS | {Root.VARIANT}
_WITHOUT_BOUNDS: Final = _NESTED | {Root.BLOB}


@dataclass(frozen=True, slots=True)
class StatsMode:
    """The statistics of a column.

    nulls: whether nulls are counted.
    bounds: whether the smallest and the largest value are stored.
    length: the length to which texts and bytes are truncated in bounds; None does not truncate.
    """

    nulls: bool = False
    bounds: bool = False
    length: int | None = None

    @classmethod
    def parse(cls, text: str) -> StatsMode:
        """Parse none, counts, full or truncate(n). Raises BadInput."""
        match text.strip().lower():
            case "none":
                return cls()
            case "counts":
                return cls(nulls=True)
            case "full":
                return cls(nulls=True, bounds=True)
        if match := _TRUNCATE.fullmatch(text.strip().lower()):
            return cls(nulls=True, bounds=True, length=int(match[1]))
        raise BadInput(f"stats mode {text!r}: expected none, counts, full or truncate(n) with n > 0")


_SYSTEM_MODE: Final = StatsMode(nulls=True, bounds=True, length=128)


def stats_modes(
    fields: Sequence[DataField],
    options: TableOptions,
    level: int,
    *,
    format_name: str,
    changelog: bool = False,
    thin_keys: Sequence[str] = (),
) -> dict[str, StatsMode]:
    """Return the mode of each column of a file.

    fields: all columns of the file, in order.
    thin_keys: the columns of the primary key, if the file has no `_KEY_` columns.
    """
    modes = {}
    ordinary = 0  # columns that count for `metadata.stats-keep-first-n-columns`
    keep = options.stats_keep_first_n_columns
    for f in fields:
        has_own = f"fields.{f.name}.stats-mode" in options
        if not has_own and (f.id >= SYSTEM_FIELD_ID_START or f.name in thin_keys):
            modes[f.name] = _SYSTEM_MODE
            continue
        is_beyond = not has_own and 0 <= keep <= ordinary
        modes[f.name] = (
            StatsMode() if is_beyond else StatsMode.parse(options.stats_mode(f.name, level, changelog=changelog))
        )
        ordinary += 1
    knows_nested = format_name != "parquet"  # Parquet has statistics of leaves only: Java writes none then
    return {f.name: modes[f.name] if knows_nested or f.type.root not in _NESTED else StatsMode() for f in fields}


class ColumnGroups(Protocol):
    """Columns divided into groups of rows. Each group becomes a file."""

    @property
    def count(self) -> int: ...

    def min_max(self, name: str) -> tuple[pa.Array, pa.Array]:
        """(count,) each: the smallest and largest values, as of `min_max_of`; null for a group without values."""
        ...

    def null_counts(self, name: str) -> list[int]: ...


class StatsCollector:
    """Collects the statistics of one file.

    Nulls are counted in its batches. The smallest and largest values come from the format's writer at the end.
    """

    def __init__(self, fields: Sequence[DataField], modes: Mapping[str, StatsMode]) -> None:
        self._types = {f.name: f.type for f in fields}
        self._modes = modes
        self._nulls = {name: 0 for name, mode in modes.items() if mode.nulls}

    @property
    def bounds_for(self) -> frozenset[str]:
        """The columns whose smallest and largest values are needed."""
        return frozenset(
            name for name, mode in self._modes.items() if mode.bounds and self._types[name].root not in _WITHOUT_BOUNDS
        )

    @property
    def bounds_length(self) -> int | None:
        """The maximum length of texts and bytes that bounds need; None means the whole values."""
        lengths = [self._modes[name].length for name in self.bounds_for]
        return max((n for n in lengths if n is not None), default=0) + 1 if None not in lengths else None

    def add(self, batch: pa.RecordBatch) -> None:
        for name in self._nulls:
            self._nulls[name] += batch.column(name).null_count

    def of_columns(self, names: Sequence[str], min_max: ColumnMinMax) -> SimpleStats:
        """Return the statistics of all these columns, including unknown ones."""
        if not names:
            return EMPTY_STATS
        types = [self._types[name] for name in names]
        columns = [self._bounds(name, min_max) for name in names]
        minimum, maximum = serialize_rows(columns, types)
        return SimpleStats(minimum, maximum, tuple(self._nulls.get(name) for name in names))

    def of_table(
        self, names: Sequence[str], min_max: ColumnMinMax, *, dense: bool
    ) -> tuple[SimpleStats, tuple[str, ...] | None]:
        """Return (statistics, their columns). None for the columns means all of `names`.

        dense: whether columns without statistics are left out.
        """
        known = [name for name in names if name in self._nulls]
        if not dense or len(known) == len(names):
            return self.of_columns(names, min_max), None
        return self.of_columns(known, min_max), tuple(known)

    def of_groups(self, names: Sequence[str], groups: ColumnGroups, *, dense: bool = False) -> list[SimpleStats]:
        """Like `of_columns` and `of_table`, for many files at once. Rows that were added here are ignored.

        dense: whether columns without statistics are left out.
        """
        names = [name for name in names if not dense or name in self._nulls]
        if not names:
            return [EMPTY_STATS] * groups.count
        types = [self._types[name] for name in names]
        bounds = [self._bounds_of_groups(name, groups) for name in names]
        minima = serialize_rows([lower for lower, _ in bounds], types)
        maxima = serialize_rows([upper for _, upper in bounds], types)
        nulls = zip(*(self._nulls_of_groups(name, groups) for name in names), strict=True)
        return [SimpleStats(*of) for of in zip(minima, maxima, nulls, strict=True)]

    def known(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the columns with statistics."""
        return tuple(name for name in names if name in self._nulls)

    def _nulls_of_groups(self, name: str, groups: ColumnGroups) -> Sequence[int | None]:
        return groups.null_counts(name) if name in self._nulls else [None] * groups.count

    def _bounds_of_groups(self, name: str, groups: ColumnGroups) -> tuple[pa.Array, pa.Array]:
        kind = arrow_type(self._types[name])
        if name not in self.bounds_for:
            return pa.nulls(groups.count, kind), pa.nulls(groups.count, kind)
        lower, upper = groups.min_max(name)
        length = self._modes[name].length
        if length is None or not any(_is_longer(bound, length) for bound in (lower, upper)):
            return lower, upper
        cut = [truncate_bounds(a, b, length) for a, b in zip(lower, upper, strict=True)]
        return pa.array([a for a, _ in cut], kind), pa.array([b for _, b in cut], kind)

    def _bounds(self, name: str, min_max: ColumnMinMax) -> pa.Array:
        """Return (minimum, maximum), null if unknown."""
        kind = arrow_type(self._types[name])
        if name not in min_max:
            return pa.nulls(2, kind)
        lower, upper = min_max[name].minimum, min_max[name].maximum
        length = self._modes[name].length
        if length is not None:
            lower, upper = truncate_bounds(lower, upper, length)
        return pa.array([lower, upper], kind)


def _is_longer(values: pa.Array, length: int) -> bool:
    """Return whether a value has more bytes than `length`. Every text with more characters has more bytes, too."""
    if not (pa.types.is_string(values.type) or pa.types.is_binary(values.type)):
        return False
    return bool((pc.max(pc.binary_length(values)).as_py() or 0) > length)


@dataclass(frozen=True, slots=True)
class ColumnBounds:
    """The bounds of one column in n files (or row groups). Null means unknown.

    minimum (n,): lower bounds, of the column's type. They need not be values of the column (long texts are truncated).
    maximum (n,): upper bounds, likewise.
    null_count (n,): int64.
    row_count (n,): int64, never null.
    """

    minimum: pa.Array
    maximum: pa.Array
    null_count: pa.Array
    row_count: pa.Array

    @classmethod
    def unknown(cls, kind: pa.DataType, row_count: pa.Array) -> ColumnBounds:
        n = len(row_count)
        return cls(pa.nulls(n, kind), pa.nulls(n, kind), pa.nulls(n, pa.int64()), row_count)


def without_nan(bounds: pa.Array) -> pa.Array:
    """Make NaN bounds unknown: in Java NaN is the largest value, but in Arrow no comparison with NaN is true."""
    if not pa.types.is_floating(bounds.type):
        return bounds
    return pc.if_else(pc.is_nan(bounds), pa.scalar(None, bounds.type), bounds)


Bounds: TypeAlias = Callable[[str], ColumnBounds]  # column name -> bounds
