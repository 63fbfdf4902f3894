"""Merge engines row by row, written from the rules, to compare the columnar ones with.

A record is (row kind, sequence number, values by column); records of one key come oldest first. Shares nothing with the
product but the names of row kinds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]
ADDS = ("+I", "+U")


@dataclass(frozen=True)
class Record:
    kind: str
    sequence: int
    row: Mapping[str, Any]

    @property
    def retracts(self) -> bool:
        return self.kind not in ADDS


class Refused(Exception):
    """The engine does not take this record."""


def merge_row_by_row(
    engine: str, options: Mapping[str, str], columns: Sequence[str], key: str, records: Sequence[Record]
) -> Record | None:
    """The one record of a key, or None when none is left. A single record comes out as it is."""
    if len(records) == 1:
        return records[0]
    return merge_without_shortcut(engine, options, columns, key, records)


def merge_without_shortcut(
    engine: str, options: Mapping[str, str], columns: Sequence[str], key: str, records: Sequence[Record]
) -> Record | None:
    ignore_delete = options.get("ignore-delete") == "true"
    match engine:
        case "deduplicate":
            kept = [r for r in records if not (ignore_delete and r.retracts)]
            return kept[-1] if kept else None
        case "first-row":
            if not ignore_delete and any(r.retracts for r in records):
                raise Refused
            kept = [r for r in records if not r.retracts]
            return kept[0] if kept else None
        case "partial-update":
            update = _PartialUpdate(options, columns, key)
            for record in records:
                update.add(record)
            return update.result()
    raise AssertionError(engine)


# ---------------------------------------------------------------- partial-update


def _sum(acc: Any, x: Any) -> Any:
    return x if acc is None else acc if x is None else acc + x


def _subtract(acc: Any, x: Any) -> Any:
    if x is None:
        return acc
    return -x if acc is None else acc - x


def _max(acc: Any, x: Any) -> Any:
    return x if acc is None else acc if x is None else max(acc, x)


def _refuse(acc: Any, x: Any) -> Any:
    raise Refused


@dataclass
class _Function:
    agg: Callable[[Any, Any], Any]
    retract: Callable[[Any, Any], Any] = _refuse
    reversed: Callable[[Any, Any], Any] | None = None

    def agg_reversed(self, acc: Any, x: Any) -> Any:
        return self.agg(x, acc) if self.reversed is None else self.reversed(acc, x)


class _FirstValue(_Function):
    """Remembers that it met a value that counts, whatever became of the accumulator since."""

    def __init__(self, *, nulls_count: bool) -> None:
        super().__init__(self._first)
        self._nulls_count = nulls_count
        self._called = False

    def _first(self, acc: Any, x: Any) -> Any:
        if self._called or (x is None and not self._nulls_count):
            return acc
        self._called = True
        return x


def _function(name: str, ignore_retract: bool) -> _Function:
    match name:
        case "sum":
            found = _Function(_sum, _subtract)
        case "max":
            found = _Function(_max)
        case "last_value":
            found = _Function(lambda acc, x: x, lambda acc, x: None)
        case "last_non_null_value":
            found = _Function(lambda acc, x: acc if x is None else x, lambda acc, x: acc if x is None else None)
        case "first_value" | "first_non_null_value":
            found = _FirstValue(nulls_count=name == "first_value")
        case "collect":
            found = _Function(_sum, reversed=None if ignore_retract else _sum)
        case _:
            raise AssertionError(name)
    if ignore_retract:
        found.retract = lambda acc, x: acc
    return found


@dataclass
class _PartialUpdate:
    options: Mapping[str, str]
    columns: Sequence[str]
    key: str
    row: Row = field(default_factory=dict)
    sequence: int = 0
    met_insert: bool = False
    filled: bool = False
    deleted: bool = False

    def __post_init__(self) -> None:
        self.row = dict.fromkeys(self.columns)
        self.group_of: dict[str, tuple[str, ...]] = {}
        for option, value in self.options.items():
            if option.endswith(".sequence-group"):
                ordering = tuple(option.removeprefix("fields.").removesuffix(".sequence-group").split(","))
                self.group_of |= dict.fromkeys((*value.split(","), *ordering), ordering)
        ordered = {name for ordering in self.group_of.values() for name in ordering}
        self.functions = {}
        for name in self.columns:
            chosen = self.options.get(f"fields.{name}.aggregate-function")
            chosen = chosen or self.options.get("fields.default-aggregate-function")
            if chosen and name in self.group_of and name not in ordered:
                self.functions[name] = _function(chosen, self.options.get(f"fields.{name}.ignore-retract") == "true")
        self.removing = self.options.get("partial-update.remove-record-on-sequence-group", "").split(",")

    def add(self, record: Record) -> None:
        self.deleted = False
        if record.retracts:
            self._retract(record)
            return
        self.sequence = record.sequence
        self._update(record.row)
        self.met_insert = self.filled = True

    def result(self) -> Record:
        kind = "-D" if self.deleted or not self.met_insert else "+I"
        return Record(kind, self.sequence, self.row)

    def _retract(self, record: Record) -> None:
        if not self.filled:
            self.row = dict(record.row)
            self.filled = True
        if self.options.get("ignore-delete") == "true":
            return
        self.sequence = record.sequence
        if self.group_of:
            self._retract_groups(record)
        elif self.options.get("partial-update.remove-record-on-delete") == "true":
            if record.kind == "-D":
                self.deleted = True
                self.row = dict(record.row)
        else:
            raise Refused

    def _update(self, row: Mapping[str, Any]) -> None:
        done: set[str] = set()
        for name in self.columns:
            group, function, x = self.group_of.get(name), self.functions.get(name), row[name]
            if group is None:
                self.row[name] = self.row[name] if x is None else x
            elif name in done or self._is_empty(row, group):
                done.update(group)
            elif self._is_not_older(row, group):
                if name in group:
                    self.row |= {part: row[part] for part in group}
                    done.update(group)
                else:
                    self.row[name] = function.agg(self.row[name], x) if function else x
            elif function:
                self.row[name] = function.agg_reversed(self.row[name], x)

    def _retract_groups(self, record: Record) -> None:
        row, done = record.row, set[str]()
        for name in self.columns:
            group, function = self.group_of.get(name), self.functions.get(name)
            if group is None:
                continue
            if name in done or self._is_empty(row, group):
                done.update(group)
            elif self._is_not_older(row, group):
                if name in group:
                    if record.kind == "-D" and any(part in self.removing for part in group):
                        self.deleted = True
                        self.row = dict(row)
                        return
                    self.row |= {part: row[part] for part in group}
                    done.update(group)
                else:
                    self.row[name] = function.retract(self.row[name], row[name]) if function else None
            elif function:
                self.row[name] = function.retract(self.row[name], row[name])

    def _is_empty(self, row: Mapping[str, Any], group: tuple[str, ...]) -> bool:
        return all(row[part] is None for part in group)

    def _is_not_older(self, row: Mapping[str, Any], group: tuple[str, ...]) -> bool:
        return _nulls_first(row, group) >= _nulls_first(self.row, group)


def _nulls_first(row: Mapping[str, Any], names: Sequence[str]) -> list[tuple[Any, ...]]:
    """NaN comes last."""
    return [() if row[name] is None else _nan_last(row[name]) for name in names]


def _nan_last(x: Any) -> tuple[bool, Any]:
    is_nan = isinstance(x, float) and math.isnan(x)
    return is_nan, 0 if is_nan else x
