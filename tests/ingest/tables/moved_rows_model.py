"""A source table whose rows move from key to key, and a pipeline that reads Debezium's records of it.

The source is PostgreSQL as it is by default: old rows are known by their key only, and a large value that an update
leaves alone is not in its record.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa

from tests.support.memory_log import MemoryLog, MemoryLogSource
from tidelake.checkpoint.offsets import TopicPartition
from tidelake.ingest.config.config import parse_config
from tidelake.ingest.formats.debezium.debezium_envelope import NEW_KEY_HEADER, OLD_KEY_HEADER
from tidelake.ingest.pipeline.builder import build_pipeline
from tidelake.ingest.pipeline.recovery_flags import parse_recovery_flags
from tidelake.ingest.pipeline.run_metrics import RunMetrics
from tidelake.storage.catalog.filesystem import FileSystemCatalog
from tidelake.storage.fileio.base import FileIO
from tidelake.storage.fileio.memory import MemoryFileIO
from tidelake.table import Table

DOCS: Final = "x.docs"
TOPIC: Final = "src.public.docs"
PLACEHOLDER: Final = "__debezium_unavailable_value"
Row = tuple[int, int, str | None]  # id, v, doc


@dataclass
class SourceTable:
    """Each change goes into the log. partition_of: of a key. history: every row that ever was.

    has_positions: whether records contain their position in the source's log. sends_whole_rows: REPLICA IDENTITY FULL.
    headers: those that reach the log.
    """

    log: MemoryLog = field(default_factory=MemoryLog)
    partition_of: Mapping[int, int] = field(default_factory=dict)
    has_positions: bool = True
    sends_whole_rows: bool = False
    headers: Collection[str] = (NEW_KEY_HEADER, OLD_KEY_HEADER)

    def __post_init__(self) -> None:
        self.rows: dict[int, tuple[int, str | None]] = {}
        self.history: set[Row] = set()
        self._count = 0

    @property
    def truth(self) -> list[Row]:
        return sorted((id_, v, doc) for id_, (v, doc) in self.rows.items())

    def insert(self, id_: int, doc: str | None) -> None:
        self._put(id_, doc)
        self._send("c", id_, after=self._image(id_))

    def update(self, id_: int, doc: str | None = None, *, changes_doc: bool = True) -> None:
        before = self._image(id_)
        self._put(id_, doc if changes_doc else self.rows[id_][1])
        after = self._image(id_, is_whole=changes_doc)
        self._send("u", id_, before if self.sends_whole_rows else None, after)

    def move(self, id_: int, new_id: int, doc: str | None = None, *, changes_doc: bool = False) -> None:
        before = self._image(id_) if self.sends_whole_rows else {"id": id_, "v": 0, "doc": None}
        kept = self.rows.pop(id_)[1]
        self._put(new_id, doc if changes_doc else kept)
        after = self._image(new_id, is_whole=changes_doc)
        source = self._source()
        self._send("d", id_, before, source=source, header=(NEW_KEY_HEADER, new_id))
        self._append(id_, None, (NEW_KEY_HEADER, new_id))
        self._send("c", new_id, after=after, source=source, header=(OLD_KEY_HEADER, id_))

    def hold_back(self, partition: int) -> Callable[[], None]:
        """The newest record of a partition has not come yet; call what is returned to have it come."""
        records = self.log.records[TopicPartition(TOPIC, partition)]
        held = records.pop()
        return lambda: records.append(held)

    def delete(self, id_: int) -> None:
        before = self._image(id_) if self.sends_whole_rows else {"id": id_, "v": 0, "doc": None}
        del self.rows[id_]
        self._send("d", id_, before)

    def _put(self, id_: int, doc: str | None) -> None:
        self._count += 1
        self.rows[id_] = (self._count, doc)
        self.history.add((id_, self._count, doc))

    def _image(self, id_: int, *, is_whole: bool = True) -> dict[str, Any]:
        v, doc = self.rows[id_]
        return {"id": id_, "v": v, "doc": doc if is_whole else PLACEHOLDER}

    def _source(self) -> dict[str, Any]:
        self._count += 1
        source = {"connector": "postgresql", "name": "src", "db": "x", "schema": "public", "table": "docs"}
        return source | ({"lsn": self._count} if self.has_positions else {})

    def _send(
        self,
        op: str,
        id_: int,
        before: Mapping[str, Any] | None = None,
        after: Mapping[str, Any] | None = None,
        source: Mapping[str, Any] | None = None,
        header: tuple[str, int] | None = None,
    ) -> None:
        payload = {"before": before, "after": after, "source": source or self._source(), "op": op, "ts_ms": 1}
        self._append(id_, json.dumps(payload).encode(), header)

    def _append(self, id_: int, value: bytes | None, header: tuple[str, int] | None) -> None:
        headers = () if header is None or header[0] not in self.headers else ((header[0], _key(header[1])),)
        self.log.append(TOPIC, value, _key(id_), self.partition_of.get(id_, 0), headers)


def _key(id_: int) -> bytes:
    return json.dumps({"id": id_}).encode()


@dataclass
class DocsWorld:
    """A warehouse with the table, still empty, and the pipeline that fills it. settings: further lines of YAML."""

    source: SourceTable
    options: Mapping[str, str] = field(default_factory=dict)
    settings: str = ""
    warehouse: str = field(default_factory=lambda: f"memory://{uuid4()}/lake")
    store: FileIO = field(default_factory=MemoryFileIO)

    def __post_init__(self) -> None:
        catalog = FileSystemCatalog(self.store, self.warehouse)
        catalog.create_database("x")
        columns = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int32()), ("doc", pa.string())])
        catalog.create_table(DOCS, columns, primary_key=["id"], options={"bucket": "1", **self.options})

    def pipeline(
        self,
        io: FileIO | None = None,
        batch_records: int = 2,
        first: Sequence[int] = (),
        rewind_to: Sequence[str] = (),
        tolerance: str = "all",
    ) -> Any:
        """What `run` does, or `plan`: to be awaited."""
        text = f"""
warehouse: {self.warehouse}
pipeline: docs
source: {{type: change-log-folder, path: /unused}}
errors: {{tolerance: {tolerance}}}
checkpoint: {{bytes_max: 1, interval_ms: 3600000}}
tables: [{{name: {DOCS}}}]
{self.settings}
"""
        config = parse_config(text, "docs.yaml", (), {}, "docs")
        recovery_flags = parse_recovery_flags((), rewind_to, (), [DOCS])
        source = MemoryLogSource(self.source.log, batch_records, first)
        return build_pipeline(config, recovery_flags, io=io or self.store, open_source=lambda: source)

    def run(self, io: FileIO | None = None, **how: Any) -> RunMetrics:
        """One process, to the end of the log. A checkpoint follows each batch."""
        progress: RunMetrics = asyncio.run(self.pipeline(io, **how).run())
        return progress

    @property
    def table(self) -> Table:
        return Table(FileSystemCatalog(self.store, self.warehouse).load(DOCS))

    @property
    def rows(self) -> list[Row]:
        return self.rows_of(None)

    def rows_of(self, snapshot_id: int | None) -> list[Row]:
        return sorted(tuple(row.values()) for row in self.table.scan(snapshot=snapshot_id).to_arrow().to_pylist())

    @property
    def files_of_moved_rows(self) -> list[str]:
        directory = self.table.context.paths.moved_rows_directory
        return [entry.name for entry in self.store.list_directory(directory)]

    @property
    def reasons_of_dead_letters(self) -> list[str]:
        folder = f"{self.warehouse}/docs.dead-letters"
        names = [entry.name for entry in self.store.list_directory(folder)]
        lines = [line for name in names for line in self.store.read(f"{folder}/{name}").splitlines()]
        return [json.loads(line)["reason"] for line in lines]
