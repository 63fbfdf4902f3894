"""The base class of system tables: a system table answers scans, and some answer changes, in rows of their own schema.

Source: Java `table/system/*.java`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from tidelake.errors import UnsupportedFeature
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext
from tidelake.storage.read.changes.change_reader import ChangeBatch
from tidelake.storage.read.fallback_branch import FallbackBranch
from tidelake.storage.read.incremental_read import NO_INCREMENT, Increment, NoIncrement
from tidelake.storage.read.predicate import Predicate


@dataclass(frozen=True, slots=True)
class SystemTableRead:
    """What a scan asks of a system table.

    context: the table under the schema to read with.
    snapshot: the snapshot to read. None for a table without snapshots.
    other: the fallback branch: partitions that the context's branch lacks are read from it.
    increment: the changes between two snapshots, to be read instead of a snapshot.
    files_since_ms: read only files created at this time or later. None reads all.
    columns: the columns that are needed. None is all. A system table may return more columns.
    predicate: the condition on the rows. A system table may return more rows.
    """

    context: TableContext
    snapshot: Snapshot | None
    other: FallbackBranch | None = None
    increment: Increment | NoIncrement = NO_INCREMENT
    files_since_ms: int | None = None
    columns: frozenset[str] | None = None
    predicate: Predicate | None = None


class SystemTable(ABC):
    """A system table. A new subclass must be added to `tidelake.storage.kinds.system_tables.by_name`.

    context: the table that the system table describes.
    """

    name: ClassVar[str]
    sequence_numbers: bool = False  # whether `changes` needs rows with `_SEQUENCE_NUMBER`

    def __init__(self, context: TableContext) -> None:
        self.context = context

    @abstractmethod
    def schema(self, context: TableContext) -> pa.Schema:
        """Return the schema of the system table.

        context: the table under the schema to read with.
        """

    @abstractmethod
    def read(self, at: SystemTableRead) -> Iterator[pa.RecordBatch]:
        """Return rows with the columns of `schema`: at least the rows and columns that `at` asks for."""

    def changes(self, change: ChangeBatch) -> pa.RecordBatch:
        """Return the rows for a batch of changes of the table. Raises UnsupportedFeature."""
        raise self.no_changes()

    def check_changes(self) -> None:
        """Raise UnsupportedFeature if the system table has no changes to read."""
        raise self.no_changes()

    def no_changes(self) -> UnsupportedFeature:
        return UnsupportedFeature(
            f"changes of {self.context.name}${self.name}",
            "it shows one snapshot, and its changes are not recorded",
            f"Read changes of {self.context.name}, or of {self.context.name}$audit_log",
        )
