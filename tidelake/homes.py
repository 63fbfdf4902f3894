"""The public home of a type: the module that users import it from, whatever folder implements it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def give_home(module: str, names: Sequence[str], members: Mapping[str, Any]) -> None:
    """Make pickles, `repr`, tracebacks and `help` name this module for the types and functions that it offers.

    module: `__name__` of the public module
    names: its `__all__`
    members: its `globals()`
    """
    for name in names:
        members[name].__module__ = module
