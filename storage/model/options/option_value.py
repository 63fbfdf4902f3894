"""One option as an attribute of `TableOptions` or `CatalogValues`. Its type and default come from the registry.

    write_only = OptionValue[bool]("write-only")

The type in brackets is for the type checker; a test compares it with the registry's.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any, Generic, Self, TypeVar, cast, overload

from tidelake.errors import BadInput
from tidelake.storage.model.options.base_options import BaseOptions, option_of

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)


class OptionValue(Generic[T]):
    """A descriptor. The first access parses the text; BadInput names option and value.

    key: the option's name, not an older one.
    parse: for an option whose text means more than the registry's type says; None: the parser of the type.
    unset: the value if the option is not set and has no default; None: that of the type (usually None, too).
    """

    def __init__(self, key: str, parse: Callable[[str], T] | None = None, unset: T | None = None) -> None:
        self.key = key
        self._given_parse = parse
        self._given_unset = unset

    def __set_name__(self, owner: type[BaseOptions], name: str) -> None:
        """Find the option in the registry of the owning class."""
        self.option = option_of(self.key, owner.registry)
        self._parse: Callable[[str], Any] = self._given_parse or self.option.kind.parse
        self._unset = self.option.kind.unset if self._given_unset is None else self._given_unset

    @overload
    def __get__(self, instance: None, owner: type[BaseOptions]) -> Self: ...

    @overload
    def __get__(self, instance: BaseOptions, owner: type[BaseOptions]) -> T: ...

    def __get__(self, instance: BaseOptions | None, owner: type[BaseOptions]) -> Self | T:
        if instance is None:
            return self
        known = instance.known
        if self not in known:
            found = instance.parsed(self.key, self._parse, self._unset)
            if isinstance(found, dict):  # not kept: a caller could change it
                return cast(T, found)
            known[self] = found
        return cast(T, known[self])


class EnumValue(OptionValue[E]):
    """Accepts `_` for `-`, which existing tables may have. Java does not, and new tables must use Java's spelling."""

    def __init__(self, key: str, kind: type[E]) -> None:
        def parse(text: str) -> E:
            try:
                return kind(text.strip().lower().replace("_", "-"))
            except ValueError:
                raise BadInput(f"expected one of {', '.join(kind)}") from None

        super().__init__(key, parse)
