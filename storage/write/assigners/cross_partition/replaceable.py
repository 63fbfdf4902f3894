"""Which rows of a table an overwrite may replace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from storage.bucketing import BucketMode, bucket_mode
from storage.errors import UnsupportedFeature
from storage.table import TableContext


def check_replaceable(
    context: TableContext, partition: Mapping[str, Any] | None, *, is_dynamic: bool | None = None
) -> None:
    """Raises UnsupportedFeature where a key of the new rows may keep its row in a partition that isn't replaced.

    partition: column -> value; None: all, or the partitions of the new rows (is_dynamic; None: as option
        `dynamic-partition-overwrite` says).
    """
    if bucket_mode(context.schema, context.options) is not BucketMode.CROSS_PARTITION:
        return
    of_new_rows = context.options.dynamic_partition_overwrite if is_dynamic is None else is_dynamic
    if partition is not None or of_new_rows:
        raise UnsupportedFeature(
            f"{context.name}: an overwrite of partitions of a table whose keys move between them",
            "the same key may have a row in another partition, which would stay",
            "Write the rows without an overwrite, or overwrite everything with dynamic-partition-overwrite = false",
        )
