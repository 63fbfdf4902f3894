"""Where a service's memory comes from: of Arrow's arrays, and of bytes."""

from __future__ import annotations

import ctypes
import os
import platform
from typing import Final

import pyarrow as pa

_MIB: Final = 1 << 20
# of `mallopt`, in glibc's malloc.h
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3


def use_service_allocators() -> None:
    """For a process that is a pipeline. Call it before there are arrays. The environment wins: what is named there by
    ARROW_DEFAULT_MEMORY_POOL, MALLOC_TRIM_THRESHOLD_ and MALLOC_MMAP_THRESHOLD_ stays.
    """
    _allocate_arrays_from_jemalloc()
    _keep_blocks_of_bytes()


def _allocate_arrays_from_jemalloc() -> None:
    """Buffers of rows are filled by one thread and freed by others, which are new for each flush. Arrow's default,
    mimalloc, keeps what was freed so for long: a process that held 100 MiB in arrays had 200 MiB more. jemalloc took
    100 MiB less at its peak, and no more CPU time. Some builds of Arrow have none.
    """
    if "ARROW_DEFAULT_MEMORY_POOL" not in os.environ and "jemalloc" in pa.supported_memory_backends():
        pa.set_memory_pool(pa.jemalloc_memory_pool())


def _keep_blocks_of_bytes() -> None:
    """What brokers answer and what a batch is decoded from are blocks of one to three MiB, made and freed all the time.
    glibc gives such a block back to the system, which clears it page by page when it is taken again: a seventh of the
    CPU time of a message from Kafka. Other C libraries are left alone.
    """
    if platform.libc_ver()[0] != "glibc":
        return
    mallopt = ctypes.CDLL(None).mallopt
    for parameter, variable, limit_bytes in (
        (_MMAP_THRESHOLD, "MALLOC_MMAP_THRESHOLD_", 4 * _MIB),
        (_TRIM_THRESHOLD, "MALLOC_TRIM_THRESHOLD_", 16 * _MIB),
    ):
        if variable not in os.environ:
            mallopt(parameter, limit_bytes)
