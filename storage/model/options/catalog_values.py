"""The typed values of a catalog's options. Names, types and defaults come from the registry.

Source: Java `options/CatalogOptions.java`, `hive/HiveCatalogOptions.java`, `jdbc/JdbcCatalogOptions.java`.
"""

from __future__ import annotations

from typing import ClassVar, Final

from tidelake.storage.model.options.base_options import BaseOptions
from tidelake.storage.model.options.option_value import OptionValue
from tidelake.storage.model.options.registry import CATALOG_REGISTRY, OptionRegistry

_HIVE: Final = "hive"


def _word(text: str) -> str:
    return text.strip().lower()


class CatalogValues(BaseOptions):
    """See `BaseOptions`."""

    registry: ClassVar[OptionRegistry] = CATALOG_REGISTRY
    kind: ClassVar[str] = "catalog option"

    metastore = OptionValue[str]("metastore", _word)
    client_pool_size = OptionValue[int]("client-pool-size")
    catalog_key = OptionValue[str]("catalog-key")
    # Whether a table's options are also stored in the catalog, with its name
    mirrors_properties = OptionValue[bool]("sync-all-properties")
    keeps_locations_apart = OptionValue[bool]("location-in-properties")
    table_type = OptionValue[str]("table.type", _word)
    # Whether the metastore also changes the partitions, and whether it skips statistics
    cascades = OptionValue[bool]("alter-table-cascade")
    skips_statistics = OptionValue[bool]("hive.skip-update-stats")
    has_format_tables = OptionValue[bool]("format-table.enabled")
    gives_data_tokens = OptionValue[bool]("data-token.enabled")
    shows_catalog_options = OptionValue[bool]("catalog-options-table.enabled")
    lock_check_max_sleep_ms = OptionValue[int]("lock-check-max-sleep")
    lock_acquire_timeout_ms = OptionValue[int]("lock-acquire-timeout")
    lock_key_max_length = OptionValue[int]("lock-key-max-length")
    _lock_enabled = OptionValue[bool]("lock.enabled")
    _case_sensitive = OptionValue[bool]("case-sensitive")

    def has_locks(self, *, is_object_store: bool) -> bool:
        """Return whether a catalog in a database or a metastore locks. If not set, only in an object store."""
        return self._lock_enabled if self.is_given("lock.enabled") else is_object_store

    @property
    def is_case_sensitive(self) -> bool:
        """Whether names may have upper-case letters. If not set, only a Hive metastore allows none."""
        return self._case_sensitive if self.is_given("case-sensitive") else self.metastore != _HIVE
