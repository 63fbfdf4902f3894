"""SQL text of conditions: parses what users type, and writes conditions as such text.

    either     := both { OR both }
    both       := one { AND one }
    one        := NOT one | "(" either ")" | column [ test ] | value sign column
    test       := sign value | IS [NOT] (NULL | TRUE | FALSE) | [NOT] IN "(" item { "," item } ")"
                | [NOT] BETWEEN value AND value | [NOT] LIKE '%text_'
    sign       := "=" | "==" | "!=" | "<>" | "<" | "<=" | ">" | ">="
    item       := value | NULL
    column     := name { "." name } [ "[" 'key' "]" ]
    name       := word | "name" | `name`
    value      := 12 | -1.5 | 1e3 | 'it''s' | [DATE | TIME | TIMESTAMP] '2026-05-01' | TRUE | FALSE

A column without a test is a BOOLEAN: `active` is `active != FALSE`. As in SQL, `x NOT IN (1, NULL)` is true of nothing.
A value takes the type of its column: `day >= '2026-05-01'`. `m['key']` is the value of one key of a MAP, `address.city`
a field of a ROW. In a LIKE pattern % is any text, _ any one character; a backslash before one of them, or before a
backslash, takes it literally. Words in capitals may also be written in lower case.
An assignment is `column = value` or `column = NULL`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from tidelake.errors import BadInput
from tidelake.storage.model.types import MAX_DECIMAL_PRECISION
from tidelake.storage.read.column_values import column_text
from tidelake.storage.read.predicate import (
    DEPTH_MAX,
    And,
    ArrowCondition,
    Column,
    Compare,
    IsIn,
    IsNan,
    IsNull,
    Like,
    Not,
    Or,
    Predicate,
    StartsWith,
    col,
    like_literal,
)

_TOKEN: Final = re.compile(
    r"""\s*(?:
        (?P<number>[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?)(?![\w.])
      | '(?P<text>(?:[^']|'')*)'
      | "(?P<quoted>(?:[^"]|"")+)" | `(?P<ticked>[^`]+)`
      | (?P<word>[^\W\d]\w*(?:\.\w+)*)
      | (?P<sign><=|>=|<>|!=|==|=|<|>|\(|\)|,|\[|\]|\.)
    )""",
    re.VERBOSE,
)
_RESERVED: Final = frozenset({"and", "or", "not", "is", "null", "in", "between", "like", "true", "false"})

_TYPED: Final = frozenset({"date", "time", "timestamp"})  # before a text in quotes: a literal of SQL

_COMPARE: Final[dict[str, Callable[[Column, Any], Predicate]]] = {
    "=": lambda column, value: column == value,
    "==": lambda column, value: column == value,
    "!=": lambda column, value: column != value,
    "<>": lambda column, value: column != value,
    "<": lambda column, value: column < value,
    "<=": lambda column, value: column <= value,
    ">": lambda column, value: column > value,
    ">=": lambda column, value: column >= value,
}

_TURNED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def parse_condition(text: str) -> Predicate:
    """Parse a condition. Raises BadInput that names the position in the text."""
    return _Parser(text).parse_all()


def parse_assignment(text: str) -> tuple[str, Any]:
    """Parse `column = value`. Raises BadInput that names the position in the text."""
    return _Parser(text, "assignment").assignment()


@dataclass(frozen=True, slots=True)
class _Token:
    """A token of a condition.

    kind: number, text, name, word (reserved, in lower case), sign, or end.
    """

    kind: str
    value: Any
    at: int


class _Parser:
    def __init__(self, text: str, what: str = "condition") -> None:
        self._text = text
        self._what = what
        self._tokens = self._tokenize(text)
        self._at = 0
        self._depth = 0  # open brackets

    def parse_all(self) -> Predicate:
        condition = self._parse_or()
        if self._peek().kind != "end":
            raise self._error("expected AND, OR or the end")
        return condition

    def assignment(self) -> tuple[str, Any]:
        if self._peek().kind != "name":
            raise self._error("expected a column")
        column = str(self._next().value)
        self._expect("=")
        value = None if self._take("null") else _storable(self._value())
        if self._peek().kind != "end":
            raise self._error("expected the end; repeat --set for another column")
        return column, value

    # ------------------------------------------------------------ grammar

    def _parse_or(self) -> Predicate:
        parts = [self._parse_and()]
        while self._take("or"):
            parts.append(self._parse_and())
        return parts[0] if len(parts) == 1 else Or(tuple(parts))

    def _parse_and(self) -> Predicate:
        parts = [self._parse_not()]
        while self._take("and"):
            parts.append(self._parse_not())
        return parts[0] if len(parts) == 1 else And(tuple(parts))

    def _parse_not(self) -> Predicate:
        is_negated = False
        while self._take("not"):
            is_negated = not is_negated
        one = self._parse_term()
        return Not(one) if is_negated else one

    def _parse_term(self) -> Predicate:
        if self._take("("):
            self._depth += 1
            if self._depth > DEPTH_MAX:
                raise self._error(f"brackets are nested more than {DEPTH_MAX} deep; use fewer")
            inner = self._parse_or()
            self._expect(")")
            self._depth -= 1
            return inner
        if self._is_value():
            value = self._value()
            sign = next((sign for sign in _COMPARE if self._take(sign)), None)
            if sign is None:
                raise self._error("expected = != < <= > or >= and a column after the value")
            return _COMPARE[_TURNED.get(sign, sign)](self._column(), value)
        return self._test(self._column())

    def _is_value(self) -> bool:
        token = self._peek()
        is_typed = token.kind == "name" and str(token.value).lower() in _TYPED
        is_truth = token.kind == "word" and token.value in ("true", "false")
        return token.kind in ("number", "text") or is_truth or (is_typed and self._tokens[self._at + 1].kind == "text")

    def _column(self) -> Column:
        if self._peek().kind != "name":
            raise self._error("expected a column")
        column = col(self._column_name())
        return self._key_of(column) if self._take("[") else column

    def _column_name(self) -> str:
        """Return a name with the fields after it: `a.b`, `"a b".c`."""
        name = str(self._next().value)
        while self._take("."):
            if self._peek().kind != "name":
                raise self._error("expected a field of the column after the dot")
            name += f".{self._next().value}"
        return name

    def _key_of(self, column: Column) -> Column:
        token = self._peek()
        if token.kind != "text":
            raise self._error("expected a key of a map: a string in single quotes")
        key = str(self._next().value)
        self._expect("]")
        return column[key]

    def _test(self, column: Column) -> Predicate:
        for sign, compare in _COMPARE.items():
            if self._take(sign):
                return compare(column, self._value())
        if self._take("is"):
            return self._is_test(column)
        if self._peek().kind == "end" or self._peek().value in ("and", "or", ")"):
            return _is_true(column)
        is_negated = self._take("not")
        condition = self._set_test(column)
        return Not(condition) if is_negated else condition

    def _is_test(self, column: Column) -> Predicate:
        is_negated = self._take("not")
        for word in ("true", "false"):
            if self._take(word):
                is_it = _is_true(column) if (word == "true") is not is_negated else column == False  # noqa: E712
                return Or((is_it, column.is_null())) if is_negated else And((is_it, column.is_not_null()))
        if not self._take("null"):
            raise self._error("expected NULL, TRUE or FALSE")
        return column.is_not_null() if is_negated else column.is_null()

    def _set_test(self, column: Column) -> Predicate:
        if self._take("in"):
            self._expect("(")
            values = [self._item()]
            while self._take(","):
                values.append(self._item())
            self._expect(")")
            return column.is_in(values)
        if self._take("between"):
            low = self._value()
            self._expect("and")
            return And((column >= low, column <= self._value()))
        if self._take("like"):
            return self._like(column)
        raise self._error("expected a comparison: = != < <= > >= IN, BETWEEN, LIKE or IS NULL")

    def _item(self) -> Any:
        return None if self._take("null") else self._value()

    def _value(self) -> Any:
        token = self._peek()
        if token.kind == "word" and token.value in ("true", "false"):
            return self._next().value == "true"
        if token.value == "null" and token.kind == "word":
            raise self._error("nothing equals null: write IS NULL or IS NOT NULL")
        if token.kind == "name" and str(token.value).lower() in _TYPED and self._tokens[self._at + 1].kind == "text":
            self._next()  # DATE '2026-05-01': the column decides how the text is read
            return self._next().value
        if token.kind == "name":
            raise self._error("expected a value; strings are written in single quotes")
        if token.kind not in ("number", "text"):
            raise self._error("expected a value")
        return self._next().value

    def _like(self, column: Column) -> Predicate:
        token = self._peek()
        if token.kind != "text":
            raise self._error("LIKE takes a pattern in single quotes, as in 'abc%'")
        pattern = str(self._next().value)
        is_prefix = pattern.endswith("%") and not re.search(r"[%_\\]", pattern[:-1])
        return column.starts_with(pattern[:-1]) if is_prefix else column.like(pattern)

    # ------------------------------------------------------------ tokens

    def _tokenize(self, text: str) -> list[_Token]:
        tokens = []
        at = 0
        while text[at:].strip():
            match = _TOKEN.match(text, at)
            if match is None:
                start = at + len(text[at:]) - len(text[at:].lstrip())
                raise self._error_at(start, _why_no_token(text[start:]))
            tokens.append(_token(match))
            at = match.end()
        return [*tokens, _Token("end", None, len(text.rstrip()))]

    def _peek(self) -> _Token:
        return self._tokens[self._at]

    def _next(self) -> _Token:
        self._at += 1
        return self._tokens[self._at - 1]

    def _take(self, value: str) -> bool:
        """Consume a reserved word or a sign, if it is next."""
        token = self._peek()
        matches = token.kind in ("word", "sign") and token.value == value
        self._at += matches
        return matches

    def _expect(self, value: str) -> None:
        if not self._take(value):
            raise self._error(f"expected {value.upper()}")

    def _error(self, reason: str) -> BadInput:
        return self._error_at(self._peek().at, reason)

    def _error_at(self, at: int, reason: str) -> BadInput:
        return BadInput(f"{self._what}: {reason}\n    {self._text}\n    {' ' * at}^")


def _is_true(column: Column) -> Predicate:
    """Return what SQL takes for a truth: a number is one unless it is 0."""
    return column != False  # noqa: E712


def _token(match: re.Match[str]) -> _Token:
    kind, raw = str(match.lastgroup), str(match[str(match.lastgroup)])
    at = match.end() - len(match[0].lstrip())
    match kind:
        case "number":
            return _Token("number", _number(raw), at)
        case "text":
            return _Token("text", raw.replace("''", "'"), at)
        case "quoted":
            return _Token("name", raw.replace('""', '"'), at)
        case "ticked":
            return _Token("name", raw, at)
        case "word":
            return _Token("word", raw.lower(), at) if raw.lower() in _RESERVED else _Token("name", raw, at)
        case _:
            return _Token("sign", raw, at)


def _number(text: str) -> int | Decimal:
    """Return a number as it is written: 0.1 as a float is not a DECIMAL(10, 2), and has 17 digits at most."""
    value = Decimal(text)
    is_int64 = re.fullmatch(r"[-+]?\d+", text) and -(2**63) <= value < 2**63
    return int(value) if is_int64 else value


def _storable(value: Any) -> Any:
    """Return a number that Arrow can represent. A float takes the place of one that no DECIMAL holds."""
    if not isinstance(value, Decimal):
        return value
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)  # it is no NaN
    precision = len(digits) + exponent if exponent > 0 else max(len(digits), -exponent)
    return Decimal(f"{value:f}") if precision <= MAX_DECIMAL_PRECISION else float(value)


def _why_no_token(text: str) -> str:
    """Return why a text begins neither with a column nor with a value or a sign."""
    first = text[0]
    if text[:2] in ('""', "``"):
        return "expected a column's name between the quotes"
    if first in "'\"`":
        return f"the quote {first} isn't closed"
    if first.isdigit() or first in "+-.":
        return "not a number; strings are written in single quotes, and there is no arithmetic"
    return f"{first} has no meaning here; a column is compared with a value, as in id = 5"


# ---------------------------------------------------------------- conditions as text


def condition_text(condition: Predicate) -> str:
    """Return the SQL text of a condition. It parses to the same condition, unless a part of it has no SQL.

    These are `is_nan()`, and `pyarrow.compute` expressions.
    """
    return _text(condition, is_part=False)


def _text(condition: Predicate, *, is_part: bool) -> str:
    """Return the text.

    is_part: of another condition, so that AND and OR are put into brackets
    """
    match condition:
        case And(parts=parts) | Or(parts=parts):
            word = " AND " if isinstance(condition, And) else " OR "
            joined = word.join(_text(part, is_part=True) for part in parts)
            return f"({joined})" if is_part else joined
        case Not(inner=IsNull() as inner):
            return f"{_column_text(inner)} IS NOT NULL"
        case Not(inner=inner):
            return f"NOT {_text(inner, is_part=True)}"
        case Compare(operator=operator, value=value):
            return f"{_column_text(condition)} {'=' if operator == '==' else operator} {_literal(value)}"
        case IsIn(values=values):
            return f"{_column_text(condition)} IN ({', '.join(map(_literal, values))})"
        case IsNull():
            return f"{_column_text(condition)} IS NULL"
        case IsNan():
            return f"{_column_text(condition)} is NaN"
        case StartsWith(prefix=prefix):
            return f"{_column_text(condition)} LIKE {_literal(like_literal(prefix) + '%')}"
        case Like(pattern=pattern):
            return f"{_column_text(condition)} LIKE {_literal(pattern)}"
        case ArrowCondition(condition=expression):
            return str(expression)
    return repr(condition)


def _column_text(condition: Any) -> str:
    return column_text(".".join(map(_name_text, (condition.column, *condition.path))), condition.key)


def _name_text(name: str) -> str:
    if re.fullmatch(r"[^\W\d]\w*(?:\.\w+)*", name) and name.lower() not in _RESERVED:
        return name
    quoted = name.replace('"', '""')
    return f'"{quoted}"'


def _literal(value: Any) -> str:
    plain = value.as_py() if hasattr(value, "as_py") else value
    match plain:
        case None:
            return "NULL"
        case bool():
            return "TRUE" if plain else "FALSE"
        case int() | float():
            return repr(plain)
        case Decimal():
            return f"{plain:f}"
    quoted = str(plain).replace("'", "''")
    return f"'{quoted}'"
