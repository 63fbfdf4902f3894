"""The modules that an async read of tables imports."""

from __future__ import annotations

import subprocess
import sys


def test_the_async_reader_does_not_import_the_pipeline() -> None:
    code = "import sys, tidelake.aio; print(sorted(m for m in sys.modules if m.startswith('tidelake.ingest')))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "[]"
