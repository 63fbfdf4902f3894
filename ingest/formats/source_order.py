"""The position of a change among all changes of its source. It orders records of several partitions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class SourceOrder:
    """The position of a change at its source.

    log: the source's log that contains the change. Positions in different logs can't be compared.
    place: the position in that log; a smaller one is earlier.
    """

    log: str
    place: tuple[int, ...]

    def is_before(self, other: SourceOrder) -> bool | None:
        """Return whether this change is earlier than the other; None if they can't be compared."""
        return self.place < other.place if self.log == other.log else None


SourceOrderOf: TypeAlias = Callable[[bytes], SourceOrder | None]
"""Returns the source order of a record's value; None if the record doesn't contain it."""
