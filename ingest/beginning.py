"""Where a run begins: what the tables prove, compared with the source, or what a person decided instead."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from checkpoint.drivers import read_by_others
from checkpoint.evidence import NO_TABLE, Evidence
from checkpoint.findings import LOSES_POSITION, Finding, SourceView, against_source
from checkpoint.moved_rows_state import MovedRowsState, moved_rows_of
from checkpoint.offsets import Accepted, SourcePosition, TopicPartition, identity_changes
from checkpoint.progress import Progress
from checkpoint.recovery import Standing, position_of, read_from, stand
from checkpoint.routing import Routing
from checkpoint.ways_out import Refused, decided, gap_accepted, refusal, rewound
from ingest.progress_file import ProgressFile
from ingest.router import Router
from ingest.sources.base import AtOffsets, Earliest, Source, Start
from ingest.table_writer import TableSink
from ingest.threads import each_to_its_end
from ingest.ways_out import WaysOut
from storage.errors import BadInput

_TABLES_AT_ONCE: Final = 32


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where a run begins.

    positions: how far each table is. starts: the next offset of each partition there is. fresh: tables that this
    pipeline never committed to. chosen: those of them for which `start` chose a place that is another one tomorrow.
    last_identifier, last_epoch: the largest of the pipeline. progress: what the progress file said. moved_rows: by
    table, what is on its way to another key. moved_row_files: by table, the files that its snapshots name for that.
    """

    positions: Mapping[str, SourcePosition]
    starts: Mapping[TopicPartition, int]
    fresh: Sequence[str]
    chosen: Sequence[str]
    last_identifier: int
    last_epoch: int
    progress: Progress
    moved_rows: Mapping[str, MovedRowsState]
    moved_row_files: Mapping[str, frozenset[str]]


class BeginningFinder:
    """routings: what the configuration says of each table; tables that are absent are not compared.

    start: for tables that the pipeline is new to. command: runs the pipeline, for messages.
    """

    def __init__(
        self,
        source: Source,
        router: Router,
        sinks: Mapping[str, TableSink],
        start: Start,
        routings: Mapping[str, Routing],
        progress: ProgressFile | None,
        ways_out: WaysOut,
        command: str,
    ) -> None:
        self._source = source
        self._router = router
        self._sinks = sinks
        self._start = start
        self._routings = routings
        self._progress = progress
        self._ways_out = ways_out
        self._command = command
        self._open_ways = set(ways_out.tables)
        self._there: frozenset[TopicPartition] | None = None

    async def find(self) -> Beginning:
        """Look at the tables as they are now, and at the source. Writes nothing; may be called again.

        Raises PositionRefused with the ways out, and BadInput for a way out of what is no trouble.
        """
        progress = Progress() if self._progress is None else await asyncio.to_thread(self._progress.read)
        evidence = await self._evidence()
        standings = {table: stand(table, seen, progress, self._routings.get(table)) for table, seen in evidence.items()}
        if self._there is None:
            known = read_from(s.position for s in standings.values()).keys() | self._read_by_others(evidence)
            self._there = await self._source.open(known)
        source = SourceView(self._source.identity, self._there, await self._source.bounds(self._there))
        proven: dict[str, SourcePosition] = {}
        refused: list[Refused] = []
        for table, standing in standings.items():
            position, findings = await self._position(table, standing, evidence[table], source)
            if findings:
                refused.append(Refused(table, standing, findings, evidence[table], self._routed(table)))
            proven[table] = position
        if refused:
            raise refusal(refused, source, self._command)
        positions, chosen = await self._with_new_partitions(proven)
        moved = {
            table: self._moved_rows(table, evidence[table], standings[table], at, source)
            for table, at in positions.items()
        }
        starts = {p: at for p, at in read_from(positions.values()).items() if p in self._there}
        return Beginning(
            positions,
            starts,
            fresh=[table for table, standing in standings.items() if standing.is_fresh],
            chosen=chosen,
            last_identifier=max((s.identifier for s in standings.values()), default=0),
            last_epoch=max((s.epoch for s in standings.values()), default=0),
            progress=progress,
            moved_rows=moved,
            moved_row_files={table: _moved_row_files(seen) for table, seen in evidence.items()},
        )

    def settled(self, table: str) -> None:
        """The table says now where it stands: what was decided for it is done, and doesn't count again."""
        self._open_ways.discard(table)

    async def _evidence(self) -> dict[str, Evidence]:
        def of(table: str) -> Evidence:
            sink = self._sinks.get(table)
            return NO_TABLE if sink is None else sink.evidence()

        tables = self._router.tables
        return dict(zip(tables, await each_to_its_end(of, tables, _TABLES_AT_ONCE), strict=True))

    def _read_by_others(self, evidence: Mapping[str, Evidence]) -> set[TopicPartition]:
        """Partitions that others have read for tables of ours."""
        return {
            partition
            for table, seen in evidence.items()
            for snapshot in seen.moved
            if (position := position_of(snapshot)) is not None
            for partition in position.ranges
            if table in self._router.tables_of(partition.topic)
        }

    def _routed(self, table: str) -> frozenset[TopicPartition]:
        return frozenset(p for p in self._there or () if table in self._router.tables_of(p.topic))

    # ------------------------------------------------------------ one table

    async def _position(
        self, table: str, standing: Standing, evidence: Evidence, source: SourceView
    ) -> tuple[SourcePosition, Sequence[Finding]]:
        """The position to go on from, and what speaks against it."""
        findings = list(standing.findings)
        if not {finding.problem for finding in findings} & LOSES_POSITION:
            findings += against_source(table, standing.position, source)
        if standing.is_fresh and findings:
            # nothing of ours is in it: then it is read as `start` says
            standing, findings = replace(standing, position=SourcePosition()), []
        position = standing.position
        taken = self._routed(table) | position.ranges.keys()
        findings += read_by_others(table, position.ends, evidence.moved, taken, source.identity)
        if table in self._open_ways:
            position = await self._decided(table, standing, findings, evidence, source)
            return position, against_source(table, position, source)
        return position.identified(source.identity), findings

    async def _decided(
        self, table: str, standing: Standing, findings: Sequence[Finding], evidence: Evidence, source: SourceView
    ) -> SourcePosition:
        ways = self._ways_out
        way = ways.texts[table]
        accepted = Accepted(way, tuple(dict.fromkeys(finding.problem.value for finding in findings)))
        if evidence.created_ms is None:
            raise BadInput(f"{way}: there is no table {table} yet; it is read as `start` says. Leave the option out")
        if table in ways.snapshots:
            whose, ends = await self._of_snapshot(table, ways.snapshots[table], way)
            if whose in {other.commit_user for other in evidence.moved}:
                ends = {**rewound(standing, findings, {}), **ends}  # it tells nothing of what only we have read
            return decided(standing, ends, source, accepted)
        if table in ways.rewinds:
            starts = await self._starts(table, ways.rewinds[table], way)
            _check_goes_back(way, starts, rewound(standing, findings, {}))
            return decided(standing, rewound(standing, findings, starts), source, accepted)
        if not findings:
            raise BadInput(f"{way}: the position of {table} is proven, there is no gap to accept. Leave the option out")
        offsets = gap_accepted(standing, findings, source, self._routed(table))
        if offsets is None:
            raise BadInput(f"{way}: the source doesn't tell where it ends. Use --rewind-to {table}=earliest")
        return decided(standing, offsets, source, accepted)

    async def _of_snapshot(self, table: str, snapshot_id: int, way: str) -> tuple[str, Mapping[TopicPartition, int]]:
        """Its commit user, and where it ended."""
        snapshot = await asyncio.to_thread(self._sinks[table].snapshot, snapshot_id)
        position = None if snapshot is None else position_of(snapshot)
        if snapshot is None or position is None:
            reason = "there is no such snapshot" if snapshot is None else "it carries no source position"
            raise BadInput(f"{way}: {reason}. `tidelake table snapshots {table}` lists those there are")
        return snapshot.commit_user, position.ends

    async def _starts(self, table: str, start: Start, way: str) -> Mapping[TopicPartition, int]:
        partitions = self._routed(table)
        if not isinstance(start, AtOffsets):
            return await self._source.offsets(partitions, start)
        if unknown := sorted(start.offsets.keys() - partitions):
            raise BadInput(f"{way}: {unknown[0]} holds no records for {table}")
        return start.offsets

    def _moved_rows(
        self, table: str, evidence: Evidence, standing: Standing, position: SourcePosition, source: SourceView
    ) -> MovedRowsState:
        """What is on its way according to the newest own snapshot, for a table that goes on from `position`.

        Where somebody chose to go back, records are read again: the table has what came after them.
        """
        if not evidence.own:
            return MovedRowsState()
        state = moved_rows_of(evidence.own[0].properties, evidence.own[0].path)
        ways = self._ways_out
        if table not in self._open_ways or not (table in ways.rewinds or table in ways.snapshots):
            return state
        before, ends = standing.position, position.ends
        had = before.ends
        if {finding.problem for finding in standing.findings} & LOSES_POSITION and not had:
            had = standing.lost.ends if standing.lost is not None else {p: at.end for p, at in source.bounds.items()}
        elif identity_changes(before.identity, source.identity):
            return state  # these are other records
        again = {p: max(end, state.read_again.get(p, 0)) for p, end in had.items() if p in ends and ends[p] < end}
        return replace(state, read_again={**state.read_again, **again})

    # ------------------------------------------------------------ partitions that came up since

    async def _with_new_partitions(
        self, proven: Mapping[str, SourcePosition]
    ) -> tuple[dict[str, SourcePosition], list[str]]:
        """Where each table stands, its new partitions included, and the tables for which `start` chose a place.

        A partition that came up since in a topic the table knows is read from its oldest record; a topic that is new
        to the table from where `start` says.
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
            table: position.including(
                {p: oldest[p] for p in grown[table]} | {p: first[p] for p in begun[table]}
            ).identified(self._source.identity)
            for table, position in proven.items()
        }
        return positions, [table for table in proven if begun[table] and self._start != Earliest()]

    async def _offsets_of_all(
        self, partitions: Mapping[str, set[TopicPartition]], start: Start
    ) -> Mapping[TopicPartition, int]:
        """The source is asked once for all tables."""
        wanted: set[TopicPartition] = set().union(*partitions.values())
        return await self._source.offsets(wanted, start) if wanted else {}


def _moved_row_files(evidence: Evidence) -> frozenset[str]:
    files = (moved_rows_of(snapshot.properties, snapshot.path).file for snapshot in evidence.own)
    return frozenset(file for file in files if file is not None)


def _check_goes_back(way: str, starts: Mapping[TopicPartition, int], proven: Mapping[TopicPartition, int]) -> None:
    """Rewinding forward would drop the records between in silence."""
    for partition, at in sorted(starts.items()):
        if partition in proven and at > proven[partition]:
            raise BadInput(
                f"{way}: {partition} was read up to {proven[partition]}, and {at} lies above: what lies between would "
                f"be in no table. Rewind to {proven[partition]} or below"
            )
