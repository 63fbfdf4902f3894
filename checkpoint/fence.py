"""Keeps a process from committing beside a newer one of the same pipeline.

    process A           table                       process B
    epoch 4     ──►  7  epoch 4
    (sleeps)         8  epoch 5, empty      ◄──     starts: goes on from 7, and says so in 8
                     9  epoch 5             ◄──     commits
    wakes       ──✗  sees 8, stops

Publishing `snapshot-N` if absent is the only race there is: whoever loses it looks again, and then sees the winner. So
between the look that found nothing newer and the publication nothing newer can come.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from checkpoint.epoch import Epoch, epoch_of
from storage.errors import CommitConflict, WriterFenced
from storage.snapshots.snapshot import Snapshot


class Overtaken(CommitConflict):
    """Between our look at the table and our take-over another process of the pipeline committed: look again."""


class Fence:
    """One table's guard, for `TableCommit`. Not thread-safe.

    epoch: of what is about to be committed; None lets everything pass. known_id: the newest snapshot of this commit
    user that our position comes from; 0 for none.
    """

    def __init__(self, table: str, commit_user: str) -> None:
        self._table = table
        self._commit_user = commit_user
        self.epoch: Epoch | None = None
        self.known_id = 0

    def __call__(self, snapshots: Sequence[Snapshot]) -> None:
        """Raises WriterFenced for a snapshot of a newer process of the pipeline, Overtaken for one of an older."""
        if self.epoch is None:
            return
        for snapshot in snapshots:
            is_own = snapshot.commit_user == self._commit_user
            if not is_own or not snapshot.is_numbered or snapshot.id <= self.known_id:
                continue
            epoch = epoch_of(snapshot.properties, f"{self._table}, snapshot {snapshot.id}")
            if epoch.number > self.epoch.number or (
                # Started at the same moment as we: who came first into the table owns the pipeline.
                epoch.number == self.epoch.number and epoch.writer != self.epoch.writer
            ):
                raise self._fenced(snapshot, epoch)
            if epoch != self.epoch:
                raise Overtaken(
                    f"{self._table}: snapshot {snapshot.id} of an older process of this pipeline ({epoch}) came "
                    f"meanwhile; this one is {self.epoch}. Nothing was published. Start again: it goes on from there"
                )

    def _fenced(self, snapshot: Snapshot, epoch: Epoch) -> WriterFenced:
        at = datetime.fromtimestamp(snapshot.time_ms / 1000, UTC)
        return WriterFenced(
            f"{self._table}: another process of pipeline {self._commit_user!r} took over: snapshot {snapshot.id}, "
            f"{epoch}, at {at:%Y-%m-%d %H:%M:%S} UTC; this process is {self.epoch}.\n"
            "What this one committed stays; what it had not committed yet is in no table, and the other one reads it "
            "again. Nothing is lost, nothing is there twice.\n"
            "Leave this process stopped. If it is the one that should run, stop the other first, then start this one"
        )
