"""Tables with `primary-key.nullable`: nulls of a key are one value, the smallest, in every step of a row's life."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any, Final

import pyarrow as pa
import pytest

import tidelake
from tests.support.java_oracle import JavaOracle
from tidelake import col

COLUMNS: Final = pa.schema([("id", pa.int64()), ("name", pa.string()), ("v", pa.int64())])
TABLES: Final[Mapping[str, Mapping[str, str]]] = {
    "one bucket": {"bucket": "1"},
    "three buckets": {"bucket": "3"},
    "dynamic buckets": {"bucket": "-1"},
    "changelog from the input": {"bucket": "1", "changelog-producer": "input"},
    "changelog by lookup": {"bucket": "2", "changelog-producer": "lookup"},
    "changelog of full compactions": {"bucket": "1", "changelog-producer": "full-compaction"},
    "deletion vectors": {"bucket": "2", "deletion-vectors.enabled": "true"},
    "first row": {"bucket": "1", "merge-engine": "first-row"},
    "sums": {"bucket": "1", "merge-engine": "aggregation", "fields.v.aggregate-function": "sum"},
    "thin files": {"bucket": "1", "data-file.thin-mode": "true"},
    "avro": {"bucket": "1", "file.format": "avro"},
    "orc": {"bucket": "1", "file.format": "orc"},
}
Key = tuple[int | None, str | None]


def merged(options: Mapping[str, str], old: int | None, new: int) -> int:
    match options.get("merge-engine"):
        case "first-row":
            return new if old is None else old
        case "aggregation":
            return new + (old or 0)
        case _:
            return new


def create(warehouse: Path, options: Mapping[str, str], name: str = "shop.t") -> tidelake.Table:
    catalog = tidelake.open_catalog(str(warehouse))
    catalog.create_database("shop", if_not_exists=True)
    given = {"primary-key.nullable": "true", **options}
    return catalog.create_table(name, COLUMNS, primary_key=["id", "name"], options=given)


def write(table: tidelake.Table, dice: Random, model: dict[Key, int], options: Mapping[str, str]) -> None:
    """Write ten rows of few keys, so that 0 and null, and "" and null, are often both there."""
    rows: list[dict[str, Any]] = [
        {"id": dice.choice([None, 0, 1]), "name": dice.choice([None, "", "a"]), "v": dice.randrange(100)}
        for _ in range(10)
    ]
    for row in rows:
        key = (row["id"], row["name"])
        model[key] = merged(options, model.get(key), row["v"])
    with table.writer() as writer:
        writer.write(pa.Table.from_pylist(rows, COLUMNS))
        writer.commit()


@pytest.mark.parametrize("options", TABLES.values(), ids=TABLES)
def test_null_keys_are_merged_compacted_found_and_followed_like_others(
    options: Mapping[str, str], tmp_path: Path
) -> None:
    table, dice, model = create(tmp_path, options), Random(3), dict[Key, int]()
    for commit in range(8):
        write(table, dice, model, options)
        if commit in (3, 7):
            table.compact(full=True)
    rows = {(row["id"], row["name"]): row["v"] for row in table.scan().to_arrow().to_pylist()}
    assert rows == model
    assert len(table.scan().to_arrow()) == len(model)
    assert len(table.scan(filter=col("id").is_null()).to_arrow()) == sum(key[0] is None for key in model)
    assert len(table.scan(filter=col("id") == 0).to_arrow()) == sum(key[0] == 0 for key in model)
    if options.get("changelog-producer", "none") != "none":
        followed: dict[Key, int] = {}
        for change in table.follow(start="earliest", end=table.snapshots()[-1].id):
            for row in change.rows.to_pylist():
                key = (row["id"], row["name"])
                if row["_VALUE_KIND"] in (1, 3):
                    assert followed.pop(key) == row["v"] or options["changelog-producer"] == "input"
                else:
                    followed[key] = row["v"]
        assert followed == model


def test_java_reads_null_keys(java_oracle: JavaOracle, tmp_path: Path) -> None:
    table, model = create(tmp_path, {"bucket": "1"}), dict[Key, int]()
    for seed in range(3):
        write(table, Random(seed), model, {})
    rows = java_oracle.read(tmp_path, "shop.t")
    assert {(row["id"], row["name"]): row["v"] for row in rows} == model


def test_without_the_option_a_null_key_is_refused(tmp_path: Path) -> None:
    table = create(tmp_path, {"bucket": "1", "primary-key.nullable": "false"})
    with pytest.raises(tidelake.BadInput, match="'id' is part of the primary key"), table.writer() as writer:
        writer.write(pa.table({"id": [None], "name": ["a"], "v": [1]}, schema=COLUMNS))


def test_a_nullable_key_that_moves_between_partitions_is_refused_at_creation(tmp_path: Path) -> None:
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("shop")
    with pytest.raises(tidelake.BadInput, match=r"primary-key\.nullable.*add the partition columns to the key"):
        catalog.create_table(
            "shop.t", COLUMNS, primary_key=["id"], partition_by=["name"], options={"primary-key.nullable": "true"}
        )
