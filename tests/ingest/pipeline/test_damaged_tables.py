"""How a pipeline handles tables that others damaged while it ran, or after it was killed."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pytest

import tidelake
from tests.support.command_line import Call, call
from tidelake.errors import BadInput, CommitConflict, CorruptFile, PositionRefused, TableUnusable, TidelakeError
from tidelake.ingest.config.config import load_config
from tidelake.ingest.pipeline.builder import build_pipeline
from tidelake.ingest.pipeline.progress_tracker import ProgressTracker
from tidelake.ingest.pipeline.recovery_flags import parse_recovery_flags
from tidelake.ingest.pipeline.run_metrics import RunMetrics
from tidelake.ingest.tables.table_sink import TableSink
from tidelake.storage.commit.commit_message import CommitMessage
from tidelake.storage.write.memory_budget import MemoryBudget
from tidelake.storage.write.table_writer import TableWriter
from tidelake.table import Table

__all__ = ["call"]

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False)])
OPTIONS = {"ignore-delete": "true"}  # so that an append table takes a change log


class Killed(Exception):
    """Nothing that comes after it is done."""


@dataclass
class Shop:
    """Append tables `shop.orders` and `shop.users`, a folder of change logs, and a pipeline from it to them."""

    home: Path
    sent: int = 0

    def __post_init__(self) -> None:
        self.catalog = tidelake.open_catalog(str(self.home / "lake"))
        self.catalog.create_database("shop")
        (self.home / "in").mkdir()

    def create(self, name: str = "shop.orders") -> None:
        self.catalog.create_table(name, COLUMNS, options=OPTIONS)

    @property
    def orders(self) -> Table:
        return self.catalog.table("shop.orders")

    @property
    def location(self) -> Path:
        return self.home / "lake" / "shop.db" / "orders"

    def send(self, count: int = 5, table: str = "orders") -> None:
        lines = [self._record(self.sent + n, table) for n in range(count)]
        (self.home / "in" / f"{self.sent:06}.jsonl").write_text("".join(lines))
        self.sent += count

    def _record(self, offset: int, table: str) -> str:
        source = {"db": "shop", "schema": "public", "table": table, "connector": "postgresql"}
        value = json.dumps({"before": None, "after": {"id": offset}, "op": "c", "source": source})
        return json.dumps({"topic": "log", "partition": 0, "offset": offset, "key": None, "value": value}) + "\n"

    def configuration(self, tables: Sequence[str], settings: str = "") -> Path:
        listed = ", ".join(f"{{name: shop.{table}, options: {{ignore-delete: true}}}}" for table in tables)
        path = self.home / "shop.yaml"
        path.write_text(
            f"warehouse: {self.home}/lake\n"
            f"source: {{type: change-log-folder, path: {self.home}/in, until: end}}\ntables: [{listed}]\n{settings}"
        )
        return path

    def run(
        self, *, tables: Sequence[str] = ("orders",), rewind_to: Sequence[str] = (), settings: str = ""
    ) -> RunMetrics:
        config = load_config(self.configuration(tables, settings), (), {})
        ways_out = parse_recovery_flags([], rewind_to, [], [f"shop.{table}" for table in tables])
        return asyncio.run(build_pipeline(config, ways_out).run())

    @property
    def counts(self) -> Counter[int]:
        return Counter(map(int, self.orders.scan().to_arrow()["id"].to_pylist()))  # texts in a table that was made

    def expire_ours(self) -> None:
        """Other writers commit, the consumer is deleted, and an expiry keeps only one snapshot."""
        shutil.rmtree(self.location / "consumer", ignore_errors=True)
        one_row = self.orders.scan().to_arrow()[:1]
        for number in range(3):
            with self.orders.writer(commit_user="other") as writer:
                writer.write(one_row)
                writer.commit(number + 1)
        self.orders.expire(retain_max=1, retain_min=1)
        assert [snapshot.commit_user for snapshot in self.orders.snapshots()] == ["other"]


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


# ---------------------------------------------------------------- one unreadable table among readable ones


@pytest.mark.parametrize("damaged", ["schema/schema-0", "snapshot/snapshot-1"])
def test_an_unreadable_table_is_quarantined_at_start_and_continues_from_its_own_position(
    shop: Shop, damaged: str, call: Call
) -> None:
    both = ("orders", "users")
    shop.create()
    shop.create("shop.users")
    shop.send(3)
    shop.send(2, "users")
    shop.run(tables=both)
    file = shop.location / damaged
    sound = file.read_bytes()
    file.write_text("{broken")
    shop.send(4)
    shop.send(1, "users")
    for _ in range(2):
        with pytest.raises(CorruptFile, match=damaged):
            shop.run(tables=both)
    users = shop.catalog.table("shop.users").scan().to_arrow()["id"].to_pylist()
    assert sorted(users) == [3, 4, 9]
    result = call("ingest", "plan", shop.configuration(both))
    assert result.code == 0
    plan = result.out
    assert "can't be read" in plan
    assert "shop.orders can't be opened, so its position is unknown" in plan
    assert "shop.users" in plan
    file.write_bytes(sound)
    shop.run(tables=both)
    assert shop.counts == Counter([0, 1, 2, 5, 6, 7, 8])
    assert shop.catalog.table("shop.users").scan().to_arrow().num_rows == 3


def test_without_quarantine_a_start_names_the_table_that_cannot_be_read(shop: Shop) -> None:
    both = ("orders", "users")
    shop.create()
    shop.create("shop.users")
    (shop.location / "schema" / "schema-0").write_text("{broken")
    with pytest.raises(TableUnusable, match=r"^shop\.orders can't be opened.*remove it from `tables`"):
        shop.run(tables=both, settings="quarantine: {enabled: false}")


def test_a_pipeline_of_one_table_only_names_the_damaged_file(shop: Shop) -> None:
    shop.create()
    (shop.location / "schema" / "schema-0").write_text("{broken")
    with pytest.raises(CorruptFile, match="schema-0"):
        shop.run()


# ---------------------------------------------------------------- own snapshots that expired


def killed_after_its_checkpoint(shop: Shop, *, before_first: bool) -> None:
    if before_first:
        shop.create()
    shop.send()
    with patch.object(ProgressTracker, "end", side_effect=Killed), pytest.raises(Killed):
        shop.run()
    assert shop.counts == Counter(range(5))


def killed(shop: Shop) -> None:
    killed_after_its_checkpoint(shop, before_first=True)


def killed_after_it_made_the_table(shop: Shop) -> None:
    killed_after_its_checkpoint(shop, before_first=False)


def killed_in_its_second_run(shop: Shop) -> None:
    shop.create()
    shop.send(2)
    shop.run()
    shop.send(3)
    with patch.object(ProgressTracker, "committed", side_effect=Killed), pytest.raises(Killed):
        shop.run()


def taken_out_of_the_configuration_for_a_while(shop: Shop) -> None:
    shop.create()
    shop.create("shop.users")
    shop.send()
    shop.run(tables=["orders", "users"])
    shop.run(tables=["users"])


@pytest.mark.parametrize(
    "stop",
    [killed, killed_after_it_made_the_table, killed_in_its_second_run, taken_out_of_the_configuration_for_a_while],
)
def test_a_table_that_lost_our_snapshots_is_refused_instead_of_written_twice(
    shop: Shop, stop: Callable[[Shop], None]
) -> None:
    stop(shop)
    shop.expire_ours()
    before = shop.counts
    with pytest.raises(PositionRefused, match="none of its snapshots is left"):
        shop.run()
    assert shop.counts == before
    shop.run(rewind_to=["shop.orders=earliest"])
    shop.run()  # from then on there is nothing to decide
    assert shop.counts == before + Counter(range(5))  # twice, as was asked for


@pytest.mark.parametrize("is_made_before", [True, False])
def test_an_announced_commit_that_never_happened_is_accepted(shop: Shop, is_made_before: bool) -> None:
    if is_made_before:
        shop.create()
    shop.send()
    mark_active = ProgressTracker.mark_active

    async def strike_and_die(self: ProgressTracker, tables: Collection[str], identifier: int) -> None:
        await mark_active(self, tables, identifier)
        raise Killed

    with patch.object(ProgressTracker, "mark_active", strike_and_die), pytest.raises(Killed):
        shop.run()
    assert not shop.counts
    shop.run()
    assert shop.counts == Counter(range(5))


# ---------------------------------------------------------------- tables that are dropped while the pipeline runs


def drop(shop: Shop) -> None:
    shop.catalog.drop_table("shop.orders")


def rename(shop: Shop) -> None:
    shop.catalog.rename_table("shop.orders", "shop.kept")


def drop_and_create(shop: Shop) -> None:
    drop(shop)
    shop.create()


def roll_back(shop: Shop) -> None:
    newest = shop.orders.snapshots()[-1].id
    (shop.location / "snapshot" / f"snapshot-{newest}").unlink()
    (shop.location / "snapshot" / "LATEST").unlink()


@pytest.mark.parametrize("damage", [drop, rename, drop_and_create, roll_back])
def test_a_commit_to_a_missing_table_leaves_no_files_and_the_next_start_succeeds(
    shop: Shop, damage: Callable[[Shop], None]
) -> None:
    shop.create()
    shop.send()
    shop.run()
    shop.send()
    left = set[Path]()
    prepare = TableWriter.prepare_commit

    def damage_and_prepare(self: TableWriter, identifier: int) -> list[CommitMessage]:
        damage(shop)
        left.update(files(shop.location))
        return prepare(self, identifier)

    with (
        patch.object(TableWriter, "prepare_commit", damage_and_prepare),
        pytest.raises(CommitConflict, match="rolled back, dropped or created again"),
    ):
        shop.run()
    assert set(files(shop.location)) == left

    if damage is roll_back:
        with pytest.raises(PositionRefused, match="snapshot 3 of this pipeline no longer exists"):
            shop.run()
        shop.run(rewind_to=["shop.orders=log:0:5"])
    shop.run()
    assert shop.counts == Counter(range(10))
    if damage is rename:
        kept = shop.catalog.table("shop.kept").scan().to_arrow()
        assert sorted(kept["id"].to_pylist()) == list(range(5))


@pytest.mark.parametrize("damage", [drop, drop_and_create])
def test_no_consumer_is_registered_in_a_dropped_or_recreated_table(shop: Shop, damage: Callable[[Shop], None]) -> None:
    shop.create()
    sink = TableSink(shop.orders.context, "shop", MemoryBudget(1 << 20))
    sink.read_state()
    sink.history.register(1)
    damage(shop)
    with pytest.raises(TidelakeError):
        sink.history.register(1)
    assert not (shop.location / "consumer").exists()


def files(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file()]


# ---------------------------------------------------------------- rewinding a source with unknown ends


@pytest.mark.parametrize(
    ("to", "is_back"), [("log:0:4", True), ("log:0:5", True), ("log:0:6", False), ("log:0:999999999", False)]
)
def test_a_rewind_only_goes_back(shop: Shop, to: str, is_back: bool) -> None:
    """The records in between would be lost silently."""
    shop.create()
    shop.send()
    shop.run()
    shop.send()
    if not is_back:
        with pytest.raises(BadInput, match=r"log-0 was read up to 5, but \d+ is above"):
            shop.run(rewind_to=[f"shop.orders={to}"])
        shop.run()
        assert shop.counts == Counter(range(10))
        return
    shop.run(rewind_to=[f"shop.orders={to}"])
    assert shop.counts == Counter(range(10)) + Counter(range(int(to[6:]), 5))
