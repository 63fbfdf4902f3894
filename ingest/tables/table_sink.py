"""One table of a pipeline: its writer, its commits under the pipeline's commit user, and its state at a start."""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum, auto
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelake.checkpoint.committable import TableCommittable
from tidelake.checkpoint.fence import EpochFence
from tidelake.checkpoint.offsets import SourcePosition
from tidelake.checkpoint.table_state import SnapshotSummary, TableState
from tidelake.compaction.compact_manager import CompactionListener, compact_manager_factory
from tidelake.compaction.table_rewrite import finish_rewrite, is_unfinished
from tidelake.errors import CommitConflict, PositionRefused, TidelakeError, WriterFenced
from tidelake.ingest.tables.moved_row_files import MovedRowFiles
from tidelake.ingest.tables.table_history import HISTORY_SNAPSHOTS, CommitHistory
from tidelake.storage.base.logs import get_logger
from tidelake.storage.commit.commit_message import Committable
from tidelake.storage.commit.commit_steps import settle_writer
from tidelake.storage.commit.manifests.snapshot_files import live_entries
from tidelake.storage.commit.table_commit import TableCommit
from tidelake.storage.maintenance.maintenance_worker import MaintenanceWorker
from tidelake.storage.model.table import TableContext
from tidelake.storage.write.lookup.row_lookup import lookup_newest_rows, lookup_rows_with
from tidelake.storage.write.memory_budget import MemoryBudget
from tidelake.storage.write.table_writer import TableWriter

_READ_AGAIN: Final = (
    "The next start, or the next retry if the table is in quarantine, reads the source's snapshot again, and merges it"
)

_log = get_logger(__name__)


class BootstrapPhase(Enum):
    """Whether the rows of a table go sorted to its highest level, all in one commit.

    NONE: they are merged as ever.
    POSSIBLE: the table's first rows may begin a bootstrap.
    RUNNING: it takes rows, and checkpoints leave the table out.
    COMPLETE: it takes no more rows, and the next checkpoint commits it.
    """

    NONE = auto()
    POSSIBLE = auto()
    RUNNING = auto()
    COMPLETE = auto()


class TableSink:
    """A table that a pipeline writes, under the pipeline's commit user.

    writer: writes its rows
    history: its snapshots
    moved_row_files: the files of its moved rows
    is_truncated: whether the next snapshot replaces all rows, even if it has no rows
    bootstrap: see `begin_bootstrap`

    memory: shared by all tables of the pipeline
    maintenance: shared by all tables of the pipeline. None: nothing expires
    shared_with: commit users that write other records to the table
    history_snapshots: number of snapshots that a start checks
    compacted: called after each compaction during writing

    All methods block, and are called one at a time, including those of `writer` and `history`. Those of different
    tables may overlap.
    """

    def __init__(
        self,
        context: TableContext,
        commit_user: str,
        memory: MemoryBudget,
        spill_directory: Path | None = None,
        maintenance: MaintenanceWorker | None = None,
        shared_with: Collection[str] = (),
        history_snapshots: int = HISTORY_SNAPSHOTS,
        compacted: CompactionListener | None = None,
        *,
        may_bootstrap: bool = False,
    ) -> None:
        self._context = context
        self._commit_user = commit_user
        self.history = CommitHistory(context, commit_user, shared_with, history_snapshots)
        self.moved_row_files = MovedRowFiles(
            context.io, context.paths.moved_rows_directory, commit_user, context.schema
        )
        self._memory = memory
        self._spill_directory = None if spill_directory is None else str(spill_directory)
        self._compacted = compacted
        self.writer = self._open_writer()
        self.is_truncated = False
        self.bootstrap = BootstrapPhase.POSSIBLE if may_bootstrap else BootstrapPhase.NONE
        self._fence = EpochFence(context.name, commit_user, shared_with)
        self._commit = TableCommit(
            context,
            commit_user,
            guard=self._fence,
            on_lost_compaction=lambda messages: self.writer.restart_compaction(messages),  # the writer may change
        )
        self._published = (
            (lambda _: None) if maintenance is None else maintenance.watch(context, pins=self._own_position)
        )

    def _open_writer(self, *, replaces: bool = False, bootstraps: bool = False) -> TableWriter:
        return TableWriter(
            self._context,
            replaces=replaces,
            bootstraps=bootstraps,
            memory=self._memory,
            spill_directory=self._spill_directory,
            compactor_factory=compact_manager_factory(spill_directory=self._spill_directory, listener=self._compacted),
            known_snapshot=lambda: self._commit.known_latest,
        )

    @property
    def context(self) -> TableContext:
        """The table, with the version of its schema that is written."""
        return self._context

    @property
    def name(self) -> str:
        return self._context.name

    def adopt_schema(self, context: TableContext) -> None:
        """Write with this version of the table's schema from now on. All rows added before must be committed."""
        assert not self.is_bootstrapping, "a bootstrap is committed before the schema changes"
        self.writer.abort()  # it has compactions, but no rows
        self._context = context
        self.moved_row_files = MovedRowFiles(
            context.io, context.paths.moved_rows_directory, self._commit_user, context.schema
        )
        self.writer = self._open_writer()
        self._commit.adopt_schema(context)

    def finish_rewrite(self) -> None:
        """Finish a rewrite of the table with wider keys that another process began. Call it before `read_state`."""
        if is_unfinished(self._context):
            snapshot_id = finish_rewrite(self._context)
            _log.warning("rewrite of the table finished, which was interrupted", table=self.name, snapshot=snapshot_id)

    def holds_rows(self) -> bool:
        """Return whether the table's newest snapshot has rows, of any writer."""
        latest = self._context.snapshots.latest()
        return latest is not None and latest.total_record_count > 0

    def close(self) -> None:
        """Drop what is not committed. Nothing is left to be done in the background."""
        try:
            self.writer.abort()
        finally:
            self._commit.close()

    def truncate(self) -> None:
        """Drop rows added since the last commit. The next commit replaces all rows by those added from now on."""
        assert not self.is_bootstrapping, "a bootstrap is committed before the table is emptied"
        self.writer.cancel_compactions()
        self.writer.abort()
        self.writer = self._open_writer(replaces=True)  # the old one refers to files that are about to be removed
        self.is_truncated = True

    def begin_bootstrap(self) -> bool:
        """Let the rows from now on go sorted to the highest level, all in one commit. Returns False, and changes
        nothing, if the table is not empty. No row was added since the last commit.

        Until `end_bootstrap` the table is held back from checkpoints. *Crash: no row is committed, and the table's
        position is where it was, so that all are read again.*
        """
        self.bootstrap = BootstrapPhase.NONE
        latest = self._context.snapshots.latest_since(self._commit.known_latest)
        if self.is_truncated or (latest is not None and live_entries(self._context, latest)):
            return False
        self.writer.abort()  # it has no rows
        self.writer = self._open_writer(bootstraps=True)
        self.bootstrap = BootstrapPhase.RUNNING
        return True

    def end_bootstrap(self) -> None:
        """Learn that the bootstrap takes no more rows: the next checkpoint commits it."""
        self.bootstrap = BootstrapPhase.COMPLETE

    def skip_bootstrap(self) -> None:
        """Learn that the table's rows don't begin a bootstrap."""
        if self.may_bootstrap:
            self.bootstrap = BootstrapPhase.NONE

    @property
    def may_bootstrap(self) -> bool:
        """Whether the table's first rows may begin a bootstrap."""
        return self.bootstrap is BootstrapPhase.POSSIBLE

    @property
    def is_bootstrapping(self) -> bool:
        """Whether a bootstrap has begun that is not committed."""
        return self.bootstrap in (BootstrapPhase.RUNNING, BootstrapPhase.COMPLETE)

    @property
    def is_held_back(self) -> bool:
        """Whether checkpoints leave the table out, as its bootstrap is not complete."""
        return self.bootstrap is BootstrapPhase.RUNNING

    def read_state(self) -> TableState:
        """Return the table's state, from which the pipeline's position is recovered."""
        # First: a process that commits and registers meanwhile would else look like snapshots that were rolled back.
        registered_id = self.history.registered_id()
        newest = self._commit.latest_of_user()
        self._fence.known_id = newest.id if newest is not None else 0
        since = self._commit.snapshots_since_guard
        self._fence.start_from(since)
        return self.history.read_state(newest, since, registered_id)

    def continue_from(self, position: SourcePosition) -> None:
        """Continue as the owner after `read_state`, without a new snapshot.

        position: where the table continues, compared with the positions of others.
        """
        self._fence.continue_from(position)

    def latest_of_user(self) -> SnapshotSummary | None:
        """Return the pipeline's newest known snapshot. Reads nothing."""
        newest = self._commit.known_latest_of_user
        return None if newest is None else self.history.summarize(newest)

    @property
    def commit_attempts(self) -> int:
        """Attempts to commit a snapshot since this was opened; each retry counts."""
        return self._commit.attempts

    def _own_position(self) -> list[int]:
        """Return the snapshots that our own expiry must keep."""
        newest = self._commit.known_latest_of_user
        return [] if newest is None else [newest.id]

    def commit(self, committable: TableCommittable) -> int | None:
        """Publish a snapshot. Returns its id; None if it already exists.

        Raises WriterFenced if a newer process owns the pipeline, RecoveryOutdated if an older one has committed.
        """
        self._fence.epoch, self._fence.position = committable.epoch, committable.position
        stored = committable.to_storage()
        try:
            if self.is_truncated:
                snapshot_id = self._commit.overwrite(stored, dynamic=False)
            elif self.is_bootstrapping and stored.messages:
                snapshot_id = self._commit.commit_to_empty(stored, _READ_AGAIN)
            else:
                snapshot_id = self._commit.commit(stored)
        except (CommitConflict, WriterFenced, PositionRefused) as error:
            self._discard(stored, error)
            raise
        is_replaced = self.is_truncated or self.is_bootstrapping
        newest_id = settle_writer(self._commit, stored, snapshot_id, self.writer, self._published)
        self.is_truncated = False
        if self.is_bootstrapping:
            self.bootstrap = BootstrapPhase.NONE
        if is_replaced:
            self.writer.abort()  # it has no rows
            self.writer = self._open_writer()
        return newest_id

    def _discard(self, committable: Committable, reason: TidelakeError) -> None:
        """Delete the files of a failed commit that no snapshot names: all, or only compacted ones if the rows were
        published.

        If snapshots have expired, it is unknown which of the two applies. A conflict means that nothing was published
        (otherwise the error is CommitOutcomeUnknown), even if the table was dropped and can't be read.
        """
        messages = committable.messages
        try:
            is_published = self.history.was_published(committable.identifier, self._fence.epoch, self._fence.known_id)
            if is_published:
                messages = [message.only_compaction() for message in messages]
            if is_published is not None or isinstance(reason, CommitConflict):
                self._commit.abort(messages)
        except (OSError, TidelakeError) as error:
            _log.warning("files of a failed commit stay, for the orphan cleaner", table=self.name, error=str(error))

    def newest(self, keys: pa.RecordBatch) -> tuple[NDArray[np.bool_], pa.RecordBatch]:
        """See `RowLookup`. Rows that are not committed count, too."""
        latest = self._context.snapshots.latest_since(self._commit.known_latest)
        return lookup_newest_rows(self._context, latest, keys, self.writer.uncommitted())

    def with_key(self, keys: pa.RecordBatch) -> pa.RecordBatch:
        """See `VersionLookup`. Rows that are not committed count, too."""
        latest = self._context.snapshots.latest_since(self._commit.known_latest)
        return lookup_rows_with(self._context, latest, keys, self.writer.uncommitted())
