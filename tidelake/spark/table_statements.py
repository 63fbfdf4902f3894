"""`CREATE TABLE` and `ALTER TABLE` of `tidelake.spark.sql`, in Spark's words: what they mean for a catalog.

The primary key and the buckets are table properties, as for Paimon in Spark: TBLPROPERTIES ('primary-key' = 'id').
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlglot import exp

from tidelake.errors import BadInput, UnsupportedFeature
from tidelake.storage.catalog.base import Catalog
from tidelake.storage.ddl.schema_changes import (
    AddColumn,
    DropColumn,
    Path,
    RenameColumn,
    SchemaChange,
    SetOption,
    UpdateColumnDescription,
    UpdateColumnNullability,
    UpdateColumnType,
)
from tidelake.storage.model.types import DataField, DataType, parse_type

_DIALECT: Final = "spark"
_PRIMARY_KEY: Final = "primary-key"
_FORMATS: Final = ("tidelake", "paimon")
_TYPES: Final = {  # a type of Spark to one of Paimon
    exp.DType.TIMESTAMPTZ: "TIMESTAMP(6) WITH LOCAL TIME ZONE",
    exp.DType.TIMESTAMPLTZ: "TIMESTAMP(6) WITH LOCAL TIME ZONE",
    exp.DType.TIMESTAMPNTZ: "TIMESTAMP(6)",
    exp.DType.TIME: "TIME(6)",
    exp.DType.TEXT: "STRING",
    exp.DType.BINARY: "BYTES",
    exp.DType.DECIMAL: "DECIMAL(10, 0)",
}
_PLAIN: Final = frozenset(
    {exp.DType.TINYINT, exp.DType.SMALLINT, exp.DType.INT, exp.DType.BIGINT, exp.DType.FLOAT, exp.DType.DOUBLE}
    | {exp.DType.BOOLEAN, exp.DType.DATE, exp.DType.VARIANT}
)
_SIZED: Final = frozenset({exp.DType.CHAR, exp.DType.VARCHAR, exp.DType.DECIMAL})


@dataclass(frozen=True)
class _Column:
    """A column, as a statement defines it."""

    path: Path
    type: DataType
    comment: str | None
    first: bool
    after: str | None

    @classmethod
    def of(cls, parsed: exp.ColumnDef) -> _Column:
        is_nullable, comment = True, None
        for constraint in parsed.constraints:
            match constraint.kind:
                case exp.NotNullColumnConstraint():
                    is_nullable = bool(constraint.kind.args.get("allow_null"))
                case exp.CommentColumnConstraint():
                    comment = constraint.kind.name
                case other:
                    raise _unsupported(f"{parsed.sql(dialect=_DIALECT)}: {other.sql(dialect=_DIALECT)}")
        position = parsed.args.get("position")
        where = None if position is None else position.args["position"]
        text = _type_text(parsed.args["kind"]) + ("" if is_nullable else " NOT NULL")
        after = position.this.name if position is not None and where == "AFTER" else None
        return cls(_path(parsed.this), parse_type(text), comment, where == "FIRST", after)


def create_table(catalog: Catalog, parsed: exp.Create) -> None:
    """Create the table. Raises BadInput and UnsupportedFeature."""
    schema = parsed.this
    if parsed.kind != "TABLE" or parsed.args.get("replace") or parsed.expression is not None:
        raise _unsupported(
            "CREATE other than CREATE TABLE name (columns)", "Create the table, then fill it with tidelake.spark.write"
        )
    if not isinstance(schema, exp.Schema):
        raise BadInput(f"{schema.sql(dialect=_DIALECT)}: a table needs columns: CREATE TABLE shop.orders (id BIGINT)")
    columns, keys = list[_Column](), list[str]()
    for part in schema.expressions:
        if isinstance(part, exp.PrimaryKey):
            keys = [one.name for one in part.expressions]
        elif isinstance(part, exp.ColumnDef):
            columns.append(_Column.of(part))
        else:
            raise _unsupported(part.sql(dialect=_DIALECT))
    options, partition_by, comment = dict[str, str](), list[str](), None
    properties = parsed.args.get("properties")
    for one in [] if properties is None else properties.expressions:
        match one:
            case exp.FileFormatProperty() if one.this.name.lower() in _FORMATS:
                pass
            case exp.PartitionedByProperty():
                partition_by = _plain_columns(one.this.expressions)
            case exp.SchemaCommentProperty():
                comment = one.this.name
            case exp.Property() if "value" in one.args:
                options[one.this.name] = one.args["value"].name
            case _:
                raise _unsupported(f"CREATE TABLE … {one.sql(dialect=_DIALECT)}")
    if _PRIMARY_KEY in options:
        if keys:
            raise BadInput("the statement names its primary key twice: as PRIMARY KEY, and as a property")
        keys = [name.strip() for name in options.pop(_PRIMARY_KEY).split(",")]
    catalog.create_table(
        _name(schema.this),
        [DataField(n, _single(one.path), one.type, one.comment) for n, one in enumerate(columns)],
        primary_key=keys,
        partition_by=partition_by,
        options=options,
        comment=comment,
        if_not_exists=bool(parsed.args.get("exists")),
    )


def alter_table(catalog: Catalog, parsed: exp.Alter) -> None:
    """Alter the table: all changes of the statement in one new version of its schema.

    Raises BadInput and UnsupportedFeature.
    """
    if parsed.kind != "TABLE":
        raise _unsupported(f"ALTER {parsed.kind}")
    table, changes = _name(parsed.this), list[SchemaChange]()
    for action in parsed.args["actions"]:
        if isinstance(action, exp.AlterRename):
            catalog.rename_table(table, _name(action.this))
            return
        changes += _changes(action)
    catalog.alter_table(table, changes)


def _changes(action: exp.Expression) -> list[SchemaChange]:
    match action:
        case exp.Schema():
            return [change for column in action.expressions for change in _changes(column)]
        case exp.ColumnDef():
            one = _Column.of(action)
            return [AddColumn(one.path, one.type, one.comment, one.first, one.after)]
        case exp.Drop() if action.args["kind"] in ("COLUMN", "COLUMNS"):
            named = [c for t in action.args["tables"] for c in (t.expressions if isinstance(t, exp.Schema) else [t])]
            return [DropColumn(_path(column)) for column in named]
        case exp.RenameColumn():
            return [RenameColumn(_path(action.this), action.args["to"].name)]
        case exp.AlterColumn():
            return [_altered(action)]
        case exp.AlterSet() if all(isinstance(one, exp.Properties) for one in action.expressions):
            given = [one for properties in action.expressions for one in properties.expressions]
            return [SetOption(one.this.name, one.args["value"].name) for one in given]
    raise _unsupported(f"ALTER TABLE … {action.sql(dialect=_DIALECT)}", "Use tidelake.open_catalog(…).alter_table")


def _altered(action: exp.AlterColumn) -> SchemaChange:
    path = _path(action.this)
    if (kind := action.args.get("dtype")) is not None:
        return UpdateColumnType(path, parse_type(_type_text(kind)))
    if (comment := action.args.get("comment")) is not None:
        return UpdateColumnDescription(path, comment.name)
    if action.args.get("allow_null") is not None:
        return UpdateColumnNullability(path, bool(action.args["allow_null"]))
    raise _unsupported(action.sql(dialect=_DIALECT), "Use tidelake.open_catalog(…).alter_table")


def _type_text(kind: exp.Expression) -> str:
    """Return Paimon's text of a type of Spark. Raises UnsupportedFeature."""
    word, inner = kind.this, kind.expressions
    if word is exp.DType.ARRAY:
        return f"ARRAY<{_type_text(inner[0])}>"
    if word is exp.DType.MAP:
        return f"MAP<{_type_text(inner[0])}, {_type_text(inner[1])}>"
    if word is exp.DType.STRUCT:
        fields = (f"`{one.name}` {_type_text(one.args['kind'])}" for one in inner)
        return f"ROW<{', '.join(fields)}>"
    if inner and word in _SIZED:
        return f"{word.value}({', '.join(one.this.name for one in inner)})"
    if not inner and word in _TYPES:
        return _TYPES[word]
    if not inner and word in _PLAIN:
        return str(word.value)
    raise _unsupported(f"the type {kind.sql(dialect=_DIALECT)}", "Use another type of Spark")


def _path(column: exp.Expression) -> Path:
    if isinstance(column, exp.Dot):
        return (*_path(column.this), column.expression.name)
    return tuple(part.name for part in column.parts) if isinstance(column, exp.Column) else (column.name,)


def _single(path: Path) -> str:
    if len(path) != 1:
        raise BadInput(f"{'.'.join(path)}: a column has one name; write backticks around a name with a dot")
    return path[0]


def _plain_columns(parts: Sequence[exp.Expression]) -> list[str]:
    if transformed := [part for part in parts if not isinstance(part, exp.Identifier | exp.Column)]:
        raise _unsupported(
            f"PARTITIONED BY ({transformed[0].sql(dialect=_DIALECT)})",
            "Partition by columns, and set the property 'bucket' to divide the rows of a partition",
        )
    return [part.name for part in parts]


def _name(table: exp.Expression) -> str:
    if not isinstance(table, exp.Table) or table.args.get("db") is None:
        raise BadInput(f"{table.sql(dialect=_DIALECT)}: name the table with its database, such as shop.orders")
    return f"{table.db}.{table.name}"


def _unsupported(what: str, remedy: str = "Leave it out") -> UnsupportedFeature:
    return UnsupportedFeature(what, "tidelake.spark.sql doesn't support it", remedy)
