"""Options for how long old states of a table are kept.

Source: Java `CoreOptions.java`, `options/ExpireConfig.java`.
"""

from __future__ import annotations

from tidelake.storage.model.options.base_options import BaseOptions
from tidelake.storage.model.options.option_value import OptionValue


class RetentionOptions(BaseOptions):
    """Retention of snapshots, changelogs and consumers."""

    snapshot_num_retained_min = OptionValue[int]("snapshot.num-retained.min")
    snapshot_num_retained_max = OptionValue[int]("snapshot.num-retained.max")
    snapshot_time_retained_ms = OptionValue[int]("snapshot.time-retained")
    # How many snapshots one round of expiry removes at most
    snapshot_expire_limit = OptionValue[int]("snapshot.expire.limit")

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
        """Whether changelogs are kept when their snapshots expire (Java: changelogLifecycleDecoupled)."""
        return (
            self.changelog_num_retained_max > self.snapshot_num_retained_max
            or self.changelog_time_retained_ms > self.snapshot_time_retained_ms
            or self.changelog_num_retained_min > self.snapshot_num_retained_min
        )

    # Whether directories are deleted that expiry left empty
    snapshot_clean_empty_directories = OptionValue[bool]("snapshot.clean-empty-directories")
    # How old a consumer's file may become before it no longer holds snapshots back; None: no limit
    consumer_expiration_ms = OptionValue[int | None]("consumer.expiration-time")
    # Consumers hold back long-lived changelogs only, not snapshots
    consumer_changelog_only = OptionValue[bool]("consumer.changelog-only")
