"""A small pipeline: a log in memory, an append table and one with a key, a checkpoint every few records."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
import pytest

from tests.ingest.formats.debezium.changes import change
from tests.support.faulty_file_io import Call, Fault, FaultyFileIO
from tests.support.memory_log import MemoryLog, MemoryLogSource
from tidelake.checkpoint.offsets import POSITION_PROPERTY, chain_breaks, position_from_text
from tidelake.ingest.config.config import parse_config
from tidelake.ingest.formats.debezium.debezium_envelope import NEW_KEY_HEADER, OLD_KEY_HEADER
from tidelake.ingest.pipeline import checkpointer
from tidelake.ingest.pipeline.builder import build_pipeline
from tidelake.ingest.pipeline.run_metrics import RunMetrics
from tidelake.ingest.raw_batch import Headers
from tidelake.storage.catalog.filesystem import FileSystemCatalog
from tidelake.storage.fileio.base import FileIO
from tidelake.storage.fileio.memory import MemoryFileIO
from tidelake.storage.maintenance.verify import verify
from tidelake.table import Table

EVENTS: Final = "shop.events"
ORDERS: Final = "shop.orders"
PIPELINE: Final = "shop"

# A checkpoint after each batch but the first of a turn; letters for the record that is none.
CONFIG: Final = """
warehouse: {warehouse}
pipeline: shop
source: {{type: change-log-folder, path: /unused}}
errors: {{tolerance: all}}
checkpoint: {{bytes_max: 200, interval_ms: 3600000}}
bootstrap: {{enabled: {bootstraps}}}
tables: [{{name: shop.events, match: x.public.events}}, {{name: shop.orders, match: x.public.orders}}]
"""


@dataclass
class PipelineWorld:
    """A log, and a warehouse that holds both tables, still empty.

    has_rival: another writer adds rows to both, once, just before our second snapshot.
    options: of the table with a key.
    bootstraps: the table with a key begins with a snapshot of the source, which goes to its highest level.
    """

    has_rival: bool = False
    options: Mapping[str, str] = field(default_factory=lambda: {"changelog-producer": "input"})
    bootstraps: bool = False
    log: MemoryLog = field(default_factory=MemoryLog)
    warehouse: str = field(default_factory=lambda: f"memory://{uuid4()}/lake")
    store: FileIO = field(default_factory=MemoryFileIO)

    def __post_init__(self) -> None:
        catalog = FileSystemCatalog(self.store, self.warehouse)
        catalog.create_database("shop")
        columns = pa.schema([pa.field("id", pa.int64(), nullable=False), ("note", pa.string())])
        catalog.create_table(EVENTS, columns, options={"bucket": "-1"})
        catalog.create_table(ORDERS, columns, primary_key=["id"], options=self.options)
        self._rivals_due = {EVENTS, ORDERS} if self.has_rival else set()
        self.truth: dict[str, list[tuple[int, str]]] = {EVENTS: [], ORDERS: []}
        self.history: dict[str, set[tuple[int, str]]] = {EVENTS: set(), ORDERS: set()}  # all rows that ever were
        for number in range(4):
            self.add_event(number, partition=number % 2)
        self.log.append("x.public.events", b"no record", partition=1)
        self.truth[ORDERS] = sorted([*self._snapshot(), *self._orders()])

    def add_event(self, number: int, partition: int) -> None:
        record = change("c", after={"id": number, "note": f"e{number}"}, key=None, source=None)
        self.log.append("x.public.events", record.value, record.key, partition)
        self.truth[EVENTS].append((number, f"e{number}"))
        self.history[EVENTS].add((number, f"e{number}"))

    def _snapshot(self) -> list[tuple[int, str]]:
        """Seven orders are in the source's snapshot, the first of them twice."""
        rows: dict[int, str] = {}
        for number in (20, 21, 22, 23, 24, 25, 20, 26) if self.bootstraps else ():
            rows[number] = f"s{len(rows)}"
            record = change("r", None, {"id": number, "note": rows[number]}, source=None)
            self.log.append("x.public.orders", record.value, record.key)
            self.history[ORDERS].add((number, rows[number]))
        return list(rows.items())

    def _orders(self) -> list[tuple[int, str]]:
        """Four orders are inserted, two change, one is deleted, and one moves to another key: its delete record
        precedes its insert by some records.
        """
        rows: dict[int, str] = {}
        for op, number, note in [
            ("c", 1, "a"),
            ("c", 2, "a"),
            ("u", 1, "b"),
            ("c", 3, "a"),
            ("d", 2, ""),
            ("c", 4, "moves"),
            ("d", 4, ""),
            ("u", 3, "c"),
            ("c", 5, "moves"),
        ]:
            before = {"id": number, "note": rows.pop(number)} if op != "c" else None
            after = {"id": number, "note": note} if op != "d" else None
            headers: Headers = ()
            if after is not None:
                rows[number] = note
                self.history[ORDERS].add((number, note))
            if number == 4 and op == "d":
                headers = ((NEW_KEY_HEADER, b'{"id":5}'),)
            elif number == 5:
                headers, after = ((OLD_KEY_HEADER, b'{"id":4}'),), {"id": 5, "note": "__debezium_unavailable_value"}
            record = change(op, before, after, source=None)
            self.log.append("x.public.orders", record.value, record.key, headers=headers)
        return sorted(rows.items())

    def watch(self, io: FaultyFileIO) -> None:
        """The rival may act, before the fault in `io`."""
        fault: Callable[[Call], Fault | None] = io.fault

        def decide(call: Call) -> Fault | None:
            if call.name == "create_if_absent" and call.file_name == "snapshot-2":
                for table in (EVENTS, ORDERS):
                    if table in self._rivals_due and f"/{table.replace('.', '.db/')}/" in call.path:
                        self._rivals_due.remove(table)
                        self._rival_commits(table)
            return fault(call)

        io.fault = decide

    def _rival_commits(self, name: str) -> None:
        context = FileSystemCatalog(self.store, self.warehouse).load(name)
        row = (1000, "of a rival")
        with Table(context).writer(commit_user="rival") as writer:
            writer.write(pa.table({"id": [row[0]], "note": [row[1]]}))
            writer.commit(1)
        self.truth[name] = sorted([*self.truth[name], row])
        self.history[name].add(row)

    def run(self, io: FileIO) -> RunMetrics:
        """One process: start up, read to the end of the log, shut down. Same calls in the same order every time."""
        text = CONFIG.format(warehouse=self.warehouse, bootstraps=str(self.bootstraps).lower())
        config = parse_config(text, "shop.yaml", (), {}, PIPELINE)
        with pytest.MonkeyPatch.context() as patches:
            patches.setattr(checkpointer, "TABLES_AT_ONCE", 1)
            source = MemoryLogSource(self.log, batch_records=2)
            return asyncio.run(build_pipeline(config, io=io, open_source=lambda: source).run())

    # ------------------------------------------------------------ what a new process finds

    def look(self, *, deep: bool) -> dict[str, Seen]:
        """deep: verify reads every row of every file."""
        return {name: self._look(name, deep) for name in (EVENTS, ORDERS)}

    def _look(self, name: str, deep: bool) -> Seen:
        context = FileSystemCatalog(self.store, self.warehouse).load(name)
        own = [s for s in context.snapshots.all() if s.commit_user == PIPELINE]
        chain = [(s.commit_identifier, position_from_text(s.properties[POSITION_PROPERTY], name)) for s in own]
        rows = sorted(tuple(row.values()) for row in Table(context).scan().to_arrow().to_pylist())
        numbers = [s.commit_identifier for s in own if s.commit_kind != "COMPACT"]
        return Seen(rows, numbers, chain_breaks(chain), verify(context, deep=deep))

    def dead_letters(self) -> list[str]:
        folder = f"{self.warehouse}/{PIPELINE}.dead-letters"
        names = [entry.name for entry in self.store.list_directory(folder)]
        return [line for name in names for line in self.store.read(f"{folder}/{name}").decode().splitlines()]


@dataclass(frozen=True)
class Seen:
    """identifiers: of our snapshots, oldest first. breaks: where positions of neighbours do not join."""

    rows: list[tuple[Any, ...]]
    identifiers: Sequence[int]
    breaks: Sequence[Any]
    problems: Sequence[Any]
