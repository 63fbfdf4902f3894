"""The texts of a table's options, and how one of them becomes a value.

Source: Java `options/Options.java`, `options/OptionsUtils.java`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from typing import Self, TypeVar

from storage.errors import BadInput
from storage.options.values import parse_boolean

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)


class OptionTexts(Mapping[str, str]):
    """The options of a schema with the caller's dynamic ones on top. As a mapping: the raw texts.

    A text is parsed when it is asked for; BadInput names option and value. Immutable; pickles.
    """

    def __init__(self, stored: Mapping[str, str], dynamic: Mapping[str, str] | None = None) -> None:
        self._dynamic = dict(dynamic or {})
        self._values = {**stored, **self._dynamic}

    def __getitem__(self, key: str) -> str:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._values!r})"

    def rebase(self, stored: Mapping[str, str]) -> Self:
        """The same dynamic options over another schema's."""
        return type(self)(stored, self._dynamic)

    def overridden(self, dynamic: Mapping[str, str]) -> Self:
        """These, with more dynamic ones on top."""
        return type(self)(self._values, {**self._dynamic, **dynamic})

    def is_on(self, key: str, default: bool = False) -> bool:
        """Whether a switch is on."""
        return self._parsed(key, parse_boolean, default)

    def _parsed(self, keys: str | tuple[str, ...], parse: Callable[[str], T], default: T) -> T:
        """The first key that is set decides; the others are older names of the same option."""
        for key in (keys,) if isinstance(keys, str) else keys:
            if key in self._values:
                try:
                    return parse(self._values[key])
                except BadInput as e:
                    raise BadInput(f"option {key} = {self._values[key]!r}: {e}") from None
        return default

    def _optional(self, key: str, parse: Callable[[str], T]) -> T | None:
        return self._parsed(key, parse, None) if key in self._values else None

    def _choice(self, key: str, default: E) -> E:
        """Takes `_` for `-`, as tables that exist may have it; Java doesn't, and new tables are held to that."""
        kind = type(default)

        def parse(text: str) -> E:
            try:
                return kind(text.strip().lower().replace("_", "-"))
            except ValueError:
                raise BadInput(f"expected one of {', '.join(kind)}") from None

        return self._parsed(key, parse, default)
