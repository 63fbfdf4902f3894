"""A pipeline's process allocates from jemalloc and keeps blocks of bytes, unless its environment says otherwise."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pyarrow as pa
import pytest

_CHOSEN = ("ARROW_DEFAULT_MEMORY_POOL", "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_")
_PROGRAM = """
import resource
import pyarrow as pa
from ingest.allocators import use_service_allocators

def faults(rounds):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(rounds):
        bytearray(3 << 20)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

use_service_allocators()
faults(2)
print(pa.default_memory_pool().backend_name, pa.array(range(9)).nbytes, faults(100) < 2_000)
"""


def _told(**chosen: str) -> list[str]:
    environment = {name: value for name, value in os.environ.items() if name not in _CHOSEN} | chosen
    said = subprocess.run([sys.executable, "-c", _PROGRAM], env=environment, capture_output=True, text=True, check=True)
    return said.stdout.split()


@pytest.mark.skipif("jemalloc" not in pa.supported_memory_backends(), reason="this build of Arrow has no jemalloc")
def test_arrays_come_from_jemalloc() -> None:
    assert _told()[:2] == ["jemalloc", "72"]


@pytest.mark.parametrize("pool", ["system", "mimalloc"])
def test_another_pool_that_the_environment_names_stays(pool: str) -> None:
    assert _told(ARROW_DEFAULT_MEMORY_POOL=pool)[:2] == [pool, "72"]


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library is left alone")
def test_blocks_of_some_mebibytes_are_not_given_back_to_the_system_each_time() -> None:
    """100 blocks of 768 pages: of each, nearly every page is there already."""
    assert _told()[2] == "True"
    assert _told(MALLOC_MMAP_THRESHOLD_="131072")[2] == "False"
