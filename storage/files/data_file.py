"""What a manifest knows of one data file.

Source: Java `io/DataFileMeta.java`, `stats/SimpleStats.java`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from storage.format import FileSource
from storage.pickled_values import pickles_as_values

# The serialized BinaryRow without fields: partition of an unpartitioned table, key of an append table.
EMPTY_ROW = bytes(12)


@pickles_as_values
@dataclass(frozen=True, slots=True)
class SimpleStats:
    """Bounds of some columns over the rows of a file, as stored: rows are serialized BinaryRows (with arity prefix).

    min_values, max_values: one field a column, null where unknown.
    null_counts: a number a column, None where unknown.
    """

    min_values: bytes
    max_values: bytes
    null_counts: tuple[int | None, ...]


EMPTY_STATS = SimpleStats(EMPTY_ROW, EMPTY_ROW, ())


@pickles_as_values
@dataclass(frozen=True, slots=True)
class DataFileMeta:
    """One immutable data file. Field by field what a manifest stores; None is the manifest's null.

    min_key, max_key, the rows of stats: serialized BinaryRows. row_count includes retract rows.
    value_stats_columns: which columns value_stats speaks of; None means all columns of the file's schema.
    creation_time_ms: wall clock of the writer's zone as if it were UTC (Java's quirk, see FORMAT.md).
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
        """In the tree of its bucket: level and name. Raised to another level, a file keeps its name."""
        return self.level, self.file_name

    @property
    def may_hold_deletes(self) -> bool:
        """Also where they were not counted. A file of level 0 that says no may do so all the same: pypaimon's do."""
        return self.delete_row_count != 0

    @property
    def created_epoch_ms(self) -> int | None:
        """When it was made, if its writer's clock shows the local time of this process, as Java takes it."""
        return None if self.creation_time_ms is None else epoch_ms_of_local(self.creation_time_ms)


def epoch_ms_of_local(wall_clock_ms: int) -> int:
    """wall_clock_ms: what the clock of this process's zone showed, as if it were UTC."""
    shown = datetime.fromtimestamp(wall_clock_ms / 1000, UTC).replace(tzinfo=None)
    return round(shown.timestamp() * 1000)
