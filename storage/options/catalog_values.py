"""What the options of a catalog say: names, types and defaults are the registry's.

Source: Java `options/CatalogOptions.java`, `hive/HiveCatalogOptions.java`, `jdbc/JdbcCatalogOptions.java`.
"""

from __future__ import annotations

from typing import ClassVar, Final

from storage.options.base_options import BaseOptions
from storage.options.option_value import OptionValue
from storage.options.registry import CATALOG_REGISTRY, OptionRegistry

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
    # Whether a table's options are kept beside its name
    mirrors_properties = OptionValue[bool]("sync-all-properties")
    keeps_locations_apart = OptionValue[bool]("location-in-properties")
    table_type = OptionValue[str]("table.type", _word)
    # The metastore is asked to change the partitions, too, and not to count
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
        """Of one in a database or a metastore: where nothing is said, in an object store alone."""
        return self._lock_enabled if self.is_given("lock.enabled") else is_object_store

    @property
    def is_case_sensitive(self) -> bool:
        """Whether upper-case letters are taken; by itself one in a Hive metastore doesn't."""
        return self._case_sensitive if self.is_given("case-sensitive") else self.metastore != _HIVE
