"""Options that name a column, after the column was renamed.

Java renames in some of these (`bucket-key`, `sequence.field`, some of `fields.<column>.*`) and refuses the change, or
leaves a name behind, because of the others. Here all of them go on meaning the same column.

Source: Java `schema/SchemaManager.java` (applyRenameColumnsToOptions).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# Options whose value is a column, or a list of them.
_LISTS: Final = frozenset(
    {
        "bucket-key",
        "changelog-producer.row-deduplicate-ignore-fields",
        "clustering.columns",
        "partial-update.remove-record-on-sequence-group",
        "record-level.time-field",
        "rowkind.field",
        "sequence.field",
        "vector-field",
    }
)


def rename_in_options(options: Mapping[str, str], old: str, new: str) -> dict[str, str]:
    """Options in the same order, with `new` wherever one names the column `old` of the table."""
    return {
        _rename_in_key(key, old, new): _rename_in_list(value, old, new) if _lists_columns(key) else value
        for key, value in options.items()
    }


def _lists_columns(key: str) -> bool:
    match key.split("."):
        case ["fields", _, "sequence-group"] | ["file-index", _, "columns"]:
            return True
    return key in _LISTS


def _rename_in_key(key: str, old: str, new: str) -> str:
    """`fields.<columns>.…` and `file-index.<type>.<column>.…`, where the column may be a key of a map: `m[key]`."""
    match key.split("."):
        case ["fields", columns, *rest] if rest:
            return ".".join(["fields", _rename_in_list(columns, old, new), *rest])
        case ["file-index", kind, column, *rest] if rest:
            return ".".join(["file-index", kind, _renamed(column, old, new), *rest])
    return key


def _rename_in_list(text: str, old: str, new: str) -> str:
    return ",".join(_renamed(name, old, new) for name in text.split(","))


def _renamed(name: str, old: str, new: str) -> str:
    column, bracket, rest = name.strip().partition("[")
    if name.strip() != old and not (column == old and rest.endswith("]")):
        return name
    return new if name.strip() == old else f"{new}{bracket}{rest}"
