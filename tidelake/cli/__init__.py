"""The command line: `tidelake <noun> <verb>`."""

from __future__ import annotations

from tidelake.cli.main import main

__all__ = ["main"]
