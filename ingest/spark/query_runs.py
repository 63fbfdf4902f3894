"""The run of a streaming query, and the batches of typed rows that it has written in this process.

Typed rows have no offsets. If the sink is called twice for a batch, each time with a part of its rows, the second call
looks like a replay. But a run never repeats a batch: Spark repeats one only after a start, and each start is a new run.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from pyspark.sql import DataFrame

from tidelake.errors import PositionRefused
from tidelake.storage.base import env

_QUERY_ID_PROPERTY: Final = "sql.streaming.queryId"  # local properties of Spark
_JOB_GROUP_PROPERTY: Final = "spark.jobGroup.id"


class Target(NamedTuple):
    """What a batch is written to."""

    table: str
    location: str
    branch: str
    commit_user: str


class WrittenBatches:
    """The newest batch of each target, and the run that has written it. Safe to use from several threads.

    targets_max: if there are more targets, those that were written longest ago are forgotten. A function of
        foreachBatch that changes rows has a new commit user, and so a new target, in each batch.
    """

    def __init__(self, targets_max: int = 10_000) -> None:
        self._targets_max = targets_max
        self._newest: dict[Target, tuple[str, int]] = {}  # the target that was written last is the last
        self._lock = env.Lock()

    def add(self, target: Target, run: str, batch_id: int) -> None:
        with self._lock:
            self._newest.pop(target, None)
            self._newest[target] = (run, batch_id)
            if len(self._newest) > self._targets_max:
                del self._newest[next(iter(self._newest))]

    def check_absent(self, target: Target, run: str, batch_id: int) -> None:
        """Raise PositionRefused if this run has written the batch."""
        if self._newest.get(target) == (run, batch_id):
            raise PositionRefused(
                f"{target.table}: this run of the query has already written batch {batch_id}. Rows of a second call "
                "would be taken for a replay, and be lost. Nothing was written",
                [
                    f"call the sink once per batch, with all its rows, in a query with a new checkpoint directory: "
                    f"batch {batch_id} of this one counts as written"
                ],
            )


WRITTEN_BATCHES: Final = WrittenBatches()


def query_id(batch: DataFrame) -> str | None:
    """Return the query's id; None outside of a streaming query, and on Spark Connect."""
    try:
        query: str | None = batch.sparkSession.sparkContext.getLocalProperty(_QUERY_ID_PROPERTY)
    except Exception:  # Spark Connect has no context, and raises various errors
        return None
    return query or None


def run_id(batch: DataFrame, query: str | None) -> str | None:
    """Return what differs between two runs of a query: Spark gives each run a session and a job group of its own. None
    without a query.
    """
    if query is None:
        return None
    session = batch.sparkSession
    try:
        return f"{session._jsparkSession.sessionUUID()} {session.sparkContext.getLocalProperty(_JOB_GROUP_PROPERTY)}"
    except Exception:  # as above
        return None
