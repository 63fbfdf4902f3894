"""Converts the column names of a configuration to lower case, for a catalog that accepts no upper-case letters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

import msgspec

from tidelake.errors import BadInput
from tidelake.ingest.derived.computed_columns import with_lower_case_column
from tidelake.ingest.formats.base import OpenedFormat
from tidelake.ingest.formats.case_insensitive.lower_case import LowerCaseFormat
from tidelake.ingest.formats.registry import open_format
from tidelake.ingest.settings import PLACEHOLDER, Config, SourceTablesSettings, TableSettings
from tidelake.storage.catalog.options import is_case_sensitive

T = TypeVar("T")


def format_of(config: Config) -> OpenedFormat:
    """Return the format of the records, including the case of names. Raises the errors of `open_format`."""
    found = open_format(config.format, config.format_options)
    return found if is_case_sensitive(config.warehouse_options) else LowerCaseFormat(found)


def lower_case_for_catalog(config: Config) -> Config:
    """Return the configuration with names in the catalog's case.

    Raises BadInput for names that a table can't have, and for names that become the same.
    """
    if is_case_sensitive(config.warehouse_options):
        return config
    return msgspec.structs.replace(config, tables=[_lower_case(table) for table in config.tables])


def _lower_case(table: TableSettings) -> TableSettings:
    fixed = PLACEHOLDER.sub("", table.name)
    if fixed != fixed.lower():
        raise BadInput(
            f"`tables`: {table.name} has upper-case letters, but the catalog accepts only lower case "
            f"(`case-sensitive`): write {PLACEHOLDER.sub(lambda found: found[0], table.name.lower())}"
        )
    of = table.source_tables
    if of is not None or table.is_template:
        of = of or SourceTablesSettings()
        partitions = {source: _lowered(names) for source, names in of.partition_by.items()}
        of = msgspec.structs.replace(of, lower_case=True, partition_by=partitions)
    computed = _keyed(table, "computed_columns", table.computed_columns)
    return msgspec.structs.replace(
        table,
        primary_key=_lowered(table.primary_key),
        partition_by=_lowered(table.partition_by),
        source_types=_keyed(table, "source_types", table.source_types),
        rounded_columns=_lowered(table.rounded_columns),
        key_columns=_lowered(table.key_columns),
        columns=_keyed(table, "columns", table.columns),
        computed_columns={name: with_lower_case_column(name, text) for name, text in computed.items()},
        keep_columns=_lowered(table.keep_columns),
        drop_columns=_lowered(table.drop_columns),
        rename_columns={old: new.lower() for old, new in _keyed(table, "rename_columns", table.rename_columns).items()},
        masks=_keyed(table, "masks", table.masks),
        deleted_at_column=table.deleted_at_column.lower(),
        valid_from_column=table.valid_from_column.lower(),
        valid_to_column=table.valid_to_column.lower(),
        current_column=table.current_column.lower(),
        metadata_column_prefix=table.metadata_column_prefix.lower(),
        source_tables=of,
    )


def _lowered(names: Iterable[str]) -> list[str]:
    return [name.lower() for name in names]


def _keyed(table: TableSettings, setting: str, given: Mapping[str, T]) -> dict[str, T]:
    found: dict[str, T] = {}
    for name, value in given.items():
        if name.lower() in found:
            raise BadInput(
                f"{table.name}: `{setting}` has {name.lower()!r} twice, as the catalog accepts only lower case: leave "
                f"out {name!r}, or the other name"
            )
        found[name.lower()] = value
    return found
