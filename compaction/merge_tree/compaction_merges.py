"""Selects the merge of a compaction step, and the effect of an upgrade, by changelog producer and merge engine.

Source: Java `mergetree/compact/MergeTreeCompactManagerFactory.java` (`createRewriter`),
`ChangelogMergeTreeRewriter.java`, `FullChangelogMergeTreeCompactRewriter.java`, `LookupMergeTreeCompactRewriter.java`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from tidelake.compaction.merge_tree.changelog_merge import (
    CompactionMerge,
    FullCompactionMerge,
    PartialMerge,
    PlainMerge,
    compared_columns,
)
from tidelake.compaction.merge_tree.levels import Levels
from tidelake.compaction.merge_tree.lookup_merge import Find, FirstRowLookup, LookupMerge
from tidelake.compaction.merge_tree.upgrade_strategy import (
    UpgradeStrategy,
    full_compaction_upgrade_strategy,
    lookup_upgrade_strategy,
)
from tidelake.storage.files.data_file import DataFileMeta
from tidelake.storage.merge.merge_functions import MergeFunction, merge_engine_of, merge_function_of
from tidelake.storage.merge.merge_reader import MergeOrder
from tidelake.storage.model.options import ChangelogProducer, MergeEngine
from tidelake.storage.model.table import TableContext


@dataclass(frozen=True)
class CompactionMerges:
    """The merges of one table's compactions."""

    context: TableContext

    def merge(
        self,
        levels: Levels,
        files: Sequence[DataFileMeta],
        output_level: int,
        look_up: Callable[[Levels, int], Find],
        *,
        writes_rows: bool = True,
    ) -> CompactionMerge:
        """Return the merge of one step.

        files: of the step
        look_up: finds rows above the output level
        writes_rows: if false, the rows are only read

        The merge may raise OlderRowsNeeded if older rows are above the output level.
        """
        if self._is_full_compaction(levels, output_level):
            return FullCompactionMerge(self._merge_function, levels.max_level, self._compared)
        if not self._must_look_up(levels, files, output_level):
            has_older_rows = output_level < levels.highest_level and not self.context.options.needs_lookup
            return (PartialMerge if has_older_rows else PlainMerge)(self._merge_function)
        find = look_up(levels, output_level)
        order = MergeOrder.of(self.context.schema.trimmed_primary_keys, self.context.options)
        if self.context.options.merge_engine is MergeEngine.FIRST_ROW:
            return FirstRowLookup(self._engine, order, find, self._lookup_produces_changelog)
        return LookupMerge(self._engine, order, find, self._lookup_produces_changelog, self._compared, writes_rows)

    def upgrade(self, levels: Levels, file: DataFileMeta, output_level: int) -> UpgradeStrategy:
        options = self.context.options
        if options.changelog_producer is ChangelogProducer.FULL_COMPACTION and output_level == levels.max_level:
            return full_compaction_upgrade_strategy(output_level, levels.max_level)
        if not options.needs_lookup:
            return UpgradeStrategy.NO_CHANGELOG_NO_REWRITE
        strategy = lookup_upgrade_strategy(
            options, file, output_level, levels.max_level, has_deletion_vectors=options.deletion_vectors_enabled
        )
        is_read = (
            strategy.rewrites or self._lookup_produces_changelog or self._needs_deletion_vectors(levels, output_level)
        )
        return strategy if is_read else UpgradeStrategy.NO_CHANGELOG_NO_REWRITE

    def _is_full_compaction(self, levels: Levels, output_level: int) -> bool:
        """Return whether rows that reach the highest level are the changes.

        No level is above it, so no lookup is needed.
        """
        producer = self.context.options.changelog_producer
        return producer is ChangelogProducer.FULL_COMPACTION and output_level == levels.max_level

    def _must_look_up(self, levels: Levels, files: Sequence[DataFileMeta], output_level: int) -> bool:
        """Return whether older rows above the output level must be looked up.

        This is so if rows leave level 0 and merging the files alone, with single rows unchanged, would give another
        result. It is also so if the changelog needs their changes, or deletion vectors need the replaced rows.
        """
        options = self.context.options
        if not options.needs_lookup or output_level == 0 or all(file.level > 0 for file in files):
            return False
        if self._lookup_produces_changelog or self._needs_deletion_vectors(levels, output_level):
            return True
        match options.merge_engine:
            case MergeEngine.PARTIAL_UPDATE | MergeEngine.AGGREGATION:
                return True
            case MergeEngine.DEDUPLICATE if not options.sequence_fields:
                return False  # the newest row wins, whatever rows are above
            case _:
                return output_level < levels.highest_level

    def _needs_deletion_vectors(self, levels: Levels, output_level: int) -> bool:
        """Return whether older rows may exist above the output, which deletion vectors must mark."""
        return self.context.options.deletion_vectors_enabled and output_level < levels.highest_level

    @property
    def _lookup_produces_changelog(self) -> bool:
        return self.context.options.changelog_producer is ChangelogProducer.LOOKUP

    @cached_property
    def _compared(self) -> Sequence[str] | None:
        return compared_columns(self.context.schema, self.context.options)

    @cached_property
    def _merge_function(self) -> MergeFunction:
        return merge_function_of(self.context)

    @cached_property
    def _engine(self) -> MergeFunction:
        return merge_engine_of(self.context)
