"""`format("tidelake-changelog-folder")`: the driver plans parts of files, tasks read them.

An offset in Spark's log is the position in each file, by its name. A new query has no positions.

Source: PySpark `sql/worker/plan_data_source_read.py`, `sql/streaming/python_streaming_source_runner.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from tidelake.errors import BadInput, PositionRefused, UnsupportedFeature
from tidelake.ingest.sources.change_log_file import SUFFIXES
from tidelake.ingest.spark.task_start import log_as_configured
from tidelake.spark.changelog_folder.folder_files import (
    FilePart,
    FolderBatchLimits,
    Places,
    cut_line,
    next_positions,
    parts_between,
    sizes_of,
    tasks,
)
from tidelake.spark.changelog_folder.folder_options import FORMAT, FolderReadOptions
from tidelake.spark.changelog_folder.line_reading import record_batches
from tidelake.spark.read_limits import (
    HAS_LIMITS,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from tidelake.spark.spark_types import check_columns, record_schema


class PartsPartition(InputPartition):
    """The parts of files that one task reads."""

    def __init__(self, parts: Sequence[FilePart]) -> None:
        super().__init__(None)
        self.parts = parts


class _LineReader:
    """The common base of both readers. Spark pickles it for each task."""

    def __init__(self, options: FolderReadOptions, schema: StructType) -> None:
        check_columns(schema, record_schema(has_headers=bool(options.kept_headers)), FORMAT)
        self._options = options
        self._schema = schema

    def _partitions_of(self, starts: Places, ends: Places) -> list[InputPartition]:
        return [PartsPartition(parts) for parts in tasks(parts_between(self._options.folder, starts, ends))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of a partition. Without partitions Spark passes its own one, which has no records."""
        if isinstance(partition, PartsPartition):
            log_as_configured()
            options = self._options
            yield from record_batches(
                options.folder, self._schema, partition.parts, options.kept_headers, options.starts
            )


class FolderBatchReader(_LineReader, DataSourceReader):
    """Reads all existing files. Every file must be complete."""

    def __init__(self, options: FolderReadOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        if options.limits != FolderBatchLimits():
            raise BadInput("options maxFilesPerTrigger and maxBytesPerTrigger are only for streams; leave them out")

    def partitions(self) -> Sequence[InputPartition]:
        folder = self._options.folder
        sizes = sizes_of(folder)
        ends = next_positions(folder, {}, sizes, FolderBatchLimits())
        if (cut := cut_line(folder, ends, sizes)) is not None:
            raise cut
        return self._partitions_of({}, ends)


class FolderStreamReader(_LineReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads from the first file on, and new files and lines appended to plain files as soon as they are noticed.

    An incomplete line waits for its rest, unless the trigger is availableNow.
    """

    def __init__(self, options: FolderReadOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._is_bounded = False
        self._target: Mapping[str, int] | None = None  # for trigger availableNow: sizes at its start
        if not HAS_LIMITS and options.limits != FolderBatchLimits():
            raise UnsupportedFeature(
                "maxFilesPerTrigger and maxBytesPerTrigger",
                "PySpark 4.1 passes neither the start of a batch nor its limit to a data source",
                "Leave them out, or use PySpark 4.2",
            )

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._is_bounded = True

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return {}

    if HAS_LIMITS:

        def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
            """Return any limit: its value has no effect, but it makes `latestOffset` apply the options."""
            return ReadAllAvailable() if self._options.limits == FolderBatchLimits() else ReadMaxRows(2**62)

        def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
            is_limited = not isinstance(limit, ReadAllAvailable)
            return self._next(_places(start), self._options.limits if is_limited else FolderBatchLimits())

        def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
            return dict(sizes_of(self._options.folder))

    else:

        def latestOffset(self) -> dict[str, Any]:  # type: ignore[misc]  # noqa: N802 - Spark's name
            return self._next({}, FolderBatchLimits())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return self._partitions_of(_places(start), _places(end))

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: all state is in Spark's log."""

    def _next(self, places: Places, limits: FolderBatchLimits) -> dict[str, Any]:
        sizes: Mapping[str, int] = sizes_of(self._options.folder)
        if self._is_bounded:
            self._target = sizes if self._target is None else self._target
            sizes = {name: min(size, self._target[name]) for name, size in sizes.items() if name in self._target}
            sizes = {name: max(size, places.get(name, 0)) for name, size in sizes.items()}
        ends = next_positions(self._options.folder, places, sizes, limits)
        if self._is_bounded and ends == places and (cut := cut_line(self._options.folder, ends, sizes)) is not None:
            raise cut
        return ends


def _places(members: Mapping[str, Any]) -> dict[str, int]:
    """Return the positions of an offset. Raises PositionRefused for offsets of another source."""
    if others := [name for name in members if not name.endswith(SUFFIXES)]:
        raise PositionRefused(
            f"{FORMAT}: Spark's checkpoint directory names {others[0]!r}, which is not a change-log file: the "
            "directory belongs to a query that read from another source",
            ["use a new checkpoint directory; if tables already have records of the folder, set startingOffsets"],
        )
    return {name: int(at) for name, at in members.items()}


class ChangeLogFolderDataSource(DataSource):
    """The data source. Its options are in `tidelake.spark.changelog_folder.folder_options`. Spark keeps it pickled."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return record_schema(has_headers=bool(FolderReadOptions.of(self.options).kept_headers))

    def reader(self, schema: StructType) -> FolderBatchReader:
        return FolderBatchReader(FolderReadOptions.of(self.options), schema)

    def streamReader(self, schema: StructType) -> FolderStreamReader:  # noqa: N802 - Spark's name
        return FolderStreamReader(FolderReadOptions.of(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        raise UnsupportedFeature(
            f'write.format("{FORMAT}")', "this data source can only read change logs", "Write into a table"
        )

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: N802 - Spark's name
        return self.writer(schema, overwrite)
