"""Fencing: a process can't commit after a newer one of the same pipeline has started.

    process A           table                       process B
    epoch 4     ──►  7  epoch 4
    (suspended)      8  epoch 5, empty      ◄──     starts: continues from 7, and publishes its epoch in 8
                     9  epoch 5             ◄──     commits
    resumes     ──✗  sees 8, stops

Creating `snapshot-N` if absent is the only race. The process that loses it refreshes, and then sees the winner's
snapshot. So no newer snapshot can appear between the check that found none and the publication.

The same check detects another commit user that reads the source into the table (`tidelake.checkpoint.other_users`). The
records that both read would be in the table twice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime

from tidelake.checkpoint.epoch import Epoch, epoch_of
from tidelake.checkpoint.offsets import POSITION_PROPERTY, SourcePosition, TopicPartition, position_from_text
from tidelake.checkpoint.other_users import committer
from tidelake.checkpoint.position_problems import first_few
from tidelake.checkpoint.table_state import SnapshotSummary
from tidelake.errors import PositionRefused, RecoveryOutdated, WriterFenced
from tidelake.storage.model.snapshots.snapshot import Snapshot


class EpochFence:
    """The guard of one table's commits, for `TableCommit`. Not thread-safe.

    epoch: epoch of the next commit. None: the fence checks nothing
    position: position of the next commit; None if it has none
    known_id: id of this commit user's newest snapshot, from which our position comes; 0 if none exists
    shared_with: commit users that read other records
    """

    def __init__(self, table: str, commit_user: str, shared_with: Collection[str] = ()) -> None:
        self._table = table
        self._commit_user = commit_user
        self._shared_with = shared_with
        self.epoch: Epoch | None = None
        self.known_id = 0
        self.position: SourcePosition | None = None
        self._start_id: int | None = None  # the newest snapshot at the start; None after the take-over
        self._others: dict[TopicPartition, tuple[int, SnapshotSummary]] = {}  # next offset of others, their snapshot

    def start_from(self, snapshots: Sequence[Snapshot]) -> None:
        """Start from the current state of the table.

        snapshots: the snapshots since our own newest one, oldest first
        """
        self._start_id = max((snapshot.id for snapshot in snapshots), default=self.known_id)
        self._others = {}
        self._remember_positions(summarize(snapshot, self._table) for snapshot in snapshots)

    def continue_from(self, position: SourcePosition) -> None:
        """Continue a take-over of this process after `start_from`, without a snapshot.

        position: where the table continues, compared with the positions of others.
        """
        self.position = position
        self._leave_out_compared(position.ranges)

    def __call__(self, snapshots: Sequence[Snapshot]) -> None:
        """Check the snapshots since our last commit.

        Raises
            WriterFenced: a newer process of the pipeline has published a snapshot
            RecoveryOutdated: an older process has published a snapshot
            PositionRefused: others have committed the records that we are about to commit
        """
        if self.epoch is None:
            return
        for snapshot in snapshots:
            is_own = snapshot.commit_user == self._commit_user
            if not is_own or not snapshot.is_numbered or snapshot.id <= self.known_id:
                continue
            epoch = epoch_of(snapshot.properties, f"{self._table}, snapshot {snapshot.id}")
            if epoch.supersedes(self.epoch):
                raise self._fenced(snapshot, epoch)
            if epoch != self.epoch:
                raise RecoveryOutdated(
                    f"{self._table}: an older process of this pipeline ({epoch}) committed snapshot {snapshot.id} "
                    f"after this process ({self.epoch}) started. Nothing was published. Start the pipeline again: it "
                    "continues from that snapshot"
                )
        self._check_others(snapshots)

    def _check_others(self, snapshots: Sequence[Snapshot]) -> None:
        """Check the snapshots of other commit users.

        Before the take-over, a changed position raises RecoveryOutdated. Afterwards it is compared with our position.
        """
        others = [
            summarize(snapshot, self._table) for snapshot in snapshots if snapshot.commit_user != self._commit_user
        ]
        if self._start_id is not None:
            later = [s for s in others if s.id > self._start_id and self._moves_position(s)]
            if later:
                raise RecoveryOutdated(
                    f"{self._table}: {committer(later[0])} has since moved the table's position, in snapshot "
                    f"{later[0].id}. Nothing was published. Start the pipeline again: it compares its position with "
                    "that snapshot"
                )
        else:
            self._remember_positions(others)
        if self.position is None or not self._others:
            self._start_id = None
            return
        ranges = self.position.ranges
        if self._start_id is not None:  # recovery compared these positions, or an operator decided
            self._leave_out_compared(ranges)
        overlapping = {p: self._others[p] for p in ranges if p in self._others and self._others[p][0] > ranges[p].start}
        if overlapping:
            _, other = next(iter(overlapping.values()))
            what = first_few(
                f"{p} up to {end}, but this pipeline reads from {ranges[p].start} on"
                for p, (end, _) in sorted(overlapping.items())
            )
            raise PositionRefused(
                f"{self._table}: {committer(other)} also writes to the table: according to its snapshot {other.id}, "
                f"it has read {what}. Nothing more was published, because records that both read would be duplicated",
                ["stop one of them. Then start this pipeline again: it lists the options"],
            )

    def _leave_out_compared(self, partitions: Collection[TopicPartition]) -> None:
        self._start_id = None
        self._others = {p: other for p, other in self._others.items() if p not in partitions}

    def _moves_position(self, snapshot: SnapshotSummary) -> bool:
        is_other = snapshot.commit_user != self._commit_user and snapshot.commit_user not in self._shared_with
        return is_other and POSITION_PROPERTY in snapshot.properties

    def _remember_positions(self, snapshots: Iterable[SnapshotSummary]) -> None:
        for snapshot in snapshots:
            if self._moves_position(snapshot):
                for p, end in position_from_text(snapshot.properties[POSITION_PROPERTY], snapshot.path).ends.items():
                    if p not in self._others or end > self._others[p][0]:
                        self._others[p] = end, snapshot

    def _fenced(self, snapshot: Snapshot, epoch: Epoch) -> WriterFenced:
        at = datetime.fromtimestamp(snapshot.time_ms / 1000, UTC)
        return WriterFenced(
            f"{self._table}: another process of pipeline {self._commit_user!r} took over: snapshot {snapshot.id}, "
            f"{epoch}, at {at:%Y-%m-%d %H:%M:%S} UTC; this process is {self.epoch}.\nThe commits of this process are "
            "kept. The other process reads the uncommitted records again. Nothing is lost or duplicated.\nLeave this "
            "process stopped. If this process should run instead, stop the other one first, then start this one"
        )


def summarize(snapshot: Snapshot, table: str) -> SnapshotSummary:
    """Return the summary of a snapshot.

    table: the table's name in messages.
    """
    return SnapshotSummary(
        id=snapshot.id,
        path=f"{table}, snapshot {snapshot.id}",
        commit_user=snapshot.commit_user,
        identifier=snapshot.commit_identifier,
        manifest_list=snapshot.delta_manifest_list,
        properties=snapshot.properties,
    )
