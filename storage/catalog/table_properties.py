"""The properties of a table that catalogs copy (`sync-all-properties`): its options and its keys.

Source: Java `hive/HiveCatalog.java`, `jdbc/JdbcCatalog.java` (convertToPropertiesTableKey), `schema/TableSchema.java`
(bucketKeys).
"""

from __future__ import annotations

from tidelake.storage.model.schema.table_schema import TableSchema


def table_properties(schema: TableSchema) -> dict[str, str]:
    bucket_key = tuple(filter(None, schema.options.get("bucket-key", "").split(",")))
    keys = {
        "primary-key": schema.primary_keys,
        "partition": schema.partition_keys,
        "bucket-key": bucket_key or schema.trimmed_primary_keys,
    }
    return {**schema.options, **{key: ",".join(names) for key, names in keys.items() if names}}
