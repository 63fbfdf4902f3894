"""What a process owns already when it continues with other tables: no other process may have taken over meanwhile."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tidelake.checkpoint.epoch import Epoch
from tidelake.checkpoint.offsets import SourcePosition
from tidelake.errors import ReloadRefused, WriterFenced


@dataclass(frozen=True, slots=True)
class Ownership:
    """The take-over that this process made at its start.

    epoch: its epoch.
    identifier: its newest checkpoint.
    positions: of each table that it writes, and that continues without a new snapshot, the position of its newest
        snapshot. Its next one begins where that one ended, even if the source was read further without rows for it.
    """

    epoch: Epoch
    identifier: int
    positions: Mapping[str, SourcePosition]

    def continued(
        self, recovered: Mapping[str, SourcePosition], published: Collection[str]
    ) -> dict[str, SourcePosition]:
        """Return where tables continue that get no snapshot now: their positions, and partitions that are new.

        recovered: the positions where all tables continue.
        published: tables that get a snapshot.
        """
        own = {name: at for name, at in self.positions.items() if name in recovered and name not in published}
        return {name: at.with_partitions(recovered[name].ends) for name, at in own.items()}

    def check(self, owners: Mapping[str, Epoch]) -> None:
        """Check the epochs of the newest snapshots of all tables.

        Raises WriterFenced if a newer process took over a table that this process writes. Its next commit would not
        notice: recovery has read that process's snapshot. Raises ReloadRefused if one owns a table that is added.
        """
        for table, epoch in owners.items():
            if not epoch.supersedes(self.epoch):
                continue
            if table in self.positions:
                raise WriterFenced(
                    f"{table}: another process of this pipeline took over ({epoch}); this process is {self.epoch}. The "
                    "commits of this process are kept. The other process reads the uncommitted records again. Nothing "
                    "is lost or duplicated.\nLeave this process stopped. If this process should run instead, stop the "
                    "other one first, then start this one"
                )
            raise ReloadRefused(
                f"{table} can't be added to a running pipeline: a later start of this pipeline wrote to it ({epoch}), "
                f"and this process is {self.epoch}. Restart the pipeline: a start takes the table over"
            )
