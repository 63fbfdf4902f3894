"""Java's REST catalog client and ours use one server."""

from __future__ import annotations

import json

import pyarrow as pa

import tidelake
from tests.support.java_oracle import JavaOracle
from tests.support.rest_catalog import RestCatalogServer

NAME = "shop.orders"
COLUMNS: list[dict[str, object]] = [
    {"name": "id", "type": "BIGINT", "nullable": False},
    {"name": "v", "type": "STRING"},
]
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])


def test_each_continues_after_commits_of_the_other(rest_catalog: RestCatalogServer, java_oracle: JavaOracle) -> None:
    java = json.dumps({**rest_catalog.options, "warehouse": "lake"})
    lake = tidelake.open_catalog("lake", **rest_catalog.options)
    java_oracle.create(java, NAME, COLUMNS, primary_keys=["id"], options={"bucket": "1"})
    assert lake.list_tables("shop") == ["orders"]
    for turn in range(3):
        java_oracle.write(java, NAME, [{"id": turn, "v": "java"}])
        with lake.table(NAME).writer() as writer:
            writer.write(pa.table({"id": [10 + turn], "v": ["ours"]}, SCHEMA))
            writer.commit()
    lake.alter_table(NAME, [tidelake.AddColumn("n", pa.int32())])
    java_oracle.alter(java, NAME, {"add": {"name": "m", "type": "INT"}})
    assert lake.table(NAME).schema.names == ["id", "v", "n", "m"]
    expected = [(turn + more, who) for more, who in ((0, "java"), (10, "ours")) for turn in range(3)]
    of_java = sorted((row["id"], row["v"]) for row in java_oracle.read(java, NAME))
    ours = sorted((row["id"], row["v"]) for row in lake.table(NAME).scan().to_arrow().to_pylist())
    assert of_java == ours == expected
    lake.rename_table(NAME, "shop.old")
    assert java_oracle.command("tables", java, "shop.any") == [{"table": "old"}]
    java_oracle.command("drop", java, "shop.old")
    assert lake.list_tables("shop") == []


def test_java_uses_the_credentials_of_the_server_too(rest_catalog: RestCatalogServer, java_oracle: JavaOracle) -> None:
    rest_catalog.overrides["data-token.enabled"] = "true"
    java = json.dumps({**rest_catalog.options, "warehouse": "lake"})
    java_oracle.create(java, NAME, COLUMNS, primary_keys=["id"], options={"bucket": "1"})
    java_oracle.write(java, NAME, [{"id": 1, "v": "java"}])
    by_java = len(rest_catalog.asked_for)
    assert set(rest_catalog.asked_for) == {NAME}
    ours = tidelake.open_catalog("lake", **rest_catalog.options).table(NAME)
    assert ours.scan().to_arrow().to_pylist() == [{"id": 1, "v": "java"}]
    assert len(rest_catalog.asked_for) > by_java
