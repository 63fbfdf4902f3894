"""Configurations of every merge engine over one set of columns, and random rows for them."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

KIND: Final = "_VALUE_KIND"

# Protected columns are before, between and after their sequence fields.
COLUMNS: Final = {
    "k": ("INT", pa.int32()),
    "a": ("INT", pa.int32()),
    "s": ("INT", pa.int32()),
    "b": ("STRING", pa.string()),
    "t": ("INT", pa.int32()),
    "u": ("STRING", pa.string()),
    "c": ("BIGINT", pa.int64()),
    "free": ("STRING", pa.string()),
}
SCHEMA: Final = pa.schema([*((name, kind) for name, (_, kind) in COLUMNS.items()), (KIND, pa.int8())])
ADDS: Final = (0, 2)
ALL_KINDS: Final = (0, 0, 2, 1, 3)  # +I twice as often: rows should live long enough to be changed


@dataclass(frozen=True)
class Engine:
    """kinds: of row that it takes, each as often as it should come.

    is_associative: merging some rows of a key first, and the result with the rest, is merging them all; so what
    compaction did can't be seen. takes_back_what_was: a retract is only of a row that was added and is still there.
    """

    about: str
    options: Mapping[str, str]
    kinds: tuple[int, ...] = ADDS
    is_associative: bool = False
    takes_back_what_was: bool = False

    @property
    def name(self) -> str:
        return self.options.get("merge-engine", "deduplicate")


def _engine(name: str, about: str, kinds: tuple[int, ...], options: Mapping[str, str], **traits: bool) -> Engine:
    return Engine(about, {"merge-engine": name} | {_SPELLED[k]: v for k, v in options.items()}, kinds, **traits)


def partial_update(about: str, kinds: tuple[int, ...] = ADDS, **options: str) -> Engine:
    return _engine("partial-update", about, kinds, options)


_SPELLED: Final = {
    "ignore_delete": "ignore-delete",
    "ignore_update_before": "ignore-update-before",
    "remove_on_delete": "partial-update.remove-record-on-delete",
    "remove_on_group": "partial-update.remove-record-on-sequence-group",
    "remove_aggregate": "aggregation.remove-record-on-delete",
    "group_s": "fields.s.sequence-group",
    "group_tu": "fields.t,u.sequence-group",
    "default_function": "fields.default-aggregate-function",
    "sequence_field": "sequence.field",
    "sort_order": "sequence.field.sort-order",
    **{f"function_{name}": f"fields.{name}.aggregate-function" for name in COLUMNS},
    **{f"ignore_retract_{name}": f"fields.{name}.ignore-retract" for name in COLUMNS},
}

DEDUPLICATE: Final = Engine("deduplicate", {"merge-engine": "deduplicate"}, ALL_KINDS, is_associative=True)
FIRST_ROW: Final = Engine("first row", {"merge-engine": "first-row"}, is_associative=True)
PARTIAL_UPDATE: Final = _engine("partial-update", "plain", ADDS, {}, is_associative=True)
GROUPS: Final = partial_update("sequence groups", ALL_KINDS, group_s="a,b", group_tu="c")
GROUPS_WITH_FUNCTIONS: Final = partial_update(
    "groups with functions",
    ALL_KINDS,
    group_s="a,b",
    group_tu="c",
    function_a="sum",
    function_b="first_value",
    ignore_retract_b="true",
    function_c="last_value",
)
AGGREGATION: Final = _engine(
    "aggregation",
    "aggregation",
    ADDS,
    {
        "function_a": "sum",
        "function_s": "max",
        "function_b": "listagg",
        "function_t": "min",
        "function_u": "first_value",
        "function_c": "sum",
        "function_free": "first_non_null_value",
    },
    is_associative=True,
)
AGGREGATION_WITH_RETRACTS: Final = _engine(
    "aggregation",
    "aggregation with retracts",
    ALL_KINDS,
    {
        "function_a": "sum",
        "function_s": "max",
        "ignore_retract_s": "true",
        "function_b": "last_value",
        "function_t": "min",
        "ignore_retract_t": "true",
        "function_u": "last_non_null_value",
        "function_c": "sum",
        "function_free": "first_value",
        "ignore_retract_free": "true",
    },
)
SUMS: Final = _engine(
    "aggregation",
    "sums of a change log",
    ALL_KINDS,
    {
        **{f"function_{name}": "sum" for name in ("a", "s", "t", "c")},
        **{f"ignore_retract_{name}": "true" for name in ("b", "u", "free")},
    },
    is_associative=True,
    takes_back_what_was=True,
)

ENGINES: Final = (
    DEDUPLICATE,
    Engine("deduplicate by two columns", {"sequence.field": "s,t"}, ALL_KINDS),
    FIRST_ROW,
    Engine("first row, deletes ignored", {"merge-engine": "first-row", "ignore-delete": "true"}, ALL_KINDS),
    PARTIAL_UPDATE,
    partial_update("deletes ignored", ALL_KINDS, ignore_delete="true"),
    partial_update("deletes remove", ALL_KINDS, remove_on_delete="true"),
    partial_update("deletes remove, no -U", ALL_KINDS, remove_on_delete="true", ignore_update_before="true"),
    partial_update("ordered by a column", sequence_field="s"),
    partial_update("ordered by two columns, descending", sequence_field="s,u", sort_order="descending"),
    GROUPS,
    partial_update("sequence groups and an order", ALL_KINDS, group_tu="a,b,c", sequence_field="s"),
    partial_update("a group removes", ALL_KINDS, group_s="a,b", group_tu="c", remove_on_group="s"),
    partial_update("every group removes", ALL_KINDS, group_s="a,b", group_tu="c", remove_on_group="s,u"),
    GROUPS_WITH_FUNCTIONS,
    partial_update(
        "groups with functions, one removes",
        ALL_KINDS,
        group_s="a,b",
        group_tu="c",
        function_a="sum",
        function_b="first_non_null_value",
        ignore_retract_b="true",
        function_c="last_non_null_value",
        remove_on_group="t",
    ),
    partial_update("a default function", ALL_KINDS, group_s="a,b", default_function="last_non_null_value"),
    AGGREGATION,
    AGGREGATION_WITH_RETRACTS,
    _engine(
        "aggregation",
        "aggregation, deletes remove",
        ALL_KINDS,
        {
            "function_a": "sum",
            "function_s": "sum",
            "function_b": "last_value",
            "function_c": "sum",
            "remove_aggregate": "true",
        },
    ),
    _engine(
        "aggregation",
        "aggregation ordered by a column",
        ADDS,
        {"function_a": "sum", "function_b": "last_value", "function_u": "listagg", "sequence_field": "s"},
    ),
    SUMS,
)


@dataclass
class Rows:
    """Random rows over a few keys, the same for every run. Texts are digits, so they order as their numbers do."""

    engine: Engine
    dice: random.Random = field(default_factory=lambda: random.Random(5))
    keys: int = 12
    _added: dict[int, list[dict[str, Any]]] = field(default_factory=dict)

    def batch(self, count: int) -> pa.Table:
        return pa.Table.from_pylist(self.rows(count), SCHEMA)

    def rows(self, count: int) -> list[dict[str, Any]]:
        return [self._row() for _ in range(count)]

    def start_over(self, added: Iterable[Mapping[str, Any]]) -> None:
        """Of all rows so far only these are there, and may be taken back."""
        self._added = {}
        for row in added:
            self._added.setdefault(row["k"], []).append({name: row[name] for name in COLUMNS} | {KIND: 0})

    def _row(self) -> dict[str, Any]:
        small = [None, 0, 1, 2, 3]
        row: dict[str, Any] = {name: self.dice.choice(small) for name in COLUMNS}
        texts = {name: str(row[name]) for name in ("b", "u", "free") if row[name] is not None}
        row |= texts | {"k": self.dice.randrange(self.keys), KIND: self.dice.choice(self.engine.kinds)}
        return self._taken_back(row) if self.engine.takes_back_what_was else row

    def _taken_back(self, row: dict[str, Any]) -> dict[str, Any]:
        added = self._added.setdefault(row["k"], [])
        if row[KIND] in ADDS or not added:
            added.append(row | {KIND: 0})
            return added[-1]
        return added.pop(self.dice.randrange(len(added))) | {KIND: row[KIND]}
