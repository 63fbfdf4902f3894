"""The writer that `table.writer()` returns: writes rows of one commit user to a table."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from tidelake.compaction.compact_manager import compact_manager_factory
from tidelake.compaction.fixed_bucket_batch import FixedBucketBatch, has_batch_write_fixed_bucket
from tidelake.errors import BadInput, CommitOutcomeUnknown, StaleSequenceNumbers
from tidelake.frames.incoming import Rows, incoming_rows, stream_closed
from tidelake.rescaling import rescale_partition
from tidelake.storage.base.arguments import checked
from tidelake.storage.commit.commit_message import CommitMessage, Committable
from tidelake.storage.commit.commit_steps import settle_writer
from tidelake.storage.commit.manifests.manifest_store import ManifestStore
from tidelake.storage.commit.overwrite import matching_partitions
from tidelake.storage.commit.publisher import CommitEnvironment
from tidelake.storage.commit.table_commit import TableCommit
from tidelake.storage.maintenance.automatic_tags import tag_batch_write
from tidelake.storage.maintenance.maintenance_worker import MaintenanceWorker
from tidelake.storage.maintenance.partition_done import mark_done_at_end_of_input
from tidelake.storage.model.format import BATCH_COMMIT_IDENTIFIER
from tidelake.storage.model.table import TableContext
from tidelake.storage.write.assigners.cross_partition.assigner import check_replaceable
from tidelake.storage.write.memory_budget import MemoryBudget
from tidelake.storage.write.sequence_renumbering import renumber_files
from tidelake.storage.write.table_writer import TableWriter


class Writer:
    """Writes rows and commits them as snapshots. Leaving the `with` block drops uncommitted rows. Not thread-safe.

    - A `with` block that ends without an error, but with rows that no commit() was called for, is a ResourceWarning.
    - If a commit can't be published, its rows belong to the next commit.
    - If a commit can't write its files (a full disk), or `write` raises another error than BadInput, the writer ends:
      all further calls raise. Write uncommitted rows again with a new writer.
    - A closed writer, a writer in a forked process, and one whose table was dropped or created again, can't write or
      commit any more.
    """

    _has_rows = False  # whether rows were written since the last commit
    _unknown: int | None = None  # the identifier of a commit that may have been published

    def __init__(
        self,
        context: TableContext,
        commit_user: str,
        memory: MemoryBudget | None = None,
        overwrite: bool | Mapping[str, Any] | None = None,
        *,
        environment: CommitEnvironment | None = None,
    ) -> None:
        self._commit_user = commit_user
        self._overwrite = _overwrite_spec(overwrite, context)
        self._context = context
        self._manifests = context.shared(ManifestStore)
        self._writer = TableWriter(
            context,
            memory=memory,
            compactor_factory=compact_manager_factory(),
            replaces=self._overwrite is not False,
        )
        self._batch: FixedBucketBatch | None = None
        if has_batch_write_fixed_bucket(context):
            self._batch = FixedBucketBatch(
                context, rescale=rescale_partition, replaces=self._overwrite is not False, memory=memory
            )
        self._commit = TableCommit(
            context, commit_user, environment=environment, on_lost_compaction=self._writer.restart_compaction
        )
        self._maintenance = MaintenanceWorker()
        self._expire = self._maintenance.watch(context)
        self._table_name = context.name
        self._unpublished: list[CommitMessage] = []  # durable files that are not part of a commit yet

    @property
    def commit_user(self) -> str:
        return self._commit_user

    def write(self, rows: Rows) -> None:
        """Write rows: columns by name, in any order; optional int8 column `_VALUE_KIND`: 0 +I, 1 -U, 2 +U, 3 -D.

        rows: a pyarrow Table or RecordBatch, or anything that exports an Arrow stream or array, such as frames of
            Polars, relations of DuckDB and record batch readers; a pandas DataFrame; a list of dicts. A stream is
            written batch by batch, in bounded memory

        Raises BadInput if rows don't fit the table; then none of them are written. If that is found only in a later
        batch of a stream, the writer ends.
        """
        self._check_outcome_known()
        found = incoming_rows(rows, self._context.schema.arrow, self._table_name)
        if isinstance(found, pa.Table):
            self._writer.write(found)
            self._has_rows |= found.num_rows > 0
            return
        with stream_closed(found, rows):
            for batch in self._from_stream(found):
                self._writer.write(batch)
                self._has_rows |= batch.num_rows > 0

    def _from_stream(self, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        """Yield an empty batch, so that columns that don't fit are found first, and then those of the reader.

        The writer ends if the reader or the writing of a batch fails after the first one: a commit would contain a part
        of the rows.
        """
        yield _no_rows(reader.schema)
        written = 0
        try:
            for batch in reader:
                yield batch
                written += batch.num_rows
        except BaseException as error:
            if written:
                self._writer.give_up(error)
            raise

    @checked
    def commit(
        self,
        identifier: int | None = None,
        *,
        properties: Mapping[str, str] | None = None,
        watermark: int | None = None,
    ) -> int | None:
        """Commit the rows written since the last commit as one snapshot.

        Returns its id. None if (user, identifier) was committed before: then the table contains the rows already, and
        they are dropped here.

        identifier: ascending number of this user's commits; None for a one-off commit, which also places rows of a
            table with `bucket = -2` into buckets at once (`postpone.batch-write-fixed-bucket`)
        properties: properties of the snapshot
        watermark: epoch milliseconds

        Raises BadInput for an identifier below the newest one of this user, CommitConflict, CommitOutcomeUnknown (then
        call it again with the same identifier, before anything else). After any other error nothing was published.
        """
        number = BATCH_COMMIT_IDENTIFIER if identifier is None else identifier
        self._has_rows = False  # if it fails, the caller knows
        self._check_outcome_known(number)
        self._unpublished += self._writer.prepare_commit(number)
        if self._batch is not None and number == BATCH_COMMIT_IDENTIFIER:
            self._unpublished, staged = self._batch.into_buckets(self._unpublished)
            self._commit.abort(staged)
        committable = Committable(number, tuple(self._unpublished), watermark, dict(properties or {}))
        try:
            published, committable = self._publish_renumbered(committable)
        except BaseException as error:
            # After any other error nothing was published now; an earlier attempt may have been.
            if isinstance(error, CommitOutcomeUnknown) or not isinstance(error, Exception):
                self._unknown = number
            raise
        self._unpublished, self._unknown = [], None
        if self._batch is not None:
            self._batch.close()
        published = settle_writer(self._commit, committable, published, self._writer, self._expire)
        if published is not None and number == BATCH_COMMIT_IDENTIFIER:
            tag_batch_write(self._context, published)
            mark_done_at_end_of_input(self._context, {message.partition for message in committable.messages})
        return published

    def _publish_renumbered(self, committable: Committable) -> tuple[int | None, Committable]:
        """Publish after concurrent commits of other writers to the same buckets, whose rows are then older.

        Also returns the committable that was published.
        """
        retries = self._context.options.commit_max_retries
        while True:
            try:
                return self._publish(committable), committable
            except StaleSequenceNumbers:
                if self._unknown is not None or not retries:  # a commit that may still be published needs its files
                    raise
            retries -= 1
            newer = renumber_files(self._context, committable.messages, self._manifests)
            self._writer.set_next_sequence_numbers(newer.next_numbers)
            if self._batch is not None:
                self._batch.set_next_sequence_numbers(newer.next_numbers)
            stale, self._unpublished = self._unpublished, list(newer.messages)
            committable = replace(committable, messages=tuple(newer.messages))
            self._commit.abort([_without_index_files(message) for message in stale])  # the new messages name them

    def _publish(self, committable: Committable) -> int | None:
        if self._overwrite is False:
            return self._commit.commit(committable)
        return self._commit.overwrite(committable, None if self._overwrite is True else self._overwrite)

    def _check_outcome_known(self, identifier: int | None = None) -> None:
        """Refuse more rows in a commit of unknown outcome: they would be lost if it was a replay."""
        if self._unknown is None or self._unknown == identifier != BATCH_COMMIT_IDENTIFIER:
            return
        if self._unknown == BATCH_COMMIT_IDENTIFIER:
            remedy = (
                "Check whether one of the table's snapshots has its rows, then open a new writer. Only commits with "
                "an identifier can be repeated"
            )
        else:
            remedy = f"Call commit({self._unknown}) again: it checks this, and commits if necessary"
        raise CommitOutcomeUnknown(f"{self._table_name}: the last commit failed, but may have been published. {remedy}")

    def close(self) -> None:
        """Drop uncommitted rows. Calling it again, or in a forked process, has no effect."""
        self._has_rows = False
        if not self._writer.is_in_owner_process:
            return
        with ExitStack() as steps:  # each step runs, even if another one fails
            steps.callback(self._commit.close)
            steps.callback(self._maintenance.close, finish=True)
            if self._batch is not None:
                steps.callback(self._batch.close)
            if self._unknown is None:
                steps.callback(self._commit.abort, self._unpublished)
                self._unpublished = []
            steps.callback(self._writer.abort)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        has_rows = self._has_rows
        self.close()
        if kind is None and has_rows:
            self._warn_of_dropped_rows()

    def _warn_of_dropped_rows(self) -> None:
        warnings.warn(
            f"{self._table_name}: the `with` block of a writer ended without commit(), so its rows are dropped",
            ResourceWarning,
            stacklevel=3,
        )


def _overwrite_spec(given: object, context: TableContext) -> bool | Mapping[str, Any]:
    """Return what to overwrite.

    False: nothing. True: everything. Otherwise the matching partitions. Raises BadInput.
    """
    if given is None or given is False:
        return False
    if given is True:
        check_replaceable(context, None)
        return True
    if isinstance(given, Mapping) and given:
        matching_partitions((), [given], context)
        check_replaceable(context, given)
        return given
    raise BadInput(
        f"{context.name}: writer(overwrite={given!r}) doesn't say what to replace. Write overwrite=True for "
        "everything, a partition column and its value for the matching partitions, or None for nothing"
    )


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.record_batch([pa.nulls(0, field.type) for field in schema], schema=schema)


def _without_index_files(message: CommitMessage) -> CommitMessage:
    return replace(message, increment=replace(message.increment, new_index_files=()))
