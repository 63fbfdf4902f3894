"""A pipeline with a target of freshness: what it measures, applies and tells."""

from __future__ import annotations

import asyncio
import json
import logging
from asyncio import to_thread
from pathlib import Path
from typing import Any, Final, cast
from urllib.request import urlopen

import pytest

from tests.ingest.pipeline.fakes import FakeSource, FakeTable, Rig, raw_batch, until
from tests.support.manual_clock import ManualClock
from tidelake.checkpoint.record_times import RecordTimes
from tidelake.compaction.scheduler import CompactionScheduler
from tidelake.ingest.config.config import parse_config
from tidelake.ingest.monitoring.observations import BINDINGS, RunObservations
from tidelake.ingest.monitoring.readiness import not_ready
from tidelake.ingest.pipeline.builder import build_pipeline
from tidelake.ingest.pipeline.freshness import REMEDIES, WAITING_READER, FreshnessKeeper, FreshnessParts
from tidelake.ingest.pipeline.freshness_control import Binding, FreshnessGoal, FreshnessState, Pace
from tidelake.ingest.settings import RequestPricesSettings
from tidelake.storage.base.clock import epoch_ms
from tidelake.storage.base.logs import FIELDS
from tidelake.storage.fileio.store_requests import Operation, StoreRequests
from tidelake.storage.write.memory_budget import MemoryBudget

MIB: Final = 1 << 20
TARGETS: Final = {"shop.fast": 1_000, "shop.slow": 10_000}


class Kept:
    """A keeper whose checkpoints a test writes down. The process around it does nothing."""

    def __init__(self, *, target_ms: int = 1_000, price_an_hour_max: float | None = None) -> None:
        self.clock = ManualClock()
        self.observed = RunObservations(750, self.clock, state="RUNNING")
        self.requests = StoreRequests()
        parts = FreshnessParts(
            "shop.fast",
            TARGETS.get,
            RequestPricesSettings(),
            self.observed,
            MemoryBudget(MIB),
            CompactionScheduler(1),
            self.requests,
        )
        goal = FreshnessGoal(target_ms, 512 * MIB, 256 * MIB, price_an_hour_max)
        self.keeper = FreshnessKeeper(goal, target_ms * 3 // 4, parts)

    def checkpoint(self, *, took_ms: int = 50, span_ms: int = 750, **ages_ms: int) -> FreshnessState:
        """One checkpoint. ages_ms: of the oldest record of each table when it becomes visible."""
        written_ms = self.clock.now_ms()
        self.clock.advance(span_ms)
        self.keeper.begins()
        self.clock.advance(took_ms)
        for name, age_ms in ages_ms.items():
            oldest_ms = epoch_ms() - age_ms
            self.observed.was_written(f"shop.{name}", 1, RecordTimes(oldest_ms, oldest_ms))
            self.observed.committed(f"shop.{name}", 1, took_ms, 1)
        return self.keeper.ended(written_ms, 1_000, 2_000)


def reached_ms(kept: Kept) -> int | None:
    assert kept.observed.freshness is not None
    return kept.observed.freshness.reached_ms


@pytest.mark.parametrize(
    ("ages", "expected_ms"),
    [
        pytest.param({"fast": 900}, 900, id="the ruling table"),
        pytest.param({"fast": 100, "slow": 5_000}, 500, id="another one in proportion to its target"),
        pytest.param({"other": 50_000}, None, id="not one without a target"),
        pytest.param({}, None, id="nothing was committed"),
    ],
)
def test_the_freshness_reached_is_that_of_the_table_nearest_to_its_target(
    ages: dict[str, int], expected_ms: int | None
) -> None:
    kept = Kept()
    kept.checkpoint(**ages)
    assert reached_ms(kept) == (None if expected_ms is None else pytest.approx(expected_ms, abs=50))


def test_a_table_that_commits_no_more_counts_no_more() -> None:
    kept = Kept()
    kept.checkpoint(slow=9_000)
    kept.checkpoint(fast=100)
    assert reached_ms(kept) == pytest.approx(100, abs=50)


def test_only_records_of_the_ruling_tables_shorten_the_interval() -> None:
    kept = Kept()
    kept.checkpoint(fast=800, slow=9_900)
    assert kept.keeper.state.upstream_ms[-1] == pytest.approx(0, abs=50)
    kept.checkpoint(fast=1_100)
    assert kept.keeper.state.upstream_ms[-1] == pytest.approx(250, abs=50)  # less 50 ms for the checkpoint before


@pytest.mark.parametrize(
    ("blocked", "binds"), [(False, Binding.SOURCE), (True, Binding.STORE)], ids=["it delivers late", "it has to wait"]
)
def test_a_reader_that_waits_for_the_pipeline_is_not_a_late_source(blocked: bool, binds: Binding) -> None:
    kept = Kept()
    for _ in range(8):
        if blocked:
            with kept.observed.activity(WAITING_READER):
                kept.checkpoint(took_ms=700, span_ms=600, fast=60_000)
        else:
            kept.checkpoint(span_ms=600, fast=60_000)
    assert kept.keeper.state.binds is binds
    assert kept.observed.freshness is not None
    assert kept.observed.freshness.binds in BINDINGS


def test_a_reader_that_still_waits_is_counted() -> None:
    kept = Kept()
    with kept.observed.activity(WAITING_READER):
        kept.clock.advance(70)
        assert kept.observed.time_in(WAITING_READER) == 70
    kept.clock.advance(5)
    assert kept.observed.time_in(WAITING_READER) == 70


def test_an_hour_costs_what_the_last_minutes_cost() -> None:
    kept = Kept()
    for _ in range(20):
        kept.requests.add(Operation.PUT, "bucket-0/data.parquet", 10, 0.1)
        kept.requests.add(Operation.GET, "manifest/manifest-1", 20, 0.1)
        kept.checkpoint(span_ms=950)
    assert kept.observed.freshness is not None
    assert (hour := kept.observed.freshness.hour) is not None
    assert (hour.puts, hour.gets, hour.nbytes) == (36_000, 72_000, 7_200_000)
    assert hour.price == pytest.approx(36_000 * 5e-6 + 72_000 * 0.4e-6)


def test_a_price_limit_binds() -> None:
    kept = Kept(price_an_hour_max=0.05)
    for _ in range(30):
        kept.requests.add(Operation.PUT, "bucket-0/data.parquet", 20, 0.1)  # 0.0001 a checkpoint
        state = kept.checkpoint(span_ms=kept.keeper.state.interval_ms, fast=kept.keeper.state.interval_ms)
    assert state.binds is Binding.COST
    assert state.interval_ms == pytest.approx(0.0001 / 0.05 * 3_600_000, rel=0.11)


def test_each_change_is_one_line_of_the_log_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tidelake.ingest")
    kept = Kept()
    for _ in range(10):
        kept.checkpoint(took_ms=600, span_ms=600, fast=1_800)
    lines = [getattr(record, FIELDS) for record in caplog.records]
    assert kept.observed.freshness is not None
    assert [line["changed"] for line in lines] == [change.changed for change in kept.observed.freshness.changes]
    assert {line["event"] for line in lines} == {"freshness"}
    assert {(line["table"], line["target_ms"]) for line in lines} == {("shop.fast", 1_000)}
    assert "interval 750 ms → 975 ms" in lines[0]["changed"] or "interval" in lines[1]["changed"]
    (warned,) = [line for record, line in zip(caplog.records, lines, strict=True) if record.levelname == "WARNING"]
    assert "store binds" in warned["changed"]
    assert warned["reached_ms"] > warned["target_ms"]
    assert warned["remedy"] == REMEDIES[Binding.STORE]
    assert all(line["reason"] == "a checkpoint takes 600 ms" for line in lines if "interval" in line["changed"])


def test_nothing_is_logged_while_nothing_changes(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tidelake.ingest")
    kept = Kept()
    for _ in range(10):
        kept.checkpoint(fast=800)
    caplog.clear()
    for _ in range(50):
        kept.checkpoint(fast=800)
    assert caplog.records == []


def test_short_intervals_do_not_make_the_pipeline_unready() -> None:
    kept = Kept()
    kept.observed.waiting_since_ms = kept.clock.now_ms()
    kept.clock.advance(9_999)
    assert not_ready(kept.observed) == []
    kept.clock.advance(2)
    assert [reason.code for reason in not_ready(kept.observed)] == ["commits_stalled"]


# ---------------------------------------------------------------- in a pipeline


class Decided:
    """Decides always the same."""

    def __init__(self, state: FreshnessState) -> None:
        self.state = state
        self.begun = 0
        self.sizes = list[tuple[int, int]]()

    def begins(self) -> None:
        self.begun += 1

    def ended(self, oldest_written_ms: int, nbytes: int, written_bytes: int) -> FreshnessState:
        self.sizes.append((nbytes, written_bytes))
        return self.state


async def test_the_next_checkpoint_follows_the_decision() -> None:
    table, decision = FakeTable("t"), Decided(FreshnessState(2_000, 1 << 30, Pace.HALF))
    source = FakeSource([raw_batch([0])], ends=False)
    rig = Rig(source, [table], interval_ms=500, freshness=cast(FreshnessKeeper, decision))
    run = asyncio.create_task(rig.pipeline.run())
    await asyncio.wait_for(rig.clock.sleeper(below_ms=501), 30)
    rig.clock.advance(500)
    await until(lambda: len(decision.sizes) == 1)
    coordinator = rig.pipeline._flow.coordinator
    begun_ms = rig.clock.now_ms()
    coordinator.record_write(next(iter(coordinator.reached)), 5, nbytes=1, now_ms=begun_ms)
    assert coordinator.due_in_ms(begun_ms) == 2_000
    checkpoints = rig.pipeline._flow._checkpoints
    assert (checkpoints.priority.interval_ms, checkpoints.priority.compaction_pause_ms) == (2_000, 1_000)
    rig.pipeline.stop()
    await run
    assert decision.begun == len(decision.sizes)


def write_lines(folder: Path, number: int, rows: int, first: int) -> None:
    lines = [
        json.dumps(
            {
                "topic": "shop",
                "partition": 0,
                "offset": first + n,
                "timestamp_ms": epoch_ms(),
                "key": None,
                "value": json.dumps({"id": n, "v": "x"}),
            }
        )
        for n in range(rows)
    ]
    unfinished = folder / f"{number}.tmp"
    unfinished.write_text("".join(f"{line}\n" for line in lines))
    unfinished.rename(folder / f"{number:06}.jsonl")


async def test_a_real_pipeline_keeps_its_target_and_tells_it(tmp_path: Path) -> None:
    await to_thread((tmp_path / "in").mkdir)
    text = f"""
        warehouse: {tmp_path}/lake
        source: {{type: change-log-folder, path: {tmp_path}/in, poll_interval_ms: 10}}
        format: json
        freshness: {{target_ms: 60000}}
        tables:
        - name: db.fast
          match: shop
          primary_key: [id]
          columns: {{id: BIGINT, v: STRING}}
          freshness: {{target_ms: 400}}
        - {{name: db.other, match: nothing}}
        metrics: {{port: 0}}
    """
    pipeline = await to_thread(lambda: build_pipeline(parse_config(text, "shop.yaml", pipeline="shop")))
    run = asyncio.create_task(pipeline.run())
    observed = pipeline.observed
    assert (observed.interval_ms, observed.freshness is not None) == (300, True)
    number = 0
    while observed.checkpoints < 6:
        assert not run.done()
        await to_thread(write_lines, tmp_path / "in", number, 10, number * 10)
        number += 1
        await asyncio.sleep(0.02)
    status, metrics = await to_thread(_asked, pipeline, "status"), await to_thread(_asked, pipeline, "metrics")
    pipeline.stop()
    await run
    kept: Any = json.loads(status)["freshness"]
    assert (kept["target_ms"], kept["table"], kept["compaction"]) == (400, "db.fast", "full")
    assert kept["reached_ms"] is not None
    assert kept["hour"]["nbytes"] > 0
    tables = {table["name"]: table for table in json.loads(status)["tables"]}
    assert tables["db.fast"]["target_ms"] == 400
    assert tables["db.fast"]["oldest_age_ms"] is not None
    assert 'tidelake_table_freshness_target_seconds{table="db.fast"} 0.4' in metrics
    assert 'tidelake_table_oldest_record_age_seconds{table="db.fast"} ' in metrics
    (buffer,) = [line for line in metrics.splitlines() if line.startswith("tidelake_checkpoint_buffer_bytes ")]
    assert MIB <= float(buffer.split()[1]) <= 512 * MIB
    assert {f'tidelake_freshness_binds{{by="{by}"}}' for by in BINDINGS} <= {
        line.rpartition(" ")[0] for line in metrics.splitlines()
    }
    assert MIB <= kept["buffer_bytes"] <= 512 * MIB


def _asked(pipeline: Any, path: str) -> str:
    with urlopen(f"http://127.0.0.1:{pipeline.monitor.server.port}/{path}") as answer:
        return cast(str, answer.read().decode())


def test_pages_and_control_name_the_same_bindings() -> None:
    assert tuple(one.value for one in Binding) == BINDINGS
    assert REMEDIES.keys() == set(Binding) - {Binding.NOTHING}
