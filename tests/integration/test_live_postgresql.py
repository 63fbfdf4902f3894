"""Real PostgreSQL, Debezium, broker and service: every table equals its source after any kill."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from time import monotonic, sleep
from typing import Any, Final, LiteralString

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

import tidelake
from tests.support.database_text import comparable, same_value
from tests.support.debezium import Debezium
from tests.support.kafka_broker import KafkaBroker
from tests.support.postgresql import PostgresqlServer
from tests.support.recorded_truth import rows_of
from tests.support.service import Service
from tidelake.storage.maintenance.verify.inspection import verify

pytestmark = [pytest.mark.interop, pytest.mark.needs("Debezium"), pytest.mark.timeout(600)]

KEYS: Final = 60
PATIENCE_S: Final = 120
TABLES: Final[tuple[LiteralString, ...]] = (
    """CREATE TABLE orders (id bigint PRIMARY KEY, customer varchar(20) NOT NULL, amount numeric(8, 2),
       quantity smallint, placed timestamptz, document text)""",
    "CREATE TABLE items (order_id bigint, line int, label text, price double precision, PRIMARY KEY (order_id, line))",
    "CREATE TABLE visits (id int PRIMARY KEY, page text, seen timestamp(3), tags text[])",
)
SCHEMA_CHANGES: Final[tuple[tuple[LiteralString, ...], ...]] = (
    ("ALTER TABLE orders ADD COLUMN note text", "ALTER TABLE orders ALTER COLUMN quantity TYPE bigint"),
    ("ALTER TABLE orders ALTER COLUMN amount TYPE numeric(14, 4)", "ALTER TABLE items ADD COLUMN weight real"),
    ("ALTER TABLE visits ADD COLUMN length int DEFAULT 7", "ALTER TABLE items ALTER COLUMN line TYPE int"),
    (
        "CREATE TABLE refunds (id int PRIMARY KEY, amount numeric(8, 2), day date)",
        "ALTER TABLE orders DROP COLUMN note",
    ),
    ("ALTER TABLE visits ALTER COLUMN length TYPE bigint", "ALTER TABLE orders ADD COLUMN paid boolean"),
)


@dataclass
class Shop:
    """The source database. Every change is random, several in a transaction."""

    connection: psycopg.Connection[Any]
    random: Random
    time_ms: int = 1_700_000_000_000
    changed: int = 0

    def columns(self, table: str) -> dict[str, str]:
        """Name to the database's type."""
        found = self.connection.execute(
            """SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute
               WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum""",
            [table],
        )
        return dict(found.fetchall())

    def key(self, table: str) -> list[str]:
        found = self.connection.execute(
            """SELECT attname FROM pg_index JOIN pg_attribute ON attrelid = indrelid AND attnum = any(indkey)
               WHERE indrelid = %s::regclass AND indisprimary ORDER BY attnum""",
            [table],
        )
        return [name for (name,) in found.fetchall()]

    def tables(self) -> list[str]:
        found = self.connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1")
        return [name for (name,) in found.fetchall()]

    def rows(self, table: str) -> list[dict[str, str | None]]:
        """As the database prints them."""
        columns = self.columns(table)
        texts = SQL(", ").join(SQL("{}::text").format(Identifier(name)) for name in columns)
        with self.connection.transaction():
            self.connection.execute("SET LOCAL timezone = 'UTC'")
            found = self.connection.execute(SQL("SELECT {} FROM {}").format(texts, Identifier(table)))
            boolean = {"true": "t", "false": "f"}  # as psql prints them
            return [
                {
                    name: boolean.get(cell, cell) if type_ == "boolean" else cell
                    for (name, type_), cell in zip(columns.items(), row, strict=True)
                }
                for row in found.fetchall()
            ]

    def work(self, transactions: int) -> None:
        for _ in range(transactions):
            with self.connection.transaction():
                for _ in range(self.random.randrange(1, 8)):
                    self._change(self.random.choice(self.tables()))
                    self.changed += 1

    def _change(self, table: str) -> None:
        columns, key = self.columns(table), self.key(table)
        row = {name: self._value(name, type_, is_key=name in key) for name, type_ in columns.items()}
        where = SQL(" AND ").join(SQL("{} = {}").format(Identifier(n), row[n]) for n in key)
        what = self.random.random()
        if what < 0.15:
            self.connection.execute(SQL("DELETE FROM {} WHERE {}").format(Identifier(table), where))
            return
        if what < 0.2 and len(key) == 1:  # a row moves to another key, and keeps a large value that is not sent
            moved = SQL("UPDATE {0} SET {1} = {1} + 1000 WHERE {2} AND NOT EXISTS (SELECT 1 FROM {0} WHERE {1} = {3})")
            self.connection.execute(moved.format(Identifier(table), Identifier(key[0]), where, row[key[0]] + 1000))
            return
        if what < 0.5:  # without the large value
            row.pop("document", None)
        names = SQL(", ").join(map(Identifier, row))
        values = SQL(", ").join(map(SQL("{}").format, row.values()))
        kept = [name for name in row if name not in key]
        sets = SQL(", ").join(SQL("{0} = excluded.{0}").format(Identifier(name)) for name in kept)
        upsert = SQL("INSERT INTO {} ({}) VALUES ({}) ON CONFLICT ({}) DO UPDATE SET {}")
        keys = SQL(", ").join(map(Identifier, key))
        self.connection.execute(upsert.format(Identifier(table), names, values, keys, sets))

    def _value(self, name: str, type_: str, *, is_key: bool) -> Any:
        random = self.random
        if is_key:
            return random.randrange(KEYS)
        if name != "customer" and random.random() < 0.1:
            return None
        self.time_ms += 1
        match type_.partition("(")[0]:
            case "numeric":
                return f"{random.randrange(10**6)}.{random.randrange(100):02}"
            case "smallint":
                return random.randrange(2**15)
            case "integer":
                return random.randrange(2**31)
            case "bigint":
                return random.randrange(2**62)
            case "boolean":
                return random.random() < 0.5
            case "date":
                return f"2024-0{random.randrange(1, 10)}-11"
            case "double precision" | "real":
                return random.randrange(10**6) / 64
            case "text[]":
                return [random.choice(["a", "b c", 'd"e', "ü"]) for _ in range(random.randrange(4))]
            case type_ if type_.startswith("timestamp"):
                return f"2024-05-01 10:{random.randrange(60):02}:00.{random.randrange(1000):03}+00"
        if name == "document":
            return "".join(
                random.choice("abcdefgh \u2028é") for _ in range(9_000)
            )  # so long that PostgreSQL stores it out of line
        return f"{name} {random.random()}"[:20]


@contextmanager
def shop(address: str) -> Iterator[Shop]:
    with psycopg.connect(
        address.removeprefix("jdbc:"), user=PostgresqlServer.user, autocommit=True, prepare_threshold=None
    ) as connection:
        made = Shop(connection, Random(20261123))
        for statement in TABLES:
            connection.execute(statement)
        connection.execute("ALTER TABLE items REPLICA IDENTITY FULL")
        yield made


def differences(source: Shop, lake: tidelake.Catalog) -> list[str]:
    """Between every table of the database and its table in the lake; columns dropped at the source are passed over."""
    found = []
    for name in source.tables():
        types, key = source.columns(name), source.key(name)
        printed = {tuple(comparable(types[k], row[k]) for k in key): row for row in source.rows(name)}
        if name not in lake.list_tables("shop"):
            found.append(f"{name}: no table yet")
            continue
        rows = rows_of(lake.table(f"shop.{name}").scan().to_arrow())
        held = {tuple(comparable(types[k], row[k]) for k in key): row for row in rows}
        found += [f"{name} {at}: too many" for at in held.keys() - printed.keys()]
        found += [f"{name} {at}: missing" for at in printed.keys() - held.keys()]
        found += [
            f"{name} {at}: {column} is {held[at].get(column)!r}, not {printed[at][column]!r}"
            for at in printed.keys() & held.keys()
            for column, type_ in types.items()
            if not same_value(type_, printed[at][column], held[at].get(column))
        ]
    return found


def until_none(differences: Callable[[], list[str]], message: Callable[[], str]) -> None:
    deadline = monotonic() + PATIENCE_S
    while found := differences():
        assert monotonic() < deadline, f"{len(found)} differences, {found[:5]}\n{message()}"
        sleep(0.3)


def test_tables_follow_a_database_whose_schemas_change_while_service_and_connector_are_killed(
    postgresql: PostgresqlServer, private_kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    address, broker = postgresql.new_database(), private_kafka_broker
    configuration = {
        "pipeline": "live",
        "warehouse": str(tmp_path / "lake"),
        "source": {
            "type": "kafka",
            "bootstrap_servers": broker.address,
            "topic_pattern": r"live\.public\..*",
            "discovery_interval_ms": 500,
        },
        "tables": [{"name": "shop.{table}", "options": {"bucket": 1}}],
        "checkpoint": {"interval_ms": 300},
    }
    lake = tidelake.open_catalog(str(tmp_path / "lake"))
    lake.create_database("shop")
    settings = {"skipped.operations": "none", "value.converter.schemas.enable": "true"}
    with (
        shop(address) as source,
        Debezium(tmp_path, broker, address, "live", settings) as debezium,
        Service(tmp_path, ["ingest", "run"], configuration) as service,
    ):
        source.work(20)  # the connector's first snapshot
        debezium.start()
        service.start()
        until_none(lambda: differences(source, lake), lambda: service.output() + debezium.output())
        for number, statements in enumerate(SCHEMA_CHANGES):
            source.work(15)
            for statement in statements:
                source.connection.execute(statement)
                source.work(5)
            if number == 2:
                source.connection.execute("TRUNCATE visits")
            if number == 3:
                debezium.kill()
                source.work(10)
                debezium.start()
            sleep(source.random.random())
            service.kill()
            service.start()
            source.work(10)
        until_none(lambda: differences(source, lake), lambda: service.output() + debezium.output())
        names = source.tables()
        assert source.changed > 500
        service.kill()
    assert set(lake.list_tables("shop")) == {"items", "orders", "refunds", "visits"} == set(names)
    for name in names:
        assert verify(lake.table(f"shop.{name}").context) == [], name
