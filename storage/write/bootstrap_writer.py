"""Writes the first rows of a primary-key bucket as one sorted run on the highest level.

Rows that don't fit into memory are sorted and spilled to disk, as often as needed. The commit merges the spilled runs
into data files. So each row is encoded once, where flushes and compactions would encode it again for every level.

This is only right for a bucket that has no other rows: the result of the merge is final, its deletes are dropped, and
its rows are the changes. `TableCommit.commit_to_empty` checks it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelake.storage.base import env
from tidelake.storage.commit.commit_increment import CommitIncrement
from tidelake.storage.files.data_file import DataFileMeta
from tidelake.storage.merge.equal_keys import Groups
from tidelake.storage.merge.merge_functions import MergeFunction
from tidelake.storage.merge.merge_reader import Merge, MergeOrder, drop_retracts, merge_batch, merge_runs
from tidelake.storage.merge.multi_pass_merge import fan_in_of, keep_all
from tidelake.storage.merge.spill_file import ParkedRows, SpillFile
from tidelake.storage.model.format import KIND_COLUMN, SEQUENCE_COLUMN, RowKind
from tidelake.storage.model.options import ChangelogProducer
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types.row_kinds import is_retract, row_kinds
from tidelake.storage.write.bucket_files import BucketFiles
from tidelake.storage.write.bucket_writer import UncompactedBucket
from tidelake.storage.write.buffered_rows import BufferedRows
from tidelake.storage.write.compactor import LongCompaction
from tidelake.storage.write.write_buffer import in_pieces

_FAN_IN_MAX: Final = 64  # a merge holds a piece of each run in memory

Run = tuple[pa.RecordBatch, NDArray[np.bool_]]  # sorted rows, and whether each is the last one of its key


class BootstrapBucketWriter(UncompactedBucket):
    """Writes a primary-key bucket that is empty. Thread-safe.

    order: merge order of the table.
    spill_directory: None: the system's directory for temporary files.
    """

    def __init__(
        self,
        context: TableContext,
        files: BucketFiles,
        order: MergeOrder,
        merge_function: MergeFunction,
        next_sequence_number: int,
        spill_directory: str | None,
    ) -> None:
        options = context.options
        self._producer = options.changelog_producer
        self._level = options.num_levels - 1
        self._fan_in = min(_FAN_IN_MAX, fan_in_of(options))
        self._files = files
        self._order = replace(order, sequence_follows_run_order=True)  # runs are in order of arrival
        self._merge_function = merge_function
        # A changelog of the input has every row that arrived.
        self._merges_early = merge_function.merges_in_steps and self._producer is not ChangelogProducer.INPUT
        self._spill_directory = spill_directory
        self._schema: pa.Schema | None = None  # of the rows in memory and on disk
        self._passes: list[list[SpillFile]] = [[]]  # by the number of merges that made a run; newest runs first
        self._data: list[DataFileMeta] = []
        self._changelog: list[DataFileMeta] = []
        self.buffered = BufferedRows()
        self.next_sequence_number = next_sequence_number
        self._lock = env.Lock()

    def write(self, rows: pa.RecordBatch) -> None:
        with self._lock:
            numbers = pa.array(np.arange(self.next_sequence_number, self.next_sequence_number + rows.num_rows))
            self.next_sequence_number += rows.num_rows
            numbered = rows.append_column(pa.field(SEQUENCE_COLUMN, pa.int64(), nullable=False), numbers)
            self._schema = numbered.schema
            self.buffered.add(numbered)

    def flush(self) -> None:
        """Move the rows from memory to disk: data files are only written at the commit."""
        with self._lock:
            self._spill()

    def flush_memory(self) -> None:
        self.flush()

    def prepare_commit(self, *, wait_compaction: bool = False, full_compaction: bool = False) -> None:
        with self._lock:
            if self.buffered.batches or self._runs:
                self._write_files()

    @property
    def may_compact_long(self) -> bool:
        return False

    def begin_compaction(
        self, *, wait_compaction: bool = False, full_compaction: bool = False
    ) -> LongCompaction | None:
        return None

    def take_increment(self) -> CommitIncrement:
        with self._lock:
            increment = CommitIncrement(tuple(self._data), changelog_files=tuple(self._changelog))
            self._data, self._changelog = [], []
            return increment

    def set_next_sequence_number(self, next_sequence_number: int) -> None:
        raise AssertionError("a bootstrap is not committed after other rows")

    @property
    def is_idle(self) -> bool:
        return not self.buffered.batches and not self._runs and not self._data

    def uncommitted(self) -> Iterator[pa.RecordBatch]:
        raise AssertionError("rows of a bootstrap are not looked up")

    def abort(self) -> None:
        with self._lock:
            self._clear()
            self._files.delete([*self._data, *self._changelog])
            self._data, self._changelog = [], []

    def _clear(self) -> None:
        for run in self._runs:
            run.delete()
        self._passes = [[]]
        self.buffered.clear()

    # ------------------------------------------------------------ runs on disk

    @property
    def _runs(self) -> list[SpillFile]:
        """The runs on disk, oldest first: those of more passes have older rows."""
        return [run for runs in reversed(self._passes) for run in runs]

    def _spill(self) -> None:
        if not self.buffered.batches:
            return
        self._passes[0].append(self._spilled(self._buffered_runs()))
        self.buffered.clear()
        for number, runs in enumerate(self._passes):
            if len(runs) < self._fan_in:
                break
            if number + 1 == len(self._passes):
                self._passes.append([])
            with ParkedRows(self._spill_directory) as parked:
                merged = merge_runs([run.read() for run in runs], self._order, self._kept, parked_rows=parked)
                self._passes[number + 1].append(self._spilled(merged))
            self._passes[number] = []
            for run in runs:
                run.delete()

    def _spilled(self, runs: Iterator[Run]) -> SpillFile:
        pieces = (piece for rows, is_last in runs for piece in in_pieces(rows, is_last))
        return SpillFile(self._spill_directory, self._schema, pieces)

    def _buffered_runs(self) -> Iterator[Run]:
        """Yield the rows in memory, sorted, and merged as far as the merge engine can merge in steps."""
        if self.buffered.has_large_rows:
            single = [iter((batch.slice(row, 1),)) for batch in self.buffered.batches for row in range(batch.num_rows)]
            yield from merge_runs(single, self._order, self._kept)
        elif self.buffered.batches:
            yield merge_batch(self.buffered.concatenated(), self._order, self._kept)

    def _kept(self, rows: pa.RecordBatch, groups: Groups) -> Run:
        if self._merges_early:
            merged = self._merge_function.merge(rows, groups)
            return merged, np.ones(merged.num_rows, np.bool_)
        is_last = np.zeros(len(groups.rows), np.bool_)
        is_last[groups.ends - 1] = True
        return keep_all(rows, groups), is_last

    # ------------------------------------------------------------ files

    def _write_files(self) -> None:
        """Merge all rows into data files of the highest level, and the changelog. After an error no file is left."""
        data = self._files.data(self._level)
        changelog = self._files.changelog(self._level)
        try:
            for rows, changes in self._merged():
                if rows.num_rows:
                    data.write(self._files.file_rows(rows))
                if changes is not None and changes.num_rows:
                    changelog.write(self._files.file_rows(changes))
            new_files: Sequence[DataFileMeta] = data.close()
            self._changelog += changelog.close()
            self._data += new_files
        except BaseException:
            changelog.abort()
            data.abort()
            raise
        self._clear()

    def _merged(self) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch | None]]:
        """Yield the merged rows in key order, and their changes."""
        merge: Merge[tuple[pa.RecordBatch, pa.RecordBatch | None]] = self._merge
        if not self._runs and not self.buffered.has_large_rows:
            yield merge_batch(self.buffered.concatenated(), self._order, merge)
            return
        newest_wins = self._merge_function.newest_wins and self._producer is not ChangelogProducer.INPUT
        with ExitStack() as scratch:
            parked = scratch.enter_context(ParkedRows(self._spill_directory))
            runs = [run.read() for run in self._runs]
            in_memory = (piece for rows, is_last in self._buffered_runs() for piece in in_pieces(rows, is_last))
            yield from merge_runs([*runs, in_memory], self._order, merge, newest_wins=newest_wins, parked_rows=parked)

    def _merge(self, rows: pa.RecordBatch, groups: Groups) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
        merged = self._merge_function.merge(rows, groups)
        if is_retract(row_kinds(merged)).any():
            (merged,) = drop_retracts(iter((merged,)))
        match self._producer:
            case ChangelogProducer.NONE:
                return merged, None
            case ChangelogProducer.INPUT:
                return merged, rows.take(pa.array(self._in_arrival_order(rows, groups)))
            case _:
                return merged, _as_inserts(merged)

    def _in_arrival_order(self, rows: pa.RecordBatch, groups: Groups) -> NDArray[np.intp]:
        """Return the positions of the rows by key and arrival, (n,). Groups are ordered by `sequence.field` first."""
        if not self._order.sequence_fields:
            return groups.rows
        numbers = rows.column(SEQUENCE_COLUMN).to_numpy()[groups.rows]
        return groups.rows[np.lexsort((numbers, groups.numbers))]


def _as_inserts(rows: pa.RecordBatch) -> pa.RecordBatch:
    kinds = pa.array(np.full(rows.num_rows, RowKind.INSERT, np.int8))
    return rows.set_column(rows.schema.get_field_index(KIND_COLUMN), rows.schema.field(KIND_COLUMN), kinds)
