"""The metastore's entry of a table: a copy of the schema file, with which Java Paimon, Spark and Hive find the table.

Source: Java `hive/HiveCatalog.java` (newHmsTable, updateHmsTable), `hive/LocationKeyExtractor.java`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pymetastore.hive_metastore import ttypes

from tidelake.storage.base import env
from tidelake.storage.catalog.base import table_properties
from tidelake.storage.catalog.hive.metastore_lock import user_name
from tidelake.storage.catalog.hive.type_names import hive_type
from tidelake.storage.catalog.identifier import Identifier
from tidelake.storage.fileio.location import LOCAL_SCHEME, local_path, scheme_of
from tidelake.storage.model.options import TableOptions
from tidelake.storage.model.schema.table_schema import TableSchema
from tidelake.storage.model.types import DataField

INPUT_FORMAT: Final = "org.apache.paimon.hive.mapred.PaimonInputFormat"
OUTPUT_FORMAT: Final = "org.apache.paimon.hive.mapred.PaimonOutputFormat"
MANAGED: Final = "MANAGED_TABLE"
EXTERNAL: Final = "EXTERNAL_TABLE"
VIEW: Final = "VIRTUAL_VIEW"

_SERDE: Final = "org.apache.paimon.hive.PaimonSerDe"
_STORAGE_HANDLER: Final = "org.apache.paimon.hive.PaimonStorageHandler"
_LOCATION: Final = "paimon_location"
_HIVE_PREFIX: Final = "hive."
_UNPREFIXED: Final = ("partition.expiration-time", "data-file.path-directory")
_COMMENT_LENGTH_MAX: Final = 255  # the limit for a column's comment in the metastore's database
_RETENTION: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class EntryStyle:
    """How the catalog writes its entries, from its options.

    is_external: whether new tables are external (`table.type`). The files of an external table stay when it is dropped.
    mirrors_properties: whether all options of a table are copied (`sync-all-properties`).
    keeps_locations_apart: whether locations are stored in a property of Paimon, for a metastore that can't access the
        store (`location-in-properties`).
    """

    is_external: bool = False
    mirrors_properties: bool = True
    keeps_locations_apart: bool = False

    # ------------------------------------------------------------ locations

    def location(self, entry: Any) -> str | None:
        """Return the location of a table or a partition. A local one is returned as a plain path."""
        own = (entry.parameters or {}).get(_LOCATION) if self.keeps_locations_apart else None
        return _plain(own or (entry.sd.location if entry.sd is not None else None))

    def set_location(self, entry: Any, location: str) -> None:
        if self.keeps_locations_apart:
            entry.parameters = {**(entry.parameters or {}), _LOCATION: location}
        else:
            entry.sd.location = location

    def database_location(self, database: Any) -> str | None:
        own = (database.parameters or {}).get(_LOCATION) if self.keeps_locations_apart else None
        return _plain(own or database.locationUri)

    def new_database(self, name: str, location: str) -> Any:
        if self.keeps_locations_apart:
            return ttypes.Database(name=name, parameters={_LOCATION: location})
        return ttypes.Database(name=name, locationUri=location, parameters={})

    # ------------------------------------------------------------ tables

    def new_table(self, identifier: Identifier, schema: TableSchema, location: str) -> Any:
        now = int(env.wall_s())
        entry = ttypes.Table(
            tableName=identifier.table,
            dbName=identifier.database,
            owner=user_name(),
            createTime=now,
            lastAccessTime=now,
            retention=_RETENTION,
            sd=ttypes.StorageDescriptor(parameters={}, bucketCols=[], sortCols=[], compressed=False),
            partitionKeys=[],
            parameters={"table_type": "PAIMON", "storage_handler": _STORAGE_HANDLER},
            tableType=EXTERNAL if self.is_external else MANAGED,
        )
        if self.is_external:
            entry.parameters["EXTERNAL"] = "TRUE"
        self.update(entry, schema, removed=())
        self.set_location(entry, location)
        return entry

    def update(self, entry: Any, schema: TableSchema, *, removed: tuple[str, ...]) -> None:
        """Update the entry to show this schema.

        removed: options of an earlier schema that this one does not have.
        """
        parameters = {key: value for key, value in (entry.parameters or {}).items() if key not in removed}
        parameters.update(self._properties(schema))
        if schema.comment is not None:
            parameters["comment"] = schema.comment
        entry.parameters = parameters
        entry.sd.inputFormat, entry.sd.outputFormat = INPUT_FORMAT, OUTPUT_FORMAT
        serde = entry.sd.serdeInfo or ttypes.SerDeInfo()
        serde.serializationLib, serde.parameters = _SERDE, {}
        entry.sd.serdeInfo = serde
        partitions = schema.partition_keys if has_partition_entries(schema) else ()
        entry.sd.cols = [_column(f) for f in schema.fields if f.name not in partitions]
        entry.partitionKeys = [_field(f, f.description) for f in schema.select(partitions)]

    def _properties(self, schema: TableSchema) -> Mapping[str, str]:
        if self.mirrors_properties:
            return table_properties(schema)
        of_hive = {k.removeprefix(_HIVE_PREFIX): v for k, v in schema.options.items() if k.startswith(_HIVE_PREFIX)}
        return {**of_hive, **{key: schema.options[key] for key in _UNPREFIXED if key in schema.options}}


def is_paimon(entry: Any) -> bool:
    return entry.sd is not None and (entry.sd.inputFormat, entry.sd.outputFormat) == (INPUT_FORMAT, OUTPUT_FORMAT)


def is_external(entry: Any) -> bool:
    return str(entry.tableType) == EXTERNAL


def is_view(entry: Any) -> bool:
    return str(entry.tableType) == VIEW


def has_partition_entries(schema: TableSchema) -> bool:
    """Return whether the table's partitions are also entries in the metastore."""
    return bool(schema.partition_keys) and TableOptions(schema.options).is_on("metastore.partitioned-table")


def _column(field: DataField) -> Any:
    text = field.description
    if text is not None:
        text = text.replace("\n", " ").replace("\r", " ")
        text = text if len(text) <= _COMMENT_LENGTH_MAX else f"{text[: _COMMENT_LENGTH_MAX - 3]}..."
    return _field(field, text)


def _field(field: DataField, comment: str | None) -> Any:
    return ttypes.FieldSchema(name=field.name, type=hive_type(field.type), comment=comment)


def _plain(location: str | None) -> str | None:
    """Convert a local location to a path: the metastore returns `/data/lake` as `file:/data/lake`."""
    if location is None:
        return None
    location = local_path(location) if scheme_of(location) == LOCAL_SCHEME else location
    return location.rstrip("/")
