"""Where a change stands among all changes of its source: what orders records of several partitions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class SourceOrder:
    """log: of the source that the change is in; places in different logs don't compare.
    place: in it; a smaller one came before.
    """

    log: str
    place: tuple[int, ...]

    def is_before(self, other: SourceOrder) -> bool | None:
        """None: they don't compare."""
        return self.place < other.place if self.log == other.log else None


SourceOrderOf: TypeAlias = Callable[[bytes], SourceOrder | None]
"""Of a record's value; None for one that doesn't say it."""
