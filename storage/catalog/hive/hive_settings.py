"""The settings of a Hive catalog, from its options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidelake.storage.catalog.hive.metastore_address import MetastoreAddress
from tidelake.storage.catalog.hive.metastore_client import MetastoreClient
from tidelake.storage.catalog.hive.metastore_lock import MetastoreLocks
from tidelake.storage.catalog.hive.table_entries import EntryStyle
from tidelake.storage.model.options.catalog_values import CatalogValues


@dataclass(frozen=True, slots=True)
class HiveSettings:
    """The settings of a Hive catalog.

    client: the client of the metastore.
    style: how entries of tables are written.
    locks: the locks of tables. None if commits take no lock.
    is_case_sensitive: whether names may contain upper-case letters. The metastore changes them to lower case.
    cascades: whether a change of a table also changes its partitions in the metastore (`alter-table-cascade`).
    skips_statistics: whether the metastore skips its statistics when a table changes (`hive.skip-update-stats`).
    has_format_tables: whether the catalog has format tables (`format-table.enabled`).
    """

    client: MetastoreClient
    style: EntryStyle
    locks: MetastoreLocks | None
    is_case_sensitive: bool
    cascades: bool
    skips_statistics: bool
    has_format_tables: bool

    @classmethod
    def of(cls, options: Mapping[str, str], *, is_object_store: bool) -> HiveSettings:
        """Read the options. Opens no connection. Raises the errors of `MetastoreAddress.of`."""
        values = CatalogValues({"metastore": "hive", **options})
        client = MetastoreClient(MetastoreAddress.of(options))
        locks = MetastoreLocks(client, values.lock_check_max_sleep_ms, values.lock_acquire_timeout_ms)
        style = EntryStyle(
            is_external=values.table_type == "external",
            mirrors_properties=values.mirrors_properties,
            keeps_locations_apart=values.keeps_locations_apart,
        )
        return cls(
            client,
            style,
            locks if values.has_locks(is_object_store=is_object_store) else None,
            values.is_case_sensitive,
            values.cascades,
            values.skips_statistics,
            values.has_format_tables,
        )
