"""What records contain about the transactions of their source."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class TransactionRow:
    """The place of a change in its transaction.

    transaction: the transaction's id.
    collection: the source table.
    number: number of the change among the transaction's changes of that table, from 1.
    """

    transaction: str
    collection: str
    number: int


@dataclass(frozen=True, slots=True)
class TransactionEnd:
    """The end of a transaction.

    transaction: the transaction's id.
    counts: source table to the number of changes in the transaction.
    """

    transaction: str
    counts: Mapping[str, int]


TransactionOf: TypeAlias = Callable[[bytes], TransactionRow | TransactionEnd | None]
"""Reads the transaction from a record's value; None if the record is in no transaction, or doesn't name it."""
