"""Column functions give the result of row-by-row aggregation, for any rows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.storage.merge.aggregators import support
from tests.support import aggregate_rows
from tests.support.levels import examples
from tidelake.errors import BadInput
from tidelake.storage.merge.aggregators.aggregator import Step

_WHAT: Final = {
    "agg": Step.AGG,
    "agg_reversed": Step.AGG_REVERSED,
    "retract": Step.RETRACT,
    "set": Step.SET,
    "skip": Step.SKIP,
}


@dataclass(frozen=True)
class Fold:
    id: str
    function: str
    column: str
    values: st.SearchStrategy[Any]
    options: Mapping[str, str] = field(default_factory=dict)
    unordered: bool = False
    sets_anywhere: bool = True  # the value that a SET replaces may be an overflow, which is not compared
    # Reversed, a merged array is the newcomer: which of its entries a limit lets in hangs on the order of a Java hash
    # map, of which the model knows nothing.
    reverses: bool = True


def decimals(digits: int, scale: int) -> st.SearchStrategy[Decimal]:
    edge = 10**digits - 1
    numbers = st.integers(-edge, edge) | st.integers(-50, 50) | st.sampled_from([edge, -edge, edge // 2 + 1])
    return numbers.map(lambda n: aggregate_rows.EXACT.scaleb(Decimal(n), -scale))


def integers(bits: int) -> st.SearchStrategy[int]:
    limit = 1 << (bits - 1)
    return st.integers(-3, 3) | st.integers(-limit, limit - 1) | st.sampled_from([-limit, limit - 1])


def floats(width: int) -> st.SearchStrategy[Any]:
    kind = np.float32 if width == 32 else np.float64
    special = st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf, 1.0, 1e-3])
    return (st.floats(width=width) | special).map(kind)  # type: ignore[arg-type]  # 32 or 64


def rows(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({name: st.none() | values for name, values in fields.items()})


small = st.integers(0, 3)
letters = st.sampled_from("ab")
texts = st.text(st.sampled_from("ab, \u3000\u00a0"), max_size=5)
nested = st.lists(st.none() | rows(k=small, l=letters, v=small, s=small), max_size=4)
NESTED = "ARRAY<ROW<k INT, l STRING, v INT, s INT>>"
KEYED = {"nested-key": "k,l"}
timed = st.dictionaries(letters, st.none() | rows(v=small, ts=st.sampled_from(["9", "10", "1"])), max_size=2)

FOLDS: Final = [
    *(
        Fold(f"{function} of {column}", function, column, integers(bits), sets_anywhere=False)
        for function in ("sum", "product")
        for column, bits in (("TINYINT", 8), ("SMALLINT", 16), ("INT", 32), ("BIGINT", 64))
    ),
    *(
        Fold(f"{function} of {column}", function, column, floats(width))
        for function in ("sum", "product", "max", "min")
        for column, width in (("FLOAT", 32), ("DOUBLE", 64))
    ),
    *(
        Fold(f"{function} of DECIMAL({p},{s})", function, f"DECIMAL({p},{s})", decimals(p, s), sets_anywhere=False)
        for function in ("sum", "product", "max", "min")
        for p, s in ((5, 2), (18, 0), (19, 3), (38, 0), (38, 10))
    ),
    *(
        Fold(f"{function} of {column}", function, column, values)
        for function in ("max", "min")
        for column, values in (
            *((f"{name}INT", integers(bits)) for name, bits in (("TINY", 8), ("SMALL", 16), ("", 32), ("BIG", 64))),
            ("DATE", st.dates()),
            ("TIME(3)", st.times().map(lambda time: time.replace(microsecond=time.microsecond // 1000 * 1000))),
            ("TIMESTAMP(6)", st.datetimes()),
            ("TIMESTAMP(6) WITH LOCAL TIME ZONE", st.datetimes(timezones=st.just(UTC))),
        )
    ),
    Fold("max of texts", "max", "STRING", texts),
    Fold("min of texts", "min", "STRING", texts),
    Fold("max of bytes", "max", "BYTES", st.binary(max_size=9)),
    Fold("min of booleans", "bool_and", "BOOLEAN", st.booleans()),
    Fold("max of booleans", "bool_or", "BOOLEAN", st.booleans()),
    *(
        Fold(f"{function} of {column}", function, column, values)
        for function in ("last_value", "last_non_null_value", "first_value", "first_non_null_value", "primary-key")
        for column, values in (("STRING", letters), ("ARRAY<INT>", st.lists(small, max_size=2)))
    ),
    Fold("listagg", "listagg", "STRING", texts),
    Fold("listagg, another delimiter", "listagg", "STRING", texts, {"list-agg-delimiter": "ab"}),
    Fold("listagg, distinct", "listagg", "STRING", texts, {"distinct": "true"}),
    Fold("collect", "collect", "ARRAY<INT>", st.lists(st.none() | small, max_size=4)),
    Fold("collect, distinct", "collect", "ARRAY<INT>", st.lists(st.none() | small), {"distinct": "true"}, True),
    Fold("collect of rows", "collect", NESTED, nested),
    Fold(
        "collect of rows, distinct",
        "collect",
        NESTED,
        st.lists(rows(k=small, l=letters, v=small, s=small), min_size=1, max_size=3),
        {"distinct": "true"},
    ),
    Fold("merge_map", "merge_map", "MAP<STRING, INT>", st.dictionaries(letters, st.none() | small), unordered=True),
    Fold(
        "merge_map_with_keytime",
        "merge_map_with_keytime",
        "MAP<STRING, ROW<ts STRING, v INT>>",
        timed,
        {"ts-field": "ts"},
        unordered=True,
    ),
    Fold("nested_update", "nested_update", NESTED, nested),
    Fold("nested_update, limited", "nested_update", NESTED, nested, {"count-limit": "3"}),
    Fold("nested_update by key", "nested_update", NESTED, nested, KEYED, unordered=True),
    Fold(
        "nested_update by key, limited",
        "nested_update",
        NESTED,
        nested,
        KEYED | {"count-limit": "2"},
        unordered=True,
        reverses=False,
    ),
    Fold("nested_update by age", "nested_update", NESTED, nested, KEYED | {"nested-sequence-field": "s,v"}, True),
    Fold(
        "nested_update, null keys ignored",
        "nested_update",
        NESTED,
        nested,
        KEYED | {"nested-key-null-strategy": "ignore"},
        unordered=True,
    ),
    Fold(
        "nested_update, null keys refused",
        "nested_update",
        NESTED,
        nested,
        KEYED | {"nested-key-null-strategy": "error"},
        unordered=True,
    ),
    Fold("nested_partial_update", "nested_partial_update", NESTED, nested, KEYED, unordered=True),
]


def plain(value: Any, unordered: bool) -> Any:
    """A comparable form: NaN equals itself, zeros keep their sign, and map entries have no order."""
    if isinstance(value, float | np.floating):
        return repr(float(value))
    if isinstance(value, dict):
        return sorted((name, plain(inner, False)) for name, inner in value.items())
    if isinstance(value, list | tuple):
        entries = [plain(entry, False) for entry in value]
        return sorted(entries, key=repr) if unordered else entries
    return value


@pytest.mark.parametrize("case", FOLDS, ids=lambda case: case.id)
@settings(max_examples=examples(40))
@given(st.data())
def test_a_column_aggregates_like_its_rows(case: Fold, data: st.DataObject) -> None:
    options = {**case.options, **data.draw(st.sampled_from([{}, {"ignore-retract": "true"}]))}
    value = st.none() | case.values.map(lambda v: list(v.items()) if isinstance(v, dict) else v)
    what = st.sampled_from(data.draw(st.sampled_from([["agg"], ["agg", "skip"], ["agg", "retract"], sorted(_WHAT)])))
    groups = data.draw(st.lists(st.lists(st.tuples(what, value), min_size=1, max_size=12), max_size=4))
    if not case.reverses:
        groups = [[("agg" if w == "agg_reversed" else w, x) for w, x in group] for group in groups]
    if not case.sets_anywhere:
        groups = [[(w if w != "set" or i == 0 else "agg", x) for i, (w, x) in enumerate(g)] for g in groups]
    by_rows = aggregate_rows.function(case.function, case.column, options)
    expected: list[Any] | None = None
    with suppress(aggregate_rows.Refused):
        expected = [aggregate_rows.fold(by_rows, group) for group in groups]
    by_columns = support.function(case.function, case.column, options)
    steps = [[(_WHAT[w], x) for w, x in group] for group in groups]
    if expected is None:
        with pytest.raises(BadInput, match="column 'c'"):
            support.fold(by_columns, case.column, steps)
        return
    folded = support.fold(by_columns, case.column, steps)
    assert [plain(v, case.unordered) for v in folded] == [plain(v, case.unordered) for v in expected]
