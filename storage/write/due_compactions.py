"""The compactions that a table writer owes: until they are done, readers don't see all rows, or miss changes.

    full      at every n-th commit, for changes that only a full compaction finds (`full-compaction.delta-commits`)
    level 0   where compactions look up older rows: readers don't see rows on level 0
    lost      where a commit was published without its compaction, because another commit was first

Any other compaction is the choice of the bucket's compactor.
"""

from __future__ import annotations

from tidelake.storage.commit.commit_increment import CommitIncrement
from tidelake.storage.commit.commit_message import CommitMessage
from tidelake.storage.model.format import BATCH_COMMIT_IDENTIFIER
from tidelake.storage.model.table import TableContext
from tidelake.storage.write.bucket_states import BucketEvent, BucketState
from tidelake.storage.write.open_buckets import OpenBucket, OpenBuckets


class DueCompactions:
    """What is due at a commit, and after it. Once compactions are cancelled, nothing is.

    replaces: commits will overwrite: earlier rows need no compaction.
    """

    def __init__(self, context: TableContext, buckets: OpenBuckets, *, replaces: bool) -> None:
        options = context.options
        self._buckets = buckets
        self._full_every = None if replaces else options.full_compaction_delta_commits
        self._needs_lookup = options.needs_lookup
        self.wait_for_lookups = options.needs_lookup and options.lookup_wait
        self._has_opened_level_0 = False

    def in_full(self, identifier: int, *, only_written: bool) -> set[OpenBucket]:
        """Return the buckets that this commit must compact in full, with writers.

        only_written: skip what earlier writers left, because its buckets may belong to other tasks.
        """
        every = self._full_every
        if not self._buckets.are_compacted or every is None:
            return set()
        if identifier != BATCH_COMMIT_IDENTIFIER and identifier % every:
            return set()
        if not only_written:
            for bucket in self._buckets.unopened_incomplete():
                self._buckets.open(bucket).needs_full = True
        return {self._buckets.open(record.bucket) for record in self._buckets.records() if record.needs_full}

    def open_with_level_0(self) -> None:
        """Open buckets with rows on level 0 that an earlier writer did not compact before it ended. Otherwise these
        rows and their changes would be invisible until the next write to their buckets.
        """
        if self._buckets.are_compacted and not self._has_opened_level_0 and self._needs_lookup:
            for bucket in self._buckets.unopened_with_level_0():
                self._buckets.open(bucket)
            self._has_opened_level_0 = True

    def of_level_0(self) -> list[CommitMessage]:
        """Return the compactions of buckets that a commit left on level 0: see `TableWriter.compact_level_0`.

        After an error, all of them are restored after the next commit.
        """
        left = [r for r in self._buckets.records() if r.may_have_level_0 or r.state is BucketState.LOST]
        for record in left:
            record.may_have_level_0 = False
        if not self._buckets.are_compacted or not self.wait_for_lookups:
            return []
        try:
            return [message for record in left if (message := self._compacted(record)) is not None]
        except BaseException:
            for record in left:
                record.happened(BucketEvent.LOST)
            raise

    def _compacted(self, record: OpenBucket) -> CommitMessage | None:
        if record.writer is not None and record.state is BucketState.LOST:
            self._buckets.restore(record)
        compacted = self._buckets.open(record.bucket).opened.compact_level_0()
        if compacted.is_empty:
            return None
        record.may_have_level_0 = True
        return self._buckets.message(record, CommitIncrement(compacted=compacted))
