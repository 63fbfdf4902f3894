"""Fixtures of the command line's tests."""

from __future__ import annotations

from tests.tidelake.cli.calling import call

__all__ = ["call"]
