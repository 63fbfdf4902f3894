"""What one task reads: small pieces together, as Spark packs small files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from storage.options import TableOptions
from storage.read.split import BinPacking

T = TypeVar("T")


def packed(pieces: Sequence[T], size_bytes: Callable[[T], int], options: TableOptions, min_tasks: int) -> list[list[T]]:
    """Up to the size that a split may have; less, where there would be fewer tasks than `min_tasks`. Order is kept."""
    cost, largest = options.split_open_file_cost_bytes, options.split_target_size_bytes
    sizes = {id(piece): size_bytes(piece) for piece in pieces}
    share = sum(max(size, cost) for size in sizes.values()) // min_tasks
    return BinPacking(min(largest, max(cost, share)), cost).pack(pieces, lambda piece: sizes[id(piece)])
