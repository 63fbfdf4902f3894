"""Names of Spark's jobs and stages, as its web page and its event log show them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from pyspark.traceback_utils import SCCallSiteSync

_DESCRIPTION: Final = "spark.job.description"


@contextmanager
def named_jobs(session: Any, step: str, tables: Sequence[str] = (), buckets: int = 0) -> Iterator[None]:
    """Name the jobs that this thread starts in the block: "tidelake: write shop.orders, 8 buckets".

    The name is the description of a job and of all its stages, and the name of a job and of its last stage. Spark has
    no names for tasks. The description that a streaming query gave its batch is kept before the name.

    session: a SparkSession. Spark Connect has no names.
    tables: the tables of the step
    buckets: number of buckets that the step writes
    """
    try:
        context = session.sparkContext
        before: str | None = context.getLocalProperty(_DESCRIPTION)
    except Exception:  # Spark Connect has no context, and raises various errors
        yield
        return
    of_buckets = f", {buckets} bucket{'s' if buckets > 1 else ''}" if buckets else ""
    name = f"tidelake: {step}{_of_tables(tables)}{of_buckets}"
    context.setLocalProperty(_DESCRIPTION, f"{before}\n{name}" if before else name)
    context._jsc.setCallSite(name)
    SCCallSiteSync._spark_stack_depth += 1  # otherwise PySpark sets the place of each call
    try:
        yield
    finally:
        SCCallSiteSync._spark_stack_depth -= 1
        context._jsc.setCallSite(None)
        context.setLocalProperty(_DESCRIPTION, before)


def _of_tables(tables: Sequence[str]) -> str:
    if not tables:
        return ""
    more = f" and {len(tables) - 1} more" if len(tables) > 1 else ""
    return f" {tables[0]}{more}"
