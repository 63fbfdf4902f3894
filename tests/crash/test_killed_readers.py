"""Readers of changes are killed at random while the table is written and its snapshots expire. Each reader sees every
change exactly once.
"""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidelake
from tests.crash.reader import Store
from tests.support.levels import examples
from tidelake.storage.read.changes import change_reader

ROOT: Final = Path(__file__).parents[2]
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False)])
MODES = ("exactly-once", "exactly-once", "at-least-once")
OPTIONS = {"bucket": "2", "changelog-producer": "input", "num-sorted-run.compaction-trigger": "3"}


class Feed:
    """Writes ids 0, 1, 2, …, each once."""

    def __init__(self, table: tidelake.Table) -> None:
        self.count = 0
        self._table = table

    def commit(self, rows: int) -> None:
        with self._table.writer() as writer:
            writer.write(pa.table({"id": range(self.count, self.count + rows)}, SCHEMA))
            writer.commit()
        self.count += rows

    def expire(self) -> None:
        self._table.expire(retain_min=1, retain_max=1, retain_ms=0)


class KeptReader:
    """A reader in this process: what it stored survives when it dies, what it asked for does not."""

    def __init__(self, table: tidelake.Table, name: str) -> None:
        self._table = table
        self._name = name
        self._position: Any = "earliest"
        self._batches = self._opened()
        self.ids: list[int] = []

    def read(self, batches: int, *, dies: bool) -> None:
        """dies: after it was given the last of the batches, before it stored it."""
        for number in range(batches):
            batch = next(self._batches)
            if batch is None:
                break
            if dies and number == batches - 1:
                self._batches = self._opened()
                break
            self.ids += batch.rows["id"].to_pylist()
            self._position = batch.position

    def _opened(self) -> Iterator[tidelake.ChangeBatch | None]:
        """None where it would wait."""
        follower = self._table.follower(start=self._position, consumer=self._name)
        while True:
            yield from (changes := follower.step()) or ()
            if changes is None:
                yield None


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), st.integers(1, 12)),
        st.tuples(st.just("expire"), st.none()),
        st.tuples(st.integers(0, 2), st.tuples(st.integers(0, 5), st.booleans())),
    ),
    max_size=25,
)


@settings(max_examples=examples(60))
@given(STEPS)
def test_readers_that_crash_anywhere_see_every_change_once(steps: list[tuple[Any, Any]]) -> None:
    catalog = tidelake.open_catalog("memory://killed-readers/lake")
    catalog.create_database("db")
    try:
        catalog.create_table("db.t", SCHEMA, primary_key=["id"], options=OPTIONS)
        feed = Feed(catalog.table("db.t", {"write-only": "true"}))
        readers = [KeptReader(catalog.table("db.t", {"consumer.mode": m}), f"r{i}") for i, m in enumerate(MODES)]
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(change_reader, "BATCH_ROWS", 3)
            for reader in readers:
                reader.read(0, dies=False)
                reader.read(1, dies=False)  # it is there from the beginning, as a consumer
            for what, how in [*steps, *((index, (1000, False)) for index in range(3))]:
                match what:
                    case "commit":
                        feed.commit(how)
                    case "expire":
                        feed.expire()
                    case index:
                        readers[index].read(how[0], dies=how[1])
        for reader in readers:
            assert sorted(reader.ids) == list(range(feed.count))
    finally:
        catalog.drop_database("db", cascade=True)


# ---------------------------------------------------------------- processes


@contextmanager
def reader(warehouse: Path, store: Path, name: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "tests.crash.reader", str(warehouse), "db.t", str(store), name]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE)
    try:
        yield process
        assert process.poll() is None, (process.stderr and process.stderr.read().decode()) or "it ended"
    finally:
        process.kill()
        process.wait()
        if process.stderr is not None:
            process.stderr.close()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_processes_killed_repeatedly_for_a_minute_see_every_change_once(tmp_path: Path) -> None:
    chance = random.Random(13)
    catalog = tidelake.open_catalog(str(tmp_path / "lake"))
    catalog.create_database("db")
    feed = Feed(catalog.create_table("db.t", SCHEMA, primary_key=["id"], options=OPTIONS))
    stores = {f"r{number}": tmp_path / f"r{number}" for number in range(3)}
    until = time.monotonic() + 60
    kills = 0
    failures: list[BaseException] = []
    ended = threading.Event()  # the writer has

    def read(name: str) -> None:
        nonlocal kills
        try:
            while time.monotonic() < until:
                with reader(tmp_path / "lake", stores[name], name):
                    time.sleep(chance.uniform(0.8, 5))
                kills += 1
            with reader(tmp_path / "lake", stores[name], name):  # and in peace, what is left
                ended.wait()
                while len(Store(stores[name]).read()[1]) < feed.count and not failures:
                    time.sleep(0.2)
        except BaseException as error:
            failures.append(error)

    for name in stores:  # each is a consumer before the first snapshot may expire
        catalog.table("db.t").follower(start="earliest", consumer=name)
    threads = [threading.Thread(target=read, args=[name]) for name in stores]
    for thread in threads:
        thread.start()
    while time.monotonic() < until and not failures:
        feed.commit(chance.randint(1, 5000))
        if chance.random() < 0.3:
            feed.expire()
    ended.set()
    for thread in threads:
        thread.join(timeout=240)
    assert failures == []
    assert kills > 20
    assert feed.count > 1000
    for store in stores.values():
        assert sorted(Store(store).read()[1]) == list(range(feed.count))
