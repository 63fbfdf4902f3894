"""Arguments of Paimon's action `kafka_sync_table`, as the configuration of a pipeline.

Facts: Java's `action/cdc/SyncTableActionBase`. There is one way to run a pipeline: what
comes out here is what a file would say. An argument that has no counterpart is refused by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ingest.config.kafka_conf import source_settings


@dataclass(frozen=True, slots=True)
class SyncTableArguments:
    """As they are given. Names and meanings are Paimon's; pairs are (key, value).

    pipeline: name of the pipeline, which its positions are kept under; left out: `database.table`.
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
    """The values of a configuration file.

    All records of the topics go to the table, whatever source table they name: shards are merged, as in Paimon.
    Raises BadInput for what has no counterpart.
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
    """What says of a table's columns and options the same in both actions."""

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
    """Of an entry of `tables`."""
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
    """Without those that are empty."""
    return {name: value for name, value in settings.items() if value}
