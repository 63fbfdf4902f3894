"""Checks which rows of a table an overwrite may replace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidelake.storage.base.errors import UnsupportedFeature
from tidelake.storage.model.bucketing import BucketMode, bucket_mode
from tidelake.storage.model.table import TableContext


def check_replaceable(
    context: TableContext, partition: Mapping[str, Any] | None, *, is_dynamic: bool | None = None
) -> None:
    """Raises UnsupportedFeature if a key of the new rows may keep a row in a partition that is not replaced.

    partition: column -> value of the replaced partition. None: the whole table, or the partitions of the new rows.
    is_dynamic: without a partition: whether only the partitions of the new rows are replaced. None: option
        `dynamic-partition-overwrite` decides.
    """
    if bucket_mode(context.schema, context.options) is not BucketMode.CROSS_PARTITION:
        return
    of_new_rows = context.options.dynamic_partition_overwrite if is_dynamic is None else is_dynamic
    if partition is not None or of_new_rows:
        raise UnsupportedFeature(
            f"{context.name}: an overwrite of partitions of a table whose keys move between them",
            "the same key may have a row in another partition, which would not be replaced",
            "Write the rows without an overwrite, or overwrite everything with dynamic-partition-overwrite = false",
        )
