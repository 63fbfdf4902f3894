"""Replay of dead letters: exactly once, and never over a newer row.

1. The dead letters are decoded with the current configuration of the pipeline.
2. The log after them is read again, up to the tables' positions: keys that changed since keep their rows.
3. The dead letters get the replay's id.
4. Their rows are committed with that id, under a separate commit user of the replay.
5. The dead letters get their outcome.

A crash after 3 leaves dead letters with an id and without an outcome. The next replay completes the interrupted one
first. Tables that have its commit have the rows of all these dead letters. So a dead letter which an attempt can't
decide any more (the log has lost the records after it) loses the id before the first commit with it.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import count
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelake.checkpoint.idle_progress import IdleProgress
from tidelake.checkpoint.offsets import POSITION_PROPERTY, TopicPartition, position_from_text
from tidelake.compaction.compact_manager import compact_manager_factory
from tidelake.errors import BadInput, CommitConflict, PositionRefused
from tidelake.ingest.config.lower_case import format_of
from tidelake.ingest.dead_letter_table import COLUMNS, DeadLetterTable, values_of
from tidelake.ingest.formats.base import WITHHELD_REASON, TableRows
from tidelake.ingest.pipeline.builder import expanded
from tidelake.ingest.pipeline.configured_source import build_source
from tidelake.ingest.pipeline.configured_tables import ConfiguredTables
from tidelake.ingest.pipeline.progress_tracker import ProgressFile, progress_path
from tidelake.ingest.replay.dead_letter_batches import DeadLetter, place_of, raw_batches
from tidelake.ingest.replay.later_changes import LaterChanges, Place, find_later_changes, keys_of
from tidelake.ingest.replay.replay_plan import DecodedDeadLetters, ReplayPlan, ReplayTable, plan_replay
from tidelake.ingest.settings import Config
from tidelake.ingest.sources.source import Source
from tidelake.ingest.tables.routed_decoder import RoutedDecoder
from tidelake.ingest.tables.soft_deletes import with_soft_deletes
from tidelake.ingest.tables.table_router import router_of
from tidelake.ingest.tables.table_targets import TableTargets
from tidelake.storage.base.clock import epoch_ms
from tidelake.storage.base.logs import get_logger
from tidelake.storage.catalog.opening import open_catalog
from tidelake.storage.commit.commit_message import Committable
from tidelake.storage.commit.table_commit import TableCommit
from tidelake.storage.fileio import FileIO, open_retrying_file_io
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext
from tidelake.storage.read.predicate import Predicate, col
from tidelake.storage.write.lookup.row_lookup import lookup_newest_rows
from tidelake.storage.write.row_level.assignments import Assignments
from tidelake.storage.write.row_level.row_changes import RowLevelOperation, change_rows
from tidelake.storage.write.table_writer import TableWriter

_ATTEMPTS: Final = 5  # an attempt fails if the pipeline commits meanwhile
_IDS_AT_ONCE: Final = 500

_log = get_logger(__name__)


class _TableChanged(Exception):
    """The pipeline committed after the log was read, so the table may have newer rows now."""


@dataclass(slots=True)
class ReplayReport:
    """The result of a replay.

    replay_id: None if nothing was to be written.
    outcomes: number of dead letters with each outcome.
    rows: number of rows written to each table.
    remaining: dead letters that could not be replayed, with topic, partition, offset and reason.
    """

    replay_id: int | None = None
    outcomes: dict[str, int] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    remaining: list[dict[str, Any]] = field(default_factory=list)


class DeadLetterReplay:
    """The replay of one pipeline's dead letters. All methods block, except `run`.

    source: replaces the configured source.
    io: replaces the file system of the configuration.
    """

    def __init__(self, config: Config, source: Source | None = None, io: FileIO | None = None) -> None:
        if config.dead_letters_table is None:
            raise BadInput(
                "only dead letters in a table can be replayed: set `errors.dead_letters: {table: database.table}`. "
                f"Those in files ({config.dead_letters}) are change-log lines: correct them and read them as a folder"
            )
        self._catalog = open_catalog(config.warehouse, config.warehouse_options, io)
        self._pipeline = config.pipeline
        self._dead_letters = DeadLetterTable(self._catalog, config.dead_letters_table, config.pipeline)
        self._config = config = expanded(config, self._catalog, io).config
        format_ = format_of(config)
        self._open_tables()
        settings = msgspec.structs.replace(config.source, until="end")
        self._given_source = source
        self._source_config = msgspec.structs.replace(config, source=settings)
        self._kept_headers = format_.KEPT_HEADERS
        self._progress = ProgressFile(
            io or open_retrying_file_io(config.warehouse, config.warehouse_options),
            progress_path(config.warehouse, config.pipeline),
        )

    def _open_tables(self) -> None:
        """Load the tables with their current schemas."""
        config = self._config
        router, configured = router_of(config.tables), ConfiguredTables.of(config)
        targets = TableTargets(configured.settings, derived=configured.derived, shapes=configured.shapes)
        self._tables: dict[str, ReplayTable] = {}
        for table in config.named_tables:
            if self._catalog.table_exists(table.name):
                context = self._catalog.load(table.name)
                router.add_target(targets.of(context))
                self._tables[table.name] = ReplayTable(table.name, context)
        self._decoder = RoutedDecoder(router, partial(configured.decoder, format_of(config)))

    async def run(self, where: Predicate | Any = None, *, is_dry: bool = False) -> list[ReplayReport]:
        """Complete an interrupted replay, and then replay the dead letters that match the condition.

        where: the condition; None: all dead letters.
        is_dry: nothing is written.

        Raises CommitConflict if the pipeline runs and commits again and again. Stop it first.
        """
        waiting = await asyncio.to_thread(self._read_waiting, None)
        reports = []
        for replay_id in sorted({one["replay_id"] for one in waiting if one["replay_id"] is not None}):
            dead_letters = [one for one in waiting if one["replay_id"] == replay_id]
            await asyncio.to_thread(self._check_known, replay_id)
            reports.append(await self._replay(dead_letters, replay_id, is_dry=is_dry))
        chosen = await asyncio.to_thread(self._read_waiting, where)
        chosen = [one for one in chosen if one["replay_id"] is None]
        if chosen:
            reports.append(await self._replay(chosen, None, is_dry=is_dry))
        return reports

    def _read_waiting(self, where: Predicate | Any) -> list[DeadLetter]:
        """Return the dead letters without an outcome."""
        found = [one for one in values_of(self._dead_letters.read(where)) if one["replayed_at"] is None]
        replayable = [one for one in found if one["message"] != WITHHELD_REASON]
        if len(replayable) < len(found):
            _log.warning(
                "dead letters without their records can't be replayed",
                count=len(found) - len(replayable),
                reason="their tables mask columns",
                remedy="read the records again: `tidelake ingest run … --rewind-to TABLE=…`",
            )
        return replayable

    def _replayed_places(self) -> set[Place]:
        found = values_of(self._dead_letters.read(columns=("topic", "partition", "offset", "table", "replayed_at")))
        return {(*place_of(one), one["table"]) for one in found if one["replayed_at"] is not None}

    def _check_known(self, replay_id: int) -> None:
        """Raise PositionRefused if the snapshots have expired that show whether the interrupted replay committed."""
        dead_letters = self._dead_letters.name
        for name, table in self._tables.items():
            earliest = table.context.snapshots.earliest()
            if earliest is not None and earliest.id > 1 and earliest.time_ms > replay_id:
                raise PositionRefused(
                    f"{name}: the replay {replay_id} was interrupted, and the snapshots of that time have expired, so "
                    "it is unknown whether it was committed",
                    [
                        f"tidelake table scan {dead_letters} --where 'replay_id = {replay_id}'   # shows these dead "
                        "letters",
                        "delete the dead letters whose rows the table has; set the replay_id of the others to null",
                    ],
                )

    async def _replay(self, dead_letters: Sequence[DeadLetter], replay_id: int | None, *, is_dry: bool) -> ReplayReport:
        for attempt in count(1):
            newest = await asyncio.to_thread(self._own_states)
            # Only now: a running pipeline may have added columns for records below the tables' positions.
            await asyncio.to_thread(self._open_tables)
            decoded = await asyncio.to_thread(self._decoded, dead_letters)
            # Only now: all dead letters before the tables' positions are there, also those of this moment.
            waiting = await asyncio.to_thread(self._read_waiting, None)
            later = await self._later_changes(decoded, waiting, newest)
            begun = await asyncio.to_thread(self._begun, replay_id)
            plan = plan_replay(decoded, self._tables, later, *begun)
            if is_dry:
                return _report(plan, dead_letters, None)
            if replay_id is None:
                replay_id = await asyncio.to_thread(self._new_replay_id)
            try:
                await asyncio.to_thread(self._execute, plan, dead_letters, newest, replay_id)
            except (CommitConflict, _TableChanged) as error:
                if attempt == _ATTEMPTS:
                    raise CommitConflict(
                        "the pipeline commits while its dead letters are replayed; no newer rows were overwritten. "
                        "Stop the pipeline, replay, and start the pipeline again"
                    ) from error
                continue
            return _report(plan, dead_letters, replay_id)
        raise AssertionError("unreachable")

    # ------------------------------------------------------------ reading

    def _decoded(self, dead_letters: Sequence[DeadLetter]) -> list[DecodedDeadLetters]:
        found = []
        for raw, of_batch in raw_batches(dead_letters):
            table = of_batch[0]["table"]  # if not None, other tables have the records
            batch = self._decoder.decode(raw)
            tables = tuple(rows for rows in batch.tables if table in (None, rows.target.name))
            failed = {f.offset: f.reason for f in batch.failures if table in (None, f.table_name) or not f.table_name}
            if batch.unrouted:
                sources = ", ".join(map(str, batch.unrouted))
                taken = {offset for rows in tables for offset in rows.offsets.tolist()}
                for dead_letter in of_batch:
                    offset = dead_letter["offset"]
                    if offset not in taken and offset not in failed and dead_letter["value"] is not None:
                        failed[offset] = f"no existing table is for this record ({sources})"
            found.append(DecodedDeadLetters(of_batch, tables, failed))
        return found

    def _own_states(self) -> dict[str, _OwnState]:
        progress = self._progress.read()
        return {name: self._own_state(table.context, progress) for name, table in self._tables.items()}

    def _own_state(self, table: TableContext, progress: IdleProgress) -> _OwnState:
        newest = TableCommit(table, self._pipeline).latest_of_user()
        text = None if newest is None else newest.properties.get(POSITION_PROPERTY)
        ends = {} if text is None else dict(position_from_text(text, table.name).ends)
        idle = progress.tables.get(table.name)
        if newest is not None and idle is not None and idle.is_current_for(newest.id, newest.delta_manifest_list):
            for partition, end in progress.reached.ends.items():
                ends[partition] = max(end, ends.get(partition, 0))
        return _OwnState(newest, ends)

    async def _later_changes(
        self,
        decoded: Sequence[DecodedDeadLetters],
        waiting: Sequence[DeadLetter],
        newest: Mapping[str, _OwnState],
    ) -> LaterChanges:
        starts: dict[TopicPartition, int] = {}
        wanted: dict[str, set[Any]] = {}
        for part in decoded:
            partition, first = place_of(part.dead_letters[0])
            for rows in part.tables:
                is_order_independent = self._tables[rows.target.name].is_order_independent
                if is_order_independent and rows.target.keeps_deleted_rows:
                    continue  # not even a truncate matters
                starts[partition] = min(starts.get(partition, first + 1), first + 1)
                wanted.setdefault(rows.target.name, set()).update(() if is_order_independent else keys_of(rows))
        if not wanted:
            return LaterChanges()
        source = self._given_source or build_source(self._source_config, self._kept_headers)
        try:
            return await find_later_changes(
                source,
                self._decoder,
                wanted,
                starts,
                {name: state.ends for name, state in newest.items()},
                {(*place_of(one), one["table"]) for one in waiting},
                await asyncio.to_thread(self._replayed_places),
                {name: table.order_columns for name, table in self._tables.items()},
            )
        finally:
            await source.close()

    # ------------------------------------------------------------ writing

    def _new_replay_id(self) -> int:
        """Return a new id above all earlier ones, also if dead letters were deleted or the clock went back."""
        used = self._dead_letters.read(columns=("replay_id",))["replay_id"].to_pylist()
        for table in self._tables.values():
            newest = TableCommit(table.context, self._commit_user).latest_of_user()
            used.append(None if newest is None else newest.commit_identifier)
        return max(epoch_ms(), 1 + max((one for one in used if one is not None), default=0))

    @property
    def _commit_user(self) -> str:
        return f"{self._pipeline}.replay"

    def _begun(self, replay_id: int | None) -> tuple[set[str], set[str]]:
        """Return (the tables that have the commit of this replay, the ids of its dead letters)."""
        if replay_id is None:
            return set(), set()
        committed = set()
        for name, table in self._tables.items():
            newest = TableCommit(table.context, self._commit_user).latest_of_user()
            if newest is not None and newest.commit_identifier >= replay_id:
                committed.add(name)
        return committed, self._marked(replay_id)

    def _marked(self, replay_id: int) -> set[str]:
        return set(self._dead_letters.read(col("replay_id") == replay_id, ("id",))["id"].to_pylist())

    def _execute(
        self, plan: ReplayPlan, dead_letters: Sequence[DeadLetter], newest: Mapping[str, _OwnState], replay_id: int
    ) -> None:
        """Carry out the plan. Raises _TableChanged or CommitConflict if the pipeline committed first. The tables before
        the failed one keep their commits.
        """
        context = self._dead_letters.open() if plan.outcomes or plan.remaining else None
        if context is None:
            return
        ids = list(plan.outcomes)
        self._append_left_over(plan, dead_letters)
        self._unmark(context, plan, replay_id)
        self._mark(context, ids, {"replay_id": replay_id})
        for name, batches in plan.rows.items():
            self._write(self._tables[name].context, batches, newest[name], replay_id)
        for outcome in sorted(set(plan.outcomes.values())):
            now = datetime.fromtimestamp(epoch_ms() // 1000, UTC)
            chosen = [id_ for id_, one in plan.outcomes.items() if one == outcome]
            self._mark(context, chosen, {"replay_outcome": outcome, "replayed_at": now})
        _log.info("dead letters replayed", replay_id=replay_id, letters=len(ids), tables=sorted(plan.rows))

    def _append_left_over(self, plan: ReplayPlan, dead_letters: Sequence[DeadLetter]) -> None:
        """Append a dead letter for each table that still lacks one which others have."""
        if not plan.left_over:
            return
        existing = set(self._dead_letters.read(columns=("id",))["id"].to_pylist())
        new = []
        for one in dead_letters:
            for table in plan.left_over.get(one["id"], ()):
                id_ = hashlib.sha256(f"{one['id']} {table}".encode()).hexdigest()[: len(one["id"])]
                if id_ not in existing:
                    new.append({**one, "id": id_, "table": table, "replay_id": None})
        if new:
            self._dead_letters.append(pa.Table.from_pylist(new, COLUMNS))

    def _unmark(self, context: TableContext, plan: ReplayPlan, replay_id: int) -> None:
        """Take the id from dead letters that an earlier attempt could decide, and this one can't."""
        if ids := sorted(self._marked(replay_id) & plan.remaining.keys()):
            self._mark(context, ids, {"replay_id": None})

    def _mark(self, context: TableContext, ids: Sequence[str], values: Mapping[str, Any]) -> None:
        for start in range(0, len(ids), _IDS_AT_ONCE):
            where = col("id").is_in(ids[start : start + _IDS_AT_ONCE])
            change_rows(context, RowLevelOperation(where, Assignments(values)), f"{self._pipeline}.dead-letters")

    def _write(self, context: TableContext, batches: Sequence[TableRows], newest: _OwnState, replay_id: int) -> None:
        commit = TableCommit(context, self._commit_user)
        writer = TableWriter(context, compactor_factory=compact_manager_factory())
        try:
            for batch in batches:
                is_soft = batch.target.deleted_at_column != ""
                written = with_soft_deletes(batch, _TableLookup(context, writer)) if is_soft else batch
                writer.write(written.rows)
            # The writer's base is fixed now, so later commits of others cause a conflict.
            if self._own_state(context, self._progress.read()) != newest:
                raise _TableChanged
            commit.commit(Committable(replay_id, writer.prepare_commit(replay_id, is_last=True)))
        finally:
            writer.abort()


@dataclass(frozen=True, slots=True)
class _OwnState:
    """What the pipeline committed to a table.

    newest: its newest snapshot.
    ends: the next offset of each partition. Up to there, no record is missing in the table. That includes records
        after the newest snapshot which gave no row, such as a delete of no row with `deletes: soft`.
    """

    newest: Snapshot | None
    ends: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class _TableLookup:
    """Looks up the rows of a table that a replay writes."""

    context: TableContext
    writer: TableWriter

    def newest(self, keys: pa.RecordBatch) -> tuple[NDArray[np.bool_], pa.RecordBatch]:
        """See `RowLookup`. Rows of the replay that are not committed count, too."""
        return lookup_newest_rows(self.context, self.context.snapshots.latest(), keys, self.writer.uncommitted())


def _report(plan: ReplayPlan, dead_letters: Sequence[DeadLetter], replay_id: int | None) -> ReplayReport:
    outcomes: dict[str, int] = {}
    for outcome in plan.outcomes.values():
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    remaining = [
        {"topic": one["topic"], "partition": one["partition"], "offset": one["offset"], "reason": reason}
        for one in dead_letters
        if (reason := plan.remaining.get(one["id"])) is not None
    ]
    rows = {name: sum(batch.rows.num_rows for batch in batches) for name, batches in plan.rows.items()}
    return ReplayReport(replay_id if plan.outcomes else None, outcomes, rows, remaining)
