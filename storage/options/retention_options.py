"""Options of what stays of a table's past, and for how long.

Source: Java `CoreOptions.java`, `options/ExpireConfig.java`.
"""

from __future__ import annotations

from storage.options.base_options import BaseOptions
from storage.options.values import parse_duration_ms


class RetentionOptions(BaseOptions):
    """Of snapshots, changelogs and consumers."""

    @property
    def snapshot_num_retained_min(self) -> int:
        return self._int("snapshot.num-retained.min")

    @property
    def snapshot_num_retained_max(self) -> int:
        return self._int("snapshot.num-retained.max")

    @property
    def snapshot_time_retained_ms(self) -> int:
        return self._duration_ms("snapshot.time-retained")

    @property
    def snapshot_expire_limit(self) -> int:
        """How many snapshots one round of expiry removes at most."""
        return self._int("snapshot.expire.limit")

    @property
    def changelog_num_retained_min(self) -> int:
        return self._int("changelog.num-retained.min", self.snapshot_num_retained_min)

    @property
    def changelog_num_retained_max(self) -> int:
        return self._int("changelog.num-retained.max", self.snapshot_num_retained_max)

    @property
    def changelog_time_retained_ms(self) -> int:
        return self._duration_ms("changelog.time-retained", self.snapshot_time_retained_ms)

    @property
    def changelog_outlives_snapshots(self) -> bool:
        """Whether changelogs stay when their snapshots expire (Java: changelogLifecycleDecoupled)."""
        return (
            self.changelog_num_retained_max > self.snapshot_num_retained_max
            or self.changelog_time_retained_ms > self.snapshot_time_retained_ms
            or self.changelog_num_retained_min > self.snapshot_num_retained_min
        )

    @property
    def consumer_expiration_ms(self) -> int | None:
        """How old a consumer's file may grow before it no longer holds snapshots back; None for ever."""
        return self._optional("consumer.expiration-time", parse_duration_ms)

    @property
    def consumer_changelog_only(self) -> bool:
        """Consumers hold back long-lived changelogs only, not snapshots."""
        return self.is_on("consumer.changelog-only")
