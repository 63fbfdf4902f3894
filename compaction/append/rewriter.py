"""Rewrites the rows of some files of an append table to new files, in the given order.

Source: Java `operation/BaseAppendFileStoreWrite.compactRewrite`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from tidelake.compaction.cancellation import CompactionCancelled, IsCancelled
from tidelake.storage.commit.commit_increment import CompactResult
from tidelake.storage.files.bucket_directory import data_file_path
from tidelake.storage.files.data_file import DataFileMeta
from tidelake.storage.files.reader import read_data_file
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.deletion_vectors.vector_file import DeletionFile, read_vector
from tidelake.storage.model.format import FileSource
from tidelake.storage.model.schema.table_schema import TRACKING_FIELDS
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import DataField
from tidelake.storage.write.bucket_files import BucketFiles


@dataclass(frozen=True)
class AppendRewriter:
    """Rewrites the files of one bucket of an append table.

    deletion_files: by data file, the deletion vector whose rows are left out.
    is_cancelled: polled between batches; if true, CompactionCancelled is raised.
    """

    context: TableContext
    key: BucketId
    deletion_files: Mapping[str, DeletionFile] = field(default_factory=dict)
    is_cancelled: IsCancelled = field(default=lambda: False)

    @property
    def row_fields(self) -> tuple[DataField, ...]:
        """The table's columns, and with row tracking also row ids and sequence numbers, which are kept."""
        return (*self.context.schema.fields, *(TRACKING_FIELDS.values() if self._is_tracked else ()))

    @property
    def _is_tracked(self) -> bool:
        return self.context.options.row_tracking_enabled

    def compact(self, files: Sequence[DataFileMeta], reason: str) -> CompactResult:
        """Write the same rows to fewer files, with one batch in memory at a time. After an error no file is left."""
        return self.replace(files, self.read(files), reason)

    def read(self, files: Iterable[DataFileMeta], fields: Sequence[DataField] = ()) -> Iterator[pa.RecordBatch]:
        """Read one file after the other.

        fields: the fields to read; by default all of `row_fields`

        Raises CorruptFile.
        """
        wanted = fields or self.row_fields
        directory = BucketFiles(self.context, self.key).directory
        for file in files:
            path = data_file_path(directory, file)
            deletion = self.deletion_files.get(file.file_name)
            deleted = None if deletion is None else read_vector(self.context.io, deletion)
            partition = self.key.partition
            for batch in read_data_file(self.context, file, path, wanted, partition=partition, deleted=deleted):
                if self.is_cancelled():
                    raise CompactionCancelled
                yield batch

    def replace(self, files: Sequence[DataFileMeta], batches: Iterable[pa.RecordBatch], reason: str) -> CompactResult:
        """Write files of the target size that replace `files`.

        Their sequence numbers start at the smallest one of `files`.

        batches: with `row_fields`, in order
        """
        number = min(file.min_sequence_number for file in files)
        schema = replace(self.context.schema, fields=self.row_fields)
        context = replace(self.context, schema=schema) if self._is_tracked else self.context
        writer = BucketFiles(context, self.key).data(file_source=FileSource.COMPACT)
        try:
            for batch in batches:
                writer.write(batch, first_sequence_number=number)
                number += batch.num_rows
            return CompactResult(tuple(files), tuple(self._as_tracked(writer.close(), files)), reason=str(reason))
        except BaseException:
            writer.abort()
            raise

    def _as_tracked(self, new: Sequence[DataFileMeta], files: Sequence[DataFileMeta]) -> Iterator[DataFileMeta]:
        """Yield the new files with the sequence numbers of the replaced files, which are snapshot ids."""
        least = min(file.min_sequence_number for file in files)
        largest = max(file.max_sequence_number for file in files)
        names = tuple(field.name for field in self.row_fields)
        for file in new:
            tracked = replace(file, min_sequence_number=least, max_sequence_number=largest, write_columns=names)
            yield tracked if self._is_tracked else file
