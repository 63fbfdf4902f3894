"""Upgrade of a file to a higher level: whether it needs a rewrite, and whether it produces a changelog.

Source: Java `mergetree/compact/ChangelogMergeTreeRewriter.UpgradeStrategy`, `LookupMergeTreeCompactRewriter.java`,
`FullChangelogMergeTreeCompactRewriter.java`; vectors `upgrade_strategy.json`.
"""

from __future__ import annotations

from enum import Enum

from tidelake.storage.files.data_file import DataFileMeta
from tidelake.storage.model.options import MergeEngine, TableOptions


class UpgradeStrategy(Enum):
    """Whether the rows of the file are read for the changelog, and whether they are rewritten."""

    NO_CHANGELOG_NO_REWRITE = (False, False)
    CHANGELOG_NO_REWRITE = (True, False)
    CHANGELOG_WITH_REWRITE = (True, True)

    @property
    def produces_changelog(self) -> bool:
        return self.value[0]

    @property
    def rewrites(self) -> bool:
        return self.value[1]


def full_compaction_upgrade_strategy(output_level: int, max_level: int) -> UpgradeStrategy:
    """Return the strategy of changelog-producer = full-compaction: rows that reach the highest level are changes."""
    if output_level == max_level:
        return UpgradeStrategy.CHANGELOG_NO_REWRITE
    return UpgradeStrategy.NO_CHANGELOG_NO_REWRITE


def lookup_upgrade_strategy(
    options: TableOptions,
    file: DataFileMeta,
    output_level: int,
    max_level: int,
    *,
    has_deletion_vectors: bool = False,
    has_vector_index: bool = False,
) -> UpgradeStrategy:
    """Return the upgrade strategy of tables with lookup compaction (`TableOptions.needs_lookup`)."""
    if file.level != 0:
        return UpgradeStrategy.NO_CHANGELOG_NO_REWRITE
    changes_format = options.file_format(0) != options.file_format(output_level)
    if has_vector_index or changes_format or (has_deletion_vectors and file.may_hold_deletes):
        return UpgradeStrategy.CHANGELOG_WITH_REWRITE
    newest_wins = options.merge_engine is MergeEngine.DEDUPLICATE and not options.sequence_fields
    if output_level == max_level or newest_wins:
        return UpgradeStrategy.CHANGELOG_NO_REWRITE
    return UpgradeStrategy.CHANGELOG_WITH_REWRITE
