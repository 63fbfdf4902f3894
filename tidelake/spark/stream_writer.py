"""`df.writeStream.format("tidelake")` into append tables: each batch of a query once, whatever is killed and repeated.

1. Tasks write files. Their messages also name the query: Spark tells its id to tasks, and not to the process that
   commits. *Crash: orphan files.*
2. A process of the driver gets the messages and the batch's number. If the table has the batch already, the new files
   are deleted. Otherwise one snapshot publishes them, with the number as its identifier. *Crash: Spark repeats the
   batch, which then is in the table.*

Commit users are those of `sink`, so a query may change from one to the other with its checkpoint directory.

Source: Spark `PythonStreamingWrite`, `WriteToDataSourceV2Exec` (`V2TableWriteExec`), `MicroBatchExecution`
(`BATCH_ID_KEY`), `StreamExecution` (`QUERY_ID_KEY`); PySpark `sql/worker/python_streaming_sink_runner.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from tidelake.errors import CommitConflict, UnsupportedFeature
from tidelake.ingest.spark.batch_commits import BatchCommits, query_user
from tidelake.ingest.spark.maintenance import SinkMaintenance
from tidelake.ingest.spark.task_start import log_as_configured
from tidelake.spark.batch_writer import check_any_task_may_write
from tidelake.storage.base.logs import get_logger
from tidelake.storage.commit.commit_message import CommitMessage, Committable
from tidelake.storage.commit.table_commit import TableCommit
from tidelake.storage.maintenance.maintenance_worker import MaintenanceWorker
from tidelake.storage.model.table import TableContext
from tidelake.storage.write.table_writer import TableWriter

WHAT: Final = 'writeStream.format("tidelake")'
_QUERY_ID: Final = "sql.streaming.queryId"  # local properties of Spark
_BATCH_ID: Final = "streaming.sql.batchId"  # inherited by queries that a batch starts
_IS_CONTINUOUS: Final = "__is_continuous_processing"

_log = get_logger(__name__)


@dataclass(frozen=True)
class BatchFiles(WriterCommitMessage):
    """The files of one task.

    query: the id of the query, which is that of its checkpoint directory.
    """

    query: str
    messages: tuple[CommitMessage, ...]


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes batches to an append table.

    replaces: each batch replaces all rows of the table: output mode `complete`.

    Raises UnsupportedFeature for other tables, and for a trigger without batches.
    """

    def __init__(self, context: TableContext, *, replaces: bool) -> None:
        check_any_task_may_write(context, WHAT)
        self._context = context
        self._replaces = replaces

    def write(self, iterator: Iterator[pa.RecordBatch]) -> BatchFiles:
        log_as_configured()
        query, batch_id = running_batch()
        writer = TableWriter(self._context, replaces=self._replaces)
        try:
            for rows in iterator:
                writer.write(rows)
            return BatchFiles(query, tuple(writer.prepare_commit(batch_id, is_last=True)))
        finally:
            writer.abort()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        log_as_configured()
        written = [message for message in messages if isinstance(message, BatchFiles)]
        if not written:
            return
        files, query = _files_of(written), written[0].query
        user = query_user(query, self._context)
        commits = BatchCommits(self._context, user, query, None, accept_gap=False)
        if commits.is_committed(batchId, dict):
            _log.info("batch replayed", table=self._context.name, batch_id=batchId)
            repeated = TableCommit(self._context, user)
            repeated.latest_of_user()  # it deletes only what it knows not to be in the table
            repeated.discard_already_committed(Committable(batchId, files))
            return
        try:
            published = commits.publish(batchId, files, None, replaces=self._replaces)
        except CommitConflict:
            TableCommit(self._context, user).abort(files)  # nothing was published
            raise
        if published is not None:
            worker = MaintenanceWorker()
            SinkMaintenance(worker).committed(self._context, user, published)
            worker.close(finish=True)  # the process may end after each batch

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Delete the files, if a task failed.

        If none did, the commit failed, and may have published them: they stay, and if it didn't, they are orphans.
        """
        written = [message for message in messages if isinstance(message, BatchFiles)]
        if written and len(written) < len(messages):
            TableCommit(self._context, query_user(written[0].query, self._context)).abort(_files_of(written))


def running_batch() -> tuple[str, int]:
    """Return the id of the query and the number of the batch of this task.

    Raises UnsupportedFeature outside of a batch: in continuous processing a repeated epoch may have other rows. Spark
    4.3 does not get so far: such a query waits for its first row for ever.
    """
    task = TaskContext.get()
    query = None if task is None else task.getLocalProperty(_QUERY_ID)
    batch_id = None if task is None else task.getLocalProperty(_BATCH_ID)
    if task is None or query is None or batch_id is None or task.getLocalProperty(_IS_CONTINUOUS) == "true":
        raise UnsupportedFeature(
            f"{WHAT} with trigger(continuous=…)",
            "it needs the numbers of batches, and this task belongs to none",
            "Use trigger(processingTime=…) or trigger(availableNow=True)",
        )
    return query, int(batch_id)


def _files_of(written: Sequence[BatchFiles]) -> tuple[CommitMessage, ...]:
    return tuple(message for one in written for message in one.messages)
