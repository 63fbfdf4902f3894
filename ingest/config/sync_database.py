"""Arguments of Paimon's action `kafka_sync_database`, as a configuration with one entry for many tables.

Source: Java's `action/cdc/SyncDatabaseActionBase` and `TableNameConverter`. Paimon's `--mode` and `--eager_init` have
no counterpart: all tables belong to one pipeline, and new tables are added while it runs, as in Paimon's mode
`combined`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tidelake.errors import BadInput
from tidelake.ingest.config.kafka_conf import source_settings
from tidelake.ingest.config.sync_table import columns_and_options, given


@dataclass(frozen=True, slots=True)
class SyncDatabaseArguments:
    """The arguments as the user gave them. Names and meanings are Paimon's; pairs are (key, value).

    name: replaces prefix and suffix: the table part of the names, with placeholders such as `{schema}_{table}`.
    multiple_table_partition_keys: (source table, its partition columns).
    pipeline: name of the pipeline, under which its positions are stored. Default: the name of the database.
    """

    warehouse: str
    database: str
    name: str | None = None
    table_prefix: str = ""
    table_suffix: str = ""
    table_prefix_db: Sequence[tuple[str, str]] = ()
    table_suffix_db: Sequence[tuple[str, str]] = ()
    table_mapping: Sequence[tuple[str, str]] = ()
    including_tables: str | None = None
    excluding_tables: str | None = None
    including_dbs: str | None = None
    excluding_dbs: str | None = None
    merge_shards: bool = True
    primary_keys: Sequence[str] = ()
    sync_primary_keys_from_source_schema: bool = True
    partition_keys: Sequence[str] = ()
    multiple_table_partition_keys: Sequence[tuple[str, Sequence[str]]] = ()
    type_mapping: Sequence[str] = ()
    computed_column: Sequence[tuple[str, str]] = ()
    metadata_column: Sequence[str] = ()
    metadata_column_prefix: str = ""
    kafka_conf: Sequence[tuple[str, str]] = ()
    catalog_conf: Sequence[tuple[str, str]] = ()
    table_conf: Sequence[tuple[str, str]] = ()
    pipeline: str | None = None


def sync_database_configuration(arguments: SyncDatabaseArguments) -> dict[str, Any]:
    """Return the values of a configuration file. Raises BadInput for an argument without a counterpart."""
    if arguments.name is not None and (arguments.table_prefix or arguments.table_suffix):
        raise BadInput(
            "--name already contains the text before and after {table}: leave out --table-prefix and --table-suffix"
        )
    name = arguments.name or f"{arguments.table_prefix}{{table}}{arguments.table_suffix}"
    source_tables = given(
        including_tables=arguments.including_tables,
        excluding_tables=arguments.excluding_tables,
        including_dbs=arguments.including_dbs,
        excluding_dbs=arguments.excluding_dbs,
        mapping=dict(arguments.table_mapping),
        prefix_of_db=dict(arguments.table_prefix_db),
        suffix_of_db=dict(arguments.table_suffix_db),
        partition_by={table: list(columns) for table, columns in arguments.multiple_table_partition_keys},
    )
    if not arguments.merge_shards:
        source_tables["merge_shards"] = False
    table = {
        "name": f"{arguments.database}.{name}",
        **given(source_tables=source_tables),
        **columns_and_options(arguments),
    }
    return {
        "pipeline": arguments.pipeline or arguments.database,
        "warehouse": arguments.warehouse,
        **source_settings(arguments.kafka_conf),
        "tables": [table],
        **given(warehouse_options=dict(arguments.catalog_conf)),
    }
