"""Renames a column in the options that name it.

Java renames it in some of these options (`bucket-key`, `sequence.field`, some of `fields.<column>.*`). Because of the
others it refuses the change, or leaves the old name. Here all of them refer to the same column afterwards.

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
    """Return the options in the same order, with `new` instead of each reference to the column `old`."""
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
    """Rename in `fields.<columns>.…` and `file-index.<type>.<column>.…`. A column may have the form `m[key]`."""
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
