"""`tidelake.spark.sql`: statements over the tables of a lake, which Spark's SQL doesn't know.

    CALL sys.<procedure>(…)           the procedure
    UPDATE, DELETE, MERGE INTO        `update`, `delete`, `merge`; Spark evaluates the expressions
    CREATE TABLE, ALTER TABLE         a change of the catalog (`table_statements`)
    SELECT …, WITH … SELECT           Spark's query, over the tables' current snapshots or those of `VERSION AS OF`

A Python data source can't be a catalog of Spark. So names of tables are found here, and Spark gets temporary views.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

import sqlglot
from pyspark.sql import DataFrame, SparkSession
from sqlglot import exp
from sqlglot.errors import SqlglotError

from tidelake.errors import BadInput, UnsupportedFeature
from tidelake.spark.procedures.calls import ProcedureCall
from tidelake.spark.row_changes import delete, merge, update
from tidelake.spark.table_read import read
from tidelake.spark.table_statements import alter_table, create_table
from tidelake.storage.base import env
from tidelake.storage.catalog.base import Catalog
from tidelake.storage.catalog.opening import open_catalog

_DIALECT: Final = "spark"
_STATEMENTS: Final = "CALL sys.…, UPDATE, DELETE FROM, MERGE INTO, CREATE TABLE, ALTER TABLE and SELECT"


def sql(spark: SparkSession, statement: str, warehouse: str, *, options: Mapping[str, str] | None = None) -> Any:
    """Run a statement over the tables of a lake.

    statement: tables are named `database.table`, also system tables and branches (shop.`orders$snapshots`). Other names
        are Spark's own tables and views.
    options: of the store

    Returns a DataFrame for a query, the snapshot (or None) for a change of rows, the result of a procedure, and None
    for a change of a table's schema.

    Raises BadInput for a statement that can't be read, UnsupportedFeature for one that is not supported.
    """
    return _Statements(spark, warehouse, dict(options or {})).run(statement)


@dataclass(frozen=True)
class _Statements:
    spark: SparkSession
    warehouse: str
    options: Mapping[str, str]

    def run(self, text: str) -> Any:
        call = _procedure(text)
        if call is not None:
            return call.run(self.spark, self.warehouse, self.options)
        parsed = _parsed(text)
        match parsed:
            case exp.Update():
                return self._update(parsed)
            case exp.Delete():
                return self._delete(parsed)
            case exp.Merge():
                return self._merge(parsed)
            case exp.Create():
                return create_table(open_catalog(self.warehouse, self.options), parsed)
            case exp.Alter():
                return alter_table(open_catalog(self.warehouse, self.options), parsed)
            case exp.Query():
                return self._query(parsed)
        raise UnsupportedFeature(
            f"the statement {text.strip().split(maxsplit=1)[0].upper()}",
            f"tidelake.spark.sql runs {_STATEMENTS}",
            "Use the methods of tidelake.open_catalog",
        )

    # ------------------------------------------------------------ changes of rows

    def _update(self, parsed: exp.Update) -> int | None:
        table = _table(parsed.this)
        own = {parsed.this.alias_or_name: ""}
        if parsed.args.get("from_") is not None:
            raise _unsupported("UPDATE … FROM", "Write a MERGE INTO")
        values = _assignments(parsed.expressions, own)
        return update(
            self.spark, table, self.warehouse, values, _condition(parsed.args.get("where"), own), options=self.options
        )

    def _delete(self, parsed: exp.Delete) -> int | None:
        table = _table(parsed.this)
        if parsed.args.get("using"):
            raise _unsupported("DELETE … USING", "Write a MERGE INTO")
        where = _condition(parsed.args.get("where"), {parsed.this.alias_or_name: ""})
        return delete(self.spark, table, self.warehouse, where, options=self.options)

    def _merge(self, parsed: exp.Merge) -> int | None:
        table, using = _table(parsed.this), parsed.args["using"]
        names = {parsed.this.alias_or_name: "target", using.alias_or_name: "source"}
        source = using.this if isinstance(using, exp.Subquery) else exp.select("*").from_(using.copy())
        actions = _MergeActions.of(parsed.args["whens"].expressions, names)
        return merge(
            self._query(source),
            table,
            self.warehouse,
            on=_text(parsed.args["on"], names),
            matched_update=actions.update,
            matched_delete=actions.delete,
            not_matched_insert=actions.insert,
            options=self.options,
        )

    # ------------------------------------------------------------ queries

    def _query(self, parsed: exp.Expr) -> DataFrame:
        """Return the query's DataFrame. Its plan holds the tables' snapshots, so the views are dropped at once."""
        query, catalog = parsed.copy(), open_catalog(self.warehouse, self.options)
        with ExitStack() as views:
            for table in list(query.find_all(exp.Table)):
                if table.args.get("db") is not None and self._exists(catalog, table):
                    view = f"tidelake_{env.new_uuid().hex}"
                    rows = read(self.spark, _name(table), self.warehouse, options={**self.options, **_version(table)})
                    rows.createOrReplaceTempView(view)
                    views.callback(self.spark.catalog.dropTempView, view)
                    alias = table.args.get("alias") or exp.TableAlias(this=exp.to_identifier(table.name, quoted=True))
                    table.replace(exp.Table(this=exp.to_identifier(view), alias=alias, joins=table.args.get("joins")))
            found = self.spark.sql(query.sql(dialect=_DIALECT))
            found.schema  # noqa: B018 - Spark Connect analyzes a query only when it is asked
            return found

    def _exists(self, catalog: Catalog, table: exp.Table) -> bool:
        """Return whether the lake has the table. Other names are left to Spark."""
        name = f"{table.db}.{table.name.partition('$')[0]}"
        return table.catalog in ("", "paimon", "tidelake") and catalog.table_exists(name)


@dataclass(frozen=True)
class _MergeActions:
    """What a MERGE does, as `merge` takes it."""

    update: Any = None
    delete: str | None = None
    insert: Any = None

    @classmethod
    def of(cls, whens: Sequence[exp.When], names: Mapping[str, str]) -> _MergeActions:
        found: dict[str, Any] = {}
        for when in whens:
            condition, then = when.args.get("condition"), when.args["then"]
            if when.args.get("source"):
                raise _unsupported("WHEN NOT MATCHED BY SOURCE", "Delete or update these rows with another statement")
            is_delete = isinstance(then, exp.Var) and then.name.upper() == "DELETE"
            kind = "insert" if not when.args["matched"] else "delete" if is_delete else "update"
            if kind in found:
                raise _unsupported(f"MERGE with two clauses that {kind}", "Use one of them, with CASE in its values")
            if condition is not None and kind != "delete":
                raise _unsupported(
                    f"MERGE with a condition on the clause that {kind}s",
                    "Put the condition into the source's query, or into CASE of the values",
                )
            if kind == "delete" and "update" in found:
                raise _unsupported("MERGE with WHEN MATCHED THEN DELETE after an update", "Write the delete first")
            if kind == "delete":
                found[kind] = "true" if condition is None else _text(condition, names)
            elif kind == "update":
                found[kind] = _assignments(then.expressions, names)
            else:
                found[kind] = _inserted(then, names)
        return cls(**found)


# ---------------------------------------------------------------- parts of statements


def _parsed(text: str) -> exp.Expr:
    try:
        found = sqlglot.parse(text, dialect=_DIALECT)
    except SqlglotError as error:
        raise BadInput(f"the statement can't be read: {str(error).splitlines()[0]}") from None
    statements = [one for one in found if one is not None]
    if len(statements) != 1:
        raise BadInput(f"tidelake.spark.sql runs one statement, not {len(statements)}. Call it for each")
    return statements[0]


def _procedure(text: str) -> ProcedureCall | None:
    """Return the call of `CALL sys.name(…)`; None for another statement."""
    first, _, rest = text.strip().rstrip(";").partition(" ")
    if first.upper() != "CALL":
        return None
    name, bracket, arguments = rest.partition("(")
    *schemas, procedure = name.strip().replace("`", "").split(".")
    if not bracket or (schemas and schemas[-1].lower() != "sys"):
        raise BadInput(f"the call can't be read: {rest.strip()!r}. Write CALL sys.compact(table => 'shop.orders')")
    parsed = _parsed(f"SELECT f({arguments}")
    call = parsed.find(exp.Anonymous)
    given = [] if call is None else call.expressions
    if not all(isinstance(one, exp.Kwarg) for one in given):
        raise BadInput(f"CALL {procedure}: name each argument: CALL sys.compact(table => 'shop.orders')")
    return ProcedureCall.of(procedure, [(one.this.name, _literal(one.expression)) for one in given])


def _literal(value: exp.Expression) -> str:
    match value:
        case exp.Literal():
            return str(value.this)
        case exp.Boolean():
            return str(value.this).lower()
        case exp.Neg():
            return f"-{_literal(value.this)}"
        case exp.Array():
            return ",".join(map(_literal, value.expressions))
        case exp.VarMap():
            keys, values = value.args["keys"].expressions, value.args["values"].expressions
            return ",".join(f"{_literal(k)}={_literal(v)}" for k, v in zip(keys, values, strict=True))
    raise BadInput(f"CALL: an argument is a literal, an array or a map, not {value.sql(dialect=_DIALECT)}")


def _table(table: exp.Expression) -> str:
    if not isinstance(table, exp.Table) or table.args.get("db") is None:
        raise BadInput(f"{table.sql(dialect=_DIALECT)}: name the table with its database, such as shop.orders")
    return _name(table)


def _name(table: exp.Table) -> str:
    return f"{table.db}.{table.name}"


def _version(table: exp.Table) -> dict[str, str]:
    """Return the options of `VERSION AS OF` and `TIMESTAMP AS OF`."""
    version = table.args.get("version")
    if version is None:
        return {}
    at = version.expression
    if not isinstance(at, exp.Literal):
        raise BadInput(f"{_name(table)}: {version.name} AS OF takes a number or a text")
    if version.name.upper() == "VERSION":
        return {"tag" if at.is_string else "snapshot": str(at.this)}
    return {"as-of": str(at.this)}


def _text(expression: exp.Expression, names: Mapping[str, str]) -> str:
    """Return Spark's text of an expression. `names` are the qualifiers of columns, and what they become ("": none)."""
    if expression.find(exp.Query) is not None:
        raise _unsupported("a subquery in a condition or a value", "Join it in the source of a MERGE INTO")
    copy = expression.copy()
    for column in list(copy.find_all(exp.Column)):
        if column.table in names:
            qualifier = names[column.table]
            column.set("table", exp.to_identifier(qualifier) if qualifier else None)
            column.set("db", None)
    return copy.sql(dialect=_DIALECT)


def _condition(where: exp.Expression | None, names: Mapping[str, str]) -> str:
    return "true" if where is None else _text(where.this, names)


def _assignments(expressions: Sequence[exp.Expression], names: Mapping[str, str]) -> Any:
    if any(isinstance(one, exp.Star) for one in expressions):
        return "*"
    return {one.this.name: _text(one.expression, names) for one in expressions}


def _inserted(then: exp.Expression, names: Mapping[str, str]) -> Any:
    if isinstance(then.this, exp.Star):
        return "*"
    values = then.args.get("expression")
    if not isinstance(then.this, exp.Tuple) or values is None:
        raise BadInput("MERGE: an insert names its columns: INSERT (id, v) VALUES (s.id, s.v), or INSERT *")
    columns = [column.name for column in then.this.expressions]
    texts = [_text(value, names) for value in values.expressions]
    if len(columns) != len(texts):
        raise BadInput(f"MERGE: the insert has {len(columns)} columns and {len(texts)} values")
    return dict(zip(columns, texts, strict=True))


def _unsupported(what: str, remedy: str) -> UnsupportedFeature:
    return UnsupportedFeature(what, "tidelake.spark.sql doesn't support it", remedy)
