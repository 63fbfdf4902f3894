"""Which allocator Arrow's arrays of a service come from."""

from __future__ import annotations

import os

import pyarrow as pa


def allocate_from_jemalloc() -> bool:
    """For a process that is a pipeline: call it before there are arrays. Returns whether it is so now.

    Buffers of rows are filled by one thread and freed by others, which are new for each flush. Arrow's default,
    mimalloc, keeps what was freed so for long: a process that held 100 MiB in arrays had 200 MiB more. jemalloc took
    100 MiB less at its peak, and no more CPU time.

    Without effect where the environment's ARROW_DEFAULT_MEMORY_POOL has chosen, or this build of Arrow has no jemalloc.
    """
    if "ARROW_DEFAULT_MEMORY_POOL" in os.environ or "jemalloc" not in pa.supported_memory_backends():
        return False
    pa.set_memory_pool(pa.jemalloc_memory_pool())
    return True
