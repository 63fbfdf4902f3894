"""Where a service's memory comes from. It imports no Arrow, which chooses its own when it is imported."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from typing import Final

_MIB: Final = 1 << 20
_ARROW_POOL: Final = "ARROW_DEFAULT_MEMORY_POOL"
# of `mallopt`, in glibc's malloc.h
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
_ARENA_MAX: Final = -8


def use_service_allocators() -> None:
    """For a process that is a pipeline, before anything else. The environment wins: what is named there by
    ARROW_DEFAULT_MEMORY_POOL, MALLOC_TRIM_THRESHOLD_, MALLOC_MMAP_THRESHOLD_ and MALLOC_ARENA_MAX stays.

    A process that has imported Arrow already is somebody else's, and left alone: a pool that is set later would
    have the arrays, but not what Parquet's writer holds. So is one with another C library than glibc.
    """
    if "pyarrow" in sys.modules or platform.libc_ver()[0] != "glibc":
        return
    os.environ.setdefault(_ARROW_POOL, "system")
    _keep_blocks()


def _keep_blocks() -> None:
    """Answers of brokers, what a batch is decoded from and buffers of rows are blocks of some MiB, made and freed all
    the time. glibc gives such a block back to the system, which clears it page by page when it is taken again: a
    seventh of the CPU time of a message from Kafka. Kept, they serve Python and Arrow in turn, and from one arena every
    thread: with pools of their own (mimalloc, jemalloc, an arena a thread) each holds what the others lack, a fifth of
    the process at its peak.
    """
    mallopt = ctypes.CDLL(None).mallopt
    for parameter, variable, limit in (
        (_MMAP_THRESHOLD, "MALLOC_MMAP_THRESHOLD_", 8 * _MIB),
        (_TRIM_THRESHOLD, "MALLOC_TRIM_THRESHOLD_", 16 * _MIB),
        (_ARENA_MAX, "MALLOC_ARENA_MAX", 1),
    ):
        if variable not in os.environ:
            mallopt(parameter, limit)
