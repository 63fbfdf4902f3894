"""A pipeline's process allocates everything from glibc, which keeps blocks, unless its environment says otherwise."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.needs("glibc")  # another C library is left alone

_CHOSEN = ("ARROW_DEFAULT_MEMORY_POOL", "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_ARENA_MAX")
_PROGRAM = """
import ctypes, resource, threading
{before}
from tidelake.ingest.allocators import use_service_allocators

use_service_allocators()
import pyarrow as pa

def faults(rounds):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(rounds):
        bytearray(6 << 20)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults(2)
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
blocks = [libc.malloc(100_000)]
threads = [threading.Thread(target=lambda: blocks.append(libc.malloc(100_000))) for _ in range(4)]
[(thread.start(), thread.join()) for thread in threads]
one_arena = max(blocks) - min(blocks) < 1 << 30  # arenas of threads are elsewhere
print(pa.default_memory_pool().backend_name, pa.array(range(9)).nbytes, faults(100) < 2_000, one_arena)
"""


def _reported(before: str = "", **chosen: str) -> list[str]:
    """Arrow's pool, bytes of an array, whether blocks are kept, whether threads share an arena."""
    environment = {name: value for name, value in os.environ.items() if name not in _CHOSEN} | chosen
    command = [sys.executable, "-c", _PROGRAM.format(before=before)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()


def test_arrays_and_bytes_share_one_arena_that_keeps_blocks_of_some_mebibytes() -> None:
    """100 blocks of 1,536 pages: of each, nearly every page is there already."""
    assert _reported() == ["system", "72", "True", "True"]


@pytest.mark.parametrize("pool", ["jemalloc", "mimalloc"])
def test_a_memory_pool_set_in_the_environment_is_kept(pool: str) -> None:
    assert _reported(ARROW_DEFAULT_MEMORY_POOL=pool)[0] == pool


def test_malloc_thresholds_set_in_the_environment_are_kept() -> None:
    assert _reported(MALLOC_MMAP_THRESHOLD_="131072", MALLOC_ARENA_MAX="8")[2:] == ["False", "False"]


@pytest.mark.interop
@pytest.mark.parametrize(
    ("arguments", "is_pipeline"),
    [
        (["ingest", "run", "none.yaml"], True),
        (["sync-table", "--warehouse", "w", "--database", "d", "--table", "t", "--show"], True),
        (["sync-database", "--warehouse", "w", "--database", "d", "--show"], True),
        (["ingest", "plan", "none.yaml"], False),
        (["table", "show", "d.t", "--warehouse", "none"], False),
    ],
    ids=lambda case: " ".join(case[:2]) if isinstance(case, list) else "",
)
def test_a_service_command_sets_the_allocator_before_arrow_is_imported(arguments: list[str], is_pipeline: bool) -> None:
    program = f"""
from tidelake.cli.program import main
try:
    main({arguments})
except SystemExit:
    pass
import pyarrow as pa
print(pa.default_memory_pool().backend_name)
"""
    environment = {name: value for name, value in os.environ.items() if name not in _CHOSEN}
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert (run.stdout.split()[-1] == "system") is is_pipeline, run.stderr


def test_a_process_that_already_imported_arrow_is_unchanged() -> None:
    assert _reported("import pyarrow")[0] == _reported("import pyarrow", ARROW_DEFAULT_MEMORY_POOL="")[0] != "system"
