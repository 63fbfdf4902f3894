"""Arguments of Paimon's action `kafka_sync_table`, as the configuration of a pipeline.

Facts: Java's `action/cdc/SyncTableActionBase`. There is one way to run a pipeline: what
comes out here is what a file would say. An argument that has no counterpart is refused by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

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
    source = source_settings(arguments.kafka_conf)
    table: dict[str, Any] = {"name": f"{arguments.database}.{arguments.table}", "match": ["*"]}
    table |= {
        name: value
        for name, value in (
            ("primary_key", list(arguments.primary_keys)),
            ("partition_by", list(arguments.partition_keys)),
            ("type_mapping", list(arguments.type_mapping)),
            ("computed_columns", dict(arguments.computed_column)),
            ("metadata_columns", list(arguments.metadata_column)),
            ("metadata_column_prefix", arguments.metadata_column_prefix),
            ("options", dict(arguments.table_conf)),
        )
        if value
    }
    if not arguments.sync_primary_keys_from_source_schema:
        table["key_from_records"] = False
    configuration: dict[str, Any] = {
        "pipeline": arguments.pipeline or f"{arguments.database}.{arguments.table}",
        "warehouse": arguments.warehouse,
        **source,
        "tables": [table],
    }
    if arguments.catalog_conf:
        configuration["warehouse_options"] = dict(arguments.catalog_conf)
    return configuration
