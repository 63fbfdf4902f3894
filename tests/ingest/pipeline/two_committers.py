"""A table with several drivers for one log: pipelines, and Spark queries without Spark.

The log has unique records, and all of them are for the table, so whatever is read twice or left out is seen.
"""

from __future__ import annotations

import asyncio
import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final
from uuid import uuid4

import pyarrow as pa

from tests.ingest.formats.debezium.changes import change
from tests.support.memory_log import MemoryLog, MemoryLogSource
from tidelake.checkpoint.fence import summarize
from tidelake.checkpoint.offsets import OffsetRange, TopicPartition
from tidelake.checkpoint.other_users import table_position
from tidelake.errors import PositionRefused
from tidelake.ingest.config.config import parse_config
from tidelake.ingest.pipeline.builder import build_pipeline
from tidelake.ingest.pipeline.recovery_flags import RecoveryFlags, parse_recovery_flags
from tidelake.ingest.pipeline.run_metrics import RunMetrics
from tidelake.ingest.spark.batch_commits import BatchCommits, query_user
from tidelake.storage.catalog.filesystem import FileSystemCatalog
from tidelake.storage.fileio.base import FileIO
from tidelake.storage.fileio.memory import MemoryFileIO
from tidelake.storage.model.format import KIND_COLUMN
from tidelake.storage.model.table import TableContext
from tidelake.storage.write.table_writer import TableWriter
from tidelake.table import Table

TABLE: Final = "shop.events"
TOPIC: Final = "x.public.events"
P0, P1 = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)

_OPTIONS: Final = ("--accept-gap", "--rewind-to", "--from-snapshot")

_CONFIG: Final = """
warehouse: {warehouse}
pipeline: {name}
source: {{type: change-log-folder, path: /unused}}
checkpoint: {{bytes_max: 200, interval_ms: 3600000}}
tables: [{{name: shop.events, match: x.public.events, shared_with: {shared_with}}}]
"""


@dataclass
class Query:
    """What Spark's checkpoint directory remembers of a query. planned: its last batch, if it was not confirmed."""

    id: str
    commit_user: str | None = None
    read: dict[TopicPartition, int] = field(default_factory=dict)
    batches: int = 0
    planned: Mapping[TopicPartition, OffsetRange] | None = None


class DriverDied(Exception):
    """The driver of a Spark query is no more."""


@dataclass
class DriverWorld:
    log: MemoryLog = field(default_factory=MemoryLog)
    warehouse: str = field(default_factory=lambda: f"memory://{uuid4()}/lake")
    store: FileIO = field(default_factory=MemoryFileIO)
    _ids: dict[TopicPartition, list[int]] = field(default_factory=dict)
    _count: int = 0

    def __post_init__(self) -> None:
        catalog = FileSystemCatalog(self.store, self.warehouse)
        catalog.create_database("shop")
        columns = pa.schema([pa.field("id", pa.int64(), nullable=False), ("note", pa.string())])
        catalog.create_table(TABLE, columns, options={"bucket": "-1"})

    def append(self, partition: int, count: int = 1) -> None:
        for _ in range(count):
            record = change("c", after={"id": self._count, "note": "e"}, key=None, source=None)
            self.log.append(TOPIC, record.value, record.key, partition)
            self._count += 1
            self._ids.setdefault(TopicPartition(TOPIC, partition), []).append(self._count - 1)

    @property
    def context(self) -> TableContext:
        return FileSystemCatalog(self.store, self.warehouse).load(TABLE)

    # ------------------------------------------------------------ the service

    def run(
        self,
        name: str,
        ways_out: RecoveryFlags | None = None,
        io: FileIO | None = None,
        shared_with: Sequence[str] = (),
    ) -> RunMetrics:
        """One process of a pipeline, to the end of the log."""
        text = _CONFIG.format(warehouse=self.warehouse, name=name, shared_with=list(shared_with))
        config = parse_config(text, "shop.yaml", (), {}, name)
        source = MemoryLogSource(self.log, batch_records=2)
        return asyncio.run(build_pipeline(config, ways_out, io=io or self.store, open_source=lambda: source).run())

    def offered(self, refusal: PositionRefused) -> dict[str, RecoveryFlags]:
        """The commands of a refusal, as they would be pasted, by their option."""
        offered: dict[str, RecoveryFlags] = {}
        for way in refusal.ways_out:
            words = shlex.split(way.splitlines()[0]) if way.startswith("tidelake ingest run") else []
            for at, word in enumerate(words):
                options: dict[str, list[str]] = {option: [] for option in _OPTIONS}
                if word in options:
                    options[word].append(words[at + 1])
                    offered[word] = parse_recovery_flags(
                        options["--accept-gap"], options["--rewind-to"], options["--from-snapshot"], [TABLE]
                    )
        return offered

    # ------------------------------------------------------------ a Spark query

    def spark(
        self, query: Query, most: int = 3, *, dies: bool = False, before_publish: Callable[[], object] = lambda: None
    ) -> bool:
        """One batch; returns whether there was one. dies: after the commit, before Spark notes it. Raises what the sink
        raises.
        """
        if query.planned is None:
            query.planned = {
                p: OffsetRange(query.read.get(p, 0), min(len(records), query.read.get(p, 0) + most))
                for p, records in self.log.records.items()
                if query.read.get(p, 0) < len(records)
            }
        found = query.planned
        if not found:
            query.planned = None
            return False
        context = self.context
        user = query.commit_user or query_user(query.id, context)
        commits = BatchCommits(context, user, query.id, False, False)
        if not commits.is_committed(query.batches, lambda: found):
            ids = [id_ for p, r in found.items() for id_ in self._ids[p][r.start : r.end]]
            writer = TableWriter(context)
            rows = {
                "id": pa.array(ids, pa.int64()),
                "note": ["s"] * len(ids),
                KIND_COLUMN: pa.array([0] * len(ids), pa.int8()),
            }
            writer.add(writer.route(pa.record_batch(rows)))
            messages = writer.prepare_commit(query.batches, is_last=True)
            reached = commits.next_position(found)
            before_publish()
            commits.publish(query.batches, messages, reached)
            if dies:
                raise DriverDied
        query.read |= {p: r.end for p, r in found.items()}
        query.batches += 1
        query.planned = None
        return True

    def start_at_the_table(self, query: Query) -> None:
        """As the refusal says: a new checkpoint directory, and `startingOffsets` at the position of the table."""
        query.read, query.planned = dict(self.ends), None

    # ------------------------------------------------------------ what is there

    @property
    def ends(self) -> Mapping[TopicPartition, int]:
        context = self.context
        latest = (store := context.snapshots).latest()
        return table_position(summarize(s, TABLE) for s in (store.backwards_from(latest) if latest else ())).ends

    def check(self) -> None:
        """Each record below the table's position is there once, and none above it."""
        found = Counter(Table(self.context).scan().to_arrow()["id"].to_pylist())
        assert [id_ for id_, times in found.items() if times > 1] == []
        expected = {id_ for p, end in self.ends.items() for id_ in self._ids.get(p, [])[:end]}
        assert set(found) == expected

    def check_all_is_there(self) -> None:
        self.check()
        assert len(Table(self.context).scan().to_arrow()) == self._count

    def resume(self, name: str, way: str = "--accept-gap") -> RunMetrics:
        """Run the pipeline, by this command if it is refused."""
        try:
            return self.run(name)
        except PositionRefused as refusal:
            return self.run(name, self.offered(refusal)[way])


def ignoring_refusals(act: Callable[[], object]) -> None:
    with suppress(PositionRefused):
        act()
