"""listagg: joins texts with a delimiter.

Source: Java `FieldListaggAgg.java`, `StringUtils.isBlank`, `BinaryStringUtils.splitByWholeSeparatorPreserveAllTokens`.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.storage.merge.aggregators.aggregator import Step, Steps, valid_rows
from tidelake.storage.merge.aggregators.row_aggregator import RowAggregator
from tidelake.storage.merge.column_aggregation import ColumnAggregation
from tidelake.storage.merge.equal_keys import Groups, Mask
from tidelake.storage.merge.values.linked_list import LinkedList

# The characters of Character.isWhitespace: Unicode's separators except the three no-break spaces, and the ASCII ones.
# Python's str.isspace includes U+0085 and these three, too.
_BLANKS: Final = (
    "\t\n\v\f\r\x1c\x1d\x1e\x1f \u1680\u2000\u2001\u2002\u2003"
    "\u2004\u2005\u2006\u2008\u2009\u200a\u2028\u2029\u205f\u3000"
)
_IS_BLANK: Final = f"^[{_BLANKS}]*$"


@dataclass(frozen=True, slots=True)
class ListAgg:
    """The function listagg. Nulls and blank texts don't count.

    With `distinct`, only new parts of a text are added. The first text is not changed, even if it has repeated parts.
    """

    aggregation: ColumnAggregation

    def aggregate(self, values: pa.Array, groups: Groups, steps: Steps | None = None) -> pa.Array:
        if not len(groups):
            return values.slice(0, 0)
        if self.aggregation.distinct or (steps is not None and not np.isin(steps, (Step.AGG, Step.SKIP)).all()):
            items = values.take(pa.array(groups.rows)).to_pylist()
            joining = _JoiningDistinct if self.aggregation.distinct else _ListAggAggregator
            return pa.array(joining(self.aggregation.delimiter).aggregate(items, groups, steps), values.type)
        counted = valid_rows(values, groups)
        if steps is not None:
            counted &= steps != Step.SKIP
        return _joined(values, groups, counted, self.aggregation.delimiter)


def _joined(values: pa.Array, groups: Groups, counted: Mask, delimiter: str) -> pa.Array:
    blank = pc.match_substring_regex(values, _IS_BLANK).fill_null(True).to_numpy(zero_copy_only=False)
    counted = counted & ~blank[groups.rows]
    lengths = groups.reduce(np.add, counted.astype(np.int64))
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    texts = pa.ListArray.from_arrays(pa.array(offsets), values.take(pa.array(groups.rows[counted])))
    joined = pc.binary_join(texts, delimiter)
    return pc.if_else(pa.array(lengths > 0), joined, pa.scalar(None, joined.type))


class _ListAggAggregator(RowAggregator[str, deque[str]]):
    """Joins texts in their order. A blank text is kept only until a text that is not blank arrives."""

    def __init__(self, delimiter: str) -> None:
        self._delimiter = delimiter

    def agg(self, acc: str | deque[str] | None, item: str | None) -> str | deque[str] | None:
        if item is None or _is_blank(item):
            return acc
        if acc is None or (isinstance(acc, str) and _is_blank(acc)):
            return item
        texts = deque([acc]) if isinstance(acc, str) else acc
        texts.append(item)
        return texts

    def agg_reversed(self, acc: str | deque[str] | None, item: str | None) -> str | deque[str] | None:
        if acc is None or isinstance(acc, str):
            return self.agg(item, acc)
        if item is not None and not _is_blank(item):
            acc.appendleft(item)
        return acc

    def finish(self, acc: str | deque[str]) -> str:
        return acc if isinstance(acc, str) else self._delimiter.join(acc)


class _JoiningDistinct(RowAggregator[str, LinkedList[str]]):
    """Joins distinct parts of texts.

    The list contains the parts of the text; joining them gives the text. All blank parts have the same name.
    """

    def __init__(self, delimiter: str) -> None:
        self._delimiter = delimiter
        self._separator = delimiter or " "  # Java splits at blanks if the delimiter is empty
        # True if the delimiter may be found at another position than where it was inserted: "a|" and "b" joined by "||"
        self._shifts = not delimiter or any(delimiter.startswith(delimiter[at:]) for at in range(1, len(delimiter)))

    def agg(self, acc: str | LinkedList[str] | None, item: str | None) -> str | LinkedList[str] | None:
        if item is None or _is_blank(item):
            return acc
        if acc is None or (isinstance(acc, str) and _is_blank(acc)):
            return item
        parts = acc if isinstance(acc, LinkedList) else self._parts(acc)
        new = dict.fromkeys(part for part in item.split(self._separator) if part not in parts and not _is_blank(part))
        if new:
            parts.extend(self._delimiter.join([parts.pop(), *new]).split(self._separator))
        return parts

    def agg_reversed(self, acc: str | LinkedList[str] | None, item: str | None) -> str | LinkedList[str] | None:
        if acc is None or isinstance(acc, str):
            return self.agg(item, acc)
        if self._shifts:
            return self.agg(item, self.finish(acc))
        if item is None or _is_blank(item):
            return acc
        older = item.split(self._separator)
        acc.take_repeated()
        for name in ["", *older]:
            acc.take_all(name)
        acc.prepend_all(older)
        return acc

    def finish(self, acc: str | LinkedList[str]) -> str:
        return acc if isinstance(acc, str) else self._separator.join(acc)

    def _parts(self, text: str) -> LinkedList[str]:
        parts: LinkedList[str] = LinkedList(_name)
        parts.extend(text.split(self._separator))
        return parts


def _name(part: str) -> str:
    return part if part.strip(_BLANKS) else ""


def _is_blank(text: str) -> bool:
    return not text.strip(_BLANKS)
