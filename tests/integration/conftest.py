"""The command line, in this process."""

from __future__ import annotations

from tests.tidelake.cli.calling import call

__all__ = ["call"]
