"""The statistics of row-id groups, known before any file is opened. Each column has the statistics of the file that
provides it.

Source: Java `operation/DataEvolutionFileStoreScan.java` (evolutionStats).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np
import pyarrow as pa

from tidelake.storage.files.data_file import DataFileMeta
from tidelake.storage.files.reader import written_fields
from tidelake.storage.files.statistics import value_bounds
from tidelake.storage.files.stats_collection import Bounds, ColumnBounds
from tidelake.storage.model.format import ROW_ID_COLUMN, SEQUENCE_COLUMN
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import arrow_type
from tidelake.storage.read.evolution.row_id_groups import RowIdGroup, ordinary_files, row_ids_of


def row_id_group_bounds(context: TableContext, groups: Sequence[RowIdGroup]) -> Bounds:
    """Return bounds by column name, one for each group, for the table's columns, `_ROW_ID` and
    `_SEQUENCE_NUMBER`.

    context: its schema is used for the read.
    """
    files = [file for group in groups for file in group]
    of_files = value_bounds(context, files)
    row_counts = pa.array([len(row_ids_of(group)) for group in groups], pa.int64())
    file_of_field = [
        _file_of_each_field(context, group, start) for group, start in zip(groups, _starts(groups), strict=True)
    ]
    held = [{f.id for file in group for f in written_fields(context, file)} for group in groups]

    def bounds(name: str) -> ColumnBounds:
        if name == ROW_ID_COLUMN:
            return _row_id_bounds(groups, row_counts)
        if name == SEQUENCE_COLUMN:  # an update of a column changes it, and its file has only some of the rows
            return ColumnBounds.unknown(pa.int64(), row_counts)
        field = context.schema.by_name[name]
        if not files:
            return ColumnBounds.unknown(arrow_type(field.type), row_counts)
        found = of_files(name)
        file_numbers = pa.array([numbers.get(field.id) for numbers in file_of_field], pa.int64())
        is_missing = pa.array([field.id not in ids for ids in held])
        nulls = found.null_count.take(file_numbers)
        return ColumnBounds(
            found.minimum.take(file_numbers),
            found.maximum.take(file_numbers),
            pa.compute.if_else(is_missing, row_counts, nulls),
            row_counts,
        )

    return cache(bounds)


def _starts(groups: Sequence[RowIdGroup]) -> list[int]:
    """Return the position of each group's first file in the list of all files."""
    return [0, *np.cumsum([len(group) for group in groups]).tolist()][: len(groups)]


def _file_of_each_field(context: TableContext, group: RowIdGroup, start: int) -> Mapping[int, int]:
    """Return by field id the number of the file that provides the column.

    A column is missing if no file has it, or if it is unknown which file provides it.
    """
    rows = len(row_ids_of(group))
    numbers = {id(file): start + i for i, file in enumerate(group)}
    newest: dict[int, DataFileMeta] = {}
    unknown: set[int] = set()
    for file in ordinary_files(group):
        for f in written_fields(context, file):
            first = newest.setdefault(f.id, file)
            # Of two files with the same sequence number, their order in the group decides.
            if file.row_count != rows or (first is not file and first.max_sequence_number == file.max_sequence_number):
                unknown.add(f.id)
    return {number: numbers[id(file)] for number, file in newest.items() if number not in unknown}


def _row_id_bounds(groups: Sequence[RowIdGroup], row_counts: pa.Array) -> ColumnBounds:
    ranges = [row_ids_of(group) for group in groups]
    return ColumnBounds(
        pa.array([ids.start for ids in ranges], pa.int64()),
        pa.array([ids.stop - 1 for ids in ranges], pa.int64()),
        pa.array([0] * len(groups), pa.int64()),
        row_counts,
    )
