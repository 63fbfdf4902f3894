"""Which snapshots are kept: the first one to keep. Reads nothing itself; a function returns the times of snapshots.

Source: Java `table/ExpireSnapshotsImpl.java`, `table/ExpireChangelogImpl.java`, `options/ExpireConfig.java`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidelake.errors import BadInput
from tidelake.storage.model.options import TableOptions


@dataclass(frozen=True, slots=True)
class Retention:
    """How many snapshots are kept, and how long.

    num_min: the number of newest snapshots that are always kept, at least one.
    num_max: the largest number that is kept, whatever their age.
    time_ms: how long a snapshot is kept after the next one was committed.
    limit: how many are removed in a round.

    Raises BadInput if the numbers contradict each other.
    """

    num_min: int
    num_max: int
    time_ms: int
    limit: int

    def __post_init__(self) -> None:
        if self.num_max < self.num_min:
            raise BadInput(
                f"at least {self.num_min} and at most {self.num_max} snapshots must be kept: raise num-retained.max "
                "or lower num-retained.min"
            )

    @classmethod
    def of_snapshots(cls, options: TableOptions) -> Retention:
        return cls(
            options.snapshot_num_retained_min,
            options.snapshot_num_retained_max,
            options.snapshot_time_retained_ms,
            options.snapshot_expire_limit,
        )

    @classmethod
    def of_changelogs(cls, options: TableOptions) -> Retention:
        """Return the retention of long-lived changelogs (`TableOptions.changelog_outlives_snapshots`)."""
        return cls(
            options.changelog_num_retained_min,
            options.changelog_num_retained_max,
            options.changelog_time_retained_ms,
            options.snapshot_expire_limit,
        )

    def earliest_to_keep(
        self, earliest: int, latest: int, now_ms: int, expiry_time_ms: Callable[[int], int | None]
    ) -> int:
        """Return the first id to keep. Ids from `earliest` up to it, not included, may be removed.

        expiry_time_ms: returns the time of an id that must be older than the retention time; None for an id that was
            deleted meanwhile. Called for ascending ids, at most `limit` times.

        The caller checks what else must be kept (consumers, pins).
        """
        end = min(latest - max(self.num_min, 1) + 1, earliest + self.limit)
        for snapshot_id in range(max(latest - self.num_max + 1, earliest), end):
            time_ms = expiry_time_ms(snapshot_id)
            if time_ms is not None and time_ms >= now_ms - self.time_ms:
                return snapshot_id
        return max(end, earliest)


def retention_of(
    options: TableOptions,
    num_min: int | None = None,
    num_max: int | None = None,
    time_ms: int | None = None,
    *,
    limit: int | None = None,
) -> Retention:
    """Return the retention of snapshots: the options, overridden by the arguments. A contradicting option gives way."""
    stored = Retention.of_snapshots(options)
    least = num_min if num_min is not None else min(stored.num_min, stored.num_max if num_max is None else num_max)
    most = num_max if num_max is not None else max(stored.num_max, least)
    age_ms = stored.time_ms if time_ms is None else time_ms
    return Retention(least, most, age_ms, stored.limit if limit is None else limit)
