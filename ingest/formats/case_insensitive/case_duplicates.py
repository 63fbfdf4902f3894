"""Columns of a record whose names differ only in case."""

from __future__ import annotations

from collections.abc import Collection


def first_case_duplicate(names: Collection[str]) -> tuple[str, str] | None:
    """Return the first two names that differ only in case; None if there are none."""
    seen: dict[str, str] = {}
    for name in names:
        if (other := seen.setdefault(name.lower(), name)) != name:
            return other, name
    return None


def case_duplicate_text(one: str, other: str) -> str:
    return (
        f"its columns {one!r} and {other!r} are both {one.lower()!r} in lower case, but the catalog accepts only "
        "lower case. Rename one of them at the source, or exclude it at the connector"
    )
