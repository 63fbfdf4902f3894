"""listagg: texts joined by a delimiter.

Source: Java `FieldListaggAgg.java`, `StringUtils.isBlank`, `BinaryStringUtils.splitByWholeSeparatorPreserveAllTokens`;
merge-engines notes 6.4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from storage.aggregate_functions import ColumnAggregation
from storage.merge.aggregators.base import Groups, Mask, Step, Steps, valid_rows
from storage.merge.aggregators.item_fold import ItemFold

# Character.isWhitespace: Unicode's separators but the three that don't break a line, and the ASCII ones. Python's
# str.isspace counts U+0085 and the three as well.
_BLANKS: Final = (
    "\t\n\v\f\r\x1c\x1d\x1e\x1f \u1680\u2000\u2001\u2002\u2003"
    "\u2004\u2005\u2006\u2008\u2009\u200a\u2028\u2029\u205f\u3000"
)
_IS_BLANK: Final = f"^[{_BLANKS}]*$"


@dataclass(frozen=True, slots=True)
class ListAgg:
    """Nulls and blank texts don't count. `distinct` adds only parts that are not there yet; the first text stays as it
    is, whatever it repeats.
    """

    aggregation: ColumnAggregation

    def fold(self, values: pa.Array, groups: Groups, steps: Steps | None = None) -> pa.Array:
        if not len(groups):
            return values.slice(0, 0)
        if self.aggregation.distinct or (steps is not None and not np.isin(steps, (Step.AGG, Step.SKIP)).all()):
            items = values.take(pa.array(groups.rows)).to_pylist()
            return pa.array(_Joining(self.aggregation).fold(items, groups, steps), values.type)
        counted = valid_rows(values, groups)
        if steps is not None:
            counted &= steps != Step.SKIP
        return _joined(values, groups, counted, self.aggregation.delimiter)


def _joined(values: pa.Array, groups: Groups, counted: Mask, delimiter: str) -> pa.Array:
    blank = pc.match_substring_regex(values, _IS_BLANK).fill_null(True).to_numpy(zero_copy_only=False)
    counted = counted & ~blank[groups.rows]
    lengths = np.add.reduceat(counted.astype(np.int64), groups.starts)
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    texts = pa.ListArray.from_arrays(pa.array(offsets), values.take(pa.array(groups.rows[counted])))
    joined = pc.binary_join(texts, delimiter)
    return pc.if_else(pa.array(lengths > 0), joined, pa.scalar(None, joined.type))


class _Joining(ItemFold[str]):
    def __init__(self, aggregation: ColumnAggregation) -> None:
        self._delimiter = aggregation.delimiter
        self._distinct = aggregation.distinct

    def agg(self, acc: str | None, item: str | None) -> str | None:
        if item is None or _is_blank(item):
            return acc
        if acc is None or _is_blank(acc):
            return item
        if not self._distinct:
            return acc + self._delimiter + item
        seen = set(self._split(acc))
        parts = [acc]
        for part in self._split(item):
            if part not in seen and not _is_blank(part):
                seen.add(part)
                parts.append(part)
        return self._delimiter.join(parts)

    def _split(self, text: str) -> list[str]:
        return text.split(self._delimiter or " ")  # Java splits at blanks where the delimiter is empty


def _is_blank(text: str) -> bool:
    return not text.strip(_BLANKS)
