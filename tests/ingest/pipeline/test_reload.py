"""A running pipeline that takes a changed configuration: all of it or nothing, and each record in its table once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import pytest

from tests.ingest.formats.debezium.changes import change
from tests.ingest.quarantine.world import GrowingSource, until
from tests.support.faulty_file_io import Fault, FaultyFileIO
from tests.support.levels import sample
from tests.support.memory_log import MemoryLog
from tidelake.checkpoint.offsets import POSITION_PROPERTY, chain_breaks, position_from_text
from tidelake.errors import BadInput, ConfigError, PositionRefused, ReloadRefused, TidelakeError, WriterFenced
from tidelake.ingest.clock import SystemClock
from tidelake.ingest.config.config import parse_config
from tidelake.ingest.pipeline import reload as reload_module
from tidelake.ingest.pipeline.builder import build_pipeline
from tidelake.ingest.pipeline.handover import Handover
from tidelake.ingest.pipeline.pipeline import Pipeline
from tidelake.ingest.pipeline.reload import Reload
from tidelake.ingest.pipeline.reload_requests import ReloadAnswer, ReloadRequest, ReloadRequests
from tidelake.ingest.quarantine import catch_up, table_requests
from tidelake.ingest.settings import Config
from tidelake.storage.catalog.filesystem import FileSystemCatalog
from tidelake.storage.fileio.base import FileIO
from tidelake.storage.fileio.memory import MemoryFileIO
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.table import Table

A, B, C, D = (f"{{name: shop.{name}, options: {{write-only: true}}}}" for name in "abcd")  # no snapshot of compactions


@dataclass
class World:
    """Source tables a, b, c … in a log; each number is a row. `text` is the configuration file."""

    text: str = ""
    log: MemoryLog = field(default_factory=MemoryLog)
    warehouse: str = field(default_factory=lambda: f"memory://{uuid4()}/lake")
    store: FileIO = field(default_factory=MemoryFileIO)
    truth: dict[str, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.catalog = FileSystemCatalog(self.store, self.warehouse)
        self.is_shared = False

    def write_file(self, *tables: str, more: str = "checkpoint: {interval_ms: 20}") -> None:
        self.text = (
            f"warehouse: {self.warehouse}\nsource: {{type: change-log-folder, path: /unused}}\n{more}\n"
            f"tables: [{', '.join(tables)}]\n"
        )

    def add(self, table: str, *numbers: int, **columns: Any) -> None:
        for number in numbers:
            record = change("c", after={"id": number, **columns}, key=None, source={"db": "s", "table": table})
            topic = "all" if self.is_shared else f"s.{table}"
            self.log.append(topic, record.value, record.key, number % 2)
            self.truth.setdefault(table, []).append(number)

    # ------------------------------------------------------------ the configuration file

    def load(self) -> Config:
        return parse_config(self.text, "shop.yaml", (), {}, "shop")

    def digest(self) -> str:
        return str(hash(self.text))

    def __str__(self) -> str:
        return "shop.yaml"

    # ------------------------------------------------------------ what is there

    def scan(self, table: str) -> list[dict[str, Any]]:
        if not self.catalog.table_exists(f"shop.{table}"):
            return []
        rows: list[dict[str, Any]] = Table(self.catalog.load(f"shop.{table}")).scan().to_arrow().to_pylist()
        return rows

    def rows(self, table: str) -> list[int]:
        return sorted(int(row["id"]) for row in self.scan(table))

    def snapshots(self, table: str) -> list[Snapshot]:
        return list(self.catalog.load(f"shop.{table}").snapshots.all())

    def is_right(self, *tables: str) -> bool:
        """Whether each table has the log's rows, and a history of positions without a break."""
        for table in tables:
            assert self.rows(table) == sorted(self.truth[table]), table
            chain = [
                (s.commit_identifier, position_from_text(s.properties[POSITION_PROPERTY], table))
                for s in self.snapshots(table)
            ]
            assert list(chain_breaks(chain)) == [], table
            assert [i for i, _ in chain] == sorted({i for i, _ in chain}), table
        return True


class Running:
    """A pipeline of the world, which runs until the block ends."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.source = GrowingSource(world.log)
        self.io = FaultyFileIO(world.store)

    def build(self, config: Config, before: Handover | None = None) -> Pipeline:
        source, clock = self.source, SystemClock()
        return build_pipeline(config, io=self.io, open_source=lambda: source, clock=clock, before=before)

    async def __aenter__(self) -> Running:
        config = self.world.load()
        self.pipeline = await asyncio.to_thread(self.build, config)
        self.reload = Reload(self.pipeline, config, self.world, self.build, SystemClock())
        self.task: asyncio.Task[Any] = asyncio.create_task(self.pipeline.run())
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        self.source.ends.set()
        self.source.has_grown.set()
        if kind is not None:
            self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=kind is not None)

    def ended(self) -> None:
        """The test has seen the end of the run, so that of the block doesn't raise its error again."""
        self.task = asyncio.create_task(asyncio.sleep(0))

    async def has(self, table: str, *numbers: int) -> None:
        """Waits until the table has these rows."""
        self.source.has_grown.set()
        await until(lambda: set(numbers) <= set(self.world.rows(table)), self.task)

    async def snapshots(self, table: str) -> list[int]:
        return [s.id for s in await asyncio.to_thread(self.world.snapshots, table)]


async def is_right(world: World, *tables: str) -> bool:
    return await asyncio.to_thread(world.is_right, *tables)


@pytest.mark.parametrize("is_shared", [False, True], ids=["a topic each", "one topic"])
async def test_an_added_table_gets_all_its_rows_and_the_others_no_snapshot(is_shared: bool) -> None:
    world = World()
    world.is_shared = is_shared
    world.write_file(A, B)
    for table in "abc":
        world.add(table, 0, 1, 2)
    async with Running(world) as run:
        await run.has("a", 0, 1, 2)
        await run.has("b", 0, 1, 2)
        before = await run.snapshots("a"), await run.snapshots("b")
        sink = run.pipeline.sinks["shop.a"]
        world.write_file(A, B, C)
        changes = await run.reload.take()
        assert changes.added == ["shop.c"]
        await run.has("c", 0, 1, 2)
        assert (await run.snapshots("a"), await run.snapshots("b")) == before
        assert run.pipeline.sinks["shop.a"] is sink
        for table in "abc":
            world.add(table, 3, 4)
        for table in "abc":
            await run.has(table, 3, 4)
    assert await is_right(world, "a", "b", "c")


async def test_a_removed_table_has_what_was_read_and_gets_no_more() -> None:
    world = World()
    world.write_file(A, B)
    world.add("a", 0)
    world.add("b", 0)
    async with Running(world) as run:
        await run.has("a", 0)
        await run.has("b", 0)
        world.write_file(A, more="checkpoint: {interval_ms: 3600000}")
        await run.reload.take()
        assert list(run.pipeline.tables) == ["shop.a"]
        assert "shop.b" not in run.pipeline.observed.tables
        snapshots = await run.snapshots("b")
        world.add("b", 1)
        world.add("a", 1)
    assert (await asyncio.to_thread(world.rows, "a"), await asyncio.to_thread(world.rows, "b")) == ([0, 1], [0])
    assert [s.id for s in await asyncio.to_thread(world.snapshots, "b")] == snapshots
    world.write_file(A, B)
    async with Running(world) as run:  # named again, it continues where it ended
        await run.has("b", 1)
    assert await is_right(world, "a", "b")


async def test_a_removed_table_commits_what_was_read_and_waits_for_no_interval() -> None:
    world = World()
    world.write_file(A, B, more="checkpoint: {interval_ms: 3600000}")
    world.add("a", 0)
    world.add("b", 0, 1)
    async with Running(world) as run:
        await until(lambda: run.pipeline.metrics.rows == 3, run.task)
        world.write_file(A, more="checkpoint: {interval_ms: 3600000}")
        await run.reload.take()
        assert await asyncio.to_thread(world.rows, "b") == [0, 1]
    assert await is_right(world, "a", "b")


async def test_a_changed_filter_and_a_mask_hold_from_the_next_record_on() -> None:
    world = World()
    world.write_file("{name: shop.a, columns: {id: INT, mail: STRING}}", B)
    world.add("a", 0, mail="a@x")
    world.add("b", 0)
    async with Running(world) as run:
        await run.has("a", 0)
        await run.has("b", 0)
        before = await run.snapshots("b")
        world.write_file(
            "{name: shop.a, columns: {id: INT, mail: STRING}, masks: {mail: redact}, filter: 'id <> 1'}", B
        )
        changes = await run.reload.take()
        assert changes.changed == {"shop.a": ["masks", "filter"]}
        assert await run.snapshots("b") == before
        world.add("a", 1, 2, mail="b@x")
        await run.has("a", 2)
    rows = sorted((row["id"], row["mail"]) for row in await asyncio.to_thread(world.scan, "a"))
    assert rows[0] == (0, "a@x")
    assert [id_ for id_, _ in rows] == [0, 2]
    assert "b@x" not in dict(rows)[2]


async def test_a_higher_tolerance_lets_bad_records_become_dead_letters() -> None:
    world = World()
    bad = "checkpoint: {{interval_ms: 20}}\nerrors: {{tolerance: {}}}"
    world.write_file(A, B, more=bad.format(1))
    world.add("a", 0)
    async with Running(world) as run:
        world.log.append("s.a", b"no JSON", None)
        await run.has("a", 0)
        await until(lambda: run.pipeline.metrics.dead_letters == 1, run.task)
        world.write_file(A, B, more=bad.format(2))
        await run.reload.take()
        world.log.append("s.a", b"no JSON either", None)
        world.add("a", 2)
        await run.has("a", 2)
        assert run.pipeline.metrics.dead_letters == 2
        world.log.append("s.a", b"one too many: the first one still counts", None)
        with pytest.raises(BadInput, match="This run has kept 2 records as dead letters before"):
            await asyncio.wait_for(asyncio.shield(run.task), 30)
        run.ended()


REFUSED: dict[str, tuple[Callable[[World], None], type[Exception], str]] = {
    "a file that is no YAML": (lambda w: setattr(w, "text", "tables: ["), ConfigError, "not YAML"),
    "a misspelt setting": (
        lambda w: w.write_file(A, C, "{name: shop.b, fliter: x}"),
        ConfigError,
        "no setting `fliter`",
    ),
    "settings that need a restart": (
        lambda w: w.write_file(A, B, C, more="metrics: {port: 0}\nwrite: {memory_bytes: 9}\nerrors: {tolerance: all}"),
        ReloadRefused,
        "`write.memory_bytes`, `metrics.port`",
    ),
    "a contradiction to an existing table": (
        lambda w: w.write_file(A, C, "{name: shop.b, primary_key: [id]}"),
        BadInput,
        "contradicts tables that exist",
    ),
    "a format option that doesn't exist": (
        lambda w: w.write_file(A, B, C, more="format_options: {no_such_option: 1}"),
        TidelakeError,
        "no_such_option",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_nothing_changes_with(case: str) -> None:
    change_file, kind, text = REFUSED[case]
    world = World()
    world.write_file(A, B)
    for table in "abc":
        world.add(table, 0)
    async with Running(world) as run:
        await run.has("a", 0)
        await run.has("b", 0)
        before, config = await run.snapshots("b"), run.reload.config
        change_file(world)
        with pytest.raises(kind, match=text):
            await run.reload.take()
        assert run.reload.config is config
        world.add("a", 1)
        await run.has("a", 1)
        assert await run.snapshots("b") == before
    assert await asyncio.to_thread(world.rows, "c") == []
    assert await is_right(world, "a", "b")


async def test_a_new_table_whose_position_is_lost_is_refused_and_the_others_continue() -> None:
    world = World()
    a, b = "{name: shop.a, topics: s.a}", "{name: shop.b, topics: s.b}"
    world.write_file(a, b)
    for table in "ab":
        world.add(table, 0)
    async with Running(world) as run:
        await run.has("b", 0)
    world.write_file(a)
    for table in "ab":
        world.add(table, 2, 4)
    world.log.first = {p: 2 for p in world.log.records if p.topic == "s.b"}  # 2 of b is gone before b has read it
    async with Running(world) as run:
        await run.has("a", 4)
        sink = run.pipeline.sinks["shop.a"]
        world.write_file(a, b)
        with pytest.raises(PositionRefused, match=r"shop\.b: retention has deleted records"):
            await run.reload.take()
        assert run.pipeline.sinks["shop.a"] is sink
        world.add("a", 5)
        await run.has("a", 5)
    assert await is_right(world, "a")
    assert await asyncio.to_thread(world.rows, "b") == [0]


async def test_a_table_in_quarantine_and_a_paused_one_stay_so_and_catch_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catch_up, "REQUESTS_INTERVAL_MS", 20)
    world = World()
    more = "checkpoint: {interval_ms: 20}\nquarantine: {retry_ms_min: 20, retry_ms_max: 20}"
    world.write_file(A, B, C, more=more)
    for table in "abcd":
        world.add(table, 0)
    async with Running(world) as run:
        for table in "abc":
            await run.has(table, 0)
        location = f"{world.warehouse}/shop.quarantine"
        await asyncio.to_thread(table_requests.pause, world.store, location, "shop.b")
        broken = {"c"}
        run.io.fault = lambda call: (
            Fault.BEFORE
            if call.name in ("open_output", "create_if_absent", "write")
            and any(f"shop.db/{t}/" in call.path for t in broken)
            else None
        )
        for table in "abcd":
            world.add(table, 1, 2)
        await run.has("a", 1, 2)
        await until(lambda: "shop.b" not in run.pipeline.sinks and "shop.c" not in run.pipeline.sinks, run.task)
        world.write_file(A, B, C, D, more=more)
        await run.reload.take()
        await run.has("d", 0, 1, 2)
        for table in "abcd":
            world.add(table, 3)
        await run.has("a", 3)
        assert await asyncio.to_thread(world.rows, "b") == [0]
        broken.clear()
        await asyncio.to_thread(table_requests.resume, world.store, location, "shop.b")
        for table in "abcd":
            await run.has(table, 3)
    assert await is_right(world, *"abcd")


async def test_rows_that_arrive_during_many_reloads_are_there_once() -> None:
    world = World()
    world.write_file(A, B)
    async with Running(world) as run:
        await until(lambda: run.pipeline.state.name == "RUNNING", run.task)
        for number in range(12):
            for table in "abc":
                world.add(table, 2 * number, 2 * number + 1)
            run.source.has_grown.set()
            world.write_file(A, *([B] if number % 2 else [C]), more=f"checkpoint: {{interval_ms: {20 + number}}}")
            await run.reload.take()
        world.write_file(A, B, C)
        await run.reload.take()
        for table in "abc":
            await run.has(table, *world.truth[table])
    assert await is_right(world, *"abc")


async def test_tables_of_an_entry_that_stands_for_many_keep_their_sinks() -> None:
    world = World()
    many = "{name: 'shop.{table}', source_tables: {excluding_tables: %s}}"
    world.write_file(many % "'c|d'")
    for table in "abcd":
        world.add(table, 0)
    async with Running(world) as run:
        await run.has("a", 0)
        await run.has("b", 0)
        before = await run.snapshots("a")
        world.write_file(many % "'c|d'", more="checkpoint: {interval_ms: 30}")
        await run.reload.take()
        assert await run.snapshots("a") == before
        world.write_file(many % "d")
        await run.reload.take()
        for table in "abcd":
            world.add(table, 1)
        await run.has("a", 1)
        await run.has("c", 1)  # as after a restart: records that were passed over are not read again
    assert [await asyncio.to_thread(world.rows, table) for table in "cd"] == [[1], []]
    assert await is_right(world, "a", "b")


async def test_a_newer_process_still_fences_one_that_reloads() -> None:
    world = World()
    world.write_file(A, B)
    for table in "ab":
        world.add(table, 0)
    async with Running(world) as old:
        await old.has("a", 0)
        await old.has("b", 0)
        async with Running(world) as new:
            await until(lambda: new.pipeline.state.name == "RUNNING", new.task)
            world.write_file(A, B, C)
            with pytest.raises(WriterFenced, match="took over"):
                await old.reload.take()
            with pytest.raises(WriterFenced):
                await asyncio.wait_for(old.task, 30)
            old.ended()
            world.add("a", 1)
            await new.has("a", 1)
    assert not await asyncio.to_thread(world.catalog.table_exists, "shop.c")
    assert await is_right(world, "a", "b")


async def test_a_pipeline_that_is_stopped_meanwhile_says_so() -> None:
    world = World()
    world.write_file(A, B)
    world.add("a", 0)
    async with Running(world) as run:
        await run.has("a", 0)
        world.write_file(A, B, C)
        run.pipeline.stop()
        with pytest.raises(ReloadRefused):
            await run.reload.take()


@pytest.mark.parametrize("fault", [Fault.BEFORE, Fault.AFTER], ids=["before", "after"])
@pytest.mark.parametrize("number", sample(range(0, 104, 3)))
async def test_a_kill_at_any_call_of_a_reload_loses_and_repeats_nothing(number: int, fault: Fault) -> None:
    """A reload makes about a hundred calls."""
    world = World()
    world.write_file(A, B)
    for table in "abc":
        world.add(table, 0, 1)
    changed = "{name: shop.a, filter: 'id is not null', options: {write-only: true}}"
    run = Running(world)
    async with run:
        await run.has("a", 0, 1)
        await run.has("b", 0, 1)
        for table in "abc":
            world.add(table, 2, 3)
        world.write_file(changed, C)
        run.io.crash_call(number, fault)
        reloading = asyncio.create_task(run.reload.take())
        run.source.has_grown.set()
        await asyncio.wait({reloading, run.task}, timeout=30, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.sleep(0.1)
        run.task.cancel()
        await asyncio.gather(reloading, run.task, return_exceptions=True)
        run.ended()
    world.write_file(changed, B, C)
    async with Running(world) as next_run:
        for table in "abc":
            await next_run.has(table, 2, 3)
    assert await is_right(world, *"abc")


KEPT: dict[str, tuple[str, str, bool]] = {
    "the same settings": ("filter: 'id > 1'", "filter: 'id > 1'", True),
    "a setting that is written as it is by default": ("", "deletes: hard", True),
    "others that write to the table": ("", "shared_with: job", False),
    "a filter": ("filter: 'id > 1'", "filter: 'id > 2'", False),
}


@pytest.mark.parametrize("case", KEPT)
async def test_a_table_keeps_its_sink_with_the_same_settings_and_is_opened_again_with(case: str) -> None:
    before, after, is_kept = KEPT[case]
    world = World()
    columns = "columns: {id: INT}"
    world.write_file(f"{{name: shop.a, {columns}, {before}}}", B)
    world.add("a", 2, 3)
    world.add("b", 0)
    async with Running(world) as run:
        await run.has("a", 2, 3)
        await run.has("b", 0)
        sinks = dict(run.pipeline.sinks)
        world.write_file(f"{{name: shop.a, {columns}, {after}}}", B, more="checkpoint: {interval_ms: 21}")
        await run.reload.take()
        assert (run.pipeline.sinks["shop.a"] is sinks["shop.a"]) == is_kept
        assert run.pipeline.sinks["shop.b"] is sinks["shop.b"]
        world.add("a", 4)
        await run.has("a", 4)
    assert await is_right(world, "a", "b")


# ---------------------------------------------------------------- requests


@pytest.fixture
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reload_module, "REQUESTS_INTERVAL_MS", 20)


async def answer_of(requests: ReloadRequests, request: ReloadRequest, run: Running) -> ReloadAnswer:
    found: list[ReloadAnswer] = []

    def is_there() -> bool:
        answer = requests.read_answer(request)
        found.extend([] if answer is None else [answer])
        return bool(found)

    await until(is_there, run.task)
    return found[0]


@pytest.mark.usefixtures("looks_often")
async def test_requests_and_hangups_are_followed_and_answered() -> None:
    world = World()
    world.write_file(A, B)
    for table in "abc":
        world.add(table, 0)
    requests, hangup = ReloadRequests(world.store, world.warehouse, "shop"), asyncio.Event()
    async with Running(world) as run:
        following = asyncio.create_task(run.reload.follow(hangup, requests))

        async def ask(digest: str | None = None) -> ReloadAnswer:
            request = await asyncio.to_thread(requests.ask, digest or world.digest())
            return await answer_of(requests, request, run)

        await run.has("a", 0)
        assert (await ask()).outcome == "unchanged"
        other = await ask("of another file")
        assert (other.outcome, "has other contents" in other.reason) == ("refused", True)
        world.write_file(A, B, C, more="write: {queue_bytes: 9}")
        refused = await ask()
        assert (refused.outcome, "`write.queue_bytes`" in refused.reason) == ("refused", True)
        world.text = "tables: ["
        assert (await ask()).outcome == "failed"
        hangup.set()
        world.write_file(A, B, C)
        taken = await ask()
        assert taken.outcome in ("taken", "unchanged")  # the signal may have been first
        await run.has("c", 0)
        world.write_file(A, C)
        taken = await ask()
        assert (taken.outcome, taken.lines) == ("taken", ["removed: shop.b"])
        hangup.set()
        await until(lambda: not hangup.is_set(), run.task)
        await asyncio.to_thread(world.store.write, f"{requests.location}/request-x", b"{")
        await until(lambda: not world.store.exists(f"{requests.location}/request-x"), run.task)
        assert (await ask()).outcome == "unchanged"
        await run.reload.end(following)
    assert await is_right(world, *"abc")


def test_a_request_may_be_withdrawn_until_the_pipeline_begins() -> None:
    requests = ReloadRequests(MemoryFileIO(), "memory://ask/lake", "a b/ü")
    assert requests.take() == []
    request = requests.ask("d")
    assert requests.read_answer(request) is None
    assert requests.withdraw(request)
    assert requests.take() == []
    request = requests.ask("d")
    assert requests.take() == [request]
    assert not requests.withdraw(request)
    answer = ReloadAnswer("taken", lines=["added: shop.ü"], changes={"added": ["shop.ü"]})
    requests.answer(request, answer)
    assert requests.read_answer(request) == answer
    assert requests.read_answer(request) is None


async def test_a_target_of_freshness_comes_and_goes_while_the_pipeline_runs() -> None:
    world = World()
    world.write_file(A)
    async with Running(world) as running:
        world.add("a", 1)
        await running.has("a", 1)
        observed = running.pipeline.observed
        assert (observed.freshness, observed.interval_ms) == (None, 20)
        world.write_file(A, more="freshness: {target_ms: 200}")
        changes = await running.reload.take()
        assert changes.settings == ["checkpoint.interval_ms", "freshness.target_ms"]
        assert observed.freshness is not None
        assert (observed.freshness.target_ms, observed.freshness.table) == (200, "shop.a")
        assert observed.stall_tolerance_ms == 10_000
        world.add("a", 2)
        await running.has("a", 1, 2)
        assert observed.freshness.hour is not None
        world.write_file(A)
        await running.reload.take()
        assert running.pipeline.observed.freshness is None
        assert (observed.interval_ms, observed.stall_tolerance_ms) == (20, 0)
        world.add("a", 3)
        await running.has("a", 1, 2, 3)
