"""Which files of a state a read takes.

A scan returns the rows that readers see. It leaves out rows whose effect only a compaction finds out. A stream that
starts with all rows, and the difference of two states, need other files: what they leave out must come with later
changes, and rows that the changes contain once are never repeated.

Source: Java `CoreOptions.batchScanSkipLevel0`, `table/source/AbstractBatchTableScan.java`, `DataTableStreamScan.java`,
`table/source/snapshot/SnapshotReaderImpl.java` (readIncrementalDiff); vectors `stream_read_rules.json`.
"""

from __future__ import annotations

from enum import Enum, auto

from tidelake.storage.model.bucketing import BucketMode, bucket_mode
from tidelake.storage.model.options import ChangelogProducer, MergeEngine, TableOptions
from tidelake.storage.model.table import TableContext


class StateFiles(Enum):
    """The files of a state that are read.

    VISIBLE: of the rows that scans return
    STREAM_START: of the rows whose changes a stream has before it continues with the changes of later snapshots
    ALL: of all rows that have a bucket
    """

    VISIBLE = auto()
    STREAM_START = auto()
    ALL = auto()

    def include_level(self, level: int, context: TableContext) -> bool:
        if not context.schema.has_primary_key:
            return True
        match self:
            case StateFiles.VISIBLE:
                return level > 0 or not hides_level_0(context)
            case StateFiles.STREAM_START:
                return is_read_first(level, context.options)
            case StateFiles.ALL:
                return True

    def include_postponed(self, context: TableContext) -> bool:
        """Return whether rows of the postpone bucket are read.

        With the producer `none`, the changes of these rows are those of their own commits. Other producers make their
        changes when the rows get a bucket.
        """
        if bucket_mode(context.schema, context.options) is not BucketMode.POSTPONE:
            return True
        return self is StateFiles.STREAM_START and context.options.changelog_producer is ChangelogProducer.NONE


def hides_level_0(context: TableContext) -> bool:
    """Return whether scans leave out level 0.

    With deletion vectors, level 0 may hold new versions of keys whose old rows are not marked as deleted yet. With
    first-row, it may hold keys that have their first row already. Only compaction finds this out, and the rows are not
    visible before.
    """
    options = context.options
    if not context.schema.has_primary_key:
        return False
    if options.deletion_vectors_enabled:
        return not options.deletion_vectors_merge_on_read
    return options.merge_engine is MergeEngine.FIRST_ROW


def is_read_first(level: int, options: TableOptions) -> bool:
    """Return whether a stream starts with the rows of this level.

    The compaction of lower levels writes their rows to the changelog. Without such a changelog, all levels are read.
    Files stay on a level above the highest one if the number of levels was lowered.
    """
    match options.changelog_producer:
        case ChangelogProducer.LOOKUP:
            return level > 0
        case ChangelogProducer.FULL_COMPACTION:
            return level >= options.num_levels - 1
        case _:
            return True
