"""The bootstraps of a pipeline: the initial snapshot of a source goes sorted to the highest level of an empty table.

A table that is empty waits for its first rows. If these are of a snapshot, its writer sorts rows on disk, and the table
is held back from checkpoints. Its bootstrap ends with one commit, before the first record that is anything else, or
when the snapshot pauses (for a shorter time after its last row, where records name it) or exceeds a bound. From
then on the table is written like all others.

             rows of a snapshot           anything else, a pause, a bound, the end of the run
    empty ─────────────────────► sorting ─────────────────────────────────────────────────────► one commit ──► merging
      │ any other row               │ crash: nothing is committed, so the log is read again
      └──────────────────────────────────────────────────────────────────────────────────────────────────────► merging

What ends a bootstrap only decides how much work it saves. It is exact if all of its rows are inserts into a table that
stays empty until its commit, which the commit checks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from tidelake.ingest.formats.base import DecodedBatch, DecodeFailure, FailureKind, TableRows
from tidelake.ingest.formats.format_capabilities import SnapshotMarks
from tidelake.ingest.formats.table_rows import slice_by_offset
from tidelake.ingest.monitoring.observations import RunObservations
from tidelake.ingest.pipeline.batch_writer import StagedRows
from tidelake.ingest.quarantine.failures import OwnerOf
from tidelake.ingest.raw_batch import RawBatch
from tidelake.ingest.settings import BootstrapSettings
from tidelake.ingest.tables.moved_rows import MovedRowsByTable
from tidelake.ingest.tables.table_errors import failures_of
from tidelake.ingest.tables.table_sink import TableSink
from tidelake.storage.base.logs import get_logger
from tidelake.storage.base.threads import run_uncancellable
from tidelake.storage.model.format import KIND_COLUMN, RowKind

_AFTER_LAST_MS: Final = 1_000
_BAD_RECORDS: Final = (FailureKind.BAD_RECORD,)  # become dead letters, which change no table

_log = get_logger(__name__)


@dataclass(slots=True)
class _Sorting:
    """A table whose rows are being sorted. Times are on the pipeline's clock."""

    settings: BootstrapSettings
    began_ms: int
    last_ms: int
    rows: int = 0
    nbytes: int = 0
    is_last_seen: bool = False

    def due_in_ms(self, now_ms: int) -> int:
        """Return the time until the bootstrap must end."""
        if self.nbytes >= self.settings.bytes_max:
            return 0
        # The last row of one partition says little about the others, which may be a little behind.
        idle_ms = min(self.settings.idle_ms, _AFTER_LAST_MS) if self.is_last_seen else self.settings.idle_ms
        end_ms = min(self.last_ms + idle_ms, self.began_ms + self.settings.duration_ms_max)
        return max(0, end_ms - now_ms)


class Bootstraps:
    """Decides when the bootstrap of a table begins and ends. Call it with writing excluded.

    sinks: the tables that exist, by name; it may change.
    settings_of: returns the settings of a table.
    marks: see `FormatCapabilities`.
    owner: returns the table of a record that can't be decoded.
    moved: the moved rows of the tables.
    """

    def __init__(
        self,
        sinks: Mapping[str, TableSink],
        settings_of: Callable[[str], BootstrapSettings],
        marks: SnapshotMarks,
        owner: OwnerOf,
        moved: MovedRowsByTable,
        observed: RunObservations,
    ) -> None:
        self._sinks = sinks
        self._settings_of = settings_of
        self._marks = marks
        self._owner = owner
        self._moved = moved
        self._observed = observed
        self._clock = observed.clock
        self._sorting: dict[str, _Sorting] = {}
        self._seen_last = set[str]()  # tables whose last row of the snapshot came

    async def before_write(self, raw: RawBatch, batch: DecodedBatch, start: int) -> bool:
        """Begin and end bootstraps, as the records from offset `start` on need it. Returns whether a checkpoint must
        commit bootstraps that ended before any of these records is written.

        Raises TableFailed if a table can't be read.
        """
        self._forget_closed()
        changing = self._changing_tables(raw, batch.failures, start) if self._sorting or self._waiting(batch) else ()
        ended = False
        for part in batch.tables:
            table = part.target.name
            sink = self._sinks.get(table)
            if sink is None or not (sink.may_bootstrap or sink.is_bootstrapping):
                continue
            rows = slice_by_offset(part, start, None)
            if not len(rows.offsets):
                continue
            takes = changing is not None and table not in changing and await self._are_of_snapshot(raw, rows)
            if sink.is_bootstrapping:
                if not takes:
                    ended |= self._end(table, "the source's stream of changes begins")
            elif takes and self._moved.of(table).is_idle:
                await self._begin(table, sink)
            else:
                sink.skip_bootstrap()
        for table in list(self._sorting):
            if changing is None or table in changing:
                ended |= self._end(table, "a record changes the table or its columns")
        return ended

    def written(self, tables: Sequence[StagedRows]) -> None:
        """Count the rows of a batch that was written."""
        for part in tables if self._sorting else ():
            if (sorting := self._sorting.get(part.table)) is not None and len(part.rows.rows):
                sorting.rows += len(part.rows.rows)
                sorting.nbytes += part.rows.rows.nbytes
                sorting.last_ms = self._clock.now_ms()
                sorting.is_last_seen = sorting.is_last_seen or part.table in self._seen_last
                self._observed.table(part.table).bootstrap_rows = sorting.rows

    def due_in_ms(self) -> int | None:
        """Return the time until a bootstrap must end; None if none is running."""
        now_ms = self._clock.now_ms()
        return min((sorting.due_in_ms(now_ms) for sorting in self._sorting.values()), default=None)

    def end_due(self) -> bool:
        """End the bootstraps that paused or exceed a bound. Returns whether a checkpoint must commit any."""
        self._forget_closed()
        now_ms = self._clock.now_ms()
        due = [table for table, sorting in self._sorting.items() if not sorting.due_in_ms(now_ms)]
        return self._end_tables(due, "the snapshot paused, or reached a bound of `bootstrap`")

    def end_all(self) -> bool:
        """End all bootstraps, as no more records are written. Returns whether a checkpoint must commit any."""
        self._forget_closed()
        return self._end_tables(list(self._sorting), "the run ends")

    def _forget_closed(self) -> None:
        """Forget tables whose bootstrap was committed, or which have failed."""
        for table in list(self._sorting):
            sink = self._sinks.get(table)
            if sink is None or not sink.is_bootstrapping:
                del self._sorting[table]
                self._observed.table(table).bootstrap_rows = None

    def _waiting(self, batch: DecodedBatch) -> bool:
        sinks = (self._sinks.get(part.target.name) for part in batch.tables)
        return any(sink is not None and sink.may_bootstrap for sink in sinks)

    def _changing_tables(
        self, raw: RawBatch, failures: Collection[DecodeFailure], start: int
    ) -> Collection[str] | None:
        """Return the tables that a record may change other than by rows. None: unknown, it may be any of them."""
        changing = [one for one in failures if one.kind not in _BAD_RECORDS and one.offset >= start]
        tables = {self._owner(one, raw) for one in changing}
        return None if None in tables else {table for table in tables if table is not None}

    async def _are_of_snapshot(self, raw: RawBatch, rows: TableRows) -> bool:
        if rows.unavailable is not None or rows.key_changes is not None:
            return False
        kinds = rows.rows.column(KIND_COLUMN).to_numpy()
        if (kinds != RowKind.INSERT).any():
            return False
        # A snapshot comes in one piece. To look at each record would cost a tenth of what the bootstrap saves.
        ends = raw.values.take(pa.array(np.searchsorted(raw.offsets, rows.offsets[[0, -1]])))

        def look() -> tuple[bool, bool]:  # may ask for a schema
            return self._marks.are_rows(ends), self._marks.is_last(ends[-1].as_py())

        are_of_snapshot, is_last = await run_uncancellable(look)
        if is_last:
            self._seen_last.add(rows.target.name)
        return are_of_snapshot

    async def _begin(self, table: str, sink: TableSink) -> None:
        with failures_of(table):
            has_begun = await run_uncancellable(sink.begin_bootstrap)
        if not has_begun:
            return
        now_ms = self._clock.now_ms()
        self._sorting[table] = _Sorting(self._settings_of(table), now_ms, now_ms)
        self._observed.table(table).bootstrap_rows = 0
        _log.info("bootstrap begins", table=table, effect="readers see the snapshot's rows when it is complete")

    def _end_tables(self, tables: Sequence[str], reason: str) -> bool:
        for table in tables:
            self._end(table, reason)
        return bool(tables)

    def _end(self, table: str, reason: str) -> bool:
        """End a bootstrap. Returns True: a checkpoint must commit it."""
        sorting, sink = self._sorting[table], self._sinks[table]
        if not sink.is_held_back:
            return True
        sink.end_bootstrap()
        took_ms = self._clock.now_ms() - sorting.began_ms
        _log.info("bootstrap ends", table=table, reason=reason, rows=sorting.rows, after_ms=took_ms)
        return True
