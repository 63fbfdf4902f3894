"""Universal compaction, as in RocksDB: picks the sorted runs to compact next.

Read cost grows with the number of runs, write cost with the number of rewrites of a row, space with duplicated rows.
The first matching rule picks:

    early full           optional, by time or size: everything, to the highest level
    size amplification   the newer runs are too large compared with the oldest one: everything
    size ratio           young runs of similar size: as many as fit the growing sum
    run count            more runs than the trigger allows: at least the excess ones
    level 0 forced up    optional, if rows of level 0 are not visible yet

Runs are picked from the newest on without a gap, so that levels stay ordered by age. At off-peak hours, the sum of the
size ratio may grow faster. A full compaction that a caller demands picks everything, unless nothing would change. This
module reads no clock and opens no file.

Source: Java `mergetree/compact/UniversalCompaction.java`, `EarlyFullCompaction.java`, `ForceUpLevel0Compaction.java`,
`OffPeakHours.java`, `CompactStrategy.java` (pickFullCompaction);
https://github.com/facebook/rocksdb/wiki/Universal-Compaction; vectors `universal_compaction.json`,
`pick_full_compaction.json`, `offpeak_hours.json`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tidelake.compaction.merge_tree.compact_unit import CompactUnit, PickReason
from tidelake.compaction.merge_tree.levels import Levels, LevelSortedRun
from tidelake.errors import BadInput
from tidelake.storage.files.data_file import DataFileMeta
from tidelake.storage.model.options import LookupCompact, TableOptions

Runs = Sequence[LevelSortedRun]  # newest first


@dataclass(frozen=True, slots=True)
class OffPeakHours:
    """A range of local hours, 0 to 23, without the end, which may be after midnight.

    Equal hours, or a -1, mean never.
    """

    start_hour: int = -1
    end_hour: int = -1
    ratio_percent: int = 0

    @property
    def is_enabled(self) -> bool:
        return -1 not in (self.start_hour, self.end_hour) and self.start_hour != self.end_hour

    def ratio_at(self, hour: int) -> int:
        """Return the addition to the size ratio, in percent."""
        if not self.is_enabled:
            return 0
        if self.start_hour <= self.end_hour:
            is_inside = self.start_hour <= hour < self.end_hour
        else:
            is_inside = hour >= self.start_hour or hour < self.end_hour
        return self.ratio_percent if is_inside else 0


@dataclass(frozen=True, slots=True)
class UniversalCompactionOptions:
    """The options of universal compaction.

    force_level_0_every: level 0 must be compacted at the n-th call in which no other rule picked. None: never.
    """

    trigger: int = 5
    max_size_amplification_percent: int = 200
    size_ratio_percent: int = 1
    off_peak: OffPeakHours = field(default_factory=OffPeakHours)
    optimization_interval_ms: int | None = None
    total_size_threshold_bytes: int | None = None
    incremental_size_threshold_bytes: int | None = None
    force_level_0_every: int | None = None

    @classmethod
    def of(cls, options: TableOptions) -> UniversalCompactionOptions:
        """Read the options. The result is cached with the options, as a table has thousands of buckets.

        Raises BadInput for a trigger that no bucket can get below.
        """
        found: UniversalCompactionOptions | None = options.known.get(cls)
        if found is None:
            found = options.known[cls] = cls._of(options)
        return found

    @classmethod
    def _of(cls, options: TableOptions) -> UniversalCompactionOptions:
        trigger = options.compaction_trigger
        if trigger < 1:
            raise BadInput(
                f"option num-sorted-run.compaction-trigger = {trigger}: must be at least 1, because a compaction "
                "leaves one sorted run"
            )
        return cls(
            trigger=trigger,
            max_size_amplification_percent=options.max_size_amplification_percent,
            size_ratio_percent=options.size_ratio_percent,
            off_peak=OffPeakHours(options.offpeak_start_hour, options.offpeak_end_hour, options.offpeak_ratio_percent),
            optimization_interval_ms=options.optimization_interval_ms,
            total_size_threshold_bytes=options.compaction_total_size_threshold_bytes,
            incremental_size_threshold_bytes=options.compaction_incremental_size_threshold_bytes,
            force_level_0_every=_force_level_0_every(options),
        )


def _force_level_0_every(options: TableOptions) -> int | None:
    if options.needs_lookup and options.lookup_compact is LookupCompact.GENTLE:
        return options.lookup_compact_max_interval
    return 1 if options.needs_lookup or options.force_up_level_0 else None


class UniversalCompaction:
    """Picks sorted runs of one bucket to compact.

    last_full_ms: the time of the last full compaction, as far as the files show it; None: never
    """

    def __init__(self, settings: UniversalCompactionOptions, last_full_ms: int | None = None) -> None:
        self._settings = settings
        self._last_full_ms = last_full_ms
        self._calls_without_pick = 0

    def pick(self, runs: Runs, max_level: int, *, now_ms: int, local_hour: int) -> CompactUnit | None:
        """Pick the runs to compact.

        now_ms: epoch milliseconds
        local_hour: the hour of the day in the time zone of the process
        """
        unit = self._pick(runs, max_level, now_ms, local_hour)
        if unit is not None and len(unit.files) == sum(len(run.files) for run in runs):
            self._last_full_ms = now_ms
        return unit

    def _pick(self, runs: Runs, max_level: int, now_ms: int, local_hour: int) -> CompactUnit | None:
        settings = self._settings
        extra_percent = settings.size_ratio_percent + settings.off_peak.ratio_at(local_hour)
        if (reason := self._full_compaction_reason(runs, max_level, now_ms)) is not None:
            return pick_all_runs(runs, max_level, reason)
        if len(runs) >= settings.trigger:
            if _exceeds_size_amplification(runs, settings.max_size_amplification_percent):
                return pick_all_runs(runs, max_level, PickReason.SIZE_AMPLIFICATION)
            if (unit := pick_by_size_ratio(runs, max_level, extra_percent)) is not None:
                return unit
        if len(runs) > settings.trigger:
            too_many = len(runs) - settings.trigger + 1
            return pick_by_size_ratio(runs, max_level, extra_percent, too_many, PickReason.RUN_COUNT)
        return self._force_level_0(runs, max_level, extra_percent)

    def _full_compaction_reason(self, runs: Runs, max_level: int, now_ms: int) -> PickReason | None:
        settings, last_ms = self._settings, self._last_full_ms
        if len(runs) <= 1:
            return None
        interval_ms = settings.optimization_interval_ms
        if interval_ms is not None and (last_ms is None or now_ms - last_ms > interval_ms):
            return PickReason.OPTIMIZATION_INTERVAL
        total = settings.total_size_threshold_bytes
        if total is not None and sum(run.size_bytes for run in runs) < total:
            return PickReason.TOTAL_SIZE
        incremental = settings.incremental_size_threshold_bytes
        if incremental is not None and sum(r.size_bytes for r in runs if r.level != max_level) > incremental:
            return PickReason.INCREMENTAL_SIZE
        return None

    def _force_level_0(self, runs: Runs, max_level: int, extra_percent: int) -> CompactUnit | None:
        every = self._settings.force_level_0_every
        if every is None:
            return None
        self._calls_without_pick += 1
        if self._calls_without_pick < every:
            return None
        self._calls_without_pick = 0
        level_0_runs = sum(run.level == 0 for run in runs)
        if not level_0_runs:
            return None
        return pick_by_size_ratio(runs, max_level, extra_percent, level_0_runs, PickReason.FORCED_LEVEL_0)


def pick_all_runs(runs: Runs, max_level: int, reason: PickReason) -> CompactUnit:
    return CompactUnit(max_level, tuple(file for run in runs for file in run.files), reason)


def pick_by_size_ratio(
    runs: Runs, max_level: int, extra_percent: int, first: int = 1, reason: PickReason = PickReason.SIZE_RATIO
) -> CompactUnit | None:
    """Pick the first runs, and each next run that is no larger than all before it together, plus the size ratio.

    first: how many are picked in any case; with 1, another one must join, otherwise there is nothing to do.

    Once more than one is picked, a run of level 0 or 1 joins whatever its size.
    """
    count = first
    size = sum(run.size_bytes for run in runs[:count])
    is_triggered = count > 1 or reason is not PickReason.SIZE_RATIO
    for run in runs[count:]:
        if size * (100.0 + extra_percent) / 100.0 < run.size_bytes and (not is_triggered or run.level > 1):
            break
        size += run.size_bytes
        count += 1
        is_triggered = True
    return create_unit(runs, max_level, count, reason) if is_triggered else None


def create_unit(runs: Runs, max_level: int, count: int, reason: PickReason) -> CompactUnit:
    """Move the first `count` runs to the level below the next run, so that levels stay ordered by age.

    Level 0 is no output level: if the next run is on level 0 or 1, more runs join, up to the first one above level 0,
    and the output takes its level.
    """
    if count == len(runs):
        return pick_all_runs(runs, max_level, reason)
    output_level = max(0, runs[count].level - 1)
    if output_level == 0:
        for run in runs[count:]:
            count += 1
            if run.level != 0:
                output_level = run.level
                break
    if count == len(runs):
        output_level = max_level
    return CompactUnit(output_level, tuple(file for run in runs[:count] for file in run.files), reason)


def _exceeds_size_amplification(runs: Runs, max_percent: int) -> bool:
    newer = sum(run.size_bytes for run in runs[:-1])
    return newer * 100 > max_percent * runs[-1].size_bytes


def pick_full_compaction(levels: Levels, *, must_rewrite: Callable[[DataFileMeta], bool]) -> CompactUnit | None:
    """Pick all files, to the highest level. If all are there already, only files that must be rewritten, one by one.

    must_rewrite: whether a file of the highest level has rows to drop (expired, marked as deleted), or all files are to
        be rewritten.
    """
    if not levels.runs:
        return None
    if levels.runs[0].level != levels.max_level:
        return pick_all_runs(levels.runs, levels.max_level, PickReason.FULL)
    picked = tuple(file for file in levels.files if must_rewrite(file))
    return CompactUnit(levels.max_level, picked, PickReason.FULL, rewrites_each_file=True) if picked else None
