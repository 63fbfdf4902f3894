"""Frozen dataclasses that pickle as their fields' values.

Of those with slots the standard library looks the fields up again for each object, both ways: of ten thousand files
that took longer than to write five hundred.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from operator import attrgetter
from typing import Any, TypeVar

T = TypeVar("T")


def pickles_as_values(cls: type[T]) -> type[T]:
    """For a dataclass of two or more fields, all of which its constructor takes in their order."""
    values: Callable[[Any], tuple[Any, ...]] = attrgetter(*(field.name for field in fields(cls)))  # type: ignore[arg-type]

    def reduce(self: T) -> tuple[type[T], tuple[Any, ...]]:
        return cls, values(self)

    cls.__reduce__ = reduce  # type: ignore[assignment]
    return cls
