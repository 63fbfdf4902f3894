"""Random writes, compactions, manual and automatic tags, branches, rollbacks, expiry of snapshots, tags and partitions,
and orphan cleaning. Each operation may die at any call, and another may run between any two of its calls. After every
step, all retained states are readable and unchanged.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from random import Random
from typing import Final
from uuid import uuid4

import pyarrow as pa
import pytest

from tests.support.faulty_file_io import Call, Fault, FaultyFileIO, ProcessDied
from tests.support.levels import rounds
from tidelake.errors import BadInput, TidelakeError
from tidelake.storage.base.clock import epoch_ms
from tidelake.storage.catalog.filesystem import FileSystemCatalog
from tidelake.storage.commit.expire.expire_now import expire_now
from tidelake.storage.commit.expire.retained_states import all_branches, changelog_list, snapshot_ids, state_lists
from tidelake.storage.commit.expire.retention import Retention
from tidelake.storage.commit.manifests.manifest_store import ManifestStore
from tidelake.storage.fileio.base import FileIO
from tidelake.storage.fileio.memory import MemoryFileIO
from tidelake.storage.maintenance.automatic_tags import AutomaticTags, TagExpiry
from tidelake.storage.maintenance.orphans import clean_orphans
from tidelake.storage.maintenance.partition_expiry import expire_partitions
from tidelake.storage.maintenance.verify.inspection import inspect
from tidelake.storage.model.options.maintenance_options import PartitionExpirationStrategy
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.snapshots.tags import TagStore
from tidelake.table import Table

NAME = "db.t"
SCHEMA = pa.schema([pa.field("k", pa.int32(), False), pa.field("day", pa.string(), False), ("v", pa.int64())])
OPTIONS: Final = {
    "bucket": "1",
    "write-only": "true",
    "changelog-producer": "input",
    "snapshot.clean-empty-directories": "true",
    "manifest.merge-min-count": "3",
}
SCHEDULE: Final = {
    "tag.automatic-creation": "watermark",
    "tag.creation-period": "hourly",
    "tag.num-retained-max": "2",
    "tag.default-time-retained": "1 d",
}
LATER_MS = 4_000_000_000_000  # every file is old by then
FIRST_DAY: Final = date(2026, 1, 1)
HOUR_MS: Final = 3_600_000
STEPS = 24


@dataclass
class Life:
    random: Random
    disk: FileIO = field(default_factory=MemoryFileIO)
    warehouse: str = field(default_factory=lambda: f"memory://{uuid4().hex}/lake")
    seen: dict[str, list[dict[str, object]]] = field(default_factory=dict)  # by delta list: the rows at that state
    written: int = 0
    hours: int = 0  # of the watermark, since the first day

    def __post_init__(self) -> None:
        catalog = FileSystemCatalog(self.disk, self.warehouse)
        catalog.create_database("db")
        catalog.create_table(NAME, SCHEMA, primary_key=["k", "day"], partition_by=["day"], options=OPTIONS)

    def table(self, branch: str = "main", io: FileIO | None = None) -> Table:
        name = NAME if branch == "main" else f"{NAME}$branch_{branch}"
        return Table(FileSystemCatalog(io or self.disk, self.warehouse).load(name))

    @property
    def branches(self) -> list[str]:
        """Those that were made to the end: the others are refused by name."""
        found = list[str]()
        for branch in all_branches(self.disk, self.table().context.paths):
            with suppress(BadInput):
                found.append(self.table(branch).context.branch)
        return found

    @property
    def now_ms(self) -> int:
        """By the calendar of watermarks and partitions."""
        return int(datetime.combine(FIRST_DAY, datetime.min.time(), UTC).timestamp() * 1000) + self.hours * HOUR_MS

    def step(self) -> str:
        """One action, which may die in a call, or let another one go first before a call."""
        action = self.random.choice(ACTIONS)
        branch = self.random.choice(self.branches)
        faulty = FaultyFileIO(self.disk)
        table = self.table(branch, faulty)
        other: list[str] = []
        chance = self.random.random()
        if chance < 0.4:
            faulty.crash_call(self.random.randrange(1, 60), self.random.choice([Fault.BEFORE, Fault.AFTER]))
        elif chance < 0.8 and action in BESIDE_OTHERS:
            self._let_another_go_first(faulty, self.random.randrange(1, 60), other)
        with suppress(TidelakeError, ProcessDied):
            action(self, table)
        how = "may die" if chance < 0.4 else f"with {other[0]} between" if other else "alone"
        return f"{action.__name__} on {branch}, {how}"

    def _let_another_go_first(self, faulty: FaultyFileIO, number: int, done: list[str]) -> None:
        """done: what it was."""
        action, branch = self.random.choice(BETWEEN), self.random.choice(self.branches)

        mine = threading.get_ident()

        def act(_: Call) -> None:  # not in the thread of the hints, for which others wait
            if len(faulty.calls) >= number and not done and threading.get_ident() == mine:
                done.append(f"{action.__name__} on {branch}")
                with suppress(TidelakeError):
                    action(self, self.table(branch))

        faulty.fault = act

    def check(self, after: str) -> None:
        for branch in self.branches:
            table = self.table(branch)
            io, paths = table.context.io, table.context.paths
            for snapshot_id in snapshot_ids(io, paths)[1]:
                self._check_state(table.context.snapshots.get(snapshot_id), table, None, f"{branch} after {after}")
            for tag, snapshot in TagStore(io, paths).all().items():
                self._check_state(snapshot, table, tag, f"{branch}, tag {tag} after {after}")

    def check_orphans(self) -> None:
        """The cleaner finds nothing that `verify` doesn't find, which follows each state's history. What else `verify`
        finds is what an expiry that died left, as long as a manifest, or a tag, mentions it.
        """
        context = self.table().context
        found = inspect(context, orphans_older_than_ms=0, now_ms=LATER_MS).orphans
        if found is not None:
            cleaning = clean_orphans(context, older_than_ms=0, dry_run=True, now_ms=LATER_MS)
            assert set(cleaning.paths) <= set(found.paths), set(cleaning.paths) - set(found.paths)
            left = {path.rpartition("/")[2] for path in set(found.paths) - set(cleaning.paths)}
            assert left <= self._mentioned(), left - self._mentioned()

    def _mentioned(self) -> set[str]:
        """By any list, or manifest, of any state, as far as it is there."""
        names: set[str] = set()
        main = self.table().context
        for branch in all_branches(self.disk, main.paths):  # also of one that was not made to the end
            context = replace(main, branch=branch)
            store = ManifestStore(context)
            ids = snapshot_ids(context.io, context.paths)
            states = [context.snapshots.get(i) for of_kind in ids for i in of_kind]
            for state in (*states, *TagStore(context.io, context.paths).all().values()):
                for file in (*state_lists(state), changelog_list(state)):
                    with suppress(TidelakeError, OSError):
                        metas = store.read_list(file) if file is not None else ()
                        names |= {file.name if file is not None else "", *(meta.file_name for meta in metas)}
                        names |= {entry.file.file_name for meta in metas for entry in store.read(meta)}
        return names

    def _check_state(self, snapshot: Snapshot, table: Table, tag: str | None, where: str) -> None:
        scan = table.scan(snapshot=snapshot.id) if tag is None else table.scan(tag=tag)
        rows = sorted(scan.to_arrow().to_pylist(), key=lambda row: row["k"])
        assert self.seen.setdefault(snapshot.delta_manifest_list, rows) == rows, where


def write(life: Life, table: Table) -> None:
    life.written += 1
    life.hours += life.random.choice([0, 1, 1, 5])
    keys = life.random.sample(range(8), 3)
    today = FIRST_DAY + timedelta(days=life.hours // 24)
    days = [str(today - timedelta(days=life.random.randrange(2))) for _ in keys]
    with table.writer() as writer:
        writer.write(pa.table({"k": keys, "day": days, "v": [life.written] * 3}, SCHEMA))
        writer.commit(watermark=life.now_ms)


def compact(life: Life, table: Table) -> None:
    table.compact(full=True)


def expire(life: Life, table: Table) -> None:
    expire_now(table.context, retention=Retention(1, life.random.randint(1, 3), 0, 50))


def expire_days(life: Life, table: Table) -> None:
    now = datetime.fromtimestamp(life.now_ms / 1000)
    strategy = PartitionExpirationStrategy.VALUES_TIME
    expire_partitions(table.context, older_than_ms=24 * HOUR_MS, strategy=strategy, now=now)


def tag_by_schedule(life: Life, table: Table) -> None:
    AutomaticTags(table.context.with_options(SCHEDULE)).run()


def expire_tags(life: Life, table: Table) -> None:
    days = life.random.randrange(3)  # of the tags there are, none or all are over
    TagExpiry(table.context, now_ms=lambda: epoch_ms() + days * 24 * HOUR_MS).run()


def create_tag(life: Life, table: Table) -> None:
    ids = table.context.snapshots.ids()
    table.create_tag(life.random.choice("abc"), snapshot=life.random.choice(ids) if ids else None)


def replace_tag(life: Life, table: Table) -> None:
    table.replace_tag(life.random.choice("abc"))


def rename_tag(life: Life, table: Table) -> None:
    table.rename_tag(life.random.choice("abc"), life.random.choice("abc"))


def delete_tag(life: Life, table: Table) -> None:
    table.delete_tag(life.random.choice("abc"))


def create_branch(life: Life, table: Table) -> None:
    name = life.random.choice(["x", "y"])
    match life.random.randrange(3):
        case 0:
            table.create_branch(name)
        case 1:
            table.create_branch(name, tag=life.random.choice("abc"))
        case _:
            table.create_branch(name, snapshot=life.random.choice(table.context.snapshots.ids() or [1]))


def delete_branch(life: Life, table: Table) -> None:
    table.delete_branch(life.random.choice(["x", "y"]))


def fast_forward(life: Life, table: Table) -> None:
    life.table(io=table.context.io).fast_forward(life.random.choice(["x", "y"]))


def rollback(life: Life, table: Table) -> None:
    if life.random.random() < 0.5:
        table.rollback(tag=life.random.choice("abc"))
    else:
        table.rollback(snapshot=life.random.choice(table.context.snapshots.ids() or [1]))


def remove_orphans(life: Life, table: Table) -> None:
    clean_orphans(table.context, older_than_ms=0, now_ms=LATER_MS)


# What others may do while one of these is under way. Rollbacks and what is done to whole branches want writers to stop
# first; nobody may clean files that are younger than a commit takes.
BETWEEN: Final[list[Callable[[Life, Table], None]]] = [
    *(write, write, compact, expire, expire, expire_days, tag_by_schedule, expire_tags),
    *(create_tag, replace_tag, delete_tag, create_branch),
]
BESIDE_OTHERS: Final = {*BETWEEN, remove_orphans}
ACTIONS: Final[list[Callable[[Life, Table], None]]] = [
    *(write, write, write, write, compact, expire, expire, expire_days, tag_by_schedule, tag_by_schedule, expire_tags),
    *(create_tag, create_tag, replace_tag, rename_tag, delete_tag),
    *(create_branch, create_branch, delete_branch, fast_forward, rollback, remove_orphans, remove_orphans),
]


def live(seed: int, steps: int) -> None:
    life = Life(Random(seed))
    history: list[str] = []
    for _ in range(steps):
        history.append(life.step())
        life.check(f"{history} (seed {seed})")
    with suppress(TidelakeError):  # a branch that was not made to the end: `verify` wants its schema
        life.check_orphans()
    remove_orphans(life, life.table())
    life.check(f"{history}, orphans removed (seed {seed})")


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_every_retained_state_is_readable_after_thousands_of_steps() -> None:
    for seed in range(1000, 1025):
        live(seed, 120)


@pytest.mark.sampled
def test_every_retained_state_is_readable_after_each_step() -> None:
    for seed in range(rounds(20)):
        live(seed, STEPS)
