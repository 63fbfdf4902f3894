"""A whole lake in one seed: the world, its actors, and the run."""

from __future__ import annotations

import gc
import logging
import re
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Final

from tests.simulation import actors
from tests.simulation.actors import TOTALS, may_happen
from tests.simulation.auditor import AuditedTable, Auditor, Finding, Rows, newest
from tests.simulation.environment import installed
from tests.simulation.log import CUSTOMERS, ORDERS, Database, Log, with_length
from tests.simulation.options import Swarm, draw
from tests.simulation.scheduler import START_NS, Deadlock, Process, Scheduler, SimulatedThread
from tests.simulation.store import ObjectStore, StoreClient, StoreFaults
from tests.simulation.threads import ThreadKit, wait_until
from tidelake.catalog import Catalog
from tidelake.errors import PositionRefused, TidelakeError
from tidelake.ingest.pipeline.pipeline import Pipeline
from tidelake.storage.catalog.filesystem import FileSystemCatalog
from tidelake.storage.fileio.base import FileIO
from tidelake.storage.fileio.retrying import RetryingFileIO
from tidelake.table import Table

Actor = Callable[["Lake", Process, FileIO], None]

_ACTORS: Final[dict[str, Actor]] = {
    "pipeline": actors.pipeline,
    **{role: actors.writer_of(user, TOTALS) for role, user in actors.USERS.items()},
    "compaction": actors.compaction,
    "expiry": actors.expiry,
    "orphans": actors.orphans,
    "tags": actors.tags,
    "branches": actors.branches,
    "alterer": actors.alterer,
    "rescale": actors.rescale,
    "follower": actors.follower_of("follower-orders"),
    "second follower": actors.follower_of("follower-totals"),
    "reader": actors.reader,
    "replay": actors.replay,
    "branch writer": actors.branch_writer,
}
_LEAVE_TOTALS_ALONE: Final = ("pipeline", "replay", "fast forward")
_OTHER_NUMBER: Final = re.compile(r"([\w.]+): option bucket = (\d+), but files of this partition")
_RESTART_MS: Final = (10, 1_000, 20_000)
_HANG_NS: Final = 24 * 3_600_000_000_000  # everything here ends in a few minutes, without faults
_runs: Final = count()


@dataclass(frozen=True)
class Outcome:
    """What became of a run. finding: the first difference; None if the lake is sound."""

    seed: int
    operations: int
    trace_hash: str
    finding: str | None
    virtual_s: float
    snapshots: int
    covered: Counter[str]
    pairs: Counter[str]
    recent: tuple[str, ...] = ()
    error: BaseException | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return (
            f"seed {self.seed}  operations {self.operations:,}  snapshots {self.snapshots:,}  "
            f"virtual {self.virtual_s:,.0f} s  trace {self.trace_hash}  {self.finding or 'sound'}"
        )


class Lake:
    """The world of one run.

    is_ending: the actors come to their end, and nothing fails any more.
    """

    def __init__(self, seed: int, swarm: Swarm, scheduler: Scheduler, kit: ThreadKit) -> None:
        self.swarm = swarm
        self.scheduler = scheduler
        self.kit = kit
        self.warehouse = f"memory://lake-{next(_runs):08d}/w"
        self.store = ObjectStore(scheduler)
        self.log = Log.with_partitions(swarm.partitions)
        tables = (ORDERS,) if swarm.customers is None else (ORDERS, CUSTOMERS)
        events = swarm.source_events
        self.database = Database(
            self.log,
            scheduler,
            tables,
            keys_move="keys move" in events,
            leaves_out_values="values are left out" in events,
            has_large_numbers=swarm.has_large_numbers,
            has_long_notes=swarm.has_long_notes,
            have_input_changelog=frozenset(
                name for name in tables if swarm.options[name]["changelog-producer"] == "input"
            ),
        )
        self.auditor = Auditor(scheduler, self.store, self.warehouse, self.log)
        self.is_ending = False
        self.stops: dict[Process, Callable[[], None]] = {}
        self.pipelines: dict[Process, Pipeline] = {}
        self.writers: dict[tuple[str, str], list[int]] = {}
        self.fast_forwards_to = ""  # a branch; while it isn't empty, nobody else works with the table
        self.is_fast_forward_refused = False
        self.branch_writers: dict[Process, str] = {}  # with the branch's name
        self.rescales: dict[str, int] = {}  # tables whose rescale may be unfinished, with the number of buckets
        self.accepts_gap = set[str]()  # the operator, of these tables at the next start
        self.copies: dict[str, dict[str, tuple[Rows, str | None, int]]] = {}  # with position and last snapshot seen
        self.records = 0
        self.values = 0
        self.covered: Counter[str] = Counter()
        self._alive: dict[str, list[Process]] = {}
        self._paused: dict[SimulatedThread, None] = {}
        self._started = count(1)
        self.world = Process("world")

    @property
    def has_nonsense(self) -> bool:
        """Whether some records can't be decoded: the pipeline is configured to keep them apart."""
        return "nonsense" in self.swarm.source_events or self.swarm.has_large_numbers

    @property
    def operations(self) -> int:
        return self.store.operations + self.log.records + self.records

    def note(self, short: str) -> str:
        """Return the text, or now and then a long one that begins with it."""
        random = self.scheduler.random
        return with_length(short, random) if self.swarm.has_long_notes else short

    def pause(self, at_most_ms: float) -> None:
        """Sleep for a random time, or until the end begins."""
        scheduler, thread = self.scheduler, self.scheduler.current
        assert thread is not None
        end_ns = scheduler.now_ns + int(scheduler.random.random() * at_most_ms * 1e6) + 1
        self._paused[thread] = None
        try:
            while scheduler.now_ns < end_ns and not self.is_ending:
                scheduler.park(end_ns - scheduler.now_ns)
        finally:
            del self._paused[thread]

    # ------------------------------------------------------------ processes

    def count_end(self, process: Process) -> None:
        """Count in which states of the run and of its checkpoint a pipeline ended."""
        pipeline = self.pipelines.pop(process, None)
        if pipeline is not None:
            coordinator = getattr(pipeline._flow, "_coordinator", None)
            checkpoint = "no checkpoint" if coordinator is None else coordinator.state.name
            how = "killed" if process.is_dead else "ended"
            self.covered[f"{how} in {pipeline._state.name}, {checkpoint}"] += 1

    def pairs(self) -> Counter[str]:
        """Return which option met which actor, and which fault."""
        tables = {f"{key}={value}" for options in self.swarm.options.values() for key, value in options.items()}
        met = {*self.swarm.actors, *self.swarm.source_events, *(fault.rpartition(" ")[0] for fault in self.store.tried)}
        return Counter(f"{option} × {other}" for option in sorted(tables) for other in sorted(met))

    def _spawn(self, role: str, actor: Actor) -> Process:
        process = Process(f"{role} {next(self._started)}")
        process.skew_ns = self.scheduler.random.choice((0, 0, -3_000_000_000, 3_000_000_000))
        self._alive.setdefault(role, []).append(process)
        self.scheduler.start(process, "main", lambda: self._live(role, actor, process))
        return process

    def _live(self, role: str, actor: Actor, process: Process) -> None:
        io = RetryingFileIO(StoreClient(self.store, process))
        try:
            actor(self, process, io)
        except Exception as error:
            self.covered[f"{type(error).__name__}, {role}"] += 1
            self.scheduler.note(f"ends: {type(error).__name__}")
            self.store.disturbed.add(process.name)  # files of a checkpoint that an error interrupts stay
            self._follow_advice(str(error))
            is_refused = isinstance(error, PositionRefused) and self.log.has_lost
            if not (may_happen(error) or is_refused):
                assert self.scheduler.current is not None
                self.scheduler.crashed(self.scheduler.current, error)
        finally:
            if process in self._alive[role]:
                self._alive[role].remove(process)
                self.scheduler.kill_others(process)

    def _follow_advice(self, message: str) -> None:
        """Plan the rescale that a message demands: an option came so late that rows were placed by the old number."""
        for table, number in _OTHER_NUMBER.findall(message):
            self.rescales[table] = int(number)

    def _keep_alive(self, role: str, actor: Actor) -> None:
        """Start the actor again and again. Runs in the world's process."""
        random = self.scheduler.random
        while not self.is_ending or self._has_work(role):
            if role == "pipeline" and self.log.is_to_be_compacted and not self._may_commit_records():
                self.log.is_to_be_compacted = False
                self.log.compact()
            while self.fast_forwards_to and role not in _LEAVE_TOTALS_ALONE:
                self.scheduler.sleep(1_000_000_000)
            process = self._spawn(role, actor)
            wait_until(self.scheduler, lambda process=process: process.is_dead, [process.watchers.append])  # type: ignore[misc]
            if self.is_ending and not self._has_work(role):
                break
            self.scheduler.sleep(int(random.random() * random.choice(_RESTART_MS) * 1e6))

    def _may_commit_records(self) -> bool:
        """Return whether records are read that no snapshot has yet, or that a late answer may bring into one, or those
        kept for a table in quarantine.
        """
        is_kept = any(path.endswith(".arrow") for path in self.store.objects)
        return is_kept or bool(self._alive.get("pipeline")) or bool(self.store.late)

    def _has_work(self, role: str) -> bool:
        """Return whether the actor must start once more: a log is not read, a rescale is not finished, or it is unknown
        whether rows are there.
        """
        if role == "pipeline":
            return not self.has_read_all
        if role == "replay":
            return not self.auditor.is_replayed
        if role == "rescale":
            return bool(self.rescales)
        user = actors.USERS.get(role)
        return any(self.is_planned(user, table) for one, table in self.writers if one == user)

    def is_planned(self, user: str | None, table: str) -> bool:
        """Return whether a writer has told of a commit, and does not know that it is there."""
        progress = self.writers.get((user or "", table), [0, False])
        return bool(progress[1])

    @property
    def has_read_all(self) -> bool:
        """Whether the tables have all rows of the log, and nothing comes into it any more."""
        is_written = all(thread.name not in ("database", "connector") for thread in self.world.threads)
        tables = [self.auditor.tables[name] for name in self.database.tables]
        return is_written and all(self.log.is_read(table.name, table.topic_id, table.ends) for table in tables)

    def _trouble(self) -> None:
        """Kill processes, stop some for a while, and start a second pipeline beside the first."""
        random = self.scheduler.random
        while not self.is_ending:
            self.pause(random.choice((300, 3_000, 20_000)))
            everyone = [process for role in sorted(self._alive) for process in self._alive[role]]
            chance = random.random()
            if not everyone or self.is_ending:
                continue
            process = random.choice(everyone)
            if chance < 0.5 * self.swarm.kills:
                self.covered["kill, " + process.name.rpartition(" ")[0]] += 1
                self.store.crashing.append(process)
                self.scheduler.yield_now()
            elif chance < 0.7 and "zombie" in self.swarm.actors:
                self.covered["zombie, " + process.name.rpartition(" ")[0]] += 1
                self.store.disturbed.add(process.name)
                self.scheduler.freeze(process)
                self.pause(random.choice((1_000, 60_000)))
                self.scheduler.thaw(process)
            elif chance < 0.8 and "take-over" in self.swarm.actors:
                self.covered["take-over"] += 1
                self._spawn("pipeline", actors.pipeline)

    def _fast_forwards(self) -> None:
        """Now and then, stop all who work with a table, and replace its main branch by another one."""
        random, table = self.scheduler.random, self.auditor.tables[TOTALS]
        while not self.is_ending:
            self.pause(random.choice((2_000, 20_000)))
            ready = [name for name, one in table.branches.items() if one.is_settled and one.audits]
            if not ready or self.is_ending:
                continue
            self.fast_forwards_to = name = random.choice(ready)
            stopped = [p for role, alive in self._alive.items() if role not in _LEAVE_TOTALS_ALONE for p in alive]
            self.store.crashing += stopped
            path = f"{self.warehouse}/{TOTALS.replace('.', '.db/')}/"
            while any(not process.is_dead for process in stopped) or any(path in one[1] for one in self.store.late):
                self.scheduler.sleep(1_000_000_000)
                self.store.land_late_puts()
            if name in table.branches and table.branches[name].is_settled:
                table.is_rewritten = True
                while self.fast_forwards_to:
                    self.covered["fast-forward"] += 1
                    process = self._spawn("fast forward", actors.fast_forward)
                    wait_until(
                        self.scheduler,
                        lambda process=process: process.is_dead,  # type: ignore[misc]
                        [process.watchers.append],
                    )
                if self.is_fast_forward_refused:
                    self.is_fast_forward_refused = table.is_rewritten = False
                    continue
                unfinished = {
                    user: at for (user, of), (at, is_planned) in self.writers.items() if is_planned and of == TOTALS
                }
                self.auditor.fast_forwarded(table, name, unfinished)
                for copies in self.copies.values():
                    copies.pop(TOTALS, None)
            self.fast_forwards_to = ""

    def _between(self) -> None:
        """Called by the hub before it chooses the next thread."""
        self.auditor.look()
        if self.store.crashing:
            crashing, self.store.crashing = self.store.crashing, []
            for process in crashing:
                if not process.is_dead:
                    self.store.disturbed.add(process.name)
                    self.branch_writers.pop(process, None)
                    self.scheduler.note_of(process, "is killed")
                    self.scheduler.kill(process)
                    for alive in self._alive.values():
                        if process in alive:
                            alive.remove(process)

    # ------------------------------------------------------------ the run

    def prepare(self) -> None:
        """Create the tables, without faults."""

        def create() -> None:
            io = StoreClient(self.store, self.auditor.process, is_quiet=True)
            catalog = Catalog(FileSystemCatalog(io, self.warehouse))
            catalog.create_database("shop")
            for name, options in self.swarm.options.items():
                is_narrow = self.swarm.has_large_numbers and name in self.database.tables
                columns = actors.NARROW_COLUMNS if is_narrow else actors.COLUMNS
                catalog.create_table(name, columns, primary_key=["id"], options=options)

        for name in self.database.tables:
            self.auditor.add(AuditedTable(name, self.swarm.options[name], newest, has_log_rows=True))
        self.auditor.add(AuditedTable(TOTALS, self.swarm.totals, self.swarm.merge))
        self.auditor.run(create)

    def run(self, operations: int) -> None:
        """Run until so many operations were done, then let everything come to its end, and check it."""
        scheduler = self.scheduler
        scheduler.between = self._between
        scheduler.start(self.world, "database", lambda: actors.database(self))
        if self.swarm.source_events:
            scheduler.start(self.world, "connector", lambda: actors.connector(self))
        for role, actor in _ACTORS.items():
            if role in self.swarm.actors:
                scheduler.start(self.world, f"keeper of {role}", partial(self._keep_alive, role, actor))
        scheduler.start(self.world, "trouble", self._trouble)
        if "fast forward" in self.swarm.actors:
            scheduler.start(self.world, "fast forwards", self._fast_forwards)
        self.store.faults = self.swarm.faults
        self.log.unavailable = self.swarm.unavailable
        checked = [0, 0]

        def is_over() -> bool:
            if self.auditor.finding is not None:
                return True
            # Nothing hangs: in a day of virtual time there is always a snapshot.
            snapshots = sum(table.audits for table in self.auditor.tables.values())
            if snapshots != checked[0]:
                checked[:] = [snapshots, scheduler.now_ns]
            elif checked[1] and scheduler.now_ns - checked[1] > _HANG_NS:
                raise Finding("no snapshot for a day: something hangs")
            return self.operations >= operations

        scheduler.run(is_over)
        self._raise()
        self._end()

    def _end(self) -> None:
        scheduler = self.scheduler
        self.is_ending = True
        for thread in list(self._paused):
            scheduler.unpark(thread)
        self.store.faults = StoreFaults(slow=0.0)
        self.log.unavailable = 0.0
        limit_ns = scheduler.now_ns + _HANG_NS
        for process in list(scheduler._frozen):
            scheduler.thaw(process)

        def is_quiet() -> bool:
            if self.auditor.finding is not None:
                return True
            if self.has_read_all and not self.store.late:
                for stop in list(self.stops.values()):
                    stop()
                self.stops.clear()
            return not any(self._alive.values()) and len(self.world.threads) == 0

        if not scheduler.run(is_quiet, limit_ns) and scheduler.failure is None:
            left = [process.name for alive in self._alive.values() for process in alive]
            raise Finding(f"a day after the last fault these still run: {left}, read: {self.has_read_all}")
        self._raise()
        for name in self.swarm.options:
            table = self.auditor.tables[name]
            self.auditor.check_leftovers(table)
            self.auditor.run(partial(self._settle, name))
            self.auditor.look()
            self._raise()
            self.auditor.run(partial(self.auditor.check_end, table))
            if table.has_log_rows:
                self.auditor.run(partial(self.auditor.check_dead_letters, table.ends, table.topic_id))
            scheduler.now_ns += 1_000_000_000  # the files of this moment are no older than "now"
            self.auditor.run(partial(self._clean, name))
            self._raise()
            self.auditor.check_nothing_unreferenced(table)

    def _settle(self, name: str) -> None:
        table = self._quiet_table(name)
        if (latest := table.context.snapshots.latest_id()) is not None:
            # A process that slept may have written an outdated hint. The next commit corrects it, if there is one.
            table.context.snapshots.hint_latest(latest)
            table.compact(full=True)

    def _clean(self, name: str) -> None:
        """Remove orphans, whatever their age: nobody writes any more."""
        self._quiet_table(name).clean_orphans(older_than_ms=0)

    def _quiet_table(self, name: str) -> Table:
        io = StoreClient(self.store, self.auditor.process, is_quiet=True)
        return Catalog(FileSystemCatalog(io, self.warehouse)).table(name)

    def _raise(self) -> None:
        if self.auditor.finding is not None:
            raise self.auditor.finding
        if self.scheduler.failure is not None:
            who, error = self.scheduler.failure
            if isinstance(error, Finding):
                raise error
            raise Finding(f"{who}: {type(error).__name__}: {error}") from error


def simulate(seed: int, operations: int, off: frozenset[str] = frozenset()) -> Outcome:
    """Run the lake of a seed."""
    swarm = draw(seed, off)
    scheduler = Scheduler(seed, swarm.switch_rate)
    finding: Finding | None = None
    error: BaseException | None = None
    logging.disable(logging.CRITICAL)
    # A collection at any moment could run clean-up code there. Frozen objects are not looked at again at the end.
    was_enabled = gc.isenabled()
    gc.disable()
    gc.freeze()
    try:
        with installed(scheduler) as kit:
            lake = Lake(seed, swarm, scheduler, kit)
            try:
                lake.prepare()
                lake.run(operations)
            except (Finding, Deadlock) as found:
                finding, error = Finding(str(found)), found
            except (TidelakeError, OSError) as found:
                finding, error = Finding(f"the last check: {found!r}"), found
            finally:
                lake.auditor.finding = None
                for process in {thread.process for thread in [*scheduler.ready]} | {
                    process for alive in lake._alive.values() for process in alive
                }:
                    scheduler.kill(process)
                scheduler.kill(lake.world)
    finally:
        if was_enabled:
            gc.enable()
        gc.collect()
        gc.unfreeze()
        logging.disable(logging.NOTSET)
    lake.covered.update({f"{fault}": n for fault, n in lake.store.tried.items()})
    return Outcome(
        seed,
        lake.operations,
        scheduler.trace_hash,
        None if finding is None else str(finding),
        (scheduler.now_ns - START_NS) / 1e9,
        sum(table.audits for table in lake.auditor.tables.values()),
        lake.covered,
        lake.pairs(),
        tuple(scheduler.recent),
        error,
    )


def explained(outcome: Outcome) -> str:
    """Return the trace of a failure's last steps, and its error."""
    error = "" if outcome.error is None else "".join(traceback.format_exception(outcome.error))
    return "".join(outcome.recent[-60:]) + error
