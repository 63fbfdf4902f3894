"""Splits the options of a catalog into its own, those of the store, and defaults of new tables.

Source: Java `options/CatalogOptions.java`, `catalog/AbstractCatalog.java` (table-default options).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from tidelake.errors import BadInput, UnsupportedFeature
from tidelake.storage.model.messages import did_you_mean
from tidelake.storage.model.option_support import log_options_without_effect
from tidelake.storage.model.options import Operation
from tidelake.storage.model.options.catalog_values import CatalogValues
from tidelake.storage.model.options.option import Option
from tidelake.storage.model.options.registry import CATALOG_REGISTRY, TABLE_REGISTRY, find_option

_DEFAULT: Final = "table-default."
# An option that is also the store's: the folder of core-site.xml
_HADOOP_FOLDER: Final = "hadoop-conf-dir"
# Prefixes of options of stores and Hadoop. Any name may follow.
_STORE_OPTIONS: Final = (
    "azure.", "cosn.", "dfs.", "fs.", "gs.", "hadoop.", "ipc.", "jindo.", "obs.", "oss.", "s3.", "s3a.",
    "security.kerberos.",
)  # fmt: skip
# Not Paimon's: its `local-cache.*` also keep files whose names are used again.
CACHE_OPTIONS: Final = frozenset({"cache.directory", "cache.max_bytes"})


@dataclass(frozen=True, slots=True)
class CatalogOptions:
    """The options of a catalog by their purpose.

    own: the options of the catalog itself.
    store: the options for `open_file_io`.
    table_defaults: options of new tables, without the prefix `table-default.`.
    """

    own: CatalogValues
    store: Mapping[str, str]
    table_defaults: Mapping[str, str]

    @classmethod
    def of(cls, options: Mapping[str, str]) -> CatalogOptions:
        """Split and check the options.

        Raises BadInput for unknown names, and UnsupportedFeature for options that would be ignored silently.
        """
        store = {k: value for k, value in options.items() if k.startswith(_STORE_OPTIONS) or k in CACHE_OPTIONS}
        defaults = {key.removeprefix(_DEFAULT): v for key, v in options.items() if key.startswith(_DEFAULT)}
        own = {key: v for key, v in options.items() if key not in store and not key.startswith(_DEFAULT)}
        for key, option in _known(own):
            _check(key, option, own)
        for key in defaults:
            if find_option(key) is None:
                hint = did_you_mean(key, TABLE_REGISTRY.keys)
                raise BadInput(f"catalog option {_DEFAULT}{key}: Paimon has no table option {key!r}{hint}")
        log_options_without_effect(CATALOG_REGISTRY, own)
        if _HADOOP_FOLDER in own:
            store[_HADOOP_FOLDER] = own[_HADOOP_FOLDER]
        return cls(CatalogValues(own), store, defaults)


def is_case_sensitive(options: Mapping[str, str]) -> bool:
    """Return whether a catalog with these options accepts upper-case letters in names."""
    return CatalogValues(options).is_case_sensitive


def check_letters(names: Iterable[str]) -> None:
    """Raise BadInput for names with upper-case letters. For catalogs that are not case-sensitive."""
    for name in names:
        if name != name.lower():
            raise BadInput(
                f"name {name!r} has upper-case letters, but the catalog accepts only lower case (`case-sensitive`); "
                f"write {name.lower()!r}"
            )


def _known(own: Mapping[str, str]) -> Iterator[tuple[str, Option]]:
    for key in own:
        option = CATALOG_REGISTRY.find(key)
        if option is None:
            hint = did_you_mean(key, (*CATALOG_REGISTRY.keys, *sorted(CACHE_OPTIONS), *_STORE_OPTIONS))
            if find_option(key) is not None:
                hint = f"; it is a table option: pass it to create_table, or as {_DEFAULT}{key}"
            remedy = hint or "; correct the name, or leave it out"
            raise BadInput(f"catalog options: Paimon has no option {key!r}{remedy}")
        yield key, option


def _check(key: str, option: Option, own: Mapping[str, str]) -> None:
    try:
        option.kind.check(own[key])
    except BadInput as e:
        raise BadInput(f"catalog option {key} = {own[key]!r}: {e}") from None
    for refusal in option.refusals:
        if Operation.OPEN in refusal.operations and refusal.when.holds(key, CatalogValues(own)):
            shown = own[key].partition("?")[0] if key == "uri" else own[key]  # its parameters may contain a password
            raise UnsupportedFeature(f"catalog option {key} = {shown}", refusal.reason, refusal.remedy)
