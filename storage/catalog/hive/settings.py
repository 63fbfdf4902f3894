"""What the options of a Hive catalog say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from storage.catalog.hive.address import MetastoreAddress
from storage.catalog.hive.client import MetastoreClient
from storage.catalog.hive.lock import MetastoreLocks
from storage.catalog.hive.table_entries import EntryStyle
from storage.options.catalog_values import CatalogValues


@dataclass(frozen=True, slots=True)
class HiveSettings:
    """locks: None where commits take no lock.
    is_case_sensitive: whether upper-case letters are let through; the metastore changes them to lower case.
    has_format_tables: whether there are any (`format-table.enabled`).
    cascades, skips_statistics: what the metastore is asked for with each change of a table: to change the partitions,
        too (`alter-table-cascade`); not to count (`hive.skip-update-stats`).
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
        """Raises what MetastoreAddress does. Opens no connection."""
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
