"""Maintenance by Paimon's procedures, with their names and arguments.

from tidelake.spark import procedures

procedures.compact(spark, "shop.orders", "/data/lake", order_strategy="zorder", order_by="a,b")
procedures.expire_snapshots("shop.orders", "/data/lake", retain_max=10)

Those that take a session run on its executors, the others here.
"""

from tidelake.spark.procedures.compaction import compact, compact_database
from tidelake.spark.procedures.histories import (
    create_branch,
    create_tag,
    delete_branch,
    delete_tag,
    expire_snapshots,
    expire_tags,
    fast_forward,
    rename_tag,
    replace_tag,
    rollback,
    rollback_to_timestamp,
    rollback_to_watermark,
)
from tidelake.spark.procedures.upkeep import clear_consumers, remove_orphan_files, reset_consumer, rewrite_file_index

__all__ = [
    "clear_consumers",
    "compact",
    "compact_database",
    "create_branch",
    "create_tag",
    "delete_branch",
    "delete_tag",
    "expire_snapshots",
    "expire_tags",
    "fast_forward",
    "remove_orphan_files",
    "rename_tag",
    "replace_tag",
    "reset_consumer",
    "rewrite_file_index",
    "rollback",
    "rollback_to_timestamp",
    "rollback_to_watermark",
]
