"""What `mode: scd2` must give: the versions of rows by a dictionary of their changes."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, TypeAlias

Row: TypeAlias = tuple[Any, ...]
Version: TypeAlias = tuple[Hashable, Any, Any, Row | None]
"""(key, from, to, values). The values are None for a delete that no version before it shows."""


def versions_of(changes: Iterable[tuple[Hashable, Any, Row | None]]) -> list[Version]:
    """Return the versions of all keys, from changes in the order of arrival: (key, time, values; None: deleted)."""
    by_key: dict[Hashable, dict[Any, Row | None]] = {}
    for key, time, values in changes:
        by_key.setdefault(key, {})[time] = values
    found: list[Version] = []
    for key, by_time in by_key.items():
        times = sorted(by_time)
        for at, (time, end) in enumerate(zip(times, [*times[1:], None], strict=True)):
            if by_time[time] is not None:
                found.append((key, time, end, by_time[time]))
            elif at == 0 or by_time[times[at - 1]] is None:
                found.append((key, time, time, None))
    return sorted(found, key=lambda version: (str(version[0]), version[1]))
