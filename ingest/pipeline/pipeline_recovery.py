"""Recovers where a pipeline continues in each table: at its position, checked against the source, or as an operator
decided.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

from tidelake.checkpoint.epoch import Epoch, epoch_of
from tidelake.checkpoint.idle_progress import IdleProgress
from tidelake.checkpoint.moved_rows_state import MovedRowsState, moved_rows_of
from tidelake.checkpoint.offsets import RecoveryDecision, SourcePosition, TopicPartition, identity_changes
from tidelake.checkpoint.other_users import overlaps_with_other_users
from tidelake.checkpoint.position_problems import POSITION_LOST, PositionProblem, SourceState, compare_with_source
from tidelake.checkpoint.recovery import RecoveredTable, position_of, recover_table, resume_offsets
from tidelake.checkpoint.recovery_options import (
    RefusedTable,
    decided_position,
    offsets_past_gap,
    position_refused,
    rewound_offsets,
)
from tidelake.checkpoint.routing import Routing
from tidelake.checkpoint.table_state import MISSING_TABLE, TableState
from tidelake.errors import BadInput, CorruptFile, PositionRefused, TableUnusable
from tidelake.ingest.pipeline.progress_tracker import ProgressFile
from tidelake.ingest.pipeline.recovery_flags import RecoveryFlags
from tidelake.ingest.quarantine.own_position import JoinedLog, join_log
from tidelake.ingest.quarantine.quarantine import Quarantine
from tidelake.ingest.quarantine.record_log import RecordLog
from tidelake.ingest.sources.source import AtOffsets, Earliest, Source, Start
from tidelake.ingest.tables.table_errors import opened_at_start
from tidelake.ingest.tables.table_lineage import SourceLineage
from tidelake.ingest.tables.table_router import TableRouter
from tidelake.ingest.tables.table_sink import TableSink
from tidelake.storage.base.threads import IO_THREADS_MAX, map_uncancellable

_TABLES_AT_ONCE: Final = IO_THREADS_MAX
_LOOKS_MAX: Final = 3  # until a refusal counts although other processes commit


@dataclass(frozen=True, slots=True)
class RecoveredPipeline:
    """Where a run continues.

    positions: the position of each table.
    starts: the next offset of each existing partition.
    fresh: tables that this pipeline never committed to.
    chosen: tables with partitions that begin at `start`, unless `start` is the oldest record.
    last_identifier: the largest identifier of the pipeline.
    last_epoch: the largest epoch of the pipeline.
    progress: the contents of the progress file.
    moved_rows: the moved rows of each table.
    moved_row_files: for each table, the files of moved rows that its snapshots name.
    kept: the logs of kept records, for tables that an earlier process left in quarantine and that continue with them.
    lineage: the lineage of each table with a snapshot of the pipeline.
    unreadable: tables with unknown positions and their errors. The other fields leave them out.
    owners: the epoch of each table's newest snapshot of the pipeline.
    """

    positions: Mapping[str, SourcePosition]
    starts: Mapping[TopicPartition, int]
    fresh: Sequence[str]
    chosen: Sequence[str]
    last_identifier: int
    last_epoch: int
    progress: IdleProgress
    moved_rows: Mapping[str, MovedRowsState]
    moved_row_files: Mapping[str, frozenset[str]]
    kept: Mapping[str, RecordLog] = field(default_factory=dict)
    lineage: Mapping[str, SourceLineage] = field(default_factory=dict)
    unreadable: Mapping[str, Exception] = field(default_factory=dict)
    owners: Mapping[str, Epoch] = field(default_factory=dict)


class PipelineRecovery:
    """Finds where a starting pipeline continues.

    start: where tables that are new to the pipeline start
    routings: the configured routing of each table; absent tables are not compared
    progress: the progress file; None if it is not used
    command: the command that runs the pipeline, for messages
    quarantine: keeps records of failed tables, and takes unreadable ones. None: an unreadable table ends the start
    """

    def __init__(
        self,
        source: Source,
        router: TableRouter,
        sinks: Mapping[str, TableSink],
        start: Start,
        routings: Mapping[str, Routing],
        progress: ProgressFile | None,
        command: str,
        quarantine: Quarantine | None = None,
    ) -> None:
        self._quarantine = quarantine
        self._unreadable: dict[str, Exception] = {}
        self._logs: Mapping[str, RecordLog] = {}
        self._joined: dict[str, JoinedLog] = {}
        self._seen: dict[str, TableState] = {}  # when the tables were last looked at
        self._source = source
        self._router = router
        self._sinks = sinks
        self._start = start
        self._routings = routings
        self._progress = progress
        self._flags = RecoveryFlags()
        self._command = command
        self._source_partitions: frozenset[TopicPartition] | None = None

    async def finish_rewrites(self, left_out: Collection[str] = ()) -> None:
        """Finish rewrites of tables that an earlier process began. Tables that can't be read are left as they are.

        left_out: tables that this process writes.
        """

        def finish(table: str) -> None:
            if (sink := self._sinks.get(table)) is not None:
                with suppress(CorruptFile, OSError):  # the recovery reports them
                    sink.finish_rewrite()

        await map_uncancellable(finish, [name for name in self._sinks if name not in left_out], _TABLES_AT_ONCE)

    async def recover(self, flags: RecoveryFlags) -> RecoveredPipeline:
        """Recover from the current state of the tables and the source. Writes nothing. May be called again.

        flags: an operator's decisions.

        Raises PositionRefused with the recovery options, and BadInput for a flag of a table that is not refused.
        """
        self._flags = flags
        for _ in range(_LOOKS_MAX - 1):
            were_listed_before = self._source_partitions is not None
            try:
                return await self._recover()
            except PositionRefused:
                # Another process may commit, and retention delete what that has read, while this one looks.
                seen = self._seen
                now = await self._table_states()
                is_same = all(
                    table in now and _facts_of_position(now[table]) == _facts_of_position(seen[table]) for table in seen
                )
                if is_same and not were_listed_before:
                    raise
                await self._close_source()  # what the other process has read may be in new partitions
        return await self._recover()

    async def _recover(self) -> RecoveredPipeline:
        progress = IdleProgress() if self._progress is None else await asyncio.to_thread(self._progress.read)
        self._logs, self._joined, self._unreadable = {}, {}, {}
        if self._quarantine is not None:
            self._logs = await asyncio.to_thread(self._quarantine.open_logs, self._router.tables)
            self._unreadable = dict(self._quarantine.tables.unreadable)
        table_states = await self._table_states()
        self._seen = dict(table_states)
        recovered_tables = dict[str, RecoveredTable]()
        for table, seen in list(table_states.items()):
            try:
                with opened_at_start(table, is_only=len(table_states) == 1):
                    recovered_tables[table] = recover_table(table, seen, progress, self._routings.get(table))
            except TableUnusable as error:
                self._leave_out(table, error)
                del table_states[table]
        if self._unreadable and not recovered_tables:
            raise next(iter(self._unreadable.values()))
        if self._source_partitions is None:
            known = resume_offsets(
                s.position for s in recovered_tables.values()
            ).keys() | self._partitions_of_other_users(table_states)
            self._source_partitions = await self._source.open(known)
        source = SourceState(
            self._source.identity, self._source_partitions, await self._source.bounds(self._source_partitions)
        )
        proven: dict[str, SourcePosition] = {}
        refused: list[RefusedTable] = []
        for table, recovered in recovered_tables.items():
            position, problems = await self._position(table, recovered, table_states[table], source)
            if problems:
                refused.append(RefusedTable(table, recovered, problems, table_states[table], self._routed(table)))
            proven[table] = position
        if refused:
            raise position_refused(refused, source, self._command)
        positions, chosen = await self._with_new_partitions(proven)
        moved = {
            table: self._moved_rows(table, table_states[table], recovered_tables[table], at, source)
            for table, at in positions.items()
        }
        read_from = {**positions, **{table: joined.read_from for table, joined in self._joined.items()}}
        starts = {p: at for p, at in resume_offsets(read_from.values()).items() if p in self._source_partitions}
        unread = {p for p in self._source_partitions - starts.keys() if self._router.templates.take_topic(p.topic)}
        if unread:  # topics of an entry that stands for many tables and has none of them yet
            starts |= await self._source.offsets(unread, self._start)
        return RecoveredPipeline(
            positions,
            starts,
            fresh=[table for table, recovered in recovered_tables.items() if recovered.is_fresh],
            chosen=chosen,
            last_identifier=max((s.identifier for s in recovered_tables.values()), default=0),
            last_epoch=max((s.epoch for s in recovered_tables.values()), default=0),
            progress=progress,
            moved_rows=moved,
            moved_row_files={table: _moved_row_files(seen) for table, seen in table_states.items()},
            kept={table: self._logs[table] for table in self._joined},
            unreadable=self._unreadable,
            owners={
                table: epoch_of(seen.own[0].properties, seen.own[0].path)
                for table, seen in table_states.items()
                if seen.own
            },
            lineage={
                table: _lineage(seen) for table, seen in table_states.items() if seen.own or seen.newest_of_others
            },
        )

    async def recover_next_start(self) -> RecoveredPipeline:
        """Return what the next start would recover. Raises its refusal.

        The source is opened again, because only then it reports deleted topics, and topics that replaced them.
        """
        await self._close_source()
        return await self.recover(RecoveryFlags())

    async def _close_source(self) -> None:
        await self._source.close()
        self._source_partitions = None

    async def _table_states(self) -> dict[str, TableState]:
        def of(table: str) -> TableState | None:
            sink = self._sinks.get(table)
            try:
                with opened_at_start(table, is_only=len(self._router.tables) == 1):
                    return MISSING_TABLE if sink is None else sink.read_state()
            except TableUnusable as error:
                self._leave_out(table, error)
                return None

        tables = [table for table in self._router.tables if table not in self._unreadable]
        states = zip(tables, await map_uncancellable(of, tables, _TABLES_AT_ONCE), strict=True)
        return {table: state for table, state in states if state is not None}

    def _leave_out(self, table: str, error: TableUnusable) -> None:
        """Leave the table out. Raises the error without a quarantine, or if an operator decided about its position."""
        if self._quarantine is None or table in self._flags.tables:
            raise error
        self._unreadable[table] = self._quarantine.tables.unreadable[table] = error

    def _partitions_of_other_users(self, table_states: Mapping[str, TableState]) -> set[TopicPartition]:
        """Return the partitions that other commit users have read into our tables."""
        return {
            partition
            for table, seen in table_states.items()
            for snapshot in seen.newest_of_others
            if (position := position_of(snapshot)) is not None
            for partition in position.ranges
            if table in self._router.tables_of(partition.topic)
        }

    def _routed(self, table: str) -> frozenset[TopicPartition]:
        return frozenset(p for p in self._source_partitions or () if table in self._router.tables_of(p.topic))

    # ------------------------------------------------------------ one table

    async def _position(
        self, table: str, recovered: RecoveredTable, table_state: TableState, source: SourceState
    ) -> tuple[SourcePosition, Sequence[PositionProblem]]:
        """Return the position where the table continues, and the problems of that position."""
        problems = list(recovered.problems)
        if not problems and table in self._logs and table not in self._flags.tables:
            newest = table_state.own[0] if table_state.own else None
            joined = join_log(self._logs[table], recovered.position, newest)
            if joined is not None:
                self._joined[table] = joined
                return joined.position, compare_with_source(table, joined.read_from, source)
        if not {problem.kind for problem in problems} & POSITION_LOST:
            problems += compare_with_source(table, recovered.position, source)
        if recovered.is_fresh and problems:
            # The table has no rows of this pipeline, so it is read from `start`.
            recovered, problems = replace(recovered, position=SourcePosition()), []
        position = recovered.position
        taken = self._routed(table) | position.ranges.keys()
        problems += overlaps_with_other_users(
            table, position.ends, table_state.newest_of_others, taken, source.identity
        )
        if table in self._flags.tables:
            position = await self._position_by_flags(table, recovered, problems, table_state, source)
            return position, compare_with_source(table, position, source)
        return position.with_identity(source.identity), problems

    async def _position_by_flags(
        self,
        table: str,
        recovered: RecoveredTable,
        problems: Sequence[PositionProblem],
        table_state: TableState,
        source: SourceState,
    ) -> SourcePosition:
        flags = self._flags
        flag = flags.texts[table]
        accepted = RecoveryDecision(flag, tuple(dict.fromkeys(problem.kind.value for problem in problems)))
        if table_state.created_ms is None:
            raise BadInput(
                f"{flag}: table {table} does not exist yet; reading begins as set in `start`. Leave the option out"
            )
        if table in flags.snapshots:
            whose, ends = await self._of_snapshot(table, flags.snapshots[table], flag)
            if whose in {other.commit_user for other in table_state.newest_of_others}:
                ends = {
                    **rewound_offsets(recovered, problems, {}),
                    **ends,
                }  # their snapshot lacks partitions that only this pipeline has read
            return decided_position(recovered, ends, source, accepted)
        if table in flags.rewinds:
            starts = await self._starts(table, flags.rewinds[table], flag)
            _check_is_rewind(flag, starts, rewound_offsets(recovered, problems, {}))
            return decided_position(recovered, rewound_offsets(recovered, problems, starts), source, accepted)
        if not problems:
            raise BadInput(
                f"{flag}: the position of {table} is proven, so no gap must be accepted. Leave the option out"
            )
        offsets = offsets_past_gap(recovered, problems, source, self._routed(table))
        if offsets is None:
            raise BadInput(f"{flag}: the source doesn't report where it ends. Use --rewind-to {table}=earliest")
        return decided_position(recovered, offsets, source, accepted)

    async def _of_snapshot(self, table: str, snapshot_id: int, flag: str) -> tuple[str, Mapping[TopicPartition, int]]:
        """Return the snapshot's commit user, and the ends of its position."""
        snapshot = await asyncio.to_thread(self._sinks[table].history.snapshot, snapshot_id)
        position = None if snapshot is None else position_of(snapshot)
        if snapshot is None or position is None:
            reason = "the snapshot does not exist" if snapshot is None else "the snapshot has no source position"
            raise BadInput(f"{flag}: {reason}. `tidelake table snapshots {table}` lists the existing snapshots")
        return snapshot.commit_user, position.ends

    async def _starts(self, table: str, start: Start, flag: str) -> Mapping[TopicPartition, int]:
        partitions = self._routed(table)
        if not isinstance(start, AtOffsets):
            return await self._source.offsets(partitions, start)
        if unknown := sorted(start.offsets.keys() - partitions):
            raise BadInput(f"{flag}: {unknown[0]} holds no records for {table}")
        return start.offsets

    def _moved_rows(
        self,
        table: str,
        table_state: TableState,
        recovered: RecoveredTable,
        position: SourcePosition,
        source: SourceState,
    ) -> MovedRowsState:
        """Return the moved rows of the newest own snapshot, for a table that continues at `position`.

        After a rewind, records are read again although the table has later ones. `read_again` records this.
        """
        if not table_state.own:
            return MovedRowsState()
        state = moved_rows_of(table_state.own[0].properties, table_state.own[0].path)
        flags = self._flags
        if table not in self._flags.tables or not (table in flags.rewinds or table in flags.snapshots):
            return state
        before, ends = recovered.position, position.ends
        previous_ends = before.ends
        if {problem.kind for problem in recovered.problems} & POSITION_LOST and not previous_ends:
            previous_ends = (
                recovered.lost.ends if recovered.lost is not None else {p: at.end for p, at in source.bounds.items()}
            )
        elif identity_changes(before.identity, source.identity):
            return state  # the new source has other records, so none is read again
        read_again = {
            p: max(end, state.read_again.get(p, 0)) for p, end in previous_ends.items() if p in ends and ends[p] < end
        }
        return replace(state, read_again={**state.read_again, **read_again})

    # ------------------------------------------------------------ new partitions

    async def _with_new_partitions(
        self, proven: Mapping[str, SourcePosition]
    ) -> tuple[dict[str, SourcePosition], list[str]]:
        """Return the position of each table with its new partitions, and the tables with partitions that begin at
        `start`.

        A new partition of a known topic is read from its oldest record. A topic that is new to the table is read from
        `start`.
        """
        grown: dict[str, set[TopicPartition]] = {}
        begun: dict[str, set[TopicPartition]] = {}
        for table, position in proven.items():
            topics = {partition.topic for partition in position.ranges}
            new = set(self._routed(table) - position.ranges.keys())
            grown[table] = {partition for partition in new if partition.topic in topics}
            begun[table] = new - grown[table]
        oldest = await self._offsets_of_all(grown, Earliest())
        first = await self._offsets_of_all(begun, self._start)
        positions = {
            table: position.with_partitions(
                {p: oldest[p] for p in grown[table]} | {p: first[p] for p in begun[table]}
            ).with_identity(self._source.identity)
            for table, position in proven.items()
        }
        return positions, [table for table in proven if begun[table] and self._start != Earliest()]

    async def _offsets_of_all(
        self, partitions: Mapping[str, set[TopicPartition]], start: Start
    ) -> Mapping[TopicPartition, int]:
        """Return the offsets of all tables' partitions, with one request to the source."""
        wanted: set[TopicPartition] = set().union(*partitions.values())
        return await self._source.offsets(wanted, start) if wanted else {}


def _lineage(table_state: TableState) -> SourceLineage:
    """Return the lineage of the rows that this pipeline and others have written."""
    newest = sorted([*table_state.own[:1], *table_state.newest_of_others], key=lambda one: one.id)
    return SourceLineage.joined(one.properties for one in newest)


def _facts_of_position(seen: TableState) -> tuple[object, ...]:
    """Return what a refusal of the table's position depends on."""
    return seen.created_ms, seen.own[:1], seen.newest_of_others, seen.consumer_snapshot_id


def _moved_row_files(table_state: TableState) -> frozenset[str]:
    files = (moved_rows_of(snapshot.properties, snapshot.path).file for snapshot in table_state.own)
    return frozenset(file for file in files if file is not None)


def _check_is_rewind(flag: str, starts: Mapping[TopicPartition, int], proven: Mapping[TopicPartition, int]) -> None:
    """Raise BadInput for a rewind to a later offset: the records in between would be lost without a trace."""
    for partition, at in sorted(starts.items()):
        if partition in proven and at > proven[partition]:
            raise BadInput(
                f"{flag}: {partition} was read up to {proven[partition]}, but {at} is above: the records in between "
                f"would be in no table. Rewind to {proven[partition]} or below"
            )
