"""The command line: `tidelake <noun> <verb>`."""

from __future__ import annotations

from tidelake.cli.program import main

__all__ = ["main"]
