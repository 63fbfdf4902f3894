"""Changes the deletion vectors of a bucket for deletes and compactions.

    maintainer = DeletionVectorMaintainer(context, key, index_files)     # index files of the snapshot to change
    maintainer.delete("data-1.parquet", positions)
    maintainer.remove("data-2.parquet")                          # the file was rewritten without its deleted rows
    change = maintainer.write()                                  # what to commit; None: nothing changed

A bucket has one index file. It is always written as a whole, even if no vector is left. In tables without buckets, only
index files with a changed or removed vector are replaced, and new index files roll at a target size.

Source: Java `deletionvectors/BucketedDvMaintainer.java`, `deletionvectors/append/AppendDeleteFileMaintainer.java`;
vectors `dv_maintainer.json`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidelake.storage.commit.commit_increment import CommitIncrement, CompactResult
from tidelake.storage.commit.commit_message import CommitMessage
from tidelake.storage.files.index_file import IndexFileMeta, deletion_files_of, index_file_path, index_path_of_name
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.bucketing import BucketMode, bucket_mode
from tidelake.storage.model.deletion_vectors.vector_file import (
    DeletionFile,
    IndexFileBuilder,
    StoredVector,
    read_vector,
)
from tidelake.storage.model.format import DELETION_VECTORS_INDEX
from tidelake.storage.model.paths import IndexFileNames
from tidelake.storage.model.table import TableContext


@dataclass(frozen=True, slots=True)
class IndexChange:
    """Index files that were written, and those that they replace. They are durable; no snapshot names them yet."""

    new: tuple[IndexFileMeta, ...] = ()
    deleted: tuple[IndexFileMeta, ...] = ()


class DeletionVectorMaintainer:
    """The deletion vectors of one bucket while they change. Not thread-safe.

    index_files: index files of the bucket, in the snapshot that the change builds on; other types are ignored
    """

    def __init__(self, context: TableContext, key: BucketId, index_files: Iterable[IndexFileMeta] = ()) -> None:
        self._context = context
        self._key = key
        self._is_one_file = bucket_mode(context.schema, context.options) is not BucketMode.UNAWARE
        self._names = IndexFileNames()
        self._load([file for file in index_files if file.holds_deletion_vectors])

    def _load(self, index_files: Sequence[IndexFileMeta]) -> None:
        self._files = index_files
        self._stored = deletion_files_of(self._context, self._key.partition, self._key.bucket, index_files)
        self._changed: dict[str, NDArray[np.int64] | None] = {}  # by data file; None: its vector was removed

    @property
    def deletion_files(self) -> Mapping[str, DeletionFile]:
        """The deletion files as they are stored, without later changes."""
        return self._stored

    def data_files(self) -> list[str]:
        """Return the names of the data files that have a vector."""
        names = dict.fromkeys([*self._stored, *self._changed])
        return [name for name in names if self._changed.get(name, ()) is not None]

    def positions(self, data_file: str) -> NDArray[np.int64] | None:
        """Return the positions of deleted rows, ascending; None if there are none. Raises CorruptFile."""
        if data_file in self._changed:
            return self._changed[data_file]
        stored = self._stored.get(data_file)
        return None if stored is None else read_vector(self._context.io, stored)

    def delete(self, data_file: str, positions: NDArray[np.int64]) -> None:
        """Mark these rows as deleted. Rows that are deleted already change nothing."""
        before = self.positions(data_file)
        after = np.unique(positions) if before is None else np.union1d(before, positions)
        if len(after) > (0 if before is None else len(before)):
            self._changed[data_file] = after

    def replace(self, data_file: str, positions: NDArray[np.int64]) -> None:
        """Set the deleted rows of the file to exactly these rows."""
        self._changed[data_file] = np.unique(positions)

    def remove(self, data_file: str) -> None:
        """Remove the vector of a data file. Does nothing if the file has no vector."""
        if data_file in self._stored:
            self._changed[data_file] = None
        else:
            self._changed.pop(data_file, None)

    def write(self) -> IndexChange | None:
        """Write durable files and continue from them. After an error, no new file is left."""
        if not self._changed:
            return None
        replaced = [file for file in self._files if self._is_one_file or self._is_touched(file)]
        new = self._written(self._vectors_to_write(replaced))
        change = IndexChange(tuple(new), tuple(replaced))
        self._load([*(file for file in self._files if file not in replaced), *new])
        return change

    def _is_touched(self, file: IndexFileMeta) -> bool:
        return any(vector.data_file in self._changed for vector in file.vectors)

    def _vectors_to_write(self, replaced: Sequence[IndexFileMeta]) -> Iterator[tuple[str, StoredVector]]:
        bitmap64 = self._context.options.deletion_vectors_bitmap64
        for file in replaced:
            for vector in file.vectors:
                if vector.data_file not in self._changed:
                    yield vector.data_file, StoredVector.copied(self._context.io, self._stored[vector.data_file])
        for data_file, positions in self._changed.items():
            if positions is not None:
                yield data_file, StoredVector.of(positions, bitmap64=bitmap64)

    def _written(self, vectors: Iterator[tuple[str, StoredVector]]) -> list[IndexFileMeta]:
        target_bytes = self._context.options.deletion_vector_index_file_target_bytes
        new: list[IndexFileMeta] = []
        try:
            builder: IndexFileBuilder | None = IndexFileBuilder() if self._is_one_file else None
            for data_file, vector in vectors:
                builder = builder or IndexFileBuilder()
                builder.add(data_file, vector)
                if not self._is_one_file and builder.size_bytes > target_bytes:
                    new.append(self._write_file(builder))
                    builder = None
            if builder is not None:
                new.append(self._write_file(builder))
        except BaseException:
            discard_index_files(self._context, self._key, new)
            raise
        return new

    def _write_file(self, builder: IndexFileBuilder) -> IndexFileMeta:
        data, metas = builder.finish()
        name = self._names.next()
        path = index_path_of_name(self._context, self._key.partition, self._key.bucket, name)
        with self._context.io.open_output(path) as output:
            output.stream.write(data)
        return IndexFileMeta(DELETION_VECTORS_INDEX, name, len(data), len(metas), metas)


def discard_index_files(context: TableContext, key: BucketId, files: Iterable[IndexFileMeta]) -> None:
    """Delete index files that no snapshot names."""
    context.io.delete_all([index_file_path(context, key.partition, key.bucket, file) for file in files])


def write_index_changes(
    context: TableContext, maintainers: Mapping[BucketId, DeletionVectorMaintainer], *, compaction: bool = False
) -> list[CommitMessage]:
    """Write the index changes of several buckets. After an error, no new file is left.

    compaction: the changes are part of a compaction.
    """
    messages: list[CommitMessage] = []
    written: list[tuple[BucketId, IndexChange]] = []
    try:
        for key, maintainer in maintainers.items():
            if (change := maintainer.write()) is not None:
                written.append((key, change))
                messages.append(_message(key, change, compaction=compaction))
    except BaseException:
        for key, change in written:
            discard_index_files(context, key, change.new)
        raise
    return messages


def _message(key: BucketId, change: IndexChange, *, compaction: bool) -> CommitMessage:
    if compaction:
        return CommitMessage(
            key,
            CommitIncrement(compacted=CompactResult(new_index_files=change.new, deleted_index_files=change.deleted)),
        )
    return CommitMessage(key, CommitIncrement(new_index_files=change.new, deleted_index_files=change.deleted))
