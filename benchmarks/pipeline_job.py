"""Runs a module of benchmarks in a process with the memory allocator of `tidelake ingest run`."""

from __future__ import annotations

import runpy
import sys

from tidelake.ingest.allocators import use_service_allocators

if __name__ == "__main__":
    use_service_allocators()
    module, *sys.argv[1:] = sys.argv[1:]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
