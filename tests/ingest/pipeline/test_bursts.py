"""One table has a hundred times the records of the others, or compactions without end: no other table waits for it.

A checkpoint is counted, not timed: in these tests one follows each batch, and a batch has records of all tables.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import uuid4

import pytest

from tests.ingest.formats.debezium.changes import change
from tests.support.memory_log import MemoryLog, MemoryLogSource
from tidelake.checkpoint.offsets import POSITION_PROPERTY, TopicPartition, chain_breaks, position_from_text
from tidelake.compaction import compact_manager, scheduler
from tidelake.compaction.cancellation import IsCancelled
from tidelake.compaction.merge_tree.compact_unit import CompactUnit
from tidelake.compaction.merge_tree.merge_tree import MergeTree
from tidelake.compaction.scheduler import CompactionScheduler
from tidelake.ingest.config.config import parse_config
from tidelake.ingest.pipeline import checkpointer
from tidelake.ingest.pipeline.builder import build_pipeline
from tidelake.ingest.pipeline.pipeline import Pipeline
from tidelake.ingest.raw_batch import RawBatch
from tidelake.storage.catalog.filesystem import FileSystemCatalog
from tidelake.storage.commit.commit_increment import CompactResult
from tidelake.storage.ddl.schema_changes import SetOption
from tidelake.storage.fileio.memory import MemoryFileIO
from tidelake.storage.model.format import CommitKind
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.table import Table

TIMES: Final = 100  # as many records as each of the others
ROUNDS: Final = 6
SMALL: Final = "{num-sorted-run.compaction-trigger: 2, num-sorted-run.stop-trigger: 3, bucket: 1}"
LOOKUP: Final = "{changelog-producer: lookup, bucket: 1}"
LONG_BYTES: Final = 15_000  # between the compactions of `burst` and those of the others


class RoundsSource(MemoryLogSource):
    """A batch is a round. After the last one it waits until `go_on` is set."""

    def __init__(self, log: MemoryLog, records: int) -> None:
        super().__init__(log, records)
        self.go_on = asyncio.Event()

    async def read(self, positions: Mapping[TopicPartition, int]) -> AsyncGenerator[RawBatch, None]:
        async for batch in super().read(positions):
            yield batch
        await self.go_on.wait()


pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]


@dataclass
class World:
    """The tables `burst` and `t0`, `t1` …, in a memory store.

    burst, others: the options of the tables
    """

    others: int
    burst_options: str = SMALL
    options: str = LOOKUP
    memory_bytes: int = 64 << 20
    log: MemoryLog = field(default_factory=MemoryLog)
    io: MemoryFileIO = field(default_factory=MemoryFileIO)
    warehouse: str = field(default_factory=lambda: f"memory://{uuid4()}/lake")
    truth: dict[str, dict[int, int]] = field(default_factory=dict)

    @property
    def catalog(self) -> FileSystemCatalog:
        return FileSystemCatalog(self.io, self.warehouse)

    @property
    def names(self) -> list[str]:
        return [f"t{number}" for number in range(self.others)]

    def add_rounds(self, rounds: int = ROUNDS) -> None:
        for number in range(rounds):
            for times, table in [(TIMES, "burst"), *((1, name) for name in self.names)]:
                for id_ in range(times):
                    text = hashlib.sha512(f"{table} {number} {id_}".encode()).hexdigest()  # can't be compressed much
                    after = {"id": id_, "v": number, "text": text}
                    record = change("u", after=after, key={"id": id_}, source={"db": "s", "table": table})
                    self.log.append("all", record.value, record.key)
                    self.truth.setdefault(table, {})[id_] = number

    def source(self) -> RoundsSource:
        return RoundsSource(self.log, TIMES + self.others)

    def pipeline(self, source: RoundsSource) -> Pipeline:
        entries = [f"{{name: shop.burst, options: {self.burst_options}}}"]
        entries += [f"{{name: shop.{name}, options: {self.options}}}" for name in self.names]
        text = (
            f"warehouse: {self.warehouse}\nsource: {{type: change-log-folder, path: /unused}}\n"
            f"checkpoint: {{interval_ms: 3600000, bytes_max: 1}}\nwrite: {{memory_bytes: {self.memory_bytes}}}\n"
            f"tables: [{', '.join(entries)}]\n"
        )
        return build_pipeline(parse_config(text, "shop.yaml", pipeline="shop"), io=self.io, open_source=lambda: source)

    def table(self, name: str) -> Table:
        return Table(self.catalog.load(f"shop.{name}"))

    def checkpoints_of(self, name: str) -> list[int]:
        """The identifiers of the table's snapshots with records."""
        if not self.catalog.table_exists(f"shop.{name}"):
            return []
        appended = [s for s in self._snapshots(name) if s.commit_kind is CommitKind.APPEND]
        return [s.commit_identifier for s in appended if s.delta_record_count]

    def _snapshots(self, name: str) -> Sequence[Snapshot]:
        return list(self.table(name).context.snapshots.all())

    def check(self) -> None:
        """Each table has its rows, and a history of positions without a break."""
        for name, rows in self.truth.items():
            scanned: list[dict[str, Any]] = self.table(name).scan().to_arrow().to_pylist()
            assert {int(row["id"]): int(row["v"]) for row in scanned} == rows, name
            chain = [
                (s.commit_identifier, position_from_text(s.properties[POSITION_PROPERTY], name))
                for s in self._snapshots(name)
            ]
            assert list(chain_breaks(chain)) == [], name


@dataclass
class Compactions:
    """What the long compactions of table `burst` do: they wait at a gate, from the n-th on."""

    free: int = 1 << 30
    begun: int = 0
    gate: threading.Event = field(default_factory=threading.Event)


@pytest.fixture
def compactions(monkeypatch: pytest.MonkeyPatch) -> Compactions:
    """Compactions of `burst` are long, but for its first files; those of others are short. One thread, as on two
    cores.
    """
    found, compact, one_thread = Compactions(), MergeTree.compact, CompactionScheduler(1)

    def gated(tree: MergeTree, unit: CompactUnit, is_cancelled: IsCancelled = lambda: False) -> CompactResult:
        if tree._context.name == "shop.burst" and sum(file.file_size for file in unit.files) > LONG_BYTES:
            found.begun += 1
            if found.begun > found.free:
                while not found.gate.wait(0.01) and not is_cancelled():
                    pass
        return compact(tree, unit, is_cancelled)

    monkeypatch.setattr(MergeTree, "compact", gated)
    monkeypatch.setattr(scheduler, "LONG_BYTES", LONG_BYTES)
    for module in (compact_manager, checkpointer):
        monkeypatch.setattr(module, "shared_scheduler", lambda: one_thread)
    return found


def run(world: World, compactions: Compactions) -> None:
    """Run a pipeline over the log. The gate opens when the other tables have the records of every round, each in a
    checkpoint of its own.
    """
    rounds = {name: len(world.checkpoints_of(name)) + ROUNDS for name in world.names}

    def others_have_all() -> bool:
        return all(len(world.checkpoints_of(name)) >= number for name, number in rounds.items())

    async def run_pipeline() -> None:
        source = world.source()
        pipeline = await asyncio.to_thread(world.pipeline, source)
        running = asyncio.create_task(pipeline.run())
        try:
            async with asyncio.timeout(600):
                while not running.done() and not await asyncio.to_thread(others_have_all):
                    await asyncio.wait({running}, timeout=0.01)
        finally:
            compactions.gate.set()
            source.go_on.set()
            await running

    asyncio.run(run_pipeline())


def test_in_a_burst_every_table_with_records_is_in_every_checkpoint(compactions: Compactions) -> None:
    world = World(others=10)
    world.add_rounds()
    run(world, compactions)
    identifiers = world.checkpoints_of("t0")
    assert len(identifiers) == ROUNDS
    assert {name: world.checkpoints_of(name) for name in world.names} == dict.fromkeys(world.names, identifiers)
    world.check()


WAITS_FOR: Final = {
    "too many sorted runs": SMALL,
    "lookups": LOOKUP,
    "full compactions": "{changelog-producer: full-compaction, full-compaction.delta-commits: 2, bucket: 1}",
    "each compaction": "{commit.force-compact: true, num-sorted-run.compaction-trigger: 2, bucket: 1}",
}


@pytest.mark.parametrize("options", WAITS_FOR.values(), ids=WAITS_FOR)
def test_a_long_compaction_that_its_commits_wait_for_stops_no_other_table(
    options: str, compactions: Compactions
) -> None:
    compactions.free = 0
    world = World(others=5, burst_options=options)
    world.add_rounds()
    run(world, compactions)
    assert compactions.begun
    identifiers, of_burst = world.checkpoints_of("t0"), world.checkpoints_of("burst")
    assert identifiers == list(range(identifiers[0], identifiers[0] + ROUNDS))
    assert {name: world.checkpoints_of(name) for name in world.names} == dict.fromkeys(world.names, identifiers)
    assert 0 < len(of_burst) < ROUNDS  # it was held back, and came again at the end
    assert of_burst[-1] >= identifiers[-1]
    world.check()


def test_a_table_with_a_debt_of_compactions_stops_no_other_table(compactions: Compactions) -> None:
    world = World(others=5, burst_options="{write-only: true, bucket: 1}")
    world.add_rounds()
    run(world, compactions)
    assert compactions.begun == 0  # its sorted runs are left
    options = {"num-sorted-run.compaction-trigger": "2", "num-sorted-run.stop-trigger": "3", "write-only": "false"}
    world.catalog.alter_table("shop.burst", [SetOption(*option) for option in options.items()])
    world.burst_options, compactions.free, compactions.gate = SMALL, 0, threading.Event()
    before = world.checkpoints_of("burst")
    world.add_rounds()
    run(world, compactions)
    assert {len(world.checkpoints_of(name)) for name in world.names} == {2 * ROUNDS}
    assert len(world.checkpoints_of("burst")) == len(before) + 1
    world.check()


def test_many_tables_compact_a_little_beside_one_long_compaction(compactions: Compactions) -> None:
    """The one thread is taken by the long compaction, and each commit of the others waits for a compaction."""
    compactions.free = 0
    world = World(others=12)
    world.add_rounds()
    run(world, compactions)
    assert {len(world.checkpoints_of(name)) for name in world.names} == {ROUNDS}
    world.check()
