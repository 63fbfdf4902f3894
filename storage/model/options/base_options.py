"""The texts of a table's options and their conversion to values. Names and defaults come from the registry.

Source: Java `options/Options.java`, `options/OptionsUtils.java`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache
from typing import Any, ClassVar, Self, TypeVar

from tidelake.errors import BadInput
from tidelake.storage.model.options.option import Option
from tidelake.storage.model.options.registry import TABLE_REGISTRY, OptionRegistry
from tidelake.storage.model.options.values import (
    parse_boolean,
    parse_duration_ms,
    parse_fraction,
    parse_int,
    parse_long,
    parse_map,
    parse_names,
    parse_size_bytes,
)

T = TypeVar("T")


class BaseOptions(Mapping[str, str]):
    """The options of a schema, overridden by the caller's dynamic options. As a mapping it returns the raw texts.

    A text is parsed when it is first used; BadInput names option and value. Immutable; can be pickled.

    registry: has the names, types and defaults.
    kind: the word for such an option in error messages.
    """

    registry: ClassVar[OptionRegistry] = TABLE_REGISTRY
    kind: ClassVar[str] = "option"

    def __init__(self, stored: Mapping[str, str], dynamic: Mapping[str, str] | None = None) -> None:
        self._dynamic = dict(dynamic or {})
        self._values = {**stored, **self._dynamic}
        self.known: dict[Any, Any] = {}  # values that were parsed already

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "known": {}}

    def __getitem__(self, key: str) -> str:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._values!r})"

    def rebase(self, stored: Mapping[str, str], *, without: Collection[str] = ()) -> Self:
        """Return the same dynamic options on top of another schema's options.

        without: dynamic options that are left out.
        """
        return type(self)(stored, {key: text for key, text in self._dynamic.items() if key not in without})

    def overridden(self, dynamic: Mapping[str, str]) -> Self:
        """Return these options with more dynamic options on top."""
        return type(self)(self._values, {**self._dynamic, **dynamic})

    # ------------------------------------------------------------ one option

    def is_given(self, key: str) -> bool:
        """Return whether the option is set, under this name or an older one."""
        return self._name_of(key, option_of(key, self.registry)) is not None

    def is_on(self, key: str) -> bool:
        """Return whether a switch is on."""
        return bool(self._kept(key, parse_boolean, False))

    def text(self, key: str) -> str | None:
        """Return the value, or the registry's default."""
        return self._optional(key, str)

    def parsed(self, key: str, parse: Callable[[str], T], default: Any) -> Any:
        """Return the value of an option, or the registry's default.

        default: the result for an option without both.
        """
        option = option_of(key, self.registry)
        name = self._name_of(key, option)
        if name is None:
            return default if option.in_effect is None else _parsed_default(option.in_effect, parse)
        try:
            return parse(self._values[name])
        except BadInput as e:
            raise BadInput(f"{self.kind} {name} = {self._values[name]!r}: {e}") from None

    def _name_of(self, key: str, option: Option) -> str | None:
        return next((name for name in (key, *option.fallbacks) if name in self._values), None)

    def _kept(self, key: str, parse: Callable[[str], T], default: Any) -> Any:
        """Do the same as `parsed`, and keep the result: a table has thousands of buckets, and each one asks.

        parse: a function of a module, not a new one for each call, because it is part of the key.
        """
        cache_key = key, parse, default
        if cache_key not in self.known:
            self.known[cache_key] = self.parsed(key, parse, default)
        return self.known[cache_key]

    def _text(self, key: str) -> str:
        return str(self._kept(key, str, ""))

    def _trimmed(self, key: str) -> str:
        return self._text(key).strip()

    def _word(self, key: str) -> str:
        """Return a value in lower case, without surrounding blanks."""
        return self._trimmed(key).lower()

    def _int(self, key: str, default: int | None = None) -> int:
        return int(self._kept(key, parse_int, default))

    def _long(self, key: str) -> int:
        return int(self._kept(key, parse_long, None))

    def _fraction(self, key: str) -> float:
        return float(self._kept(key, parse_fraction, None))

    def _size_bytes(self, key: str, default: int | None = None) -> int:
        return int(self._kept(key, parse_size_bytes, default))

    def _duration_ms(self, key: str, default: int | None = None) -> int:
        return int(self._kept(key, parse_duration_ms, default))

    def _names(self, key: str) -> tuple[str, ...]:
        found: tuple[str, ...] = self.parsed(key, parse_names, ())
        return found

    def _map(self, key: str) -> dict[str, str]:
        found: dict[str, str] = self.parsed(key, parse_map, {})
        return found

    def _optional(self, key: str, parse: Callable[[str], T]) -> T | None:
        """Return None if the option is not set and has no default."""
        found: T | None = self.parsed(key, parse, None)
        return found


@cache
def option_of(key: str, registry: OptionRegistry) -> Option:
    """Return the option with exactly this name. Code must not use an older name."""
    option = registry.find(key)
    assert option is not None, f"the registry has no option {key}"
    assert option.key == key or option.is_family, f"{key} is an older name of {option.key}"
    return option


@cache
def _parsed_default(text: str, parse: Callable[[str], T]) -> T:
    return parse(text)
