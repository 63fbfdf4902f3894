"""A streaming read: the driver plans micro-batches, tasks read them.

Without `read.changelog=true` only rows after a change are read (+I, +U). With it all changes are read, with their kind
in column `rowkind`. Rows of a bucket are in one task of a batch, in the order of their commits.

PySpark 4.1 passes a source neither the start of a batch nor its limit. `HAS_LIMITS` says whether this release does.

Source: PySpark `sql/streaming/python_streaming_source_runner.py`; Java `spark/sources/PaimonMicroBatchStream.java`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from tidelake.errors import BadInput, UnsupportedFeature
from tidelake.ingest.spark.task_start import log_as_configured
from tidelake.spark.data_source_options import ReadOptions
from tidelake.spark.read_limits import HAS_LIMITS, ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from tidelake.spark.scan_frame import packed
from tidelake.spark.spark_types import arrow_form, check_columns, in_arrow_form, table_columns
from tidelake.storage.base import env
from tidelake.storage.kinds.system_tables.audit_log import symbols
from tidelake.storage.model.types.row_kinds import is_retract, row_kinds
from tidelake.storage.read.stream.micro_batches import BatchLimits, MicroBatches, StreamOffset, StreamUnit, read_units

if TYPE_CHECKING:
    from tidelake.storage.model.table import TableContext

_ROW_KIND: Final = "rowkind"
# The offset before a query's first batch, or of a table without a snapshot to start from.
_NO_SNAPSHOT: Final = "noSnapshot"


class UnitsPartition(InputPartition):
    """The units of a batch that one task reads."""

    def __init__(self, units: Sequence[StreamUnit]) -> None:
        super().__init__(None)
        self.units = units


class TableStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a stream with the columns of `schema`.

    Spark keeps one in a process of the driver, and pickles it for each task.
    """

    def __init__(
        self, options: ReadOptions, schema: StructType, now_ms: Callable[[], float] = lambda: env.monotonic_s() * 1000
    ) -> None:
        self._options = options
        self._context: TableContext = options.stream_context()
        self._check_row_kinds()
        stream = options.stream
        if not HAS_LIMITS and not (stream.limits.is_none and stream.min_rows is None):
            raise UnsupportedFeature(
                "read.stream.…PerTrigger",
                "PySpark 4.1 passes neither the start of a batch nor its limit to a data source",
                "Leave it out, or use PySpark 4.2",
            )
        check_columns(schema, self._columns(), options.table)
        self._schema = schema
        self._now_ms = now_ms
        self._planner: MicroBatches | None = None
        self._target: StreamOffset | None = None
        self._is_bounded = False  # trigger availableNow
        self._last_batch_ms = now_ms()
        self._end: dict[str, Any] | None = None  # end of the batch before, for PySpark 4.1

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_planner": None, "_now_ms": None}

    def _check_row_kinds(self) -> None:
        if self._context.schema.has_primary_key and self._options.changelog is None:
            raise BadInput(
                f"a stream of {self._context.name}, which has a primary key, needs option read.changelog. true: it "
                "returns all changes, with column rowkind (+I, -U, +U, -D). false: it returns rows as they are after "
                "a change, and leaves out deleted rows"
            )

    def _columns(self) -> StructType:
        kind = [pa.field(_ROW_KIND, pa.string())] if self._options.changelog else []
        return table_columns(self._context, pa.schema([*kind, *self._context.schema.arrow]))

    # ---------------------------------------------------------------- in the driver

    @property
    def _batches(self) -> MicroBatches:
        if self._planner is None:
            skips = self._options.stream.skips_overwrites
            self._planner = MicroBatches(self._context, skips_overwrites=skips)
        return self._planner

    def _first(self) -> dict[str, Any]:
        first = self._batches.first()
        return {_NO_SNAPSHOT: True} if first is None else first.to_members()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._is_bounded = True

    if HAS_LIMITS:

        def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
            """Return the offset of an empty first batch.

            Spark does not record the initial offset: after a crash in the first batch it calls this again, when the
            table has changed. So the first batch is empty, and its end, which is logged, is the start of the read.
            """
            return {_NO_SNAPSHOT: True}

        def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
            """Return any limit: its value has no effect, but it makes `latestOffset` apply the options."""
            stream = self._options.stream
            has_limit = not stream.limits.is_none or stream.min_rows is not None
            return ReadMaxRows(stream.limits.max_rows or 2**62) if has_limit else ReadAllAvailable()

        def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
            return self._latest(start, is_limited=not isinstance(limit, ReadAllAvailable))

        def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
            first = self._batches.first() if self._end is None else StreamOffset.of_members(self._end)
            return None if first is None else self._batches.newest(first).to_members()

    else:

        def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
            return self._first()

        def latestOffset(self) -> dict[str, Any]:  # type: ignore[misc]  # noqa: N802 - Spark's name
            return self._latest(self._end or self.initialOffset(), is_limited=False)

    def _latest(self, start: dict[str, Any], *, is_limited: bool) -> dict[str, Any]:
        if _NO_SNAPSHOT in start:
            self._end = None
            first = self._first()
            if self._is_bounded and _NO_SNAPSHOT not in first:
                self._target = self._batches.newest(StreamOffset.of_members(first))
            return first
        begin = StreamOffset.of_members(start)
        if self._is_bounded and self._target is None:
            self._target = self._batches.newest(begin)
        stream = self._options.stream
        limits = stream.limits if is_limited else BatchLimits()
        end = self._batches.latest(begin, limits, self._target)
        if is_limited and not self._is_bounded and begin.is_before(end) and self._is_too_early(begin, end):
            end = begin
        if begin.is_before(end):
            self._last_batch_ms = self._now_ms()
        self._end = end.to_members()
        return self._end

    def _is_too_early(self, begin: StreamOffset, end: StreamOffset) -> bool:
        stream = self._options.stream
        if stream.min_rows is None or stream.max_delay_ms is None:
            return False
        is_late = self._now_ms() - self._last_batch_ms >= stream.max_delay_ms
        return not is_late and self._batches.row_count(begin, end) < stream.min_rows

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        if not HAS_LIMITS:
            self._end = end
        if _NO_SNAPSHOT in start:
            return []
        begin, stop = StreamOffset.of_members(start), StreamOffset.of_members(end)
        if not HAS_LIMITS:
            self._check_first_batch(begin, stop)
        units = self._batches.plan(begin, stop)
        groups = packed(_by_bucket(units), _size_bytes, self._context.options, self._options.min_partitions)
        return [UnitsPartition([unit for bucket in group for unit in bucket]) for group in groups]

    def _check_first_batch(self, begin: StreamOffset, end: StreamOffset) -> None:
        """Raise BadInput if PySpark 4.1 plans an interrupted first batch with a new start and the old end."""
        is_behind = end.is_before(begin)
        is_doubled = begin.position.is_full and not end.position.is_full
        if is_behind or (is_doubled and begin.position.next_snapshot_id == end.position.next_snapshot_id):
            raise BadInput(
                f"{self._context.name}: the query was interrupted in its first batch, which ends at "
                f"{end.to_members()}. The table has new snapshots since, and PySpark 4.1 would begin at "
                f"{begin.to_members()} now. Start again with a new checkpoint directory, or use PySpark 4.2"
            )

    def commit(self, end: dict[str, Any]) -> None:
        if _NO_SNAPSHOT not in end:
            self._batches.committed(StreamOffset.of_members(end))

    # ---------------------------------------------------------------- in a task

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, UnitsPartition):
            return
        log_as_configured()
        form = arrow_form(self._schema)
        for rows in read_units(self._context, partition.units):
            if not self._options.changelog:
                rows = rows.filter(pa.array(~is_retract(row_kinds(rows))))  # noqa: PLW2901
            if rows.num_rows:
                yield in_arrow_form(self._selected(rows), form)

    def _selected(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        columns = [symbols(row_kinds(rows)) if name == _ROW_KIND else rows.column(name) for name in self._schema.names]
        return pa.RecordBatch.from_arrays(columns, self._schema.names)


def _by_bucket(units: Sequence[StreamUnit]) -> list[list[StreamUnit]]:
    """Group units by bucket, in order. A unit of several buckets is its own group, and no unit is moved across it."""
    found: list[list[StreamUnit]] = []
    for has_bucket, run in groupby(units, key=lambda unit: unit.bucket is not None):
        if has_bucket:
            buckets: dict[Any, list[StreamUnit]] = {}
            for unit in run:
                buckets.setdefault(unit.bucket, []).append(unit)
            found += buckets.values()
        else:
            found += [[unit] for unit in run]
    return found


def _size_bytes(units: Sequence[StreamUnit]) -> int:
    return sum(unit.size_bytes for unit in units)
