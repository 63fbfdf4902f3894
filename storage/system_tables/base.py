"""What every system table can do: answer a scan, and maybe changes, in rows of its own schema.

Source: Java `table/system/*.java`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from storage.errors import UnsupportedFeature
from storage.read.changes.change_reader import ChangeBatch
from storage.read.fallback_branch import FallbackBranch
from storage.read.incremental_read import NO_INCREMENT, Increment, NoIncrement
from storage.read.predicate import Predicate
from storage.snapshots.snapshot import Snapshot
from storage.table import TableContext


@dataclass(frozen=True, slots=True)
class SystemTableRead:
    """Which part of the table is asked about.

    context: under the schema to read with.
    snapshot: None for a table without snapshots.
    other: the branch that partitions are read from which the context's lacks.
    increment: what came between two snapshots, instead.
    files_since_ms: only files that were made at this time or later; None is all.
    columns: those that are needed; None is all. A table may give more.
    predicate: what rows are asked for. A table may give more.
    """

    context: TableContext
    snapshot: Snapshot | None
    other: FallbackBranch | None = None
    increment: Increment | NoIncrement = NO_INCREMENT
    files_since_ms: int | None = None
    columns: frozenset[str] | None = None
    predicate: Predicate | None = None


class SystemTable(ABC):
    """context: of the table that it is about. A new one is added to `storage.system_tables.registry`."""

    name: ClassVar[str]
    sequence_numbers: bool = False  # whether `changes` needs rows that come with `_SEQUENCE_NUMBER`

    def __init__(self, context: TableContext) -> None:
        self.context = context

    @abstractmethod
    def schema(self, context: TableContext) -> pa.Schema:
        """context: the table under the schema to read with."""

    @abstractmethod
    def read(self, at: SystemTableRead) -> Iterator[pa.RecordBatch]:
        """All rows, with the columns of `schema`: at least the rows and columns that `at` names."""

    def changes(self, change: ChangeBatch) -> pa.RecordBatch:
        """Rows for the changes of the table. Raises UnsupportedFeature."""
        raise self.no_changes()

    def check_changes(self) -> None:
        """Raises UnsupportedFeature for a table whose changes can't be asked for."""
        raise self.no_changes()

    def no_changes(self) -> UnsupportedFeature:
        return UnsupportedFeature(
            f"changes of {self.context.name}${self.name}",
            "it shows a snapshot; nothing records what changed from one to the next",
            f"Read changes of {self.context.name}, or of {self.context.name}$audit_log",
        )
