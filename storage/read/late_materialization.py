"""Finds the rows of a file that fulfil a condition by the condition's columns. Others are decoded for these rows only.

The wanted rows of a file are then read like those that a file index selects. If the rows lie all over the file, every
page has some, and nothing would be saved: then the search ends after the first batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from tidelake.storage.fileio.requests import is_remote
from tidelake.storage.files.data_file import DataFileMeta
from tidelake.storage.model.paths import format_of
from tidelake.storage.model.schema.table_schema import POSITION_FIELD
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import DataField
from tidelake.storage.read.predicate import Predicate

ROWS_MIN: Final = 16_384  # of a smaller file all columns are decoded
_BLOCK_ROWS: Final = 4_096  # about the rows of a small page

Batches: TypeAlias = Iterator[pa.RecordBatch]


def matching_positions(
    context: TableContext,
    file: DataFileMeta,
    fields: Sequence[DataField],
    condition: Predicate | None,
    filtered_rows: Callable[[Sequence[DataField]], Batches],
) -> BitMap | None:
    """Return the positions of the rows that fulfil the condition; None if all columns should be read at once.

    Files in object stores are read at once: their requests take longer than decoding. So are formats without pages.

    filtered_rows: reads columns of the rows that fulfil the condition
    """
    if condition is None or file.row_count < ROWS_MIN or format_of(file.file_name) != "parquet":
        return None
    own = [field for field in fields if field.name in condition.columns]
    has_all = condition.columns <= set(context.schema.names)
    if not own or not has_all or len(own) == len(fields) or is_remote(context.location):
        return None
    found = BitMap()
    blocks = 0
    for batch in filtered_rows([*own, POSITION_FIELD]):
        positions = batch.column(POSITION_FIELD.name).to_numpy()
        if not len(positions):
            continue
        found.update(positions)
        blocks += len(np.unique(positions // _BLOCK_ROWS))
        if 2 * blocks * _BLOCK_ROWS > int(positions[-1]) + 1:
            return None
    return found
