"""Parses column types written as SQL: `DECIMAL(10, 2) NOT NULL`, `MAP<STRING, ARRAY<INT>>`.

Source: Java `types/DataTypeJsonParser.java`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches
from functools import lru_cache
from typing import Final

from tidelake.errors import BadInput
from tidelake.storage.base.arguments import shown
from tidelake.storage.model.types.data_types import (
    BYTES,
    CONSTRUCTED_ROOTS,
    DOUBLE,
    MAX_DECIMAL_PRECISION,
    MAX_LENGTH,
    STRING,
    ArrayType,
    AtomicType,
    DataField,
    DataType,
    MapType,
    MultisetType,
    Root,
    RowType,
    VectorType,
    decimal,
)

_TOKEN: Final = re.compile(r"\s*(?:([A-Za-z_]\w*)|(\d+)|`([^`]*)`|'((?:[^']|'')*)'|([(),<>]))")
_SYNONYMS: Final = {"INTEGER": Root.INT, "DEC": Root.DECIMAL, "NUMERIC": Root.DECIMAL}
_DIGITS_MAX: Final = 20  # digits of a length or precision
_DEPTH_MAX: Final = 200  # nesting depth of types; tables allow less
_DEFAULT_PRECISION: Final = {Root.TIME: 0, Root.TIMESTAMP: 6, Root.TIMESTAMP_LTZ: 6}


@lru_cache(maxsize=1024)  # the schemas of all tables contain the same few texts, and types are immutable
def parse_type(text: str) -> DataType:
    """Parse SQL text such as `DECIMAL(10, 2) NOT NULL` or `MAP<STRING, ARRAY<INT>>`. ROW fields get ids 0, 1, 2, …

    Source: Java `DataTypeJsonParser`. Raises BadInput with the text.
    """
    return _TypeParser(text).parse()


class _TypeParser:
    """A recursive-descent parser over the tokens of one type."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[str] = []
        self._next = 0
        self._depth = 0
        self._next_field_id = 0
        position = 0
        while text[position:].strip():
            match = _TOKEN.match(text, position)
            if match is None:
                raise self._wrong()
            word, number, quoted, literal, mark = match.groups()
            if quoted is not None:
                self._tokens.append("`" + quoted)
            else:
                self._tokens.append(word or number or mark or "'" + literal)
            position = match.end()

    def parse(self) -> DataType:
        parsed = self._type()
        if self._next != len(self._tokens):
            raise self._wrong()
        return parsed

    def _wrong(self) -> BadInput:
        known = [*_SYNONYMS, *(root.value for root in Root)]
        word = next(iter(self._tokens), "")
        close = [] if word.upper() in known else get_close_matches(word.upper(), known, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        return BadInput(f"not a column type: {shown(self._text)}{hint}")

    def _enter_type(self) -> None:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise BadInput(f"column type {shown(self._text)}: types in types more than {_DEPTH_MAX} deep; nest fewer")

    def _peek(self) -> str:
        return self._tokens[self._next].upper() if self._next < len(self._tokens) else ""

    def _take(self) -> str:
        if self._next >= len(self._tokens):
            raise self._wrong()
        self._next += 1
        return self._tokens[self._next - 1]

    def _accept(self, *words: str) -> bool:
        ahead = [t.upper() for t in self._tokens[self._next : self._next + len(words)]]
        if ahead != list(words):
            return False
        self._next += len(words)
        return True

    def _expect(self, word: str) -> None:
        if not self._accept(word):
            raise self._wrong()

    def _type(self) -> DataType:
        outside = self._depth
        self._enter_type()
        parsed = self._nullability(self._head())
        while self._peek() in (Root.ARRAY, Root.MULTISET):  # the suffix form: INT ARRAY
            self._enter_type()
            make = ArrayType if self._take().upper() == Root.ARRAY else MultisetType
            parsed = self._nullability(make(parsed))
        self._depth = outside
        return parsed

    def _number(self) -> int:
        digits = self._take()
        if not digits.isdecimal() or len(digits) > _DIGITS_MAX:
            raise self._wrong()
        return int(digits)

    def _nullability(self, parsed: DataType) -> DataType:
        if self._accept("NOT", "NULL"):
            return replace(parsed, nullable=False)
        self._accept("NULL")
        return parsed

    def _head(self) -> DataType:
        word = self._take().upper()
        match word:
            case "STRING":
                return STRING
            case "BYTES":
                return BYTES
            case "DOUBLE":
                self._accept("PRECISION")
                return DOUBLE
            case "ARRAY" | "MULTISET":
                self._expect("<")
                element = self._type()
                self._expect(">")
                return ArrayType(element) if word == Root.ARRAY else MultisetType(element)
            case "VECTOR":
                self._expect("<")
                element = self._type()
                self._expect(",")
                length = self._number()
                if length > MAX_LENGTH:
                    raise self._wrong()
                self._expect(">")
                return VectorType(element, length)
            case "MAP":
                self._expect("<")
                key = self._type()
                self._expect(",")
                value = self._type()
                self._expect(">")
                return MapType(key, value)
            case "ROW":
                return self._row()
        root = _SYNONYMS.get(word) or (Root(word) if word in Root.__members__ else None)
        if root is None or root in CONSTRUCTED_ROOTS:
            raise self._wrong()
        return self._atomic(root)

    def _row(self) -> RowType:
        self._expect("<")
        fields: list[DataField] = []
        while not self._accept(">"):
            if fields:
                self._expect(",")
            name = self._take().removeprefix("`")
            field_id = self._next_field_id
            self._next_field_id += 1
            field_type = self._type()
            described = self._take()[1:] if self._peek().startswith("'") else None
            fields.append(DataField(field_id, name, field_type, described))
        return RowType(tuple(fields))

    def _atomic(self, root: Root) -> AtomicType:
        parameters: list[int] = []
        if self._accept("("):
            while True:
                parameters.append(self._number())
                if self._accept(")"):
                    break
                self._expect(",")
        if root is Root.TIMESTAMP and self._accept("WITH", "LOCAL", "TIME", "ZONE"):
            root = Root.TIMESTAMP_LTZ
        elif root in (Root.TIME, Root.TIMESTAMP):
            self._accept("WITHOUT", "TIME", "ZONE")
        return self._checked(root, parameters)

    def _checked(self, root: Root, parameters: Sequence[int]) -> AtomicType:
        match root, parameters:
            case ((Root.CHAR | Root.VARCHAR | Root.BINARY | Root.VARBINARY), ([] | [_])):
                length = parameters[0] if parameters else 1
                if length <= MAX_LENGTH:
                    return AtomicType(root, length=length)
            case Root.DECIMAL, ([] | [_] | [_, _]):
                precision = parameters[0] if parameters else 10
                scale = parameters[1] if len(parameters) == 2 else 0
                if 1 <= precision <= MAX_DECIMAL_PRECISION and scale <= precision:
                    return decimal(precision, scale)
            case ((Root.TIME | Root.TIMESTAMP | Root.TIMESTAMP_LTZ), ([] | [_])):
                precision = parameters[0] if parameters else _DEFAULT_PRECISION[root]
                if precision <= 9:
                    return AtomicType(root, precision=precision)
            case _, []:
                return AtomicType(root)
        raise self._wrong()
