"""The files of a table at one snapshot, by bucket. A job plans with them, and checks whether its input is unchanged."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

from tidelake.storage.commit.manifests.manifest_entry import ManifestEntry
from tidelake.storage.files.data_file import DataFileMeta
from tidelake.storage.files.index_file import IndexFileMeta, deletion_files_of
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.deletion_vectors.vector_file import DeletionFile
from tidelake.storage.model.table import TableContext

_Place: TypeAlias = tuple[BucketId, tuple[int, str]]


@dataclass(frozen=True)
class TableFiles:
    """The live files of a table at a snapshot.

    snapshot_id: None for a table without snapshots
    entries: of data files
    index: index files by (partition, bucket)
    """

    context: TableContext
    snapshot_id: int | None = None
    entries: Sequence[ManifestEntry] = ()
    index: Mapping[BucketId, Sequence[IndexFileMeta]] = field(default_factory=dict)

    def index_files(self, key: BucketId) -> Sequence[IndexFileMeta]:
        return self.index.get(key, ())

    def deletion_files(self, key: BucketId) -> Mapping[str, DeletionFile]:
        """Return the position of each data file's deletion vector."""
        return deletion_files_of(self.context, key.partition, key.bucket, self.index_files(key))

    def holds(
        self,
        key: BucketId,
        files: Iterable[DataFileMeta],
        deletions: Mapping[str, DeletionFile],
        relied_on: Collection[tuple[int, str]] | None = None,
    ) -> bool:
        """Return whether the files are live, with exactly these rows deleted.

        deletions: of the whole bucket if the table has a primary key: a compaction then knows the rows of all its
            files.
        relied_on: the places of all files that the bucket must have above level 0; None: any.
        """
        files = list(files)
        now = self.deletion_files(key)
        if self.context.schema.has_primary_key:
            is_same = now == deletions
        else:
            is_same = all(now.get(file.file_name) == deletions.get(file.file_name) for file in files)
        if relied_on is not None:
            is_same &= {place for bucket, place in self._places if bucket == key and place[0] > 0} == set(relied_on)
        return is_same and all((key, file.place) in self._places for file in files)

    @cached_property
    def _places(self) -> set[_Place]:
        return {(entry.bucket_id, entry.file.place) for entry in self.entries}
