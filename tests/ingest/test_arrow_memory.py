"""A pipeline's process allocates from jemalloc, unless its environment says otherwise."""

from __future__ import annotations

import os
import subprocess
import sys

import pyarrow as pa
import pytest

_PROGRAM = """
import pyarrow as pa
from ingest.arrow_memory import allocate_from_jemalloc
print(allocate_from_jemalloc(), pa.default_memory_pool().backend_name, pa.array(range(9)).nbytes)
"""


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        pytest.param(None, "True jemalloc 72", id="nothing"),
        pytest.param("system", "False system 72", id="another"),
        pytest.param("mimalloc", "False mimalloc 72", id="the default, by name"),
    ],
)
def test_the_environment_chooses_before_us(chosen: str | None, expected: str) -> None:
    if chosen is None and "jemalloc" not in pa.supported_memory_backends():
        expected = f"False {pa.default_memory_pool().backend_name} 72"
    environment = {name: value for name, value in os.environ.items() if name != "ARROW_DEFAULT_MEMORY_POOL"}
    environment |= {} if chosen is None else {"ARROW_DEFAULT_MEMORY_POOL": chosen}
    said = subprocess.run([sys.executable, "-c", _PROGRAM], env=environment, capture_output=True, text=True, check=True)
    assert said.stdout.strip() == expected
