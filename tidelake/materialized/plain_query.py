"""Queries that are simple enough to be refreshed from changes: the rows or the groups of one table.

    SELECT id, amount * 2 AS twice FROM orders WHERE status = 'paid'
    SELECT day, SUM(amount) AS total, COUNT(*) AS orders FROM orders GROUP BY day

A plain query means the same in Spark, Flink and DuckDB, and returns the same rows every time. All other queries are not
plain, as engines differ in how they divide, round, cast and compare NaN.

Importing this module is slow.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final

import pyarrow as pa
import sqlglot
from sqlglot import expressions as e
from sqlglot.optimizer.scope import traverse_scope

from tidelake.errors import BadInput
from tidelake.storage.read.predicate import And, Compare, Predicate

_ISO_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d")
_PARTS: Final = {"expressions", "from_", "where", "group", "kind"}  # allowed parts of a plain SELECT; sqlglot's names
_NAMES_OF_PARTS: Final = {
    "joins": "a join",
    "laterals": "LATERAL",
    "having": "HAVING",
    "order": "ORDER BY",
    "limit": "LIMIT",
    "offset": "OFFSET",
    "distinct": "DISTINCT",
    "with_": "WITH",
    "windows": "a window",
    "qualify": "QUALIFY",
}


class NotPlain(Exception):
    """The query is not plain. str() is the reason, as the end of a sentence: `the query …`."""


class Role(StrEnum):
    """The role of a column of the result."""

    COLUMN = "column"
    EXPRESSION = "expression"
    COUNT = "count"
    SUM = "sum"
    MIN = "min"
    MAX = "max"


@dataclass(frozen=True, slots=True)
class OutputColumn:
    """A column of the result.

    argument: the source's column; None for COUNT(*) and expressions
    """

    name: str
    role: Role
    argument: str | None


@dataclass(frozen=True, slots=True)
class PlainQuery:
    """A parsed plain query.

    table: as the query names it, with or without its database.
    """

    table: str
    outputs: tuple[OutputColumn, ...]
    is_grouped: bool
    _tree: Any

    @property
    def names(self) -> list[str]:
        return [output.name for output in self.outputs]

    def of_role(self, *roles: Role) -> list[OutputColumn]:
        return [output for output in self.outputs if output.role in roles]

    def columns(self) -> list[str]:
        """Return the columns of the source that the query reads, sorted by name."""
        return sorted({column.name for column in self._tree.find_all(e.Column)})

    def condition(self, schema: pa.Schema) -> Predicate | None:
        """Return a condition for a scan of the source: all rows that the query selects satisfy it, and maybe others.

        schema: of the source.
        """
        where = self._tree.args.get("where")
        if where is None:
            return None
        parts = list(where.this.flatten()) if isinstance(where.this, e.And) else [where.this]
        known = tuple(found for part in parts if (found := _predicate(part, schema)) is not None)
        return And(known) if known else None

    def sql(self, dialect: str, source: str) -> str:
        """Return the query in a dialect.

        source: the name of the table there.
        """
        tree = self._tree.copy()
        table = tree.find(e.Table)
        assert table is not None
        alias = table.alias or table.name
        table.replace(e.alias_(e.to_table(source, dialect=dialect), alias, table=True, quoted=True))
        return str(tree.sql(dialect=dialect, identify=True))


def tables_of(query: str, dialect: str) -> list[str]:
    """Return the tables that a query names, under these names, without functions.

    Raises BadInput unless it is one query.
    """
    tree = _parsed(query, dialect)
    found = [
        source
        for scope in traverse_scope(tree)
        for source in scope.sources.values()
        if isinstance(source, e.Table) and isinstance(source.this, e.Identifier)
    ]
    return sorted({_name_of(table) for table in found})


def columns_of(query: str, dialect: str) -> set[str] | None:
    """Return lower-case names that include all columns that a query reads; None if it may read any column."""
    tree = _parsed(query, dialect)
    tables = {name.lower() for table in tree.find_all(e.Table) for name in (table.name, table.alias)}
    for node in tree.walk():
        if isinstance(node, e.Star) and not isinstance(node.parent, e.Count):
            return None
        if isinstance(node, e.Column) and not node.table and node.name.lower() in tables:
            return None  # reads a whole row as one value
        if isinstance(node, e.Pivot | e.Columns) or (isinstance(node, e.Join) and node.method):
            return None
    return {identifier.name.lower() for identifier in tree.find_all(e.Identifier)}


def plain_query(query: str, dialect: str | None, schema_of: Callable[[str], pa.Schema]) -> PlainQuery:
    """Parse a plain query.

    dialect: None if it is unknown: then only SQL is accepted that all dialects read in the same way.
    schema_of: the columns of a table, by its name in the query.

    Raises NotPlain; BadInput unless the text is one query of this dialect.
    """
    if dialect is None and ('"' in query or "\\" in query):
        raise NotPlain('has " or \\, which SQL dialects interpret in different ways')
    try:
        tree = _parsed(query, dialect or "spark")
    except BadInput as error:
        if dialect is None:
            raise NotPlain(f"is not SQL that all dialects share ({error})") from None
        raise
    return _QueryParser(tree, schema_of).read()


def _parsed(query: str, dialect: str) -> Any:
    logging.getLogger("sqlglot").setLevel(logging.ERROR)
    try:
        statements = sqlglot.parse(query, dialect=dialect)
    except sqlglot.errors.SqlglotError as error:
        raise BadInput(f"the query can't be read as SQL of {dialect}: {str(error).splitlines()[0]}") from None
    if len(statements) != 1 or not isinstance(statements[0], e.Query):
        raise BadInput("the definition must be one query: write SELECT …")
    return statements[0]


def _name_of(table: Any) -> str:
    return ".".join(part for part in (table.catalog, table.db, table.name) if part)


class _QueryParser:
    def __init__(self, tree: Any, schema_of: Callable[[str], pa.Schema]) -> None:
        self._tree = tree
        self._schema_of = schema_of

    def read(self) -> PlainQuery:
        tree = self._tree
        if not isinstance(tree, e.Select):
            raise NotPlain(f"has {tree.key.upper()}")
        self._check_parts(tree)
        table = tree.args["from_"].this if tree.args.get("from_") else None
        if (
            not isinstance(table, e.Table)
            or not isinstance(table.this, e.Identifier)
            or any(value for part, value in table.args.items() if part not in ("this", "db", "alias"))
        ):
            raise NotPlain("must read exactly one table")
        self._alias = table.alias or table.name
        self._schema = self._schema_of(_name_of(table))
        if len({name.lower() for name in self._schema.names}) < len(self._schema.names):
            raise NotPlain("reads a table with columns that differ in case only")
        where = tree.args.get("where")
        if where is not None:
            self._expect(where.this, "boolean")
        group = tree.args.get("group")
        return PlainQuery(_name_of(table), self._outputs(tree, group), group is not None, tree)

    def _check_parts(self, tree: Any) -> None:
        for part, value in tree.args.items():
            if value and part not in _PARTS:
                raise NotPlain(f"has {_NAMES_OF_PARTS.get(part, part.strip('_').upper())}")

    def _outputs(self, tree: Any, group: Any) -> tuple[OutputColumn, ...]:
        if len(tree.expressions) == 1 and isinstance(tree.expressions[0], e.Star):
            if group is not None or any(tree.expressions[0].args.values()):
                raise NotPlain("has * together with other columns")
            tree.set("expressions", [e.column(name, quoted=True) for name in self._schema.names])
        keys = [] if group is None else self._group_keys(group)
        outputs = tuple(
            self._output(expression, keys if group is not None else None) for expression in tree.expressions
        )
        if len({output.name.lower() for output in outputs}) < len(outputs):
            raise NotPlain("names a column twice")
        if missing := set(keys) - {output.argument for output in outputs if output.role is Role.COLUMN}:
            raise NotPlain(f"leaves out {min(missing)}, by which it groups")
        return outputs

    def _group_keys(self, group: Any) -> list[str]:
        if any(value for part, value in group.args.items() if part != "expressions"):
            raise NotPlain("groups in several ways")
        keys: list[str] = []
        for key in group.expressions:
            if not isinstance(key, e.Column):
                raise NotPlain("groups by expressions that are not columns")
            if self._kind(key) in ("float", "other"):
                raise NotPlain(f"groups by {key.name}, whose values engines compare in different ways")
            keys.append(key.name)
        return keys

    def _output(self, expression: Any, keys: Sequence[str] | None) -> OutputColumn:
        """Return the output column of an expression.

        keys: the group keys; None if the query doesn't group.
        """
        inner = expression.unalias()
        name = expression.alias_or_name
        if not name:
            raise NotPlain(f"gives a column without a name: {expression.sql()[:40]}")
        if isinstance(inner, e.Column):
            self._kind(inner)
            if keys is not None and inner.name not in keys:
                raise NotPlain(f"gives {inner.name}, by which it does not group")
            return OutputColumn(name, Role.COLUMN, inner.name)
        if keys is None:
            self._kind(inner)
            return OutputColumn(name, Role.EXPRESSION, None)
        return self._aggregate(name, inner)

    def _aggregate(self, name: str, inner: Any) -> OutputColumn:
        roles = {e.Count: Role.COUNT, e.Sum: Role.SUM, e.Min: Role.MIN, e.Max: Role.MAX}
        role = roles.get(type(inner))
        others = [value for part, value in inner.args.items() if value and part not in ("this", "big_int")]
        if role is None or others:
            raise NotPlain(f"has {inner.sql()[:40]}, which is not a plain sum, count, min or max")
        if role is Role.COUNT and isinstance(inner.this, e.Star):
            return OutputColumn(name, role, None)
        if not isinstance(inner.this, e.Column):
            raise NotPlain(f"has {inner.sql()[:40]}, whose argument is not a column")
        kind = self._kind(inner.this)
        if role is Role.SUM and kind != "number":
            raise NotPlain(
                f"sums up {inner.this.name}: only sums of whole numbers and decimals don't depend on the order of rows"
            )
        if role in (Role.MIN, Role.MAX) and kind in ("float", "other"):
            raise NotPlain(f"compares values of {inner.this.name}, which engines do in different ways")
        return OutputColumn(name, role, inner.this.name)

    # ------------------------------------------------------------ expressions

    def _expect(self, expression: Any, kind: str) -> None:
        found = self._kind(expression)
        if found not in (kind, "null"):
            raise NotPlain(f"has {expression.sql()[:40]} where a {kind} is needed")

    def _kind(self, expression: Any) -> str:
        """Return the kind of an expression's values: number, text, boolean, date, time…, float, other; null for NULL.

        Raises NotPlain.
        """
        match expression:
            case e.Column():
                return self._kind_of_column(expression)
            case e.Null():
                return "null"
            case e.Boolean():
                return "boolean"
            case e.Literal():
                if not expression.is_string and not re.fullmatch(r"\d+(\.\d+)?", expression.name):
                    raise NotPlain(f"has {expression.name}, which is not an exact number")
                return "text" if expression.is_string else "number"
            case e.Paren():
                return self._kind(expression.this)
            case e.Neg():
                self._expect(expression.this, "number")
                return "number"
            case e.Add() | e.Sub() | e.Mul():
                self._expect(expression.left, "number")
                self._expect(expression.right, "number")
                return "number"
            case e.And() | e.Or():
                self._expect(expression.left, "boolean")
                self._expect(expression.right, "boolean")
                return "boolean"
            case e.Not():
                self._expect(expression.this, "boolean")
                return "boolean"
            case e.Is() if isinstance(expression.expression, e.Null):
                self._kind(expression.this)
                return "boolean"
            case e.EQ() | e.NEQ() | e.LT() | e.LTE() | e.GT() | e.GTE():
                self._check_comparable(expression.left, expression.right)
                return "boolean"
            case e.Between():
                self._check_comparable(expression.this, expression.args["low"])
                self._check_comparable(expression.this, expression.args["high"])
                return "boolean"
            case e.In() if expression.expressions and not expression.args.get("query"):
                for value in expression.expressions:
                    self._check_comparable(expression.this, value)
                return "boolean"
            case e.Case() if expression.this is None:
                return self._kind_of_case(expression)
            case e.Coalesce():
                return self._common([expression.this, *expression.expressions])
            case e.Cast() if expression.to.sql() == "DATE" and _is_date_text(expression.this):
                return "date"
            case _:
                raise NotPlain(f"has {expression.sql()[:40]}, which may mean different things in different engines")

    def _kind_of_case(self, expression: Any) -> str:
        values = []
        for branch in expression.args["ifs"]:
            self._expect(branch.this, "boolean")
            values.append(branch.args["true"])
        default = expression.args.get("default")
        return self._common([*values, *([default] if default is not None else [])])

    def _common(self, expressions: Sequence[Any]) -> str:
        kinds = {self._kind(expression) for expression in expressions} - {"null"}
        if len(kinds) != 1 or not kinds.isdisjoint(("float", "other")):
            raise NotPlain("mixes values of several types")
        return kinds.pop()

    def _check_comparable(self, one: Any, other: Any) -> None:
        kinds = {self._kind(one), self._kind(other)} - {"null"}
        if kinds == {"date", "text"} and (_is_date_text(one) or _is_date_text(other)):
            return
        if len(kinds) > 1 or not kinds.isdisjoint(("float", "other")):
            raise NotPlain(f"compares {one.sql()[:30]} with {other.sql()[:30]}, which engines do in different ways")

    def _kind_of_column(self, column: Any) -> str:
        if column.table and column.table != self._alias:
            raise NotPlain(f"has {column.sql()[:40]}, which is not a column")
        if column.name not in self._schema.names:
            raise NotPlain(f"names {column.name!r}, which is not a column of its table")
        kind = self._schema.field(column.name).type
        if pa.types.is_integer(kind) or pa.types.is_decimal(kind):
            return "number"
        if pa.types.is_floating(kind):
            return "float"
        if pa.types.is_string(kind):
            return "text"
        if pa.types.is_boolean(kind):
            return "boolean"
        if pa.types.is_date(kind):
            return "date"
        return f"time {kind}" if pa.types.is_timestamp(kind) or pa.types.is_time(kind) else "other"


def _predicate(part: Any, schema: pa.Schema) -> Predicate | None:
    """Return the predicate of `column < literal` and similar comparisons; None for other expressions."""
    operators = {e.EQ: "==", e.LT: "<", e.LTE: "<=", e.GT: ">", e.GTE: ">="}
    if type(part) not in operators or not (isinstance(part.left, e.Column) and isinstance(part.right, e.Literal)):
        return None
    text, kind = part.right.name, schema.field(part.left.name).type
    if not part.right.is_string:
        value: object = Decimal(text) if "." in text else int(text)
    else:
        value = date.fromisoformat(text) if pa.types.is_date(kind) else text
    return Compare(part.left.name, operators[type(part)], value)


def _is_date_text(expression: Any) -> bool:
    is_text = isinstance(expression, e.Literal) and expression.is_string
    return is_text and _ISO_DATE.fullmatch(expression.name) is not None
