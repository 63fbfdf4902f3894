"""Scans as iterable datasets of PyTorch. Each worker of a `DataLoader`, on each node, reads its own share.

Source: pypaimon `read/datasource/torch_dataset.py`, which divides splits among workers, but not among nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

import numpy as np
import pyarrow as pa

from tidelake.errors import BadInput
from tidelake.frames.readable import check_installed
from tidelake.storage.base.arguments import check_whole_number

if TYPE_CHECKING:
    from torch.utils.data import IterableDataset

_BATCH_ROWS: Final = 1024  # converted to rows at once


class ShardedScan(Protocol):
    """What PyTorch needs of a scan: `tidelake.Scan`."""

    @property
    def schema(self) -> pa.Schema: ...
    @property
    def has_splits(self) -> bool: ...
    def shard(self, index: int, count: int) -> Self: ...
    def to_batches(self) -> Iterator[pa.RecordBatch]: ...


def to_torch(
    scan: ShardedScan,
    *,
    batch_rows: int | None,
    shuffle_rows: int,
    seed: int,
    rank: int | None,
    world_size: int | None,
) -> IterableDataset[dict[str, Any]]:
    """See `Scan.to_torch`."""
    check_installed("torch", "to_torch()")
    import torch.utils.data

    if batch_rows is not None:
        check_whole_number("to_torch(batch_rows=…)", batch_rows, at_least=1)
    check_whole_number("to_torch(shuffle_rows=…)", shuffle_rows)
    check_whole_number("to_torch(seed=…)", seed)
    node = _node(rank, world_size)

    class TableDataset(torch.utils.data.IterableDataset[dict[str, Any]]):  # type: ignore[misc]  # Any, if not installed
        """The rows of a scan. A class of PyTorch's, so it is made when PyTorch is imported."""

        def __init__(self) -> None:
            self._epoch = torch.zeros(1, dtype=torch.int64).share_memory_()  # workers that persist see it, too

        def set_epoch(self, epoch: int) -> None:
            """Shuffle the next pass in another order, which depends on seed and epoch only."""
            self._epoch[0] = check_whole_number("set_epoch(epoch)", epoch)

        def __iter__(self) -> Iterator[dict[str, Any]]:
            worker = torch.utils.data.get_worker_info()
            workers, number = (1, 0) if worker is None else (worker.num_workers, worker.id)
            index = node[0] * workers + number
            batches = _share(scan, index, node[1] * workers)
            if shuffle_rows:
                order = np.random.default_rng([seed, int(self._epoch[0]), index])
                batches = shuffled(batches, shuffle_rows, order)
            if batch_rows is None:
                return _rows(batches)
            return (_tensors(batch) for batch in sized(batches, batch_rows))

        def __reduce__(self) -> Any:
            arguments = (scan, batch_rows, shuffle_rows, seed, *node)
            return _remade, (*arguments, self._epoch)

    return TableDataset()


def _remade(
    scan: ShardedScan, batch_rows: int | None, shuffle_rows: int, seed: int, rank: int, world_size: int, epoch: Any
) -> Any:
    """Return the dataset in a worker that was not forked: its class can't be found by a name."""
    made: Any = to_torch(
        scan, batch_rows=batch_rows, shuffle_rows=shuffle_rows, seed=seed, rank=rank, world_size=world_size
    )
    made._epoch = epoch
    return made


def _node(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """Return the place of this process among all that train, and how many they are."""
    if (rank is None) != (world_size is None):
        raise BadInput("to_torch(): pass both rank and world_size, or none of them for those of torch.distributed")
    if rank is None or world_size is None:
        import torch.distributed as dist

        if dist.is_available() and dist.is_initialized():
            return dist.get_rank(), dist.get_world_size()
        return 0, 1
    check_whole_number("to_torch(world_size=…)", world_size, at_least=1)
    if check_whole_number("to_torch(rank=…)", rank) >= world_size:
        raise BadInput(f"to_torch(rank={rank}, world_size={world_size}): the rank is 0 to {world_size - 1}")
    return rank, world_size


def _share(scan: ShardedScan, index: int, count: int) -> Iterator[pa.RecordBatch]:
    if count == 1:
        return scan.to_batches()
    if not scan.has_splits:  # read as a whole, by one worker
        return scan.to_batches() if index == 0 else iter(())
    return scan.shard(index, count).to_batches()


def shuffled(
    batches: Iterator[pa.RecordBatch], buffer_rows: int, order: np.random.Generator
) -> Iterator[pa.RecordBatch]:
    """Yield all rows in an order at random, mixed within a buffer.

    A full buffer is mixed; half of it is returned, and the other half is mixed with the rows behind it.
    """
    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        if rows >= buffer_rows:
            mixed = _mixed(held, order)
            keep = min(buffer_rows // 2, rows)
            yield from mixed.slice(keep).to_batches()
            held, rows = mixed.slice(0, keep).to_batches(), keep
    if held:
        yield from _mixed(held, order).to_batches()


def _mixed(batches: list[pa.RecordBatch], order: np.random.Generator) -> pa.Table:
    table = pa.Table.from_batches(batches)
    return table.take(pa.array(order.permutation(table.num_rows))).combine_chunks()


def sized(batches: Iterator[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in batches of exactly this many; only the last one may have fewer."""
    held: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        rest = batch
        while count + rest.num_rows >= rows:
            taken = rows - count
            yield _one_batch([*held, rest.slice(0, taken)])
            held, count, rest = [], 0, rest.slice(taken)
        if rest.num_rows:
            held.append(rest)
            count += rest.num_rows
    if held:
        yield _one_batch(held)


def _one_batch(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def _rows(batches: Iterator[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    for batch in batches:
        for start in range(0, batch.num_rows, _BATCH_ROWS):
            yield from batch.slice(start, _BATCH_ROWS).to_pylist()


def _tensors(batch: pa.RecordBatch) -> dict[str, Any]:
    return {field.name: _tensor(column, field) for column, field in zip(batch.columns, batch.schema, strict=True)}


def _tensor(column: pa.Array, field: pa.Field) -> Any:
    """Return a tensor of numbers or booleans, one with two dimensions of vectors; a list of other values."""
    kind = field.type
    if pa.types.is_fixed_size_list(kind) and _is_number(kind.value_type):
        values = column.flatten()
        if not column.null_count and not values.null_count:
            return _tensor(values, field.with_type(kind.value_type)).reshape(len(column), kind.list_size)
    if not (_is_number(kind) or pa.types.is_boolean(kind)):
        return column.to_pylist()
    if column.null_count:
        raise BadInput(
            f"column {field.name!r} has nulls, which a tensor can't hold; leave them out, for example by "
            f'scan(filter="{field.name} is not null"), or read rows: to_torch() without batch_rows'
        )
    import torch

    if pa.types.is_boolean(kind):
        return torch.from_dlpack(column.cast(pa.uint8())).to(torch.bool)
    return torch.from_dlpack(column).clone()  # Arrow's memory must not be written to


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))
