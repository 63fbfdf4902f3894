"""The metadata of one data file in a manifest.

Source: Java `io/DataFileMeta.java`, `stats/SimpleStats.java`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from tidelake.storage.base.pickled_values import pickles_as_values
from tidelake.storage.model.format import FileSource

# The serialized BinaryRow without fields: the partition of an unpartitioned table, and the key of an append table.
EMPTY_ROW = bytes(12)


@pickles_as_values
@dataclass(frozen=True, slots=True)
class SimpleStats:
    """The statistics of some columns of a file, as stored.

    min_values: the lower bounds as a serialized BinaryRow (with arity prefix), one field per column, null if unknown.
    max_values: the upper bounds, likewise.
    null_counts: one number per column, None if unknown.
    """

    min_values: bytes
    max_values: bytes
    null_counts: tuple[int | None, ...]


EMPTY_STATS = SimpleStats(EMPTY_ROW, EMPTY_ROW, ())


@pickles_as_values
@dataclass(frozen=True, slots=True)
class DataFileMeta:
    """One immutable data file. The fields are those that a manifest stores; None is null in the manifest.

    row_count: the number of rows, including retracts.
    min_key: the smallest key, as a serialized BinaryRow.
    max_key: the largest key, as a serialized BinaryRow.
    value_stats_columns: the columns in value_stats; None means all columns of the file's schema.
    creation_time_ms: the wall clock of the writer's time zone, as if it were UTC (like Java, see FORMAT.md).
    """

    file_name: str
    file_size: int
    row_count: int
    min_key: bytes
    max_key: bytes
    key_stats: SimpleStats
    value_stats: SimpleStats
    min_sequence_number: int
    max_sequence_number: int
    schema_id: int
    level: int
    extra_files: tuple[str, ...] = ()
    creation_time_ms: int | None = None
    delete_row_count: int | None = None
    embedded_index: bytes | None = None
    file_source: FileSource | None = None
    value_stats_columns: tuple[str, ...] | None = None
    external_path: str | None = None
    first_row_id: int | None = None
    write_columns: tuple[str, ...] | None = None
    write_columns_sequences: tuple[int, ...] | None = None

    @property
    def place(self) -> tuple[int, str]:
        """Level and name, which identify it in the bucket's merge tree. An upgraded file keeps its name."""
        return self.level, self.file_name

    @property
    def may_hold_deletes(self) -> bool:
        """Whether the file may contain deletes. True if they were not counted.

        A file of level 0 may contain deletes even if this is False: pypaimon writes such files.
        """
        return self.delete_row_count != 0

    @property
    def created_epoch_ms(self) -> int | None:
        """The creation time in epoch milliseconds.

        Like Java, it assumes that the writer had this process's time zone.
        """
        return None if self.creation_time_ms is None else epoch_ms_of_local(self.creation_time_ms)


def epoch_ms_of_local(wall_clock_ms: int) -> int:
    """Return the epoch milliseconds of a wall clock.

    wall_clock_ms: the wall clock of this process's time zone, as if it were UTC.
    """
    shown = datetime.fromtimestamp(wall_clock_ms / 1000, UTC).replace(tzinfo=None)
    return round(shown.timestamp() * 1000)


def is_fully_compacted(files: Iterable[DataFileMeta], num_levels: int) -> bool:
    """Return whether all files of a bucket are on its highest level.

    num_levels: from the table's options. The highest level is higher if the option was lowered meanwhile.
    """
    levels = {file.level for file in files}
    return not levels or levels == {max(num_levels - 1, *levels)}
