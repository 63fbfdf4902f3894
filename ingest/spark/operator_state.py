"""The state of a query's operators: windows, joins, duplicates, groups. Each batch must compute its next version.

A batch that is repeated after a crash may be in the table already. Its rows are then not written again. But Spark
commits the state of a batch only in the tasks that compute the rows. If they don't run, the next batch finds an old
state, or none: PySpark 4.1 and later end the query with `STATE_STORE_COMMIT_VALIDATION_FAILED`.

Source: Spark `MicroBatchExecution.scala` (a batch that isn't in the commit log is repeated), `StateStoreRDD.scala`,
`StreamingSymmetricHashJoinHelper.scala` (`StateStoreAwareZipPartitionsRDD`), `ForeachBatchSink.scala`.
"""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql import DataFrame

from tidelake.ingest.spark.job_names import named_jobs

_STATE_STORE: Final = "StateStore"  # in the names of Spark's RDDs that read and write state
_ROWS_OF_STREAM: Final = "LogicalRDD"


def keep_state(batch: DataFrame) -> bool:
    """Compute the rows of a batch and drop them, if the query has state. Returns whether they were computed."""
    if not has_state(batch):
        return False
    with named_jobs(batch.sparkSession, "compute state again"):
        batch.write.format("noop").mode("append").save()
    return True


def has_state(batch: DataFrame) -> bool:
    """Return whether the rows of a batch come from operators with state. True if that is unknown, as on Spark Connect.

    Nothing is computed.
    """
    try:
        leaves = batch._jdf.queryExecution().analyzed().collectLeaves()
        return any(_reads_state(leaves.apply(number)) for number in range(leaves.size()))
    except Exception:  # Spark Connect has no plan here; another release may have another one
        return True


def _reads_state(leaf: Any) -> bool:
    """leaf: a leaf of a plan in the JVM."""
    return leaf.nodeName() == _ROWS_OF_STREAM and _STATE_STORE in leaf.rdd().toDebugString()
