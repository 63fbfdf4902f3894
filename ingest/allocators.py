"""Sets the memory allocators of a service. It does not import Arrow, which chooses its memory pool on import."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from functools import cache
from typing import Final

_KEPT_BYTES_MAX: Final = 32 << 20
_ARROW_POOL: Final = "ARROW_DEFAULT_MEMORY_POOL"
# Parameters of `mallopt`, from glibc's malloc.h.
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
_ARENA_MAX: Final = -8

_LIMITS: Final = (
    (_MMAP_THRESHOLD, "MALLOC_MMAP_THRESHOLD_", _KEPT_BYTES_MAX),
    (_TRIM_THRESHOLD, "MALLOC_TRIM_THRESHOLD_", _KEPT_BYTES_MAX),
    (_ARENA_MAX, "MALLOC_ARENA_MAX", 1),
)

WORKER_ENVIRONMENT: Final = {_ARROW_POOL: "system"}
"""The environment of a Python worker of Spark. It makes Arrow allocate its arrays with glibc's malloc, so that
`keep_blocks_between_batches` applies to them, too. Arrow's default pool returns memory to the system 10 ms after it was
freed, but a worker waits longer for its next batch: clearing the memory again took a fifth of the CPU time of a
compaction. PySpark imports Arrow before our code runs, so only the environment can choose the pool.
"""


def use_service_allocators() -> None:
    """Set the allocators of a process that runs a pipeline. Call this before anything else.

    The environment variables ARROW_DEFAULT_MEMORY_POOL, MALLOC_TRIM_THRESHOLD_, MALLOC_MMAP_THRESHOLD_ and
    MALLOC_ARENA_MAX take precedence.

    A process that has already imported Arrow is another program, and is not changed: a pool that is set later would
    hold the arrays, but not the memory of Parquet's writer. A process with a C library other than glibc is not changed
    either.
    """
    if "pyarrow" in sys.modules or platform.libc_ver()[0] != "glibc":
        return
    os.environ.setdefault(_ARROW_POOL, "system")
    _keep_blocks()


def service_environment() -> dict[str, str]:
    """Return the environment of a process that helps a service, which gives it the service's allocators."""
    limits = {variable: str(limit) for _, variable, limit in _LIMITS}
    return {_ARROW_POOL: "system", **limits, **os.environ}


@cache
def keep_blocks_between_batches() -> None:
    """Set the allocator of a Python worker of Spark, at the beginning of a task. The environment takes precedence.

    Spark passes rows to a task in batches of about ten MiB. By default glibc returns such blocks to the system between
    two batches, and Arrow's pool does the same while the worker waits for the JVM. Clearing the pages again took a
    tenth of a task's CPU time. Arrow's pool, which was chosen when PySpark imported Arrow, is not changed. A worker
    keeps at most 32 MiB in this way.
    """
    if platform.libc_ver()[0] == "glibc":
        _keep_blocks()


def _keep_blocks() -> None:
    """Make glibc keep freed blocks of up to 32 MiB, its limit, in one arena for all threads.

    Responses of brokers, decoded batches and row buffers are blocks of some MiB that are allocated and freed all the
    time. By default glibc returns such a block to the system, which clears it page by page when it is allocated again.
    This took a seventh of the CPU time of a message from Kafka. A limit of 8 MiB saved 10 MiB of memory, and cost 7 %
    of the CPU time of a record from a folder. Kept blocks are used by Python and Arrow alike, and by every thread.
    Separate pools (mimalloc, jemalloc, one arena per thread) each hold free memory that the others can't use: a fifth
    of the process's memory at its peak.
    """
    mallopt = ctypes.CDLL(None).mallopt
    for parameter, variable, limit in _LIMITS:
        if variable not in os.environ:
            mallopt(parameter, limit)
