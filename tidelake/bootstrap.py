"""The first rows of an empty table, sorted straight to its highest level.

1. The rows are sorted in memory, and spilled to disk where they exceed it. *Crash: spill files, which the next process
   deletes; the empty table.*
2. The commit merges them into data files of the highest level. *Crash: orphan files; the empty table.*
3. One snapshot has all of them, with their changelog. It is refused if the table has rows by then. *Crash: the whole
   bootstrap, or nothing of it.*
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

import pyarrow as pa

from tidelake.errors import BadInput, CommitOutcomeUnknown, UnsupportedFeature
from tidelake.frames.incoming import Rows, incoming_rows, stream_closed
from tidelake.storage.commit.commit_message import Committable
from tidelake.storage.commit.manifests.snapshot_files import live_entries
from tidelake.storage.commit.table_commit import TableCommit
from tidelake.storage.maintenance.automatic_tags import tag_batch_write
from tidelake.storage.maintenance.partition_done import mark_done_at_end_of_input
from tidelake.storage.model.bucketing import BucketMode, bucket_mode
from tidelake.storage.model.format import BATCH_COMMIT_IDENTIFIER
from tidelake.storage.model.table import TableContext
from tidelake.storage.write.table_writer import TableWriter


class Bootstrap:
    """Writes the first rows of a table, in one commit. Leaving the `with` block drops what was not committed.

    Raises BadInput for a table that has rows or no primary key, UnsupportedFeature for options that leave it no way.
    """

    def __init__(self, context: TableContext, commit_user: str) -> None:
        check_can_bootstrap(context)
        self._context = context
        self._writer = TableWriter(context, bootstraps=True)
        self._commit = TableCommit(context, commit_user)

    def write(self, rows: Rows) -> None:
        """Add rows, in any order; of rows with equal keys, the merge engine decides as in an ordinary write.

        rows: as in `Writer.write`

        Raises BadInput for rows that don't fit the table, and for deletes. Then the bootstrap can't be committed.
        """
        found = incoming_rows(rows, self._context.schema.arrow, self._context.name)
        try:
            if isinstance(found, pa.Table):
                self._writer.write(found)
                return
            self._writer.write(found.schema.empty_table())  # columns that don't fit are found before rows are read
            with stream_closed(found, rows):
                for batch in found:
                    self._writer.write(batch)
        except BaseException as error:
            self._writer.give_up(error)
            raise

    def commit(self) -> int | None:
        """Publish all rows as one snapshot. Returns its id; None if there are none.

        Raises CommitConflict if another writer added rows meanwhile, CommitOutcomeUnknown if the store doesn't say
        whether the snapshot was published. After any other error nothing was published.
        """
        messages = self._writer.prepare_commit(BATCH_COMMIT_IDENTIFIER)
        try:
            published = self._commit.commit_to_empty(Committable(BATCH_COMMIT_IDENTIFIER, tuple(messages)))
        except CommitOutcomeUnknown:
            raise
        except Exception:
            self._commit.abort(messages)
            raise
        if published is not None:
            self._writer.committed(published)
            tag_batch_write(self._context, published)
            mark_done_at_end_of_input(self._context, {message.partition for message in messages})
        return published

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._writer.abort()
        finally:
            self._commit.close()


def check_can_bootstrap(context: TableContext) -> None:
    """Raise BadInput or UnsupportedFeature for a table whose first rows can't go to the highest level."""
    if not context.schema.has_primary_key:
        raise BadInput(
            f"{context.name} has no primary key, so its files have no levels; call append(), and sort the files with "
            "compact(order_by=[…])"
        )
    if bucket_mode(context.schema, context.options) is BucketMode.POSTPONE:
        raise UnsupportedFeature(
            f"{context.name}: bucket = -2",
            "cannot bootstrap: rows wait for their buckets until a compaction chooses these",
            "Call append(), which places the rows of a one-off commit into buckets at once",
        )
    if not context.options.write_buffer_spillable:
        raise UnsupportedFeature(
            f"{context.name}: option write-buffer-spillable = false",
            "cannot bootstrap: rows that exceed memory are sorted on disk",
            "Unset the option",
        )
    latest = context.snapshots.latest()
    if latest is not None and live_entries(context, latest):
        raise BadInput(
            f"{context.name} is not empty (snapshot {latest.id}), and a bootstrap only writes the first rows of a "
            "table; call append() to merge the rows with those of the table, or truncate() it first"
        )
