"""Random tags, branches, rollbacks, expiry and orphan cleaning, each of which may die at any call: what is retained
reads to the end after every step, and reads what it always did.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from uuid import uuid4

import pyarrow as pa
import pytest

from storage.catalog.filesystem import FileSystemCatalog
from storage.expire.expire_now import expire_now
from storage.expire.retained_states import all_branches, snapshot_ids
from storage.expire.retention import Retention
from storage.fileio.base import FileIO
from storage.fileio.memory import MemoryFileIO
from storage.maintenance.orphans import clean_orphans
from storage.snapshots.snapshot import Snapshot
from storage.snapshots.tags import TagStore
from storage.verify.inspection import inspect
from tests.support.faulty_file_io import Fault, FaultyFileIO, ProcessDied
from tests.support.levels import examples
from tidelake import TidelakeError
from tidelake.table import Table

NAME = "db.t"
SCHEMA = pa.schema([pa.field("k", pa.int32(), nullable=False), ("v", pa.int64())])
LATER_MS = 4_000_000_000_000  # every file is old by then
STEPS = 24


@dataclass
class Life:
    random: Random
    disk: FileIO = field(default_factory=MemoryFileIO)
    warehouse: str = field(default_factory=lambda: f"memory://{uuid4().hex}/lake")
    seen: dict[str, list[dict[str, int]]] = field(default_factory=dict)  # by delta list: the rows at that state
    written: int = 0

    def __post_init__(self) -> None:
        catalog = FileSystemCatalog(self.disk, self.warehouse)
        catalog.create_database("db")
        options = {"bucket": "1", "write-only": "true", "changelog-producer": "input"}
        catalog.create_table(NAME, SCHEMA, primary_key=["k"], options=options)

    def table(self, branch: str = "main", io: FileIO | None = None) -> Table:
        name = NAME if branch == "main" else f"{NAME}$branch_{branch}"
        return Table(FileSystemCatalog(io or self.disk, self.warehouse).load(name))

    @property
    def branches(self) -> list[str]:
        """Those that were made to the end."""
        paths = self.table().context.paths
        return [b for b in all_branches(self.disk, paths) if self.disk.exists(paths.for_branch(b).schema(0))]

    def step(self) -> str:
        action = self.random.choice(ACTIONS)
        branch = self.random.choice(self.branches)
        faulty = FaultyFileIO(self.disk)
        table = self.table(branch, faulty)
        if dies := self.random.random() < 0.5:
            faulty.crash_call(self.random.randrange(1, 60), self.random.choice([Fault.BEFORE, Fault.AFTER]))
        with suppress(TidelakeError, ProcessDied):
            action(self, table)
        return f"{action.__name__} on {branch}, {'may die' if dies else 'alive'}"

    def check(self, after: str) -> None:
        for branch in self.branches:
            table = self.table(branch)
            io, paths = table.context.io, table.context.paths
            for snapshot_id in snapshot_ids(io, paths)[1]:
                self._check_state(table.context.snapshots.get(snapshot_id), table, None, f"{branch} after {after}")
            for tag, snapshot in TagStore(io, paths).all().items():
                self._check_state(snapshot, table, tag, f"{branch}, tag {tag} after {after}")

    def check_orphans(self) -> None:
        """The cleaner finds what `verify` finds, which reads all of every manifest."""
        context = self.table().context
        found = inspect(context, orphans_older_than_ms=0, now_ms=LATER_MS).orphans
        if found is not None:
            cleaning = clean_orphans(context, older_than_ms=0, dry_run=True, now_ms=LATER_MS)
            assert (cleaning.paths, cleaning.size_bytes) == (found.paths, found.size_bytes)

    def _check_state(self, snapshot: Snapshot, table: Table, tag: str | None, where: str) -> None:
        scan = table.scan(snapshot=snapshot.id) if tag is None else table.scan(tag=tag)
        rows = sorted(scan.to_arrow().to_pylist(), key=lambda row: row["k"])
        assert self.seen.setdefault(snapshot.delta_manifest_list, rows) == rows, where


def write(life: Life, table: Table) -> None:
    life.written += 1
    keys = life.random.sample(range(8), 3)
    with table.writer() as writer:
        writer.write(pa.table({"k": keys, "v": [life.written] * 3}, SCHEMA))
        writer.commit()


def compact(life: Life, table: Table) -> None:
    table.compact(full=True)


def expire(life: Life, table: Table) -> None:
    expire_now(table.context, retention=Retention(1, life.random.randint(1, 3), 0, 50))


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


ACTIONS: list[Callable[[Life, Table], None]] = [
    *(write, write, write, compact, expire, expire, create_tag, create_tag, replace_tag, rename_tag, delete_tag),
    *(create_branch, create_branch, delete_branch, fast_forward, rollback, remove_orphans),
]


@pytest.mark.sampled
def test_every_retained_state_reads_to_the_end_after_each_step() -> None:
    found_once = (8, 97, 290)  # a branch that was not made to the end; a tag of what expires; what an expiry left
    for seed in (*found_once, *range(examples(20))):
        life = Life(Random(seed))
        history = []
        for _ in range(STEPS):
            history.append(life.step())
            life.check(f"{history} (seed {seed})")
        with suppress(TidelakeError):  # a branch that was not made to the end: `verify` wants its schema
            life.check_orphans()
        remove_orphans(life, life.table())
        life.check(f"{history}, orphans removed (seed {seed})")
