"""Reads the live data files of a snapshot as columns, without one object for each file.

Many manifests are read block by block (`model.avro.blocks`). Few manifests, and unusual ones, are read entry by entry.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidelake.storage.commit.manifests.manifest_entry import Identity, ManifestEntry, merge_entries
from tidelake.storage.commit.manifests.manifest_store import ManifestStore
from tidelake.storage.commit.manifests.record_file import format_of_metadata
from tidelake.storage.commit.manifests.snapshot_files import live_entries, table_manifests
from tidelake.storage.model.avro.blocks import AvroBlocks, blocks_of, read_columns
from tidelake.storage.model.binary_row import decode_rows
from tidelake.storage.model.format import MANIFEST_ENTRY_VERSION, FileKind
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext

ENTRY_SCHEMA: Final = pa.schema(
    {
        "partition": pa.binary(),
        "bucket": pa.int32(),
        "total_buckets": pa.int32(),
        "file_name": pa.string(),
        "file_size": pa.int64(),
        "row_count": pa.int64(),
        "min_key": pa.binary(),
        "max_key": pa.binary(),
        "min_values": pa.binary(),
        "max_values": pa.binary(),
        "null_counts": pa.list_(pa.int64()),
        "min_sequence_number": pa.int64(),
        "max_sequence_number": pa.int64(),
        "schema_id": pa.int64(),
        "level": pa.int32(),
        "extra_files": pa.list_(pa.string()),
        "creation_time_ms": pa.int64(),
        "delete_row_count": pa.int64(),
        "embedded_index": pa.binary(),
        "file_source": pa.int32(),
        "value_stats_columns": pa.list_(pa.string()),
        "external_path": pa.string(),
        "first_row_id": pa.int64(),
        "write_columns": pa.list_(pa.string()),
    }
)
_RECORD_NAMES: Final = {
    "partition": "_PARTITION",
    "bucket": "_BUCKET",
    "total_buckets": "_TOTAL_BUCKETS",
    "min_values": "_FILE._VALUE_STATS._MIN_VALUES",
    "max_values": "_FILE._VALUE_STATS._MAX_VALUES",
    "null_counts": "_FILE._VALUE_STATS._NULL_COUNTS",
    "creation_time_ms": "_FILE._CREATION_TIME",
    "embedded_index": "_FILE._EMBEDDED_FILE_INDEX",
    "value_stats_columns": "_FILE._VALUE_STATS_COLS",
    "write_columns": "_FILE._WRITE_COLS",
}
_WANTED: Final = {_RECORD_NAMES.get(f.name, f"_FILE._{f.name.upper()}"): f.type for f in ENTRY_SCHEMA}
_VERSION_AND_KIND: Final = {"_VERSION": pa.int32(), "_KIND": pa.int32()}
_MAY_BE_NULL: Final = frozenset({"null_counts", "extra_files", *ENTRY_SCHEMA.names[16:]})
_BLOCKS_MIN: Final = 64  # from this number of blocks on, columns are faster than entries
_ENTRIES_MIN: Final = 5_000  # fewer entries never fill this number of blocks


def live_entry_columns(context: TableContext, snapshot: Snapshot) -> pa.RecordBatch:
    """Return the files of `live_entries` in `ENTRY_SCHEMA`, ordered by partition and bucket. Raises CorruptFile."""
    columns = _columns_of_blocks(context, snapshot)
    if columns is None:
        columns = columns_of_entries(live_entries(context, snapshot))
    return _sorted(columns)


def columns_of_entries(entries: Sequence[ManifestEntry]) -> pa.RecordBatch:
    files = [entry.file for entry in entries]
    of_entries = {
        "partition": [entry.partition for entry in entries],
        "bucket": [entry.bucket for entry in entries],
        "total_buckets": [entry.total_buckets for entry in entries],
        "min_values": [file.value_stats.min_values for file in files],
        "max_values": [file.value_stats.max_values for file in files],
        "null_counts": [file.value_stats.null_counts for file in files],
    }
    columns = [
        pa.array(of_entries.get(f.name) or [getattr(file, f.name) for file in files], f.type) for f in ENTRY_SCHEMA
    ]
    return pa.RecordBatch.from_arrays(columns, schema=ENTRY_SCHEMA)


def _sorted(columns: pa.RecordBatch) -> pa.RecordBatch:
    """Sort by partition and bucket. Files of one bucket keep their order."""
    partitions = columns.column("partition").dictionary_encode()
    order = pc.array_sort_indices(partitions.dictionary).to_numpy()
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    ranks = rank[partitions.indices.to_numpy()] if len(columns) else rank
    places = np.lexsort((columns.column("bucket").to_numpy(), ranks))
    return columns if (np.diff(places) == 1).all() else columns.take(pa.array(places))


# ---------------------------------------------------------------- blocks


def _columns_of_blocks(context: TableContext, snapshot: Snapshot) -> pa.RecordBatch | None:
    """Return None if there are few blocks, or if the entries must be read one by one to report an error."""
    source = _blocks(context, snapshot)
    found = None if source is None else read_columns(source, {**_WANTED, **_VERSION_AND_KIND})
    if found is None:
        return None
    kinds = found["_KIND"]
    columns = pa.RecordBatch.from_arrays([found[name] for name in _WANTED], schema=ENTRY_SCHEMA)
    if (
        pc.any(pc.not_equal(found["_VERSION"], MANIFEST_ENTRY_VERSION)).as_py()
        or any(columns.column(name).null_count for name in ENTRY_SCHEMA.names if name not in _MAY_BE_NULL)
        or not _are_partitions(columns.column("partition"), context)
        or pc.any(pc.match_substring(columns.column("file_name"), "\0")).as_py()
    ):
        return None
    live = _live(columns, kinds)
    return None if live is None else columns if live.all() else columns.filter(pa.array(live))


def _blocks(context: TableContext, snapshot: Snapshot) -> AvroBlocks | None:
    store = context.shared(ManifestStore)
    metas = table_manifests(store, snapshot)
    if sum(meta.num_added_files + meta.num_deleted_files for meta in metas) < _ENTRIES_MIN:
        return None
    files = store.read_bytes(metas)
    is_sound = (
        len(data) >= (meta.file_size or 0) and format_of_metadata(data) == "avro"
        for data, meta in zip(files, metas, strict=True)
    )
    if not all(is_sound):
        return None
    try:
        source = blocks_of(files)
    except Exception:  # any error of fastavro: reading entry by entry will report it with the file's name
        return None
    return source if source is not None and len(source.blocks) >= _BLOCKS_MIN else None


@dataclass(frozen=True, slots=True)
class _Line:
    kind: FileKind
    identity: Identity
    number: int


def _are_partitions(column: pa.Array, context: TableContext) -> bool:
    types = [field.type for field in context.schema.partition_fields]
    try:
        decode_rows(column.unique().to_pylist(), types, out_of_range="null")
    except ValueError:
        return not types
    return True


def _live(columns: pa.RecordBatch, kinds: pa.Array) -> NDArray[np.bool_] | None:
    """Return which of all entries remain live. Only entries whose file name occurs again are checked one by one."""
    names = columns.column("file_name").dictionary_encode().indices.to_numpy()
    live: NDArray[np.bool_] = kinds.to_numpy() == FileKind.ADD
    repeated = np.flatnonzero(np.bincount(names)[names] > 1)
    if not len(repeated):
        return live
    live = live.copy()
    live[repeated] = False
    places = pa.array(repeated)
    contested = columns.take(places)
    parts = [contested.column(name).to_pylist() for name in ("partition", "bucket", "level", "file_name")]
    extra_files = [tuple(names or ()) for names in contested.column("extra_files").to_pylist()]
    others = [contested.column(name).to_pylist() for name in ("embedded_index", "external_path")]
    try:
        of_kinds = [FileKind(kind) for kind in kinds.take(places).to_pylist()]
        lines = map(_Line, of_kinds, zip(*parts, extra_files, *others, strict=True), repeated.tolist())
        remaining = merge_entries(lines).values()
    except ValueError:
        return None
    live[[line.number for line in remaining if line.kind is FileKind.ADD]] = True
    return live
