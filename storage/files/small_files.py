"""Writes many data files of a few rows each, from one batch.

For each file, `RollingFileWriter` takes milliseconds, regardless of the file's size: it finds bounds, serializes keys
and statistics, and plans the format's writer. Here this is done for all files at once. Then the time of a file depends
only on its bytes. This is used for primary-key tables only: the files of other tables stay open to collect rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa

from tidelake.storage.base.clock import local_time_as_utc_ms
from tidelake.storage.base.threads import IO_THREADS_MAX, map_to_end
from tidelake.storage.fileio.location import LOCAL_SCHEME, scheme_of
from tidelake.storage.files.data_file import DataFileMeta
from tidelake.storage.files.formats.file_format import Edges, SmallFiles
from tidelake.storage.files.stats_collection import ColumnGroups
from tidelake.storage.files.writer import FilePlan
from tidelake.storage.model.binary_row import serialize_rows
from tidelake.storage.model.format import KIND_COLUMN, SEQUENCE_COLUMN
from tidelake.storage.model.paths import DataFileNames
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types.row_kinds import is_retract

_LOCAL_PARALLELISM: Final = 8  # with 32, thread switches took a quarter of the processor time


@dataclass(frozen=True)
class SmallFile:
    """A small file to write.

    directory: the directory of its bucket.
    names: makes the file's name.
    start: its first row.
    stop: the row after its last one. A file has at least one row.
    """

    directory: str
    names: DataFileNames
    start: int
    stop: int


def write_small_files(
    context: TableContext,
    plan: FilePlan,
    rows: pa.RecordBatch,
    files: Sequence[SmallFile],
    groups: ColumnGroups,
) -> list[DataFileMeta] | None:
    """Write the files durably. Returns their metadata in the given order; None if they must be written one by one.

    After an error none of the files exists.

    rows: the columns of `plan.fields`. The rows of each file are sorted by key, and have different keys.
    files: the files. Each takes the rows after those of the file before.
    groups: the columns divided into one group per file.
    """
    if plan.indexer() is not None:
        return None
    edges = np.array([*(file.start for file in files), *(file.stop for file in files[-1:])], np.intp)
    contents = plan.format.small_files(rows, plan.fields, plan.settings, edges)
    if contents is None:
        return None
    metas = _Metas(context, plan, rows, files, groups).of_files(local_time_as_utc_ms())
    named = [(f"{file.directory}/{file.names.next(plan.extension)}", file) for file in files]
    try:
        at_once = _LOCAL_PARALLELISM if scheme_of(named[0][0]) == LOCAL_SCHEME else IO_THREADS_MAX
        sizes = map_to_end(lambda one: _write(context, *one), _with_contents(named, contents), at_once)
    except BaseException:
        context.io.delete_all(path for path, _ in named)
        raise
    return [meta(path.rpartition("/")[2], size) for meta, (path, _), size in zip(metas, named, sizes, strict=True)]


def _with_contents(named: Sequence[tuple[str, SmallFile]], contents: SmallFiles) -> list[tuple[str, bytes]]:
    """Compute all contents before any file is written: waiting threads would slow down the thread that computes."""
    return [(path, contents.file(number)) for number, (path, _) in enumerate(named)]


def _write(context: TableContext, path: str, content: bytes) -> int:
    with context.io.open_output(path) as output:
        output.write(content)
    return len(content)


@dataclass(frozen=True)
class _Metas:
    """Makes the metadata of the files."""

    context: TableContext
    plan: FilePlan
    rows: pa.RecordBatch
    files: Sequence[SmallFile]
    groups: ColumnGroups

    def of_files(self, created_ms: int) -> list[Callable[[str, int], DataFileMeta]]:
        """Return for each file a function that makes its metadata from its name and size."""
        schema, plan, collector = self.context.schema, self.plan, self.plan.collector()
        key_stats = collector.of_groups(plan.key_stats_names, self.groups)
        dense = self.context.options.stats_dense_store
        value_stats = collector.of_groups(schema.names, self.groups, dense=dense)
        known = collector.known(schema.names)
        columns = known if dense and len(known) < len(schema.names) else None
        sequence = self.rows.column(SEQUENCE_COLUMN).to_numpy()
        lowest = np.minimum.reduceat(sequence, self._starts).tolist()
        highest = np.maximum.reduceat(sequence, self._starts).tolist()
        deletes = is_retract(self.rows.column(KIND_COLUMN).to_numpy()).astype(np.int64)
        delete_counts = np.add.reduceat(deletes, self._starts).tolist()
        smallest, largest = self._keys(self._starts), self._keys(self._stops - 1)

        def meta(number: int) -> Callable[[str, int], DataFileMeta]:
            file = self.files[number]
            return lambda name, size: DataFileMeta(
                file_name=name,
                file_size=size,
                row_count=file.stop - file.start,
                min_key=smallest[number],
                max_key=largest[number],
                key_stats=key_stats[number],
                value_stats=value_stats[number],
                min_sequence_number=lowest[number],
                max_sequence_number=highest[number],
                schema_id=schema.id,
                level=plan.level,
                creation_time_ms=created_ms,
                delete_row_count=delete_counts[number],
                file_source=plan.file_source,
                value_stats_columns=columns,
            )

        return [meta(number) for number in range(len(self.files))]

    @cached_property
    def _starts(self) -> Edges:
        return np.array([file.start for file in self.files], np.intp)

    @cached_property
    def _stops(self) -> Edges:
        return np.array([file.stop for file in self.files], np.intp)

    def _keys(self, rows: Edges) -> list[bytes]:
        fields = self.context.schema.select(self.context.schema.trimmed_primary_keys)
        ends = self.rows.select([f.name for f in fields]).take(pa.array(rows))
        return serialize_rows(ends.columns, [f.type for f in fields])
