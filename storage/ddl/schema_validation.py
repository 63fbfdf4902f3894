"""The rules that each version of a table's schema must satisfy, and those for new tables.

Each rule is one function, which raises BadInput or UnsupportedFeature naming the column, the reason and the remedy.
The rules for options are in `tidelake.storage.ddl.option_validation`.

Source: Java `schema/SchemaValidation.java`, `schema/Schema.java`, `schema/TableSchema.java`, `types/*Type.java`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from tidelake.errors import BadInput, UnsupportedFeature
from tidelake.storage.ddl.default_values import default_value
from tidelake.storage.ddl.materialized import MATERIALIZED_TABLE, check_new_definition
from tidelake.storage.ddl.option_validation import OPTION_RULES, Rule, formats
from tidelake.storage.model.bucketing import check_new_table
from tidelake.storage.model.format import KEY_COLUMN_PREFIX, RESERVED_COLUMNS, is_reserved_column
from tidelake.storage.model.messages import did_you_mean
from tidelake.storage.model.options import TableOptions
from tidelake.storage.model.options.option_changes import check_spelling
from tidelake.storage.model.schema.table_schema import TableSchema, walk_fields
from tidelake.storage.model.types import (
    BINARY_ROOTS,
    CONSTRUCTED_ROOTS,
    INTEGER_ROOTS,
    STRING_ROOTS,
    AtomicType,
    DataField,
    DataType,
    Root,
    RowType,
    VectorType,
    inner_types,
    walk_types,
)

_ROOTS_WITHOUT_KEY: Final = CONSTRUCTED_ROOTS | {Root.VARIANT, Root.BLOB}
_VECTOR_ELEMENTS: Final = frozenset({Root.BOOLEAN, *INTEGER_ROOTS, Root.FLOAT, Root.DOUBLE})
_WITH_LENGTH: Final = STRING_ROOTS | {Root.BINARY, Root.VARBINARY}
# Arrow reads no deeper Parquet schema. ORC and Avro allow deeper ones, but a table may change its format.
_PARQUET_LEVELS_MAX: Final = 99
_FORMATS: Final = ("parquet", "orc", "avro")


def check_schema(schema: TableSchema) -> None:
    """Raise for the first rule that this version of a schema breaks."""
    _check(RULES, schema)


def check_new_schema(schema: TableSchema) -> None:
    """Check as `check_schema` does, and also the rules for new tables. Java is laxer: its tables may break these."""
    _check((*RULES, *RULES_OF_NEW_TABLES), schema)


def _check(rules: Iterable[Rule], schema: TableSchema) -> None:
    options = TableOptions(schema.options)
    for rule in rules:
        rule(schema, options)


# ---------------------------------------------------------------- columns


def _columns_have_names(schema: TableSchema, _: TableOptions) -> None:
    if not schema.fields:
        raise BadInput("the schema has no column; add one")
    _check_names("the table", schema.fields)
    for name in schema.names:
        if is_reserved_column(name):
            raise BadInput(
                f"column {name!r}: {', '.join(sorted(RESERVED_COLUMNS))} and names that begin with "
                f"{KEY_COLUMN_PREFIX} are reserved by Paimon; rename the column"
            )


def _check_names(where: str, fields: Sequence[DataField]) -> None:
    repeated = [name for name, count in Counter(f.name for f in fields).items() if count > 1]
    if repeated:
        raise BadInput(f"{where} has two columns named {repeated[0]!r}; rename one of them")
    if any(not f.name.strip() for f in fields):
        raise BadInput(f"{where} has a column without a name; add a name")


def _field_ids_are_unique(schema: TableSchema, _: TableOptions) -> None:
    ids = Counter(f.id for f in walk_fields(schema.fields))
    wrong = [field_id for field_id, count in ids.items() if count > 1 or not 0 <= field_id <= schema.highest_field_id]
    if wrong:
        raise BadInput(f"field id {wrong[0]} is used twice, or is outside of 0 to {schema.highest_field_id}")


def _types_can_be_stored(schema: TableSchema, _: TableOptions) -> None:
    for field in schema.fields:
        for found in walk_types(field.type):
            _check_type(f"column {field.name!r}", found)


def _blobs_are_supported(schema: TableSchema, options: TableOptions) -> None:
    """BLOB columns need row ids, and another column."""
    blobs = [field for field in schema.fields if any(part.root is Root.BLOB for part in walk_types(field.type))]
    for field in blobs:
        where = f"column {field.name!r} {field.type}"
        if field.type.root is not Root.BLOB:
            raise UnsupportedFeature(
                where, "this release does not support blobs within other types", "Use BYTES instead"
            )
        if schema.has_primary_key or not options.data_evolution_enabled:
            raise UnsupportedFeature(
                where,
                "its values are stored in separate files, which only append tables with data evolution have",
                "Use BYTES; or leave out the primary key, and set row-tracking.enabled = true and "
                "data-evolution.enabled = true",
            )
    if blobs and len(blobs) == len(schema.fields):
        raise BadInput(f"all columns are BLOB ({', '.join(f.name for f in blobs)}); add one of another type")


def _type_nesting_is_limited(schema: TableSchema, _: TableOptions) -> None:
    for field in schema.fields:
        levels = _parquet_levels(field.type)
        if levels > _PARQUET_LEVELS_MAX:
            raise BadInput(
                f"column {field.name!r} is nested too deeply: it needs {levels} levels of a Parquet file, but readers "
                f"support {_PARQUET_LEVELS_MAX} (an ARRAY or MAP needs two, a ROW one). Flatten the type, or store "
                "parts as BYTES"
            )


def _parquet_levels(data_type: DataType) -> int:
    """Return the number of groups and values on the longest path of a Parquet schema."""
    own = 1 if isinstance(data_type, AtomicType | RowType) and data_type.root is not Root.VARIANT else 2
    return own + max(map(_parquet_levels, inner_types(data_type)), default=0)


def _check_type(where: str, found: DataType) -> None:
    match found:
        case AtomicType() if found.root in _WITH_LENGTH and found.length < 1:
            raise BadInput(f"{where}: {found} can't hold a value; set a length of 1 or more")
        case RowType() if not found.fields:
            raise BadInput(f"{where}: a ROW needs a field; add one, or leave out the column")
        case RowType():
            _check_names(f"{where}: its ROW", found.fields)
        case VectorType() if found.element.root not in _VECTOR_ELEMENTS or found.length < 1:
            raise BadInput(f"{where}: {found} must have 1 or more elements, numbers or booleans; use an ARRAY")


def _defaults_are_values(schema: TableSchema, _: TableOptions) -> None:
    for field in walk_fields(schema.fields):
        default_value(field)


# ---------------------------------------------------------------- keys


def _keys_are_columns(schema: TableSchema, _: TableOptions) -> None:
    for what, names in (("primary key", schema.primary_keys), ("partition columns", schema.partition_keys)):
        where = f"{what} ({', '.join(names)})"
        for name, count in Counter(names).items():
            if name not in schema.by_name:
                known = ", ".join(schema.names)
                raise BadInput(f"{where}: no column {name!r}; the table has {known}{did_you_mean(name, schema.names)}")
            if count > 1:
                raise BadInput(f"{where}: {name!r} occurs {count} times; list it once")
            found = schema.by_name[name].type
            if found.root in _ROOTS_WITHOUT_KEY:
                raise BadInput(f"{where}: {name!r} is {found}, which can't be part of a key; leave it out")


def _primary_key_exceeds_partition_keys(schema: TableSchema, _: TableOptions) -> None:
    if schema.has_primary_key and not schema.trimmed_primary_keys:
        raise BadInput(
            f"primary key ({', '.join(schema.primary_keys)}) has partition columns only: each partition would hold one "
            "row; add a column to the key, or partition by fewer"
        )


# ---------------------------------------------------------------- new tables


def _new_table_options_are_spelt_right(_: TableSchema, options: TableOptions) -> None:
    check_spelling(options)


def _new_table_type_is_supported(_: TableSchema, options: TableOptions) -> None:
    kind = options.get("type", "table").strip().lower()
    if kind == "format-table":
        raise UnsupportedFeature(
            "option type = format-table",
            "this catalog can't store its columns",
            "Use a catalog of metastore hive or rest",
        )
    if kind not in ("table", MATERIALIZED_TABLE):
        raise UnsupportedFeature(f"option type = {kind}", "only ordinary tables can be created", "Leave it out")
    if "path" in options:
        raise BadInput(f"option path = {options['path']!r}: the catalog decides where its tables are stored; unset it")
    check_new_definition(options)
    if options.is_on("auto-create"):
        raise BadInput("option auto-create = true: the table is created now, so the option has no effect; unset it")


def _new_table_has_writable_formats(_: TableSchema, options: TableOptions) -> None:
    for option, name in formats(options).items():
        if name not in _FORMATS:
            known = ", ".join(_FORMATS)
            raise BadInput(f"option {option} = {name!r}: expected one of {known}{did_you_mean(name, _FORMATS)}")


def _new_table_has_partition_directories(schema: TableSchema, _: TableOptions) -> None:
    for field in schema.partition_fields:
        if field.type.root in BINARY_ROOTS:
            raise BadInput(
                f"partition column {field.name!r} is {field.type}: Java would name the directories after memory "
                "addresses; partition by a column of another type"
            )


def _new_table_chooses_buckets(schema: TableSchema, options: TableOptions) -> None:
    check_new_table(schema, options)


RULES: Final[tuple[Rule, ...]] = (
    _columns_have_names,
    _field_ids_are_unique,
    _type_nesting_is_limited,
    _types_can_be_stored,
    _blobs_are_supported,
    _defaults_are_values,
    _keys_are_columns,
    _primary_key_exceeds_partition_keys,
    *OPTION_RULES,
)
RULES_OF_NEW_TABLES: Final[tuple[Rule, ...]] = (
    _new_table_options_are_spelt_right,
    _new_table_type_is_supported,
    _new_table_has_writable_formats,
    _new_table_has_partition_directories,
    _new_table_chooses_buckets,
)
