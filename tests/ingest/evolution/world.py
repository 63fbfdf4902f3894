"""A log in memory with records whose columns change, and the pipeline that writes them into a lake."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import uuid4

from tests.ingest.formats.debezium.changes import as_json, change
from tests.support.memory_log import MemoryLog, MemoryLogSource
from tidelake.checkpoint.offsets import POSITION_PROPERTY, chain_breaks, position_from_text
from tidelake.ingest.config.config import parse_config
from tidelake.ingest.pipeline.builder import build_pipeline
from tidelake.ingest.pipeline.recovery_flags import parse_recovery_flags
from tidelake.ingest.pipeline.run_metrics import RunMetrics
from tidelake.storage.catalog.filesystem import FileSystemCatalog
from tidelake.storage.fileio.base import FileIO
from tidelake.storage.fileio.memory import MemoryFileIO
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import DataField, not_null, nullable, parse_type
from tidelake.table import Table

TABLE: Final = "shop.orders"
TOPIC: Final = "x.public.orders"
PIPELINE: Final = "evolve"
_CONNECT: Final[Mapping[str, dict[str, Any]]] = {
    "INT": {"type": "int32"},
    "BIGINT": {"type": "int64"},
    "SMALLINT": {"type": "int16"},
    "FLOAT": {"type": "float"},
    "DOUBLE": {"type": "double"},
    "STRING": {"type": "string"},
    "TIMESTAMP(3)": {"type": "int64", "name": "io.debezium.time.Timestamp"},
    "TIMESTAMP(6)": {"type": "int64", "name": "io.debezium.time.MicroTimestamp"},
    "ROW<a INT>": {"type": "struct", "fields": [{"field": "a", "type": "int32", "optional": True}]},
}


def connect_type(text: str) -> dict[str, Any]:
    """Connect's schema of a column type."""
    if text.startswith("DECIMAL"):
        precision, scale = text.removeprefix("DECIMAL(").removesuffix(")").split(",")
        parameters = {"scale": scale.strip(), "connect.decimal.precision": precision}
        return {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": parameters}
    return _CONNECT[text]


@dataclass
class EvolvingWorld:
    """settings, table_settings: of the pipeline and its table, as YAML. store: survives the pipelines."""

    settings: str = ""
    table_settings: str = ""
    options: str = "options: {bucket: 1}"
    log: MemoryLog = field(default_factory=MemoryLog)
    warehouse: str = field(default_factory=lambda: f"memory://{uuid4()}/lake")
    store: FileIO = field(default_factory=MemoryFileIO)

    def create(self, columns: Mapping[str, str], primary_key: Sequence[str] = ("id",), bucket: int = 1) -> None:
        self.catalog.create_database("shop", if_not_exists=True)
        fields = [
            DataField(i, name, (not_null if name in primary_key else nullable)(parse_type(text)))
            for i, (name, text) in enumerate(columns.items())
        ]
        self.catalog.create_table(TABLE, fields, primary_key=primary_key, options={"bucket": str(bucket)})

    def add(
        self,
        row: Mapping[str, Any],
        types: Mapping[str, str] | None = None,
        *,
        op: str = "c",
        partition: int = 0,
        before: Mapping[str, Any] | None = None,
    ) -> None:
        """types: of the columns, as a schema says them; None sends no schema. before: the row before an update."""
        images = {"before": row} if op == "d" else {"after": row}
        if before is not None:
            images["before"] = before
        record = change(op, key={"id": row["id"]}, **images)  # type: ignore[arg-type]
        value = record.value
        if types is not None:
            fields = [{**connect_type(text), "field": name, "optional": name != "id"} for name, text in types.items()]
            row_schema = {"type": "struct", "optional": True, "fields": fields}
            envelope = {"type": "struct", "fields": [{**row_schema, "field": name} for name in ("before", "after")]}
            value = b'{"schema":' + as_json(envelope) + b',"payload":' + (value or b"") + b"}"
        self.log.append(TOPIC, value, record.key, partition)

    def run(self, io: FileIO | None = None, batch_records: int = 2, skip: Sequence[str] = ()) -> RunMetrics:
        """One process, from its start to the end of the log. skip: records to pass over."""
        table = f"name: {TABLE}, match: '*', {self.options}{self.table_settings and ', ' + self.table_settings}"
        text = (
            f"{{warehouse: '{self.warehouse}', source: {{type: change-log-folder, path: /unused}}, "
            f"checkpoint: {{bytes_max: 500, interval_ms: 3600000}}, "
            f"tables: [{{{table}}}]"
            f"{self.settings and ', ' + self.settings}}}"
        )
        config = parse_config(text, "evolve.yaml", (), {}, PIPELINE)
        source = MemoryLogSource(self.log, batch_records=batch_records)
        flags = parse_recovery_flags((), (), (), [TABLE], skip)
        return asyncio.run(build_pipeline(config, flags, io=io or self.store, open_source=lambda: source).run())

    # ------------------------------------------------------------ what came of it

    @property
    def catalog(self) -> FileSystemCatalog:
        return FileSystemCatalog(self.store, self.warehouse)

    @property
    def table(self) -> TableContext:
        return self.catalog.load(TABLE)

    @property
    def columns(self) -> dict[str, str]:
        """Without what is NOT NULL."""
        return {f.name: str(nullable(f.type)) for f in self.table.schema.fields}

    def rows(self) -> list[dict[str, Any]]:
        """In the order of their ids."""
        rows: list[dict[str, Any]] = Table(self.table).scan().to_arrow().to_pylist()
        return sorted(rows, key=lambda row: row["id"])

    def breaks(self) -> Sequence[Any]:
        """Where positions of neighbouring snapshots don't join."""
        own = [s for s in self.table.snapshots.all() if s.commit_user == PIPELINE]
        return chain_breaks(
            [(s.commit_identifier, position_from_text(s.properties[POSITION_PROPERTY], TABLE)) for s in own]
        )

    def dead_letters(self) -> list[str]:
        folder = f"{self.warehouse}/{PIPELINE}.dead-letters"
        names = [entry.name for entry in self.store.list_directory(folder)]
        return [line for name in names for line in self.store.read(f"{folder}/{name}").decode().splitlines()]
