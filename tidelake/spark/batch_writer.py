"""`df.write.format("tidelake")` into append tables: tasks write files, the driver publishes them in one snapshot.

Spark does not let a Python source choose the distribution of rows, so only tables whose buckets have no meaning
(`bucket = -1`, no primary key) can be written.

Source: PySpark `sql/worker/write_into_data_source.py`, `commit_data_source_write.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from tidelake.errors import UnsupportedFeature
from tidelake.ingest.spark.task_start import log_as_configured
from tidelake.storage.base.logs import get_logger
from tidelake.storage.commit.commit_message import CommitMessage, Committable
from tidelake.storage.commit.table_commit import TableCommit, new_commit_user
from tidelake.storage.maintenance.automatic_tags import tag_batch_write
from tidelake.storage.model.bucketing import BucketMode, bucket_mode
from tidelake.storage.model.table import TableContext
from tidelake.storage.write.table_writer import TableWriter

_COMMIT: Final = 1  # this commit user has no other commit; numbered, so that `abort` finds it

_log = get_logger(__name__)


@dataclass(frozen=True)
class WrittenFiles(WriterCommitMessage):
    """The files of one task."""

    messages: tuple[CommitMessage, ...]


class AppendWriter(DataSourceArrowWriter):
    """Writes rows to an append table.

    overwrites: the rows replace those of the table, or, depending on options, those of the written partitions.

    The commit user is generated here and pickled with the writer: tasks, commit and abort use the same one.
    """

    def __init__(self, context: TableContext, *, overwrites: bool) -> None:
        check_any_task_may_write(context, 'write.format("tidelake")')
        self._context = context
        self._overwrites = overwrites
        self._user = new_commit_user(context.options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenFiles:
        log_as_configured()
        writer = TableWriter(self._context, replaces=self._overwrites)
        try:
            for rows in iterator:
                writer.write(rows)
            return WrittenFiles(tuple(writer.prepare_commit(_COMMIT, is_last=True)))
        finally:
            writer.abort()

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        commit = TableCommit(self._context, self._user)
        committable = Committable(_COMMIT, _files_of(messages))
        snapshot = commit.overwrite(committable) if self._overwrites else commit.commit(committable)
        _log.info("rows committed", table=self._context.name, snapshot=snapshot)
        if snapshot is not None:
            tag_batch_write(self._context, snapshot)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Delete the files. Spark also calls it after a failed commit: files that may have been published are kept.

        Files of failed tasks become orphans.
        """
        commit = TableCommit(self._context, self._user)
        if commit.latest_of_user() is None:
            commit.abort(_files_of(messages))


def check_any_task_may_write(context: TableContext, what: str) -> None:
    """Raise UnsupportedFeature for a table with buckets.

    what: the call, for the message
    """
    if bucket_mode(context.schema, context.options) is not BucketMode.UNAWARE:
        raise UnsupportedFeature(
            f"{what} into {context.name}",
            "all rows of a bucket must be in one task, and Spark doesn't let a Python data source choose the "
            "distribution",
            "Write with tidelake.spark.sink, in foreachBatch",
        )


def _files_of(messages: Sequence[WriterCommitMessage | None]) -> tuple[CommitMessage, ...]:
    return tuple(message for written in messages if isinstance(written, WrittenFiles) for message in written.messages)
