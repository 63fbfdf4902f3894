"""Maintenance by Paimon's procedures, with their names and arguments.

    from tidelake.spark import procedures

    procedures.compact(spark, "shop.orders", "/data/lake", order_strategy="zorder", order_by="a,b")
    procedures.expire_snapshots("shop.orders", "/data/lake", retain_max=10)

Procedures with a session argument run on its executors, the others in this process.
"""

from tidelake.spark.procedures.compaction import compact, compact_database
from tidelake.spark.procedures.histories import (
    create_branch,
    create_tag,
    create_tag_from_timestamp,
    delete_branch,
    delete_tag,
    expire_snapshots,
    expire_tags,
    fast_forward,
    merge_branch,
    rename_branch,
    rename_tag,
    replace_tag,
    rollback,
    rollback_to_timestamp,
    rollback_to_watermark,
    trigger_tag_automatic_creation,
)
from tidelake.spark.procedures.maintenance import (
    analyze,
    clear_consumers,
    purge_files,
    remove_orphan_files,
    remove_unexisting_files,
    reset_consumer,
    rewrite_file_index,
)
from tidelake.spark.procedures.materialized import refresh_materialized_table
from tidelake.spark.procedures.migrations import migrate_database, migrate_file, migrate_iceberg_table, migrate_table
from tidelake.spark.procedures.partitions import expire_partitions, mark_partition_done, rescale
from tidelake.spark.procedures.repairs import (
    compact_manifest,
    copy,
    remove_unexisting_manifests,
    repair,
    repair_earliest_snapshot,
)

__all__ = [
    "analyze",
    "clear_consumers",
    "compact",
    "compact_database",
    "compact_manifest",
    "copy",
    "create_branch",
    "create_tag",
    "create_tag_from_timestamp",
    "delete_branch",
    "delete_tag",
    "expire_partitions",
    "expire_snapshots",
    "expire_tags",
    "fast_forward",
    "mark_partition_done",
    "merge_branch",
    "migrate_database",
    "migrate_file",
    "migrate_iceberg_table",
    "migrate_table",
    "purge_files",
    "refresh_materialized_table",
    "remove_orphan_files",
    "remove_unexisting_files",
    "remove_unexisting_manifests",
    "rename_branch",
    "rename_tag",
    "repair",
    "repair_earliest_snapshot",
    "replace_tag",
    "rescale",
    "reset_consumer",
    "rewrite_file_index",
    "rollback",
    "rollback_to_timestamp",
    "rollback_to_watermark",
    "trigger_tag_automatic_creation",
]
