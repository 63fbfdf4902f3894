"""Conditions on rows: `tidelake.col("amount") > 3`, for scans, deletes, updates and compactions."""

from __future__ import annotations

from tidelake.homes import give_home
from tidelake.storage.read.predicate import (
    And,
    ArrowCondition,
    Column,
    Compare,
    IsIn,
    IsNan,
    IsNull,
    Like,
    Not,
    Or,
    Predicate,
    StartsWith,
    col,
)

__all__ = [
    "And",
    "ArrowCondition",
    "Column",
    "Compare",
    "IsIn",
    "IsNan",
    "IsNull",
    "Like",
    "Not",
    "Or",
    "Predicate",
    "StartsWith",
    "col",
]

give_home(__name__, __all__, globals())
