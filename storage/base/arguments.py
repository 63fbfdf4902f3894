"""Checks arguments of public functions before they are used.

Each check returns the value, or raises BadInput with `what` (the argument, as the caller knows it), the reason and what
to pass instead.
"""

from __future__ import annotations

import collections.abc
import functools
import inspect
import operator
import re
import types
import typing
from collections.abc import Callable
from typing import Any, Final, ParamSpec, TypeVar

from tidelake.errors import BadInput

P = ParamSpec("P")
T = TypeVar("T")

INT64_MAX: Final = 2**63 - 1
FILE_NAME_BYTES_MAX: Final = 255
_SHOWN: Final = 80  # longest display of a value in a message, in characters


def check_text(what: str, given: object) -> str:
    """Check a text. UTF-8 can't encode lone surrogates, which Python texts may have, so no file can store them."""
    if not isinstance(given, str):
        raise BadInput(f"{what} must be a string, not {shown(given)}; pass a str")
    try:
        given.encode()
    except UnicodeEncodeError as e:
        raise BadInput(
            f"{what}: {shown(given)} has a lone surrogate, {given[e.start]!r}, which UTF-8 can't hold; decode the text "
            "with the encoding that it was written in"
        ) from None
    return given


def check_whole_number(what: str, given: object, *, at_least: int = 0) -> int:
    """Check a whole number. NumPy's integers are accepted, booleans are not."""
    try:
        number = operator.index(given)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None or isinstance(given, bool):
        raise BadInput(f"{what} must be a whole number, not {shown(given)}; pass an int")
    if not at_least <= number <= INT64_MAX:
        raise BadInput(f"{what} = {shown(number)} is outside of {at_least} to {INT64_MAX}; use a number in this range")
    return number


def check_file_name(what: str, name: str, *, affix: str = "") -> None:
    """Check a name of a file or directory.

    affix: the prefix or suffix that the file name adds.
    """
    check_text(what, name)
    if not name.strip() or "/" in name or "\0" in name:
        raise BadInput(
            f"{what} {shown(name)} is blank, or contains a slash or a zero byte; choose a name that a file can have"
        )
    size, most = len(name.encode()), FILE_NAME_BYTES_MAX - len(affix)
    if size > most:
        raise BadInput(
            f"{what} {shown(name)} has {size} bytes, but file systems allow only {most}; choose a shorter one"
        )


def shown(given: object) -> str:
    """Return a text like repr, but shortened."""
    try:
        text = repr(given)
    except Exception:  # repr of foreign objects may fail, and repr of numbers with thousands of digits does
        text = f"<{type(given).__name__}>"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


# ---------------------------------------------------------------- by annotation


def checked(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate a public function: each argument must be of its annotated type, and its texts must be valid UTF-8."""
    return checked_except()(function)


def checked_except(*names: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Return a decorator as `checked`. The function itself checks these arguments, with more precise errors."""
    return lambda function: _checked(function, frozenset(names))


def _checked(function: Callable[P, T], others: frozenset[str]) -> Callable[P, T]:
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        hints = _hints(function)
        try:
            arguments = signature.bind(*args, **kwargs).arguments
        except TypeError:
            return function(*args, **kwargs)  # raises Python's own TypeError, which names the function
        for name, value in arguments.items():
            if name not in hints or name in others:
                continue
            if signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
                for option, text in value.items():
                    _check(f"{function.__name__}({option}=…)", text, hints[name])
            else:
                _check(f"{function.__name__}({name}=…)", value, hints[name])
        return function(*args, **kwargs)

    return call


def check_members(of: object) -> None:
    """Check the members of a dataclass as `checked` does."""
    kind: Any = type(of)
    for name, hint in _hints(kind.__init__).items():
        if name != "return":
            _check(f"{type(of).__name__}({name}=…)", getattr(of, name), hint)


@functools.cache
def _hints(of: Any) -> dict[str, Any]:
    return typing.get_type_hints(of)


def _check(what: str, value: object, hint: Any) -> None:
    if not _matches_hint(value, hint):
        raise BadInput(f"{what} must be {_words(hint)}, not {shown(value)}; pass {_expected_item(value, hint)}")
    _check_texts(what, value)


def _matches_hint(value: Any, hint: Any) -> bool:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any or isinstance(hint, typing.TypeVar):
        return True
    if origin in (typing.Union, types.UnionType):
        return any(_matches_hint(value, one) for one in inner)
    if hint is None or hint is type(None):
        return value is None
    if hint is bool:
        return isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if origin is collections.abc.Mapping:
        return isinstance(value, collections.abc.Mapping) and all(
            _matches_hint(key, inner[0]) and _matches_hint(one, inner[1]) for key, one in value.items()
        )
    if origin is collections.abc.Sequence:
        is_sequence = isinstance(value, collections.abc.Sequence) and not isinstance(value, str | bytes)
        return is_sequence and all(_matches_hint(one, inner[0]) for one in value)
    if origin is tuple:
        return isinstance(value, tuple | list) and all(_matches_hint(one, inner[0]) for one in value)
    kind = origin or hint
    if getattr(kind, "_is_protocol", False):  # members of protocols are only checked by their use
        return True
    return isinstance(value, kind) if isinstance(kind, type) else True


def _check_texts(what: str, value: object) -> None:
    if isinstance(value, str):
        check_text(what, value)
    elif isinstance(value, collections.abc.Mapping):
        for key, one in value.items():
            _check_texts(what, key)
            _check_texts(what, one)
    elif isinstance(value, list | tuple):
        for one in value:
            _check_texts(what, one)


def _expected_item(value: object, hint: Any) -> str:
    if isinstance(value, str) and typing.get_origin(hint) is collections.abc.Sequence:
        return f"[{shown(value)}]"  # the caller surely meant a list with this text
    return "one"


def _words(hint: Any) -> str:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_words(one) for one in inner)
    if origin is collections.abc.Sequence:
        return f"list of {_words(inner[0])}"
    if origin is collections.abc.Mapping:
        return f"dict of {_words(inner[0])} to {_words(inner[1])}"
    if isinstance(hint, type) and typing.get_origin(hint) is None:
        return hint.__name__
    return re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Za-z])", "", str(hint)).replace("NoneType", "None")
