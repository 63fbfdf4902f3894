"""What records say of the transactions of their source."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class TransactionRow:
    """A change.

    transaction: its id.
    collection: the source table.
    number: among the transaction's changes of that table, from 1.
    """

    transaction: str
    collection: str
    number: int


@dataclass(frozen=True, slots=True)
class TransactionEnd:
    """A transaction is over. counts: its changes, by collection."""

    transaction: str
    counts: Mapping[str, int]


TransactionOf: TypeAlias = Callable[[bytes], TransactionRow | TransactionEnd | None]
"""Of a record's value; None for one that is in no transaction, or doesn't say in which."""
