"""Merges the runs of one section, for a reader or a compaction.

Source: Java `mergetree/MergeTreeReaders.java` (`readerForSection`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeVar

import pyarrow as pa

from tidelake.storage.base.threads import ReadAhead
from tidelake.storage.fileio.requests import is_remote
from tidelake.storage.files.formats.file_format import LARGE_ROW_BYTES
from tidelake.storage.merge.merge_functions import MergeFunction
from tidelake.storage.merge.merge_reader import Merge, MergeOrder
from tidelake.storage.merge.multi_pass_merge import fan_in_of, multi_pass_merge
from tidelake.storage.merge.sections import (
    BatchSize,
    estimated_row_bytes,
    merge_batch_size,
    oldest_first,
    runs_to_spill,
)
from tidelake.storage.merge.sorted_run import Section, SortedRun
from tidelake.storage.model.schema.table_schema import KIND_FIELD, LEVEL_FIELD, SEQUENCE_FIELD
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import DataField, arrow_schema

_BYTES_AHEAD_MAX: Final = 64 << 20  # for the second batches of all runs

T = TypeVar("T")


@dataclass(frozen=True)
class SectionMerge:
    """The merge of one section.

    runs: the sorted runs, oldest first.
    order: the order of their rows. If the runs are in order, sequence numbers need not be read.
    """

    context: TableContext
    runs: Sequence[SortedRun]
    order: MergeOrder

    @classmethod
    def of(cls, context: TableContext, section: Section) -> SectionMerge:
        runs, sequence_follows_run_order = oldest_first(section)
        order = MergeOrder.of(
            context.schema.trimmed_primary_keys, context.options, sequence_follows_run_order=sequence_follows_run_order
        )
        return cls(context, runs, order)

    @cached_property
    def batch_size(self) -> BatchSize:
        """The size of the batches in which runs are read."""
        return merge_batch_size(self.runs)

    def fields_read(
        self, columns: Iterable[str], function: MergeFunction, *, kinds: bool, sequences: bool = False
    ) -> list[DataField]:
        """Return the fields to read from files: the columns, and the fields that the merge needs.

        kinds: whether row kinds are read.
        sequences: whether sequence numbers are read even if the merge doesn't need them.
        """
        schema, order = self.context.schema, self.order
        wanted = dict.fromkeys([*columns, *order.key_columns, *order.sequence_fields])
        names = dict.fromkeys([*wanted, *function.columns_needed(wanted)])
        fields = [LEVEL_FIELD if name == LEVEL_FIELD.name else schema.by_name[name] for name in names]
        fields += [] if order.sequence_follows_run_order and not sequences else [SEQUENCE_FIELD]
        return [*fields, KIND_FIELD] if kinds else fields

    def merge(
        self,
        read: Callable[[SortedRun], Iterator[pa.RecordBatch]],
        fields: Sequence[DataField],
        merge: Merge[T],
        *,
        newest_wins: bool = False,
        spill_directory: str | None = None,
    ) -> Generator[T]:
        """Yield the results of `merge` for rows of equal keys, in key order.

        read: reads the rows of a run with these fields, in batches of `batch_size`.
        newest_wins: see `merge_runs`.
        spill_directory: where runs are spilled; None means the system's temporary directory.
        """
        fan_in, spilled_first = fan_in_of(self.context.options), runs_to_spill(self.runs, len(fields))
        reads_ahead = not spilled_first and len(self.runs) <= fan_in and self._reads_ahead
        with ExitStack() as open_runs:
            rows = [read(run) for run in self.runs]
            if reads_ahead:
                rows = [open_runs.enter_context(ReadAhead(run)) for run in rows]
            yield from multi_pass_merge(
                rows,
                arrow_schema(fields),
                self.order,
                merge,
                fan_in=fan_in,
                newest_wins=newest_wins,
                spilled_first=spilled_first,
                spill_directory=spill_directory,
            )

    @property
    def _reads_ahead(self) -> bool:
        """Whether the next batch of each run is read while the merge works: its files are far away, and have room.

        A batch of large rows may exceed its size, and so a merge holds as few of them as possible.
        """
        if not is_remote(self.context.location):
            return False
        row_bytes = estimated_row_bytes(self.runs)
        rows_ahead = sum(min(self.batch_size.rows, sum(file.row_count for file in run)) for run in self.runs)
        return row_bytes < LARGE_ROW_BYTES and rows_ahead * row_bytes <= _BYTES_AHEAD_MAX
