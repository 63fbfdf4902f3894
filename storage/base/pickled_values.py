"""Makes frozen dataclasses pickle as the values of their fields.

For dataclasses with slots, the standard library looks up the fields of each object again, in both directions. For ten
thousand files this took longer than to write five hundred of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from operator import attrgetter
from typing import Any, TypeVar

T = TypeVar("T")


def pickles_as_values(cls: type[T]) -> type[T]:
    """Decorate a dataclass of two or more fields. Its constructor must accept all fields in their order."""
    values: Callable[[Any], tuple[Any, ...]] = attrgetter(*(field.name for field in fields(cls)))  # type: ignore[arg-type]

    def reduce(self: T) -> tuple[type[T], tuple[Any, ...]]:
        return cls, values(self)

    cls.__reduce__ = reduce  # type: ignore[assignment]
    return cls
