"""Invariants of a bucket's files that hold after every operation. The check reads every file."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.compaction.merge_tree.levels import Levels
from tidelake.storage.commit.manifests.snapshot_files import live_entries
from tidelake.storage.files.data_file import DataFileMeta
from tidelake.storage.model.binary_row import serialize_rows
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.format import KIND_COLUMN, SEQUENCE_COLUMN
from tidelake.storage.model.table import TableContext
from tidelake.storage.write.bucket_files import BucketFiles


def live_files(context: TableContext) -> dict[BucketId, list[DataFileMeta]]:
    snapshot = context.snapshots.latest()
    files: dict[BucketId, list[DataFileMeta]] = defaultdict(list)
    for entry in live_entries(context, snapshot) if snapshot is not None else ():
        files[entry.bucket_id].append(entry.file)
    return files


def check_tree(context: TableContext) -> dict[BucketId, Levels]:
    """Returns the levels of every bucket. Fails if runs overlap, or if metadata contradict the files."""
    key_types = [field.type for field in context.schema.key_fields]
    trees = {}
    for key, files in live_files(context).items():
        assert len({file.file_name for file in files}) == len(files), "a file is there twice"
        trees[key] = Levels.of(files, key_types, context.options.num_levels)
        for file in files:
            check_file(context, BucketFiles(context, key), file)
    return trees


def check_file(context: TableContext, files: BucketFiles, file: DataFileMeta) -> None:
    rows = pa.Table.from_batches(files.read(file))
    names = context.schema.trimmed_primary_keys
    assert rows.num_rows == file.row_count
    sequence = pc.min_max(rows[SEQUENCE_COLUMN]).as_py()
    assert (sequence["min"], sequence["max"]) == (file.min_sequence_number, file.max_sequence_number)
    assert pc.sum(pc.is_in(rows[KIND_COLUMN], pa.array([1, 3], pa.int8()))).as_py() == file.delete_row_count
    keys = rows.select(names)
    assert keys.num_rows == len(set(map(tuple, (row.values() for row in keys.to_pylist())))), "a key is there twice"
    assert keys.sort_by([(name, "ascending") for name in names]) == keys, "keys are out of order"
    assert (file.min_key, file.max_key) == (_key(context, names, rows, 0), _key(context, names, rows, -1))


def _key(context: TableContext, names: Sequence[str], rows: pa.Table, row: int) -> bytes:
    at = row % rows.num_rows
    columns = [rows[name].combine_chunks().slice(at, 1) for name in names]
    return serialize_rows(columns, [field.type for field in context.schema.select(names)])[0]
