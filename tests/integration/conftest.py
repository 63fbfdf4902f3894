"""The command line, called in this process."""

from __future__ import annotations

from tests.support.command_line import call

__all__ = ["call"]
