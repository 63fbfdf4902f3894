"""Merging the files of sections into files of one level.

Rows stream: one batch of each run is open, whatever the size of the runs (`storage.merge.merge_reader`), and what is
merged goes to files that roll over at the target size.

Source: Java `mergetree/compact/MergeTreeCompactRewriter.java`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from compaction.record_expiry import RecordExpiry
from compaction.stopping import CompactionStopped, ShouldStop
from storage.files.data_file import DataFileMeta
from storage.format import LEVEL_COLUMN, FileSource
from storage.merge.merge_functions import MergeFunction
from storage.merge.merge_passes import fan_in_of, merge_in_passes
from storage.merge.merge_reader import MergeOrder
from storage.merge.section import BatchSize, batch_size, oldest_first, runs_to_spill
from storage.merge.sorted_run import Section, SortedRun
from storage.row_kinds import is_retract, row_kinds
from storage.schema import LEVEL_FIELD
from storage.table import TableContext
from storage.types import DataField, arrow_schema
from storage.write.bucket_files import BucketFiles


@dataclass(frozen=True, slots=True)
class Rewritten:
    """Files that are durable and nobody's yet. tombstones: deletes that were left out, on level 0."""

    files: Sequence[DataFileMeta]
    tombstones: Sequence[DataFileMeta]


@dataclass(frozen=True)
class Rewriter:
    """files: of the bucket. now_s: rows that have expired by then are left out. should_stop: asked between batches;
    when it says so, CompactionStopped is raised.

    spill_directory: None is the system's temporary directory. copies_single_runs: whether the rows of a section of one
    run stay as they are, as Java's reducer leaves a single row of a key; else they go through merge_function too.
    sets_deletes_aside: whether deletes that are left out are written too (`storage.snapshots.tombstones`).
    """

    context: TableContext
    files: BucketFiles
    merge_function: MergeFunction
    expiry: RecordExpiry | None
    now_s: int
    should_stop: ShouldStop
    spill_directory: str | None = None
    copies_single_runs: bool = True
    sets_deletes_aside: bool = False

    def rewrite(self, sections: Sequence[Section], output_level: int, *, drop_deletes: bool) -> Rewritten:
        """The new files, in key order; none when no row is left. sections: in key order.

        Rows keep their sequence numbers and kinds. After an exception nothing is left behind.
        """
        kept = self.files.data(output_level, FileSource.COMPACT)
        aside = self.files.data(0, FileSource.COMPACT) if drop_deletes and self.sets_deletes_aside else None
        try:
            for section in sections:
                with closing(self._merged(section)) as merged:
                    for batch in merged:
                        self._go_on()
                        rows, deletes = _split(batch) if drop_deletes else (batch, None)
                        if rows.num_rows:
                            kept.write(self.files.file_rows(rows))
                        if deletes is not None and aside is not None:
                            aside.write(self.files.file_rows(deletes))
            return Rewritten(kept.close(), aside.close() if aside is not None else [])
        except BaseException:
            kept.abort()
            if aside is not None:
                aside.abort()
            raise

    def _merged(self, section: Section) -> Generator[pa.RecordBatch]:
        runs, in_order = oldest_first(section)
        size = batch_size(runs)
        if len(runs) == 1 and self.copies_single_runs:
            yield from self._run(runs[0], size)
            return
        schema, options = self.context.schema, self.context.options
        order = MergeOrder.of(schema.trimmed_primary_keys, options, runs_in_order=in_order)
        yield from merge_in_passes(
            [self._run(run, size) for run in runs],
            arrow_schema(self._fields),
            order,
            self.merge_function,
            fan_in=fan_in_of(options),
            written_first=runs_to_spill(runs, len(self._fields)),
            spill_directory=self.spill_directory,
        )

    def _go_on(self) -> None:
        if self.should_stop():
            raise CompactionStopped

    @cached_property
    def _fields(self) -> list[DataField]:
        """What is read of each row."""
        needed = self.merge_function.columns_needed(self.context.schema.names)
        return [*self.files.row_fields, *([LEVEL_FIELD] if LEVEL_COLUMN in needed else ())]

    def _run(self, run: SortedRun, size: BatchSize) -> Iterator[pa.RecordBatch]:
        batches = self._until_stopped(run, size)
        return batches if self.expiry is None else self.expiry.without_expired(batches, self.now_s)

    def _until_stopped(self, run: SortedRun, size: BatchSize) -> Iterator[pa.RecordBatch]:
        for file in run:
            for batch in self.files.read(file, self._fields, batch_rows=size.rows, batch_bytes=size.bytes):
                self._go_on()
                yield batch


def _split(rows: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
    """Rows that a reader sees, and deletes, if there are any."""
    retract = is_retract(row_kinds(rows))
    if not retract.any():
        return rows, None
    return rows.filter(pa.array(~retract)), rows.filter(pa.array(retract))
