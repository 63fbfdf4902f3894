"""Arguments of Paimon's action `kafka_sync_table`, as the configuration of a pipeline.

Source: Java's `action/cdc/SyncTableActionBase`. A pipeline always runs from a configuration, so the result has the same
form as a configuration file. An argument without a counterpart is refused; the message names it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tidelake.ingest.config.kafka_conf import source_settings


@dataclass(frozen=True, slots=True)
class SyncTableArguments:
    """The arguments as the user gave them. Names and meanings are Paimon's; pairs are (key, value).

    pipeline: name of the pipeline, under which its positions are stored. Default: `database.table`.
    """

    warehouse: str
    database: str
    table: str
    primary_keys: Sequence[str] = ()
    sync_primary_keys_from_source_schema: bool = True
    partition_keys: Sequence[str] = ()
    type_mapping: Sequence[str] = ()
    computed_column: Sequence[tuple[str, str]] = ()
    metadata_column: Sequence[str] = ()
    metadata_column_prefix: str = ""
    kafka_conf: Sequence[tuple[str, str]] = ()
    catalog_conf: Sequence[tuple[str, str]] = ()
    table_conf: Sequence[tuple[str, str]] = ()
    pipeline: str | None = field(default=None)


def sync_table_configuration(arguments: SyncTableArguments) -> dict[str, Any]:
    """Return the values of a configuration file.

    All records of the topics are written to the table, regardless of their source table: shards are merged, as in
    Paimon.

    Raises BadInput for an argument without a counterpart.
    """
    name = f"{arguments.database}.{arguments.table}"
    return {
        "pipeline": arguments.pipeline or name,
        "warehouse": arguments.warehouse,
        **source_settings(arguments.kafka_conf),
        "tables": [{"name": name, "match": ["*"], **columns_and_options(arguments)}],
        **given(warehouse_options=dict(arguments.catalog_conf)),
    }


class TableArguments(Protocol):
    """The arguments on a table's columns and options that both actions have."""

    @property
    def primary_keys(self) -> Sequence[str]: ...
    @property
    def sync_primary_keys_from_source_schema(self) -> bool: ...
    @property
    def partition_keys(self) -> Sequence[str]: ...
    @property
    def type_mapping(self) -> Sequence[str]: ...
    @property
    def computed_column(self) -> Sequence[tuple[str, str]]: ...
    @property
    def metadata_column(self) -> Sequence[str]: ...
    @property
    def metadata_column_prefix(self) -> str: ...
    @property
    def table_conf(self) -> Sequence[tuple[str, str]]: ...


def columns_and_options(arguments: TableArguments) -> dict[str, Any]:
    """Return the settings on columns and options of an entry of `tables`."""
    without_key = {} if arguments.sync_primary_keys_from_source_schema else {"key_from_records": False}
    return without_key | given(
        primary_key=list(arguments.primary_keys),
        partition_by=list(arguments.partition_keys),
        type_mapping=list(arguments.type_mapping),
        computed_columns=dict(arguments.computed_column),
        metadata_columns=list(arguments.metadata_column),
        metadata_column_prefix=arguments.metadata_column_prefix,
        options=dict(arguments.table_conf),
    )


def given(**settings: Any) -> dict[str, Any]:
    """Return the settings that are not empty."""
    return {name: value for name, value in settings.items() if value}
