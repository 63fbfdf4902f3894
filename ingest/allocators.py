"""Where a service's memory comes from. It imports no Arrow, which chooses its own when it is imported."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from functools import cache
from typing import Final

_MIB: Final = 1 << 20
_ARROW_POOL: Final = "ARROW_DEFAULT_MEMORY_POOL"
# of `mallopt`, in glibc's malloc.h
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
_ARENA_MAX: Final = -8

WORKER_ENVIRONMENT: Final = {_ARROW_POOL: "system"}
"""Of a Python worker of Spark: Arrow's arrays are then among the blocks that `keep_blocks_between_batches` keeps.
Arrow's own pool gives memory back 10 ms after it was freed, and a worker waits longer for its next batch: a fifth of
the CPU time of a compaction went into clearing it again. PySpark imports Arrow before any code of ours runs, so only
the environment can choose.
"""


def use_service_allocators() -> None:
    """For a process that is a pipeline, before anything else. The environment wins: what is named there by
    ARROW_DEFAULT_MEMORY_POOL, MALLOC_TRIM_THRESHOLD_, MALLOC_MMAP_THRESHOLD_ and MALLOC_ARENA_MAX stays.

    A process that has imported Arrow already belongs to another program, and is left alone: a pool that is set later
    would have the arrays, but not what Parquet's writer holds. So is one with another C library than glibc.
    """
    if "pyarrow" in sys.modules or platform.libc_ver()[0] != "glibc":
        return
    os.environ.setdefault(_ARROW_POOL, "system")
    _keep_blocks(8 * _MIB, 16 * _MIB)


@cache
def keep_blocks_between_batches() -> None:
    """For a Python worker of Spark, at the beginning of a task; the environment wins here, too.

    Spark hands a task its rows in batches of some ten MiB. glibc gave such blocks back between two of them, as Arrow's
    pool gives its own back while the worker waits for the JVM: a tenth of a task's CPU time went into clearing pages.
    Arrow's pool, chosen when PySpark imported it, stays. What a worker keeps so is 32 MiB at most.
    """
    if platform.libc_ver()[0] == "glibc":
        _keep_blocks(32 * _MIB, 32 * _MIB)


def _keep_blocks(mmap_threshold: int, trim_threshold: int) -> None:
    """Answers of brokers, what a batch is decoded from and buffers of rows are blocks of some MiB, made and freed all
    the time. glibc gives such a block back to the system, which clears it page by page when it is taken again: a
    seventh of the CPU time of a message from Kafka. Kept, they serve Python and Arrow in turn, and from one arena every
    thread: with pools of their own (mimalloc, jemalloc, an arena a thread) each holds what the others lack, a fifth of
    the process at its peak.
    """
    mallopt = ctypes.CDLL(None).mallopt
    for parameter, variable, limit in (
        (_MMAP_THRESHOLD, "MALLOC_MMAP_THRESHOLD_", mmap_threshold),
        (_TRIM_THRESHOLD, "MALLOC_TRIM_THRESHOLD_", trim_threshold),
        (_ARENA_MAX, "MALLOC_ARENA_MAX", 1),
    ):
        if variable not in os.environ:
            mallopt(parameter, limit)
