"""One table as a pipeline sees it: rows in, snapshots out, and what the table knows of the pipeline."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from checkpoint.recovery import OwnSnapshot
from ingest.unchanged_values import RowLookup
from storage.format import BATCH_COMMIT_IDENTIFIER
from storage.lookup.newest_rows import newest_rows
from storage.snapshots.commit import TableCommit
from storage.snapshots.commit_message import CommitMessage, Committable
from storage.snapshots.snapshot import SnapshotStore
from storage.table import TableContext
from storage.write.memory_budget import MemoryBudget
from storage.write.table_writer import TableWriter


class TableSink(RowLookup, Protocol):
    """All methods block, and are called one at a time; `commit` of different tables may overlap."""

    @property
    def name(self) -> str: ...

    def newest_own(self) -> OwnSnapshot | None:
        """The newest snapshot that this pipeline published, for finding its position."""
        ...

    def write(self, rows: pa.RecordBatch) -> None:
        """Take rows (table columns, `_VALUE_KIND`). Raises BadInput when they don't fit; then none were taken."""
        ...

    def prepare(self) -> list[CommitMessage]:
        """Everything written so far as durable files. None: nothing was written."""
        ...

    def commit(self, committable: Committable) -> int | None:
        """Publish; the snapshot's id, or None when it exists already."""
        ...

    def abort(self) -> None:
        """Drop what was not handed over by `prepare`."""
        ...


class StorageTable:
    """A table of `storage`, written under the pipeline's commit user.

    memory: shared by all tables of the pipeline.
    """

    def __init__(
        self, context: TableContext, commit_user: str, memory: MemoryBudget, spill_directory: Path | None = None
    ) -> None:
        self._context = context
        self._commit_user = commit_user
        self._snapshots = SnapshotStore(context.io, context.paths)
        self._writer = TableWriter(
            context, memory=memory, spill_directory=None if spill_directory is None else str(spill_directory)
        )
        self._commit = TableCommit(context, commit_user)
        self._is_uncommitted = False
        self._kept: list[pa.RecordBatch] | None = (
            None  # None until a record first leaves a value out: most tables never see one
        )

    @property
    def name(self) -> str:
        return self._context.name

    def newest_own(self) -> OwnSnapshot | None:
        latest = self._snapshots.latest()
        for snapshot in self._snapshots.back_from(latest) if latest is not None else ():
            if snapshot.commit_user == self._commit_user and snapshot.commit_identifier != BATCH_COMMIT_IDENTIFIER:
                path = self._context.paths.snapshot(snapshot.id)
                return OwnSnapshot(path, snapshot.commit_identifier, snapshot.properties)
        return None

    def write(self, rows: pa.RecordBatch) -> None:
        self._writer.write(rows)

    def prepare(self) -> list[CommitMessage]:
        return self._writer.prepare_commit()

    def commit(self, committable: Committable) -> int | None:
        snapshot_id = self._commit.commit(committable)
        if snapshot_id is not None:
            self._writer.committed(snapshot_id)
        return snapshot_id

    def abort(self) -> None:
        self._writer.abort()

    def newest(self, keys: pa.RecordBatch, deleted_too: NDArray[np.bool_]) -> tuple[NDArray[np.bool_], pa.RecordBatch]:
        return newest_rows(self._context, self._snapshots.latest(), keys, deleted_too, self._writer.uncommitted())
