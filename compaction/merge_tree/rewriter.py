"""Merges the files of sections into files of one level.

Rows are streamed: one batch of each run is open, whatever the size of the runs (`tidelake.storage.merge.merge_reader`).
Merged rows are written to files that roll over at the target size.

Source: Java `mergetree/compact/MergeTreeCompactRewriter.java`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

import pyarrow as pa

from tidelake.compaction.cancellation import CompactionCancelled, IsCancelled
from tidelake.compaction.merge_tree.changelog_merge import CompactionMerge, Merged
from tidelake.compaction.merge_tree.record_level_expire import RecordLevelExpire
from tidelake.storage.files.data_file import DataFileMeta
from tidelake.storage.files.writer import RollingFileWriter
from tidelake.storage.merge.section_merge import SectionMerge
from tidelake.storage.merge.sections import BatchSize, rewrite_batch_size
from tidelake.storage.merge.sorted_run import Section, SortedRun
from tidelake.storage.model.deletion_vectors.vector_file import DeletionFile
from tidelake.storage.model.format import FileSource
from tidelake.storage.model.schema.table_schema import LEVEL_FIELD
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import DataField
from tidelake.storage.model.types.row_kinds import is_retract, row_kinds
from tidelake.storage.write.bucket_files import BucketFiles

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RewriteResult:
    """Durable files that are not in a snapshot yet.

    tombstones: files of level 0 with the dropped deletes
    changelog: files with the changes
    """

    files: Sequence[DataFileMeta] = ()
    tombstones: Sequence[DataFileMeta] = ()
    changelog: Sequence[DataFileMeta] = ()

    @property
    def all_files(self) -> list[DataFileMeta]:
        return [*self.files, *self.tombstones, *self.changelog]


@dataclass(frozen=True)
class MergeTreeRewriter:
    """Rewrites the files of one bucket.

    files: reads and writes the files of the bucket
    now_s: rows that have expired by then are left out
    is_cancelled: polled between batches; if true, CompactionCancelled is raised
    merge: merges rows of equal keys, and produces changes
    spill_directory: None is the system's temporary directory
    keeps_dropped_deletes: whether dropped deletes are written, too (`tidelake.storage.commit.commit_changes`)
    deletion_files: by data file, the deletion vector whose rows are left out
    """

    context: TableContext
    files: BucketFiles
    merge: CompactionMerge
    expiry: RecordLevelExpire | None
    now_s: int
    is_cancelled: IsCancelled
    spill_directory: str | None = None
    keeps_dropped_deletes: bool = False
    deletion_files: Mapping[str, DeletionFile] = field(default_factory=dict)

    def rewrite(self, sections: Sequence[Section], output_level: int, *, drop_deletes: bool) -> RewriteResult:
        """Return the new files, in key order; none if no row is left.

        sections: in key order

        Rows keep their sequence numbers and kinds. After an exception no file is left.
        """
        kept = self.files.data(output_level, FileSource.COMPACT)
        dropped_deletes = self.files.data(0, FileSource.COMPACT)
        changelog = self.files.changelog(output_level)
        with _aborted_on_error(kept, dropped_deletes, changelog):
            for merged in self._merged(sections):
                rows, deletes = _split(merged.rows) if drop_deletes else (merged.rows, None)
                self._write(kept, rows)
                if self.keeps_dropped_deletes:
                    self._write(dropped_deletes, deletes)
                self._write(changelog, merged.changes)
                del merged, rows, deletes  # rows may be large: freed before others are read
            return RewriteResult(kept.close(), dropped_deletes.close(), changelog.close())

    def read_changes(self, sections: Sequence[Section], output_level: int) -> RewriteResult:
        """Return only the changelog, of files whose rows are not rewritten."""
        changelog = self.files.changelog(output_level)
        with _aborted_on_error(changelog):
            for merged in self._merged(sections):
                self._write(changelog, merged.changes)
                del merged
            return RewriteResult(changelog=changelog.close())

    def _write(self, output: RollingFileWriter, rows: pa.RecordBatch | None) -> None:
        if rows is not None and rows.num_rows:
            output.write(self.files.file_rows(rows))

    def _merged(self, sections: Sequence[Section]) -> Generator[Merged]:
        for section in sections:
            with closing(self._merged_section(section)) as merged:
                yield from map(self._unless_cancelled, merged)  # holds no reference to the batches

    def _merged_section(self, section: Section) -> Generator[Merged]:
        merging = SectionMerge.of(self.context, section)
        size = rewrite_batch_size(merging.runs)
        if len(section) == 1:  # each key has one row
            yield from map(self.merge.of_single_run, self._read_run(section[0], size))
            return
        yield from merging.merge(
            lambda run: self._read_run(run, size),
            self._fields,
            self.merge,
            newest_wins=self.merge.newest_wins,
            spill_directory=self.spill_directory,
        )

    def _check_cancelled(self) -> None:
        if self.is_cancelled():
            raise CompactionCancelled

    @cached_property
    def _fields(self) -> list[DataField]:
        """Return the fields that are read of each row."""
        return [*self.files.row_fields, *([LEVEL_FIELD] if self.merge.needs_levels else ())]

    def _read_run(self, run: SortedRun, size: BatchSize) -> Iterator[pa.RecordBatch]:
        batches = self._read_until_cancelled(run, size)
        return batches if self.expiry is None else self.expiry.filter_expired(batches, self.now_s)

    def _read_until_cancelled(self, run: SortedRun, size: BatchSize) -> Iterator[pa.RecordBatch]:
        for file in run:
            rows = self.files.read(
                file,
                self._fields,
                batch_rows=size.rows,
                batch_bytes=size.bytes,
                deletion=self.deletion_files.get(file.file_name),
            )
            yield from map(self._unless_cancelled, rows)

    def _unless_cancelled(self, rows: T) -> T:
        self._check_cancelled()
        return rows


@contextmanager
def _aborted_on_error(*outputs: RollingFileWriter) -> Iterator[None]:
    try:
        yield
    except BaseException:
        for output in outputs:
            output.abort()
        raise


def _split(rows: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
    """Return the rows that a reader sees, and the deletes, or None without deletes."""
    retract = is_retract(row_kinds(rows))
    if not retract.any():
        return rows, None
    return rows.filter(pa.array(~retract)), rows.filter(pa.array(retract))
