"""Format tables as entries of a Hive metastore: tables that Paimon created, and tables of Hive in the same formats.

Source: Java `hive/HiveTableUtils.java` (tryToFormatSchema), `hive/HiveCatalog.java` (createHiveFormatTable).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from pymetastore.hive_metastore import ttypes

from tidelake.errors import BadInput, UnsupportedFeature
from tidelake.storage.base import env
from tidelake.storage.catalog.hive.metastore_client import MetastoreClient
from tidelake.storage.catalog.hive.metastore_lock import user_name
from tidelake.storage.catalog.hive.table_entries import EXTERNAL, MANAGED, EntryStyle, is_external, is_paimon, is_view
from tidelake.storage.catalog.hive.type_names import hive_type, type_of_hive
from tidelake.storage.catalog.identifier import Identifier
from tidelake.storage.kinds.format_tables.definition import FORMAT_TABLE, data_fields
from tidelake.storage.kinds.format_tables.format_options import CsvSettings, format_of_table
from tidelake.storage.model.options import TableOptions
from tidelake.storage.model.schema.table_schema import TableSchema
from tidelake.storage.model.types import DataField

_TEXT_FORMATS: Final = (
    "org.apache.hadoop.mapred.TextInputFormat",
    "org.apache.hadoop.hive.ql.io.HiveIgnoreKeyTextOutputFormat",
)
_PARQUET: Final = "org.apache.hadoop.hive.ql.io.parquet"
_ORC: Final = "org.apache.hadoop.hive.ql.io.orc"
_CLASSES: Final = {
    "csv": ("org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe", *_TEXT_FORMATS),
    "text": ("org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe", *_TEXT_FORMATS),
    "json": ("org.apache.hive.hcatalog.data.JsonSerDe", *_TEXT_FORMATS),
    "parquet": (
        f"{_PARQUET}.serde.ParquetHiveSerDe",
        f"{_PARQUET}.MapredParquetInputFormat",
        f"{_PARQUET}.MapredParquetOutputFormat",
    ),
    "orc": (f"{_ORC}.OrcSerde", f"{_ORC}.OrcInputFormat", f"{_ORC}.OrcOutputFormat"),
}
_DELIMITER: Final = "field.delim"
_DELIMITER_OF_HIVE: Final = "\x01"
_METASTORE_PARAMETERS: Final = frozenset({"comment", "EXTERNAL", "table_type"})
_RETENTION: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class HiveFormatTables:
    """The format tables of a metastore.

    is_enabled: the option `format-table.enabled`. If it is off, the catalog has no format tables, and does not show the
        tables of Hive.
    """

    client: MetastoreClient
    style: EntryStyle
    is_enabled: bool

    def is_listed(self, entry: Any) -> bool:
        return self.is_enabled and format_table_schema(entry) is not None

    def find(self, identifier: Identifier, entry: Any) -> tuple[TableSchema, str] | None:
        """Return the schema and the location of a format table.

        None if the entry is not a format table, or missing.
        """
        schema = format_table_schema(entry) if self.is_enabled and entry is not None else None
        location = None if schema is None else self.style.location(entry)
        return None if schema is None or location is None else (schema, location)

    def create(self, identifier: Identifier, schema: TableSchema, location: str) -> bool:
        """Create a format table. The metastore makes the directory. Returns False if the name is taken.

        location: the directory of the table. The option `path` overrides it, and makes the table external.

        Raises BadInput if the metastore refuses the table or format tables are disabled. Raises UnsupportedFeature for
        column types that the metastore can't represent.
        """
        if not self.is_enabled:
            raise BadInput(f"table {identifier}: the catalog has format-table.enabled = false; set it to true")
        check_kept(str(identifier), schema)
        has_location = "path" in schema.options
        entry = new_format_entry(
            identifier,
            schema,
            schema.options.get("path", location),
            is_external=has_location or self.style.is_external,
        )
        try:
            self.client.change(lambda c: c.create_table(entry))
        except ttypes.AlreadyExistsException:
            return False
        except (ttypes.InvalidObjectException, ttypes.MetaException) as e:
            raise BadInput(f"table {identifier} can't be created: the metastore refuses it: {e.message}") from e
        return True

    def drop(self, identifier: Identifier, entry: Any) -> None:
        """Drop a format table. The files of an external table stay. Raises BadInput for a table that Hive created."""
        if not is_made_by_paimon(entry):
            raise BadInput(f"{identifier} is a Hive table; drop it with Hive")
        self.client.change(lambda c: c.drop_table(identifier.database, identifier.table, not is_external(entry)))


def is_made_by_paimon(entry: Any) -> bool:
    """Return whether Paimon created this format table. Otherwise Hive created it, and only Hive should drop it."""
    return (entry.parameters or {}).get("type") == FORMAT_TABLE


def format_table_schema(entry: Any) -> TableSchema | None:
    """Return the schema of a format table's entry.

    Returns None for an ordinary table of Paimon, a view, or a table in an unsupported format or with unsupported types.
    """
    if is_paimon(entry) or is_view(entry) or entry.sd is None or entry.sd.serdeInfo is None:
        return None
    options = {k: v for k, v in (entry.parameters or {}).items() if k not in _METASTORE_PARAMETERS}
    library = (entry.sd.serdeInfo.serializationLib or "").lower()
    if "parquet" in library:
        format_name = "parquet"
    elif "orc" in library:
        format_name = "orc"
    elif "Text" not in (entry.sd.inputFormat or ""):
        return None
    elif "json" in library:
        format_name = "json"
    elif (entry.parameters or {}).get("table_type") == "TEXT":
        format_name = "text"
    else:
        format_name = "csv"
        given = entry.sd.serdeInfo.parameters or {}
        options["csv.field-delimiter"] = given.get(_DELIMITER, _DELIMITER_OF_HIVE)
    columns = [*entry.sd.cols, *(entry.partitionKeys or [])]
    try:
        fields = tuple(DataField(n, c.name, type_of_hive(c.type), c.comment) for n, c in enumerate(columns))
    except UnsupportedFeature:
        return None
    return TableSchema(
        0,
        fields,
        len(fields) - 1,
        tuple(column.name for column in entry.partitionKeys or []),
        (),
        {**options, "type": FORMAT_TABLE, "file.format": format_name},
        (entry.parameters or {}).get("comment"),
    )


def new_format_entry(identifier: Identifier, schema: TableSchema, location: str, *, is_external: bool) -> Any:
    """Return the entry of a new format table. It contains the columns with the types of Hive, all nullable."""
    now = int(env.wall_s())
    options = TableOptions(schema.options)
    format_name = format_of_table(options)
    library, reads, writes = _CLASSES[format_name]
    serde_parameters = {_DELIMITER: CsvSettings.of(options).delimiter} if format_name == "csv" else {}
    parameters = {
        **schema.options,
        "table_type": format_name.upper(),
        "file.format": format_name,
        "type": FORMAT_TABLE,
        **({"EXTERNAL": "TRUE"} if is_external else {}),
        **({"comment": schema.comment} if schema.comment is not None else {}),
    }
    return ttypes.Table(
        tableName=identifier.table,
        dbName=identifier.database,
        owner=user_name(),
        createTime=now,
        lastAccessTime=now,
        retention=_RETENTION,
        sd=ttypes.StorageDescriptor(
            cols=[_column(field) for field in data_fields(schema)],
            location=location,
            inputFormat=reads,
            outputFormat=writes,
            serdeInfo=ttypes.SerDeInfo(serializationLib=library, parameters=serde_parameters),
            parameters={},
            bucketCols=[],
            sortCols=[],
            compressed=False,
        ),
        partitionKeys=[_column(field) for field in schema.partition_fields],
        parameters=parameters,
        tableType=EXTERNAL if is_external else MANAGED,
    )


def check_kept(name: str, schema: TableSchema) -> None:
    """Raise UnsupportedFeature for a column that the metastore would return with another type."""
    for field in schema.fields:
        kept = type_of_hive(hive_type(field.type))
        if str(kept) != str(field.type):
            raise UnsupportedFeature(
                f"table {name}: column {field.name!r} {field.type}",
                "a Hive metastore stores only Hive's types of a format table's columns, and returns this one as "
                f"{kept}",
                f"Use {kept}, or create the table in a REST catalog",
            )


def _column(field: DataField) -> Any:
    return ttypes.FieldSchema(name=field.name, type=hive_type(field.type), comment=field.description)
