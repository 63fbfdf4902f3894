"""Many rows aggregated at once give the result of aggregating one after the other onto the previous array or text.

That is how Java folds them. The order of entries counts: Java puts them into a new hash table for every row.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import pytest

from tests.storage.merge.aggregators.support import fold, function
from tests.support.levels import rounds
from tidelake.storage.merge.aggregators.aggregator import Step

T = TypeVar("T")

SEEDS: Final = rounds(400)
ROWS: Final = 30


class Dice:
    """Throws rows of one key: some sequences of few entries, some around the sizes at which a hash table grows."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._keys = self.one_of([3, 13, 27, 60])
        self._apart = self.one_of([1, 1, 16, 32])  # numbers a power of two apart share a bin
        self._length = self.one_of([2, 4, 20])

    def one_of(self, choices: Sequence[T]) -> T:
        return self._random.choice(choices)

    def often(self, value: T) -> T | None:
        return None if self._random.random() < 0.05 else value

    def key(self) -> int:
        return self._random.randrange(self._keys) * self._apart

    def small(self) -> int | None:
        return self.one_of([None, 0, 1, 2])

    def several(self, entry: Callable[[], T]) -> list[T]:
        return [entry() for _ in range(self.one_of([0, 1, 1, self._length]))]

    def rows_of_a_key(self, value: Callable[[Dice], Any], retracts: bool) -> list[tuple[Step, Any]]:
        known = [Step.AGG, Step.AGG, Step.AGG_REVERSED, *([Step.RETRACT] * 2 if retracts else [])]
        steps = [self.one_of(known) for _ in range(4)] * 4 + [Step.SET, Step.SKIP]
        return [(self.one_of(steps), self.often(value(self))) for _ in range(ROWS)]


def texts(delimiter: str) -> Callable[[Dice], str]:
    def text(dice: Dice) -> str:
        return delimiter.join(dice.several(lambda: dice.one_of(["", " ", "x|", "|", "\u3000", *[str(dice.key())] * 9])))

    return text


def numbers(dice: Dice) -> list[int | None]:
    return dice.several(lambda: dice.often(dice.key()))


def rows(dice: Dice) -> list[dict[str, Any] | None]:
    return dice.several(
        lambda: dice.often({"k": dice.often(dice.key()), "v": dice.small(), "s": dice.small()}),
    )


def maps(dice: Dice) -> list[tuple[int, Any]]:
    return dice.several(lambda: (dice.key(), dice.small()))  # a key may come twice: no writer is kept from it


def timed_maps(dice: Dice) -> list[tuple[int, Any]]:
    return dice.several(
        lambda: (dice.key(), dice.often({"ts": dice.one_of([None, "1", "10", "9"]), "v": dice.small()}))
    )


@dataclass(frozen=True)
class Collection:
    id: str
    function: str
    column: str
    value: Callable[[Dice], Any]
    options: Mapping[str, str] = field(default_factory=dict)
    retracts: bool = True


NESTED: Final = "ARRAY<ROW<k INT, v INT, s INT>>"
KEYED: Final = {"nested-key": "k"}
DISTINCT: Final = {"distinct": "true"}

COLLECTIONS: Final = [
    Collection("listagg", "listagg", "STRING", texts(","), retracts=False),
    *(
        Collection(
            f"listagg of distinct parts, delimiter {delimiter!r}",
            "listagg",
            "STRING",
            texts(delimiter or " "),
            DISTINCT | {"list-agg-delimiter": delimiter},
            retracts=False,
        )
        for delimiter in (",", "||", "")
    ),
    *(
        Collection(f"{how}{'' if retracts else ', older arrays in front'}", "collect", column, value, options, retracts)
        for how, column, value, known in (
            ("collect", "ARRAY<INT>", numbers, {}),
            ("collect, distinct by hash", "ARRAY<INT>", numbers, DISTINCT),
            ("collect, distinct by comparing", NESTED, rows, DISTINCT),
        )
        for options, retracts in ((known, True), (known | {"ignore-retract": "true"}, False))
    ),
    Collection("merge_map", "merge_map", "MAP<INT, INT>", maps),
    Collection(
        "merge_map_with_keytime",
        "merge_map_with_keytime",
        "MAP<INT, ROW<ts STRING, v INT>>",
        timed_maps,
        {"ts-field": "ts"},
        retracts=False,
    ),
    Collection("nested_update", "nested_update", NESTED, rows),
    Collection("nested_update, limited", "nested_update", NESTED, rows, {"count-limit": "15"}),
    Collection("nested_update by key", "nested_update", NESTED, rows, KEYED),
    Collection("nested_update by key, limited", "nested_update", NESTED, rows, KEYED | {"count-limit": "15"}),
    Collection("nested_update by age", "nested_update", NESTED, rows, KEYED | {"nested-sequence-field": "s"}),
    Collection(
        "nested_update, null keys ignored",
        "nested_update",
        NESTED,
        rows,
        KEYED | {"nested-key-null-strategy": "ignore"},
    ),
    Collection("nested_partial_update", "nested_partial_update", NESTED, rows, KEYED, retracts=False),
]


@pytest.mark.sampled
@pytest.mark.parametrize("case", COLLECTIONS, ids=lambda case: case.id)
def test_aggregating_at_once_equals_aggregating_step_by_step(case: Collection) -> None:
    aggregator = function(case.function, case.column, case.options)
    groups = [Dice(seed).rows_of_a_key(case.value, case.retracts) for seed in range(SEEDS)]
    onto: list[Any] = [None] * SEEDS
    for row in zip(*groups, strict=True):
        onto = fold(aggregator, case.column, [[(Step.SET, acc), one] for acc, one in zip(onto, row, strict=True)])
    at_once = fold(aggregator, case.column, groups)
    for seed in range(SEEDS):
        assert at_once[seed] == onto[seed], f"seed {seed}"


def of_keys(keys: Sequence[int]) -> list[dict[str, Any]]:
    return [{"k": key, "v": None, "s": None} for key in keys]


def test_with_a_count_limit_older_rows_replace_the_last_ones() -> None:
    limited = function("nested_update", NESTED, {"count-limit": "3"})
    (folded,) = fold(limited, NESTED, [[(Step.AGG, of_keys([1, 2])), (Step.AGG_REVERSED, of_keys([3, 4]))]])
    assert folded == of_keys([3, 4, 1])


def test_a_retract_keeps_the_last_row_of_a_key_at_any_age() -> None:
    by_age = function("nested_update", NESTED, KEYED | {"nested-sequence-field": "s"})
    older, newer = {"k": 1, "v": 0, "s": 1}, {"k": 1, "v": 0, "s": 2}
    for step, kept in ((Step.AGG, newer), (Step.RETRACT, older)):
        (folded,) = fold(by_age, NESTED, [[(Step.SET, [newer, older]), (step, [])]])
        assert folded == [kept]


def test_the_rest_after_a_retract_keeps_its_order() -> None:
    """13 rows make a table of 32 bins; the 12 that are left would do with 16."""
    by_key = function("nested_update", NESTED, KEYED)
    thirteen = (Step.AGG, of_keys(range(13)))
    (before,) = fold(by_key, NESTED, [[thirteen]])
    (after,) = fold(by_key, NESTED, [[thirteen, (Step.RETRACT, of_keys([5]))]])
    assert after == [row for row in before if row["k"] != 5]


@pytest.mark.parametrize("key", range(13))
def test_an_older_patch_of_the_last_row_lets_the_table_grow(key: int) -> None:
    """Java looks at the size before it puts a row in: only after 13 others, or on meeting one of 13 again."""
    patches = function("nested_partial_update", NESTED, KEYED)
    thirteen, older = (Step.AGG, of_keys(range(13))), (Step.AGG_REVERSED, of_keys([key]))
    (before,) = fold(patches, NESTED, [[thirteen]])
    (onto,) = fold(patches, NESTED, [[(Step.SET, before), older]])
    (at_once,) = fold(patches, NESTED, [[thirteen, older]])
    assert at_once == onto


@dataclass(frozen=True)
class HotKey:
    """value: of the nth row; none is like another."""

    function: str
    column: str
    value: Callable[[int], Any]
    options: Mapping[str, str] = field(default_factory=dict)
    retracts: bool = True


HOT_KEYS: Final = [
    HotKey("listagg", "STRING", str, DISTINCT, retracts=False),
    HotKey("collect", "ARRAY<INT>", lambda n: [n]),
    HotKey("collect", "ARRAY<INT>", lambda n: [n], DISTINCT),
    HotKey("merge_map", "MAP<INT, INT>", lambda n: [(n, 0)]),
    HotKey(
        "merge_map_with_keytime",
        "MAP<INT, ROW<ts STRING, v INT>>",
        lambda n: [(n, {"ts": "1", "v": 0})],
        {"ts-field": "ts"},
        retracts=False,
    ),
    HotKey("nested_update", "ARRAY<ROW<k INT>>", lambda n: [{"k": n}]),
    HotKey("nested_update", "ARRAY<ROW<k INT>>", lambda n: [{"k": n}], KEYED),
    HotKey("nested_partial_update", "ARRAY<ROW<k INT>>", lambda n: [{"k": n}], KEYED, retracts=False),
]
VERSIONS: Final = 60_000


@pytest.mark.exhaustive
@pytest.mark.timeout(30)  # a second will do; where a row costs all those before it, it is many minutes
@pytest.mark.parametrize(
    ("case", "step"),
    [
        pytest.param(case, step, id=" ".join([case.function, *case.options, step.name]))
        for case in HOT_KEYS
        for step in (Step.AGG, Step.AGG_REVERSED, *([Step.RETRACT] if case.retracts else []))
    ],
)
def test_the_cost_of_each_row_of_a_hot_key_is_constant(case: HotKey, step: Step) -> None:
    """Every second one older than those before it, or taking back what came first; or all in order."""
    rows = []
    for n in range(VERSIONS // 2):
        rows.append((Step.AGG, case.value(n)))
        rows.append((step, case.value(n // 2 if step is Step.RETRACT else VERSIONS + n)))
    (folded,) = fold(function(case.function, case.column, case.options), case.column, [rows])
    left = folded.split(",") if case.column == "STRING" else folded
    assert len(left) == (VERSIONS // 4 if step is Step.RETRACT else VERSIONS)
