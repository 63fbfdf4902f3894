"""Stores views as entries of a Hive metastore. It keeps the columns with the types of Hive, and a single query.

Source: Java `hive/HiveCatalog.java` (createView, getView, renameView).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from pymetastore.hive_metastore import ttypes

from tidelake.errors import BadInput, UnsupportedFeature
from tidelake.storage.base import env
from tidelake.storage.catalog.hive.metastore_client import MetastoreClient
from tidelake.storage.catalog.hive.metastore_lock import user_name
from tidelake.storage.catalog.hive.table_entries import VIEW, is_view
from tidelake.storage.catalog.hive.type_names import hive_type, type_of_hive
from tidelake.storage.catalog.identifier import Identifier
from tidelake.storage.catalog.view import View
from tidelake.storage.model.types import DataField

_COMMENT: Final = "comment"
_METASTORE_PARAMETERS: Final = frozenset({_COMMENT, "transient_lastDdlTime"})


@dataclass(frozen=True, slots=True)
class HiveViews:
    """See `ViewStore`."""

    client: MetastoreClient

    def names(self, database: str) -> list[str]:
        return sorted(self.client.read(lambda c: c.get_tables_by_type(database, "*", VIEW)))

    def find(self, identifier: Identifier) -> View | None:
        entry = self._entry(identifier)
        if entry is None or not is_view(entry):
            return None
        parameters = entry.parameters or {}
        return View(
            tuple(
                DataField(n, column.name, type_of_hive(column.type), column.comment)
                for n, column in enumerate(entry.sd.cols)
            ),
            entry.viewExpandedText,
            comment=parameters.get(_COMMENT),
            options={key: value for key, value in parameters.items() if key not in _METASTORE_PARAMETERS},
        )

    def add(self, identifier: Identifier, view: View) -> bool:
        """See `ViewStore`.

        Raises UnsupportedFeature for a view with queries in several dialects: they would be lost.
        """
        if view.dialects:
            raise UnsupportedFeature(
                f"view {identifier}: a query for {', '.join(sorted(view.dialects))}",
                "a Hive metastore stores only one query of a view",
                "Pass only one query, without dialects, or create the view in another catalog",
            )
        now = int(env.wall_s())
        comment = {} if view.comment is None else {_COMMENT: view.comment}
        entry = ttypes.Table(
            tableName=identifier.table,
            dbName=identifier.database,
            owner=user_name(),
            createTime=now,
            lastAccessTime=now,
            sd=_storage([ttypes.FieldSchema(f.name, hive_type(f.type), f.description) for f in view.fields]),
            partitionKeys=[],
            parameters={**view.options, **comment},
            viewOriginalText=view.query,
            viewExpandedText=view.query,
            tableType=VIEW,
        )
        try:
            self.client.change(lambda c: c.create_table(entry))
        except ttypes.AlreadyExistsException:
            return False
        except (ttypes.InvalidObjectException, ttypes.MetaException) as e:
            raise BadInput(f"view {identifier} can't be created: the metastore refuses it: {e.message}") from e
        return True

    def remove(self, identifier: Identifier) -> None:
        self.client.change(lambda c: c.drop_table(identifier.database, identifier.table, False))

    def rename(self, old: Identifier, new: Identifier) -> bool:
        if self._entry(new) is not None:
            return False
        entry = self._entry(old)
        entry.dbName, entry.tableName = new.database, new.table
        self.client.change(lambda c: c.alter_table(old.database, old.table, entry))
        return True

    def _entry(self, identifier: Identifier) -> Any:
        """Return the metastore's entry. None if it has no entry."""
        try:
            return self.client.read(lambda c: c.get_table(identifier.database, identifier.table))
        except ttypes.NoSuchObjectException:
            return None


def _storage(columns: list[Any]) -> Any:
    """Return the storage descriptor of a view, with the values that Hive sets although a view does not use them."""
    return ttypes.StorageDescriptor(
        cols=columns,
        inputFormat="org.apache.hadoop.mapred.SequenceFileInputFormat",
        outputFormat="org.apache.hadoop.hive.ql.io.HiveSequenceFileOutputFormat",
        numBuckets=-1,
        serdeInfo=ttypes.SerDeInfo(
            serializationLib="org.apache.hadoop.hive.serde2.MetadataTypedColumnsetSerDe",
            parameters={"serialization.format": "1"},
        ),
        bucketCols=[],
        sortCols=[],
        parameters={},
    )
