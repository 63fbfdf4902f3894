"""Many tables in one process, whose schemas change while process and broker are killed: every table is correct."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from random import Random
from time import sleep
from typing import Any, Final

import pyarrow as pa
import pytest

import tidelake
from tests.support.kafka_broker import KafkaBroker
from tests.support.service import Service
from tidelake.checkpoint.offsets import POSITION_PROPERTY, chain_breaks, position_from_text
from tidelake.storage.maintenance.verify.inspection import verify

PIPELINE: Final = "many"
TOPICS: Final = ("many-0", "many-1", "many-2")
PARTITIONS: Final = 2
MEMORY_MIB: Final = 64
BESIDES_MIB: Final = 400  # what a process takes besides its write buffers
# so that chains are whole at the end
OPTIONS: Final = {"bucket": "1", "snapshot.time-retained": "1 d", "snapshot.num-retained.max": "100000"}
TYPED: Final = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int8()), ("c0", pa.string())])
KEYS: Final = 40  # of a table
NUMBERS: Final = (100, 30_000, 2_000_000_000, 2**62)  # of TINYINT, SMALLINT, INT, BIGINT
SCHEMA_CHANGES: Final = 10  # of each kind in a round
WORK_S: Final = 2.0
COMMITTING_SHARE: Final = 0.6  # of the kills: after something was committed; of the others some come while it starts


@dataclass
class SourceTable:
    """name: of the table. rows: by id. columns: its texts. size: which NUMBERS come."""

    name: str
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)
    columns: list[str] = field(default_factory=lambda: ["c0"])
    size: int = 0

    @property
    def is_typed(self) -> bool:
        """Whether the table is there before. The others are made from their first record: of texts."""
        return int(self.name[1:]) % 2 == 0

    def truth(self) -> dict[Any, dict[str, Any]]:
        number = int if self.is_typed else str
        return {
            number(id_): {"id": number(id_), "n": number(row["n"]), **{c: row.get(c) for c in self.columns}}
            for id_, row in self.rows.items()
        }


class Database:
    """Tables that change at random, and what their connector sends."""

    def __init__(self, tables: int, schema_changes: float, random: Random) -> None:
        """schema_changes: how many of each kind come, by the change."""
        self.tables = [SourceTable(f"t{number}") for number in range(tables)]
        self._schema_changes = schema_changes
        self._random = random
        self._time_ms = 1_700_000_000_000

    def changes(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Topic and record of each. Now and then a table has a column more, or wider numbers."""
        while True:
            table = self._random.choice(self.tables)
            if self._random.random() < self._schema_changes:
                table.columns.append(f"c{len(table.columns)}")
            if self._random.random() < self._schema_changes:
                table.size = min(table.size + 1, len(NUMBERS) - 1)
            yield self._change(table, self._random.randrange(KEYS))

    def _change(self, table: SourceTable, id_: int) -> tuple[str, dict[str, Any]]:
        before = table.rows.get(id_)
        after: dict[str, Any] | None = None
        if before is None or self._random.random() < 0.8:
            texts = {column: f"{column} {self._random.random()}" for column in table.columns}
            after = {"id": id_, "n": self._random.randrange(NUMBERS[table.size]), **texts}
            table.rows[id_] = after
        else:
            del table.rows[id_]
        op = "d" if after is None else "c" if before is None else "u"
        self._time_ms += 1
        source = {"connector": "mysql", "db": "shop", "table": table.name, "ts_ms": self._time_ms}
        value = {"before": before, "after": after, "source": source, "op": op, "ts_ms": self._time_ms}
        number = int(table.name[1:])
        record: dict[str, Any] = {"key": json.dumps({"id": id_}), "value": json.dumps(value), "headers": []}
        record |= {"partition": (number + id_) % PARTITIONS, "timestamp_ms": self._time_ms}
        return TOPICS[number % len(TOPICS)], record


@pytest.mark.parametrize(
    ("tables", "rounds", "changes"),
    [
        pytest.param(30, 4, 1_000, id="30 tables", marks=pytest.mark.interop),
        pytest.param(
            200, 25, 4_000, id="200 tables, ten minutes", marks=[pytest.mark.long, pytest.mark.timeout(3_600)]
        ),
    ],
)
def test_every_table_equals_its_source_after_kills_during_schema_changes(
    tables: int, rounds: int, changes: int, private_kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    random, broker = Random(20261122), private_kafka_broker
    for topic in TOPICS:
        broker.create_topic(topic, partitions=PARTITIONS)
    database = Database(tables, SCHEMA_CHANGES / changes, random)
    catalog = tidelake.open_catalog(str(tmp_path / "lake"))
    catalog.create_database("shop")
    for source in database.tables:
        if source.is_typed:
            catalog.create_table(f"shop.{source.name}", TYPED, primary_key=["id"], options=OPTIONS)
    stream = database.changes()
    peaks_mib = []
    with Service(tmp_path, ["ingest", "run"], configuration(broker, tmp_path)) as service:
        send(broker, islice(stream, changes))
        service.start()
        for _ in range(rounds):
            send(broker, islice(stream, changes))
            sleep(random.uniform(0, WORK_S))
            happening = random.choice(["service", "service", "broker", "broker", "both", "nothing"])
            if happening in ("service", "both"):
                if random.random() < COMMITTING_SHARE:
                    service.wait_until(commits(catalog, random.sample(database.tables[::2], 5)))
                peaks_mib.append(service.peak_memory_mib())
                service.kill()
            if happening in ("broker", "both"):
                random.choice([broker.kill, broker.stop])()
                sleep(random.uniform(0, WORK_S))
                broker.start()
            if happening in ("service", "both"):
                service.start()
        send(broker, islice(stream, changes))
        peaks_mib.append(service.peak_memory_mib())
        service.kill()
        service.run_to_the_end()
    for source in database.tables:
        table = catalog.table(f"shop.{source.name}")
        assert {row["id"]: row for row in table.scan().to_arrow().to_pylist()} == source.truth(), source.name
        assert chain_breaks(history(table)) == [], source.name
        assert verify(table.context) == [], source.name
    assert max(peaks_mib) <= 1.1 * (MEMORY_MIB + BESIDES_MIB)


def configuration(broker: KafkaBroker, home: Path) -> dict[str, Any]:
    return {
        "pipeline": PIPELINE,
        "warehouse": str(home / "lake"),
        "source": {"type": "kafka", "bootstrap_servers": broker.address, "topics": list(TOPICS)},
        "tables": [{"name": "shop.{table}", "options": OPTIONS}],
        "checkpoint": {"interval_ms": 500},
        "write": {"memory_bytes": MEMORY_MIB << 20},
    }


def send(broker: KafkaBroker, changes: Iterator[tuple[str, dict[str, Any]]]) -> None:
    by_topic: dict[str, list[dict[str, Any]]] = {}
    for topic, record in changes:
        by_topic.setdefault(topic, []).append(record)
    for topic, records in by_topic.items():
        broker.send(records, topic)


def commits(catalog: tidelake.Catalog, tables: Sequence[SourceTable]) -> Callable[[], bool]:
    """Asks whether any of these tables has a newer snapshot than now."""

    def newest() -> list[int]:
        names = [f"shop.{table.name}" for table in tables]
        return [catalog.table(name).context.snapshots.latest_id() or 0 for name in names]

    before = newest()
    return lambda: newest() != before


def history(table: tidelake.Table) -> list[Any]:
    return [
        (s.commit_identifier, position_from_text(s.properties[POSITION_PROPERTY], f"snapshot {s.id}"))
        for s in table.snapshots()
        if s.commit_user == PIPELINE
    ]
