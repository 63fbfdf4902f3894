"""Scans as Ray datasets. Each task of Ray reads its own files of the same snapshot.

Source: pypaimon `read/datasource/ray_datasource.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from tidelake.frames.readable import check_installed

if TYPE_CHECKING:
    import ray.data


class DividedScan(Protocol):
    """What Ray needs of a scan: `tidelake.Scan`."""

    @property
    def schema(self) -> pa.Schema: ...
    @property
    def has_splits(self) -> bool: ...
    def to_batches(self, splits: Any = None) -> Iterator[pa.RecordBatch]: ...
    def splits(self, count: int) -> Any: ...


def to_ray(scan: DividedScan, parallelism: int | None) -> ray.data.Dataset:
    """Return a dataset.

    parallelism: how many tasks read; None: Ray decides by the bytes
    """
    check_installed("ray", "to_ray_dataset()")
    import ray.data
    from ray.data.block import BlockMetadata
    from ray.data.datasource import Datasource, ReadTask

    class TableSource(Datasource):  # type: ignore[misc]
        """One read of a table. A class of Ray's, so it is made when Ray is imported."""

        def get_name(self) -> str:
            return "Tidelake"

        def estimate_inmemory_data_size(self) -> int | None:
            return sum(group.size_bytes for group in scan.splits(1)) if scan.has_splits else None

        def get_read_tasks(self, parallelism: int, *_: Any, **of_tasks: Any) -> list[ReadTask]:
            rows_max = of_tasks.get("per_task_row_limit")
            limited = {} if rows_max is None else {"per_task_row_limit": rows_max}
            return [
                ReadTask(
                    partial(_tables, scan, group),
                    BlockMetadata(num_rows=None, size_bytes=size_bytes, input_files=None, exec_stats=None),
                    schema=scan.schema,
                    **limited,
                )
                for group, size_bytes in _groups(scan, parallelism)
            ]

    blocks = {} if parallelism is None else {"override_num_blocks": parallelism}
    return ray.data.read_datasource(TableSource(), **blocks)


def _groups(scan: DividedScan, count: int) -> list[tuple[list[Any] | None, int | None]]:
    """Return what each task reads: splits, or None for everything; and its bytes, if they are known."""
    if not scan.has_splits:
        return [(None, None)]
    return [([group], group.size_bytes) for group in scan.splits(count)] or [([], 0)]


def _tables(scan: DividedScan, splits: list[Any] | None) -> Iterator[pa.Table]:
    """Yield the rows of a task: one table at least, so that Ray knows the columns."""
    yield scan.schema.empty_table()
    for batch in scan.to_batches(splits):
        yield pa.Table.from_batches([batch])
