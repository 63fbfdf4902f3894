"""Plans each file of a compaction: rewrite it, or upgrade it to the output level without a rewrite.

Large files that don't overlap others are upgraded, which changes only the manifest. Small ones are rewritten with their
neighbours, so that they don't stay small.

Source: Java `mergetree/compact/MergeTreeCompactTask.java`, `FileRewriteCompactTask.java`; vectors `compact_task.json`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tidelake.compaction.merge_tree.compact_unit import CompactUnit
from tidelake.compaction.merge_tree.upgrade_strategy import UpgradeStrategy
from tidelake.storage.files.data_file import DataFileMeta
from tidelake.storage.merge.sorted_run import Section, interval_partition, key_ranges
from tidelake.storage.model.types import DataType


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Sections in key order, whose rows are written to one series of files."""

    sections: tuple[Section, ...]

    @property
    def files(self) -> tuple[DataFileMeta, ...]:
        return tuple(file for section in self.sections for run in section for file in run)


@dataclass(frozen=True, slots=True)
class Upgrade:
    """An upgrade: only the file's level changes.

    produces_changelog: its rows are read for the changelog
    """

    file: DataFileMeta
    produces_changelog: bool = False

    @property
    def sections(self) -> tuple[Section, ...]:
        return ([[self.file]],)

    @property
    def files(self) -> tuple[DataFileMeta, ...]:
        return (self.file,)


Step: TypeAlias = Rewrite | Upgrade


def plan_rewrite(
    unit: CompactUnit,
    key_types: Sequence[DataType],
    max_level: int,
    *,
    min_file_size_bytes: int,
    must_rewrite: Callable[[DataFileMeta], bool],
    upgrade_strategy: Callable[[DataFileMeta], UpgradeStrategy] = lambda _: UpgradeStrategy.NO_CHANGELOG_NO_REWRITE,
) -> list[Step]:
    """Return the steps in key order. Together they cover all files of the unit, except those that can stay unchanged.

    max_level: of the bucket.
    min_file_size_bytes: smaller files are rewritten with their neighbours.
    must_rewrite: files that can't be upgraded without a rewrite: they hold expired rows, or an option demands it.
    upgrade_strategy: the effect of an upgrade on the changelog.
    """
    if unit.rewrites_each_file:
        return [Rewrite(([[file]],)) for file in unit.files]

    def upgrade(file: DataFileMeta) -> list[Step]:
        if (unit.output_level == max_level and file.may_hold_deletes) or must_rewrite(file):
            return [Rewrite(([[file]],))]
        if file.level == unit.output_level:
            return []
        strategy = upgrade_strategy(file)
        return [Rewrite(([[file]],))] if strategy.rewrites else [Upgrade(file, strategy.produces_changelog)]

    def rewrite(sections: list[Section]) -> list[Step]:
        match sections:
            case []:
                return []
            case [[run]]:  # a single run needs no merge
                return [step for file in run for step in upgrade(file)]
            case _:
                return [Rewrite(tuple(sections))]

    steps: list[Step] = []
    candidates: list[Section] = []  # neighbours to rewrite together
    for section in interval_partition(key_ranges(unit.files, key_types)):
        if len(section) > 1:
            candidates.append(section)
            continue
        for file in section[0]:
            if file.file_size < min_file_size_bytes:
                candidates.append([[file]])
            else:
                # sections before and after it must not be merged: the run would be out of order
                steps += rewrite(candidates)
                candidates = []
                steps += upgrade(file)
    return steps + rewrite(candidates)


def can_drop_deletes(output_level: int, highest_level: int, *, has_deletion_vectors: bool = False) -> bool:
    """Return whether a compaction into output_level drops keys whose newest row is a delete.

    It may only do so if no older row of them can be left: no file is above the output (highest_level: of all files of
    the bucket, the compacted ones included), or deletion vectors mark these rows. Level 0 may hold older rows of its
    own.

    Source: Java `mergetree/compact/MergeTreeCompactManager.triggerCompaction`.
    """
    return output_level != 0 and (output_level >= highest_level or has_deletion_vectors)
