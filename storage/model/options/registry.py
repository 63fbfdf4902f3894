"""The registry of options: every option of Java Paimon, and its effect in this release.

Operations check a table's options against it. `TableOptions` gets names and defaults from it. `docs/options.md` is
generated from it. A test compares it with the declarations in Java's classes.

Source: Java `CoreOptions.java`, `CatalogOptions.java`, `FlinkConnectorOptions.java` and the other classes of options.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

from tidelake.storage.model.options.definitions.catalog import CATALOG_OPTIONS
from tidelake.storage.model.options.definitions.commits import COMMITS_OPTIONS
from tidelake.storage.model.options.definitions.compaction import COMPACTION_OPTIONS
from tidelake.storage.model.options.definitions.engines import ENGINES_OPTIONS
from tidelake.storage.model.options.definitions.files import FILES_OPTIONS
from tidelake.storage.model.options.definitions.iceberg import ICEBERG_OPTIONS
from tidelake.storage.model.options.definitions.indexes import INDEXES_OPTIONS
from tidelake.storage.model.options.definitions.layout import LAYOUT_OPTIONS
from tidelake.storage.model.options.definitions.maintenance import MAINTENANCE_OPTIONS
from tidelake.storage.model.options.definitions.merge import MERGE_OPTIONS
from tidelake.storage.model.options.definitions.reading import READING_OPTIONS
from tidelake.storage.model.options.option import Option


class OptionRegistry:
    """Options by key. Exact keys have priority over families, and an option's own key over a fallback."""

    def __init__(self, options: Iterable[Option]) -> None:
        self.options: Final = tuple(options)
        self._by_key: dict[str, Option] = {}
        for option in self.options:
            for key in option.fallbacks:
                self._by_key.setdefault(key, option)
        own = {option.key: option for option in self.options if not option.is_family}
        assert len({option.key for option in self.options}) == len(self.options), "an option is listed twice"
        self._by_key.update(own)
        self._families = tuple(option for option in self.options if option.is_family)

    def find(self, key: str) -> Option | None:
        """Return the option; None for a key that Paimon doesn't know."""
        if (found := self._by_key.get(key)) is not None:
            return found
        return next((option for option in self._families if option.pattern.fullmatch(key)), None)

    @property
    def keys(self) -> Mapping[str, Option]:
        """All exact keys, including fallbacks."""
        return self._by_key


TABLE_REGISTRY: Final = OptionRegistry(
    (
        *MERGE_OPTIONS,
        *LAYOUT_OPTIONS,
        *FILES_OPTIONS,
        *INDEXES_OPTIONS,
        *COMPACTION_OPTIONS,
        *COMMITS_OPTIONS,
        *MAINTENANCE_OPTIONS,
        *READING_OPTIONS,
        *ICEBERG_OPTIONS,
        *ENGINES_OPTIONS,
    )
)
CATALOG_REGISTRY: Final = OptionRegistry(CATALOG_OPTIONS)


@lru_cache(maxsize=4096)
def find_option(key: str) -> Option | None:
    """Return the table option with this name or older name; None if Paimon has none."""
    return TABLE_REGISTRY.find(key)
