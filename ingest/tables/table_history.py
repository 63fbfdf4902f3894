"""Reads the state of one pipeline from a table's snapshots: its position, and its published commits."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from typing import Final
from urllib.parse import quote

from tidelake.checkpoint.epoch import Epoch, epoch_of
from tidelake.checkpoint.offsets import POSITION_PROPERTY
from tidelake.checkpoint.other_users import newest_of_each_user
from tidelake.checkpoint.table_state import SnapshotSummary, TableState
from tidelake.errors import BadInput, CorruptFile
from tidelake.storage.base.logs import get_logger
from tidelake.storage.base.threads import map_parallel
from tidelake.storage.fileio.requests import run_requests
from tidelake.storage.model.snapshots.consumers import Consumer, consumer_names
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext

PIPELINE_PROPERTY: Final = "tidelake.spark-pipeline"  # of a Spark query's snapshot: the name of its pipeline
HISTORY_SNAPSHOTS: Final = 64  # checked for chain breaks at a start; `tidelake table verify` checks all
_SNAPSHOTS_OF_ALL_TABLES: Final = 1_024  # snapshots of all tables together, so that many tables don't slow down a start
_SNAPSHOTS_PER_TABLE_MIN: Final = 8
_CONSUMERS: Final = "tidelake-"
_QUERY_CONSUMERS: Final = f"{_CONSUMERS}spark-"  # see `query_user` of tidelake.ingest.spark

_log = get_logger(__name__)


class CommitHistory:
    """The commits of a pipeline in a table. Each call reads the table again.

    commit_user: the pipeline's commit user.
    shared_with: see `tables[].shared_with`.
    history_snapshots: number of snapshots that are checked for chain breaks.
    """

    def __init__(
        self,
        context: TableContext,
        commit_user: str,
        shared_with: Collection[str] = (),
        history_snapshots: int = HISTORY_SNAPSHOTS,
    ) -> None:
        self._context = context
        self._history_snapshots = history_snapshots
        self._commit_user = commit_user
        self._shared_with = shared_with
        self._snapshots = context.snapshots
        self._consumer = Consumer(context.io, context.paths, consumer_name(commit_user))

    @property
    def created_ms(self) -> int:
        return self._context.schemas.get(0).time_ms

    def latest(self) -> Snapshot | None:
        return self._snapshots.latest()

    def own_snapshot(self) -> Snapshot | None:
        """Return a snapshot of the pipeline, or of its query on Spark; None if neither ever committed.

        If the pipeline is still registered as a consumer, but its snapshots are gone, this is the newest snapshot of
        any commit user.
        """
        latest = self._snapshots.latest()
        if latest is None:
            return None
        own = next((s for s in self._read_backwards(latest) if self._is_own(s) or self._is_of_query(s)), None)
        own = own or next(filter(self._is_of_query, self._kept_by_queries()), None)
        return own or (latest if self.registered_id() is not None else None)

    def _is_of_query(self, snapshot: Snapshot) -> bool:
        return snapshot.properties.get(PIPELINE_PROPERTY) == self._commit_user

    def _kept_by_queries(self) -> Iterator[Snapshot]:
        """Yield the snapshots that Spark queries keep from expiry."""
        io, paths = self._context.io, self._context.paths
        for name in consumer_names(io, paths):
            if name.startswith(_QUERY_CONSUMERS):
                with suppress(CorruptFile):
                    at = Consumer(io, paths, name).next_snapshot_id()
                    if at is not None and (found := self._snapshots.find(at)) is not None:
                        yield found

    def snapshot(self, snapshot_id: int) -> SnapshotSummary | None:
        found = self._snapshots.find(snapshot_id)
        return None if found is None else self.summarize(found)

    def summarize(self, snapshot: Snapshot) -> SnapshotSummary:
        return SnapshotSummary(
            id=snapshot.id,
            path=self._context.paths.snapshot(snapshot.id),
            commit_user=snapshot.commit_user,
            identifier=snapshot.commit_identifier,
            manifest_list=snapshot.delta_manifest_list,
            properties=snapshot.properties,
        )

    def read_state(
        self, latest_of_user: Snapshot | None, since: Sequence[Snapshot], registered_id: int | None
    ) -> TableState:
        """Return the table's state for the pipeline.

        latest_of_user: the pipeline's newest snapshot; None if it has none.
        since: the snapshots after it, oldest first. Older ones are ignored.
        registered_id: `registered_id()`, asked before the snapshots were looked at.
        """
        first = latest_of_user or self._snapshots.latest()
        history = list[Snapshot]()

        def read_history() -> int | None:
            if first is not None:
                history.extend(self._read_backwards(first))
            return None

        created_ms, earliest_id, _ = run_requests(
            self._context.location, lambda: self.created_ms, self._snapshots.earliest_id, read_history
        )
        own = [self.summarize(s) for s in history if self._is_own(s)]
        others = [self.summarize(s) for s in history if not self._is_own(s) and POSITION_PROPERTY in s.properties]
        later = [s for s in reversed(since) if latest_of_user is None or s.id > latest_of_user.id]
        newest_of_others = newest_of_each_user(map(self.summarize, later), self._commit_user, self._shared_with)
        others = newest_of_others + [s for s in others if s not in newest_of_others]
        return TableState(
            created_ms=created_ms,
            own=own,
            others=others,
            earliest_id=earliest_id,
            latest_id=max((s.id for s in (*since, *history[:1])), default=None),
            consumer_snapshot_id=registered_id,
            newest_of_others=newest_of_others,
        )

    def was_published(self, identifier: int, epoch: Epoch | None, known_id: int) -> bool | None:
        """Return whether the process with this epoch published the identifier; None if its last snapshot has expired.

        known_id: id of a snapshot of the pipeline that existed when the process started.
        """
        latest = self._snapshots.latest()
        for snapshot in self._snapshots.backwards_from(latest) if latest is not None else ():
            if self._is_own(snapshot) and epoch_of(snapshot.properties, self._context.name) == epoch:
                return snapshot.commit_identifier == identifier
            if snapshot.id <= known_id:
                return False
        return None

    def register(self, snapshot_id: int) -> None:
        """Register as a consumer, so that this snapshot and later ones do not expire.

        Raises TidelakeError if the table was dropped or created again: the consumer file would block the creation of
        the next table, or name a snapshot of another table.
        """
        if (loss := self._context.identity.change_since_open()) is not None:
            raise BadInput(f"{self._context.name} {loss}")
        self._consumer.write(snapshot_id)

    def registered_id(self) -> int | None:
        """Return the snapshot that the pipeline's consumer file names; None if it names none."""
        try:
            return self._consumer.next_snapshot_id()
        except CorruptFile as error:
            _log.warning("the consumer file is ignored and written again", table=self._context.name, error=str(error))
            return None

    def _read_backwards(self, snapshot: Snapshot) -> Iterator[Snapshot]:
        """Yield this snapshot and earlier ones. They are read in parallel, because a remote store is slow for each."""
        yield snapshot
        ids = range(snapshot.id - 1, max(0, snapshot.id - self._history_snapshots), -1)
        for found in map_parallel(self._snapshots.find, ids):
            if found is None:
                return
            yield found

    def _is_own(self, snapshot: Snapshot) -> bool:
        return snapshot.commit_user == self._commit_user and snapshot.is_numbered


def history_snapshots_of_each(tables: int) -> int:
    """Return how many snapshots of each table a start checks."""
    return max(_SNAPSHOTS_PER_TABLE_MIN, min(HISTORY_SNAPSHOTS, _SNAPSHOTS_OF_ALL_TABLES // tables))


def consumer_name(commit_user: str) -> str:
    """Return the name of the consumer that protects a pipeline's position from expiry."""
    return f"{_CONSUMERS}{quote(commit_user, safe='')}"
