"""Nested values in the text form of the suite `complex_types`: `(1, [1,null])`, `({'a':2})`, `([ROW(1,'x')])`."""

from __future__ import annotations

import re
from typing import Any, Final

from tests.support.cases import NotUnderstood

_TOKEN: Final = re.compile(r"\s*('(?:[^'\\]|\\.)*'|-?\d+\.\.-?\d+|ROW(?=\()|[][(){},:]|[^][(){},:'\s]+)\s*")
_CLOSING: Final = {"[": "]", "(": ")", "{": "}"}


def read_value(text: str) -> tuple[Any, str]:
    """The value, and the remark behind it. Atoms stay text (None for null), rows and arrays are lists, maps lists of
    entries; `0..3` in an array is 0, 1, 2, 3.
    """
    reader = _Reader(text)
    value = reader.value()
    return value, text[reader.at :].strip()


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self.at = 0

    def value(self) -> Any:
        token = self._next()
        if token == "ROW":
            token = self._next()
        if token in _CLOSING:
            return self._parts(_CLOSING[token])
        if token.startswith("'"):
            return re.sub(r"\\(.)", r"\1", token[1:-1])
        return None if token == "null" else token

    def _parts(self, closing: str) -> list[Any]:
        parts: list[Any] = []
        while self._peek() != closing:
            part = self.value()
            if self._peek() == ":":
                self._next()
                part = [part, self.value()]
            if isinstance(part, str) and re.fullmatch(r"-?\d+\.\.-?\d+", part):
                first, last = map(int, part.split(".."))
                parts += map(str, range(first, last + 1))
            else:
                parts.append(part)
            if self._peek() == ",":
                self._next()
        self._next()
        return parts

    def _peek(self) -> str:
        return self._match()[1]

    def _next(self) -> str:
        found = self._match()
        self.at = found.end()
        return found[1]

    def _match(self) -> re.Match[str]:
        found = _TOKEN.match(self._text, self.at)
        if found is None:
            raise NotUnderstood(f"the value {self._text!r} from {self._text[self.at :]!r} on")
        return found
