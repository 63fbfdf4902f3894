"""What the options of a Hive catalog say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from storage.catalog.hive.address import MetastoreAddress
from storage.catalog.hive.client import MetastoreClient
from storage.catalog.hive.lock import MetastoreLocks
from storage.catalog.hive.table_entries import EntryStyle
from storage.catalog.options import is_case_sensitive
from storage.options.values import parse_boolean, parse_duration_ms


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
        client = MetastoreClient(MetastoreAddress.of(options))
        has_locks = parse_boolean(options["lock.enabled"]) if "lock.enabled" in options else is_object_store
        locks = MetastoreLocks(
            client,
            parse_duration_ms(options.get("lock-check-max-sleep", "8 s")),
            parse_duration_ms(options.get("lock-acquire-timeout", "8 min")),
        )
        style = EntryStyle(
            is_external=options.get("table.type", "managed").strip().lower() == "external",
            mirrors_properties=parse_boolean(options.get("sync-all-properties", "true")),
            keeps_locations_apart=parse_boolean(options.get("location-in-properties", "false")),
        )
        return cls(
            client,
            style,
            locks if has_locks else None,
            is_case_sensitive({"metastore": "hive", **options}),
            parse_boolean(options.get("alter-table-cascade", "true")),
            parse_boolean(options.get("hive.skip-update-stats", "false")),
            parse_boolean(options.get("format-table.enabled", "true")),
        )
