"""Metadata of data files that do not exist, for pickers and plans, which open no file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from tidelake.compaction.merge_tree.levels import Levels
from tidelake.storage.files.data_file import EMPTY_STATS, DataFileMeta
from tidelake.storage.model.binary_row import decode_rows, serialize_rows
from tidelake.storage.model.types import AtomicType, Root

KEY_TYPES: Final = (AtomicType(Root.INT, nullable=False),)


def key_row(key: int) -> bytes:
    return serialize_rows([pa.array([key], pa.int32())], KEY_TYPES)[0]


def paper_file(
    name: str,
    level: int = 0,
    keys: tuple[int, int] = (0, 0),
    *,
    size: int = 1,
    deletes: int | None = 0,
    sequence: tuple[int, int] = (0, 0),
    created_ms: int = 0,
) -> DataFileMeta:
    """keys, sequence: smallest and largest."""
    return DataFileMeta(
        file_name=name,
        file_size=size,
        row_count=1,
        min_key=key_row(keys[0]),
        max_key=key_row(keys[1]),
        key_stats=EMPTY_STATS,
        value_stats=EMPTY_STATS,
        min_sequence_number=sequence[0],
        max_sequence_number=sequence[1],
        schema_id=0,
        level=level,
        creation_time_ms=created_ms,
        delete_row_count=deletes,
    )


def keys_of(file: DataFileMeta) -> tuple[int, int]:
    ((low, high),) = zip(*[iter(decode_rows([file.min_key, file.max_key], KEY_TYPES)[0].to_pylist())] * 2, strict=True)
    return low, high


def bucket(files: Sequence[DataFileMeta], num_levels: int) -> Levels:
    return Levels.of(files, KEY_TYPES, num_levels)
