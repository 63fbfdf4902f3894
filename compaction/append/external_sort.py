"""Sorts more rows than fit into memory: sorted pieces are written to disk, and are merged.

Memory: one piece that is being sorted (about three times its size while its columns are moved), or one batch of each
piece that is being merged. If there are more pieces than the fan-in, they are merged in several passes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from typing import Final

import pyarrow as pa

from tidelake.storage.merge.merge_reader import MergeOrder, merge_batch, merge_runs
from tidelake.storage.merge.multi_pass_merge import keep_all
from tidelake.storage.merge.spill_file import SpillFile

PIECE_BYTES: Final = 64 * 1024 * 1024
_FAN_IN: Final = 64
_BATCH_ROWS_MIN: Final = 64


@dataclass(frozen=True, slots=True)
class ExternalSort:
    """Sorts rows in bounded memory.

    by: the columns to sort by, most significant first; ordered like keys, nulls first
    piece_bytes: how much is sorted in memory at a time
    directory: for pieces on disk; None is the system's temporary directory
    """

    by: tuple[str, ...]
    piece_bytes: int = PIECE_BYTES
    directory: str | None = None
    fan_in: int = _FAN_IN

    def sorted(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows in order. Files on disk are deleted when the iterator ends or is closed.

        batches: all of one schema.

        Raises UnsupportedFeature for columns without an order, OSError for a full disk.
        """
        with ExitStack() as scratch:
            pieces = self._pieces(batches)
            first = next(pieces, None)
            second = next(pieces, None)
            if first is None or second is None:
                yield from [] if first is None else [first]
                return
            schema = first.schema
            spills = [self._spill(scratch, schema, [piece]) for piece in chain((first, second), pieces)]
            del first, second
            while len(spills) > self.fan_in:
                group, spills = spills[: self.fan_in], spills[self.fan_in :]
                spills.append(self._spill(scratch, schema, self._merged(group)))
                for spill in group:
                    spill.delete()
            yield from self._merged(spills)

    def _pieces(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield sorted pieces, each as large as memory allows."""
        pending: list[pa.RecordBatch] = []
        pending_bytes = 0
        for batch in batches:
            pending.append(batch)
            pending_bytes += batch.nbytes
            if pending_bytes >= self.piece_bytes:
                yield self._sort_pending(pending)
                pending_bytes = 0
        if pending:
            yield self._sort_pending(pending)

    def _sort_pending(self, pending: list[pa.RecordBatch]) -> pa.RecordBatch:
        """Sort all pending rows.

        It empties `pending`, so that its batches are freed before the rows are copied again.
        """
        rows = pa.concat_batches(pending)
        pending.clear()
        return merge_batch(rows, self._order, keep_all)

    @property
    def _order(self) -> MergeOrder:
        return MergeOrder(self.by, sequence_follows_run_order=True)

    def _spill(self, scratch: ExitStack, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> SpillFile:
        spill = SpillFile(self.directory, schema, chain.from_iterable(map(self._small, batches)))
        scratch.callback(spill.delete)
        return spill

    def _small(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Split rows into batches so small that one batch of each merged piece can be open at once."""
        row_bytes = max(1, rows.nbytes // max(1, rows.num_rows))
        count = max(_BATCH_ROWS_MIN, self.piece_bytes // self.fan_in // row_bytes)
        return (rows.slice(start, count) for start in range(0, rows.num_rows, count))

    def _merged(self, spills: list[SpillFile]) -> Iterator[pa.RecordBatch]:
        return merge_runs([spill.read() for spill in spills], self._order, keep_all)
