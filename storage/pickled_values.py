"""Frozen dataclasses that are pickled as the values of their fields.

For dataclasses with slots, the standard library looks up the fields again for each object, in both directions. For ten
thousand files that took longer than writing five hundred.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from operator import attrgetter
from typing import Any, TypeVar

T = TypeVar("T")


def pickles_as_values(cls: type[T]) -> type[T]:
    """Decorate a dataclass of two or more fields, whose constructor takes all of them in their order."""
    values: Callable[[Any], tuple[Any, ...]] = attrgetter(*(field.name for field in fields(cls)))  # type: ignore[arg-type]

    def reduce(self: T) -> tuple[type[T], tuple[Any, ...]]:
        return cls, values(self)

    cls.__reduce__ = reduce  # type: ignore[assignment]
    return cls
