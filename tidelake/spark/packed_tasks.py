"""Packs small pieces of a read into tasks, as Spark packs small files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from tidelake.storage.model.options import TableOptions
from tidelake.storage.read.split import BinPacking

T = TypeVar("T")


def packed(pieces: Sequence[T], size_bytes: Callable[[T], int], options: TableOptions, min_tasks: int) -> list[list[T]]:
    """Return the pieces of each task, in order, up to the target size of a split.

    Tasks are smaller if there would be fewer than `min_tasks`.
    """
    cost, largest = options.split_open_file_cost_bytes, options.split_target_size_bytes
    sizes = {id(piece): size_bytes(piece) for piece in pieces}
    share = sum(max(size, cost) for size in sizes.values()) // min_tasks
    return BinPacking(min(largest, max(cost, share)), cost).pack(pieces, lambda piece: sizes[id(piece)])
