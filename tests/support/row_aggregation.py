"""Merge engine aggregation row by row, written from the rules, to compare the columnar one with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.support import aggregate_rows
from tests.support.row_merge import Record


def aggregate_row_by_row(
    options: Mapping[str, str], types: Mapping[str, str], key: Sequence[str], records: Sequence[Record]
) -> Record:
    """The one record of a key. types: SQL text by column. records: oldest first; a single one comes out as it is."""
    return records[0] if len(records) == 1 else aggregate_without_shortcut(options, types, key, records)


def aggregate_without_shortcut(
    options: Mapping[str, str], types: Mapping[str, str], key: Sequence[str], records: Sequence[Record]
) -> Record:
    removes = options.get("aggregation.remove-record-on-delete") == "true"
    steps = ["set" if removes and r.kind == "-D" else "retract" if r.retracts else "agg" for r in records]
    merged: dict[str, Any] = {}
    for name, column in types.items():
        prefix = f"fields.{name}."
        of_column = {option.removeprefix(prefix): text for option, text in options.items() if option.startswith(prefix)}
        function = aggregate_rows.function(_chosen(name, options, key), column, of_column)
        merged[name] = aggregate_rows.fold(function, list(zip(steps, (r.row[name] for r in records), strict=True)))
    return Record("-D" if steps[-1] == "set" else "+I", records[-1].sequence, merged)


def _chosen(name: str, options: Mapping[str, str], key: Sequence[str]) -> str:
    if name in key:
        return "primary-key"
    if name in options.get("sequence.field", "").split(","):
        return "last_value"
    default = options.get("fields.default-aggregate-function", "last_non_null_value")
    return options.get(f"fields.{name}.aggregate-function", default)
