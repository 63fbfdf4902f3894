"""Iceberg metadata is what Java Paimon makes of the same table, field by field."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support.iceberg import avro_schema, contents, live_files
from tests.support.java_oracle import JavaOracle
from tidelake.storage.commit.iceberg.iceberg_commit import IcebergSnapshots, Inheritance
from tidelake.storage.commit.iceberg.manifest_files import IcebergManifests
from tidelake.storage.commit.iceberg.metadata_directory import MetadataDirectory
from tidelake.storage.fileio.local import LocalFileIO
from tidelake.storage.model.iceberg.table_metadata import IcebergMetadata
from tidelake.storage.model.table import TableContext

Step = Mapping[str, Any]
V3 = {"deletion-vectors.bitmap64": "true", "metadata.iceberg.format-version": "3"}
ALL_VERSIONS = {"metadata.iceberg.storage": "table-location", "metadata.iceberg.delete-after-commit.enabled": "false"}


@dataclass(frozen=True)
class Life:
    """A table of Java: its columns, and what Java does to it."""

    id: str
    columns: Sequence[Mapping[str, Any]]
    steps: Sequence[tuple[str, Any]]
    partition_keys: Sequence[str] = ()
    options: Mapping[str, str] = field(default_factory=dict)


def _columns(**types: str) -> list[dict[str, Any]]:
    return [{"name": name, "type": sql} for name, sql in types.items()]


ID_NAME = _columns(id="INT NOT NULL", name="STRING")
TWO_ROWS = [{"id": 1, "name": "a"}, {"id": 2, "name": None}]
ALL_TYPES = [
    *_columns(
        bo="BOOLEAN",
        ti="TINYINT",
        si="SMALLINT",
        i="INT",
        b="BIGINT",
        f="FLOAT",
        d="DOUBLE",
        c="CHAR(3)",
        v="VARCHAR(9)",
        s="STRING",
        bi="BINARY(2)",
        by="BYTES",
        de="DECIMAL(10, 2)",
        big="DECIMAL(38, 4)",
        da="DATE",
        t="TIME(3)",
        ts3="TIMESTAMP(3)",
        ts6="TIMESTAMP(6)",
        l3="TIMESTAMP(3) WITH LOCAL TIME ZONE",
        l6="TIMESTAMP(6) WITH LOCAL TIME ZONE",
    ),
    {"name": "a", "type": {"type": "ARRAY", "element": "INT NOT NULL"}},
    {"name": "aa", "type": {"type": "ARRAY", "element": {"type": "ARRAY", "element": "STRING"}}},
    {"name": "m", "type": {"type": "MAP", "key": "STRING", "value": "BIGINT NOT NULL"}},
    {"name": "ms", "type": {"type": "MULTISET", "element": "STRING"}},
    {"name": "r", "type": {"type": "ROW", "fields": [{"name": "x", "type": "INT"}, {"name": "y", "type": "STRING"}]}},
]
A_VALUE_OF_EACH = {
    "bo": True, "ti": -1, "si": 2, "i": -3, "b": 2**40, "f": 1.5, "d": -2.5, "c": "abc", "v": "äö", "s": "z" * 30,
    "bi": {"hex": "0102"}, "by": {"hex": "ff"}, "de": "-1.25", "big": "12345678901234567890123456.7890",
    "da": "1969-12-31", "t": "12:34:56.789", "ts3": "2024-01-31T12:34:56.789", "ts6": "1960-01-31T12:34:56.789123",
    "l3": "2024-01-31T12:34:56.789Z", "l6": "2024-01-31T12:34:56.789123Z", "a": [1, 2], "aa": [["x"], []],
    "m": [["k", 1]], "ms": [["e", 2]], "r": {"x": 1, "y": "q"},
}  # fmt: skip

PARTITIONS = _columns(
    id="INT", s="STRING", d="DATE", b="BIGINT", si="SMALLINT NOT NULL", bo="BOOLEAN", de="DECIMAL(9, 2)"
)


def _partition(id: int, s: str | None, d: str) -> dict[str, Any]:
    return {"id": id, "s": s, "d": d, "b": 5, "si": 2, "bo": True, "de": "1.25"}


LIVES = [
    Life("an append table", ID_NAME, [("write", TWO_ROWS), ("write", [{"id": 3, "name": "c"}])]),
    Life("a table of all types", ALL_TYPES, [("write", [A_VALUE_OF_EACH, {}])]),
    Life(
        "partitions",
        PARTITIONS,
        [
            ("write", [_partition(1, "a", "2024-01-31"), _partition(2, "b", "2024-02-01")]),
            ("write", [_partition(3, "a", "2024-01-31")]),
        ],
        partition_keys=["s", "d", "b", "si", "bo", "de"],
    ),
    Life(
        "columns that come, go, and change",
        ID_NAME,
        [
            ("write", TWO_ROWS),
            ("alter", {"add": {"name": "more", "type": "INT", "comment": "new"}}),
            ("write", [{"id": 4, "name": "d", "more": 1}]),
            ("alter", [{"rename": {"name": "name", "to": "title"}}, {"type": {"name": "more", "type": "BIGINT"}}]),
            ("write", [{"id": 5, "title": "e", "more": 2**40}]),
            ("alter", {"drop": {"name": "more"}}),
            ("write", [{"id": 6, "title": "f"}]),
        ],
    ),
    Life(
        "files that a compaction replaces",
        ID_NAME,
        [*(("write", [{"id": i, "name": str(i)}]) for i in range(6)), ("compact", True), ("write", TWO_ROWS)],
        options={"compaction.min.file-num": "2"},
    ),
    Life(
        "manifests that are merged",
        ID_NAME,
        [("write", [{"id": i, "name": str(i)}]) for i in range(6)],
        options={"metadata.iceberg.compaction.min.file-num": "2", "metadata.iceberg.compaction.max.file-num": "4"},
    ),
    Life("all rows go", ID_NAME, [("write", TWO_ROWS), ("truncate", None), ("write", TWO_ROWS)]),
    Life(
        "names of Iceberg 1.4",
        ID_NAME,
        [("write", TWO_ROWS), ("write", TWO_ROWS)],
        options={"metadata.iceberg.manifest-legacy-version": "true"},
    ),
]


def _live(oracle: JavaOracle, warehouse: Path, life: Life) -> Path:
    oracle.create(
        warehouse,
        "db.t",
        life.columns,
        partition_keys=life.partition_keys,
        primary_keys=["id"] if "primary-key" in life.id else [],
        options={"bucket": "-1", **ALL_VERSIONS, **life.options},
    )
    for step, argument in life.steps:
        match step:
            case "write":
                oracle.write(warehouse, "db.t", argument)
            case "write in full":
                oracle.write(warehouse, "db.t", argument, wait_compaction=True, full=True)
            case "delete":
                oracle.delete(warehouse, "db.t", argument)
            case "alter":
                oracle.alter(warehouse, "db.t", argument)
            case "compact":
                oracle.compact(warehouse, "db.t", full=argument)
            case "truncate":
                oracle.step(warehouse, "db.t", {"op": "truncate"})
    return warehouse / "db.db" / "t"


def _replay(table: Path) -> Iterator[IcebergMetadata]:
    """All versions, made one after the other from the snapshots of the table."""
    context = TableContext.open(LocalFileIO(), str(table), "db.t")
    directory = MetadataDirectory(context.io, f"{table}/metadata")
    snapshots = IcebergSnapshots(context, IcebergManifests(context, directory.path))
    metadata, before = None, None
    for snapshot in context.snapshots.all():
        if metadata is None or before is None:
            metadata = snapshots.first(snapshot, Inheritance("uuid"))
        else:
            metadata = snapshots.after(metadata, before, snapshot)
        before = snapshot
        directory.write(metadata)
        yield metadata


@pytest.mark.parametrize("life", LIVES, ids=lambda life: life.id)
def test_each_version_says_what_that_of_java_says(life: Life, java_oracle: JavaOracle, tmp_path: Path) -> None:
    table = _live(java_oracle, tmp_path / "lake", life)
    theirs = shutil.move(table / "metadata", tmp_path / "theirs")
    last_column_id = 0
    for version in _replay(table):
        name = f"v{version.current.id}.metadata.json"
        expected = contents(Path(theirs) / name)
        # Java 2.0.0 forgets the ids of dropped columns; later releases don't.
        last_column_id = expected["last-column-id"] = max(last_column_id, expected["last-column-id"])
        assert contents(table / "metadata" / name) == expected


KEYED_LIVES = [
    Life(
        "the highest level of a primary-key table",
        ID_NAME,
        [
            ("write in full", TWO_ROWS),
            ("write", [{"id": 1, "name": "new"}]),
            ("write in full", [{"id": 3, "name": "c"}]),
            ("write", [{"_kind": "-D", "id": 2, "name": None}]),
            ("compact", True),
        ],
        options={"bucket": "2"},
    ),
    Life(
        "deletion vectors of a primary-key table",
        ID_NAME,
        [
            ("write in full", [{"id": i, "name": str(i)} for i in range(20)]),
            *(("write", [{"id": i, "name": "new"}, {"_kind": "-D", "id": i + 10, "name": None}]) for i in range(3)),
            ("compact", False),
            ("compact", True),
        ],
        options={"bucket": "1", "deletion-vectors.enabled": "true", "num-sorted-run.compaction-trigger": "3", **V3},
    ),
    Life(
        "deletion vectors of an append table",
        ID_NAME,
        [
            ("write", [{"id": i, "name": str(i)} for i in range(20)]),
            ("write", TWO_ROWS),
            ("delete", {"id": 1}),
            ("delete", {"id": 7}),
        ],
        options={"deletion-vectors.enabled": "true", **V3},
    ),
]


@pytest.mark.parametrize("life", KEYED_LIVES, ids=lambda life: life.id)
def test_the_same_files_are_visible_as_with_java(life: Life, java_oracle: JavaOracle, tmp_path: Path) -> None:
    """Java's first version also shows files of level 0, until a compaction has replaced them."""
    table = _live(java_oracle, tmp_path / "lake", life)
    theirs = shutil.move(table / "metadata", tmp_path / "theirs")
    compared = 0
    for version in _replay(table):
        name = f"v{version.current.id}.metadata.json"
        expected = live_files(Path(theirs) / name)
        if version.current.id > 1:
            assert live_files(table / "metadata" / name) == expected
            compared += 1
    assert compared >= 3


def test_the_schemas_of_avro_files_are_those_of_java(java_oracle: JavaOracle, tmp_path: Path) -> None:
    columns = [column for column in PARTITIONS if column["name"] != "de"]  # see the module of our schemas
    row = {name: value for name, value in _partition(1, "a", "2024-01-31").items() if name != "de"}
    life = Life("partitions", columns, [("write", [row])], partition_keys=["s", "d", "b", "si", "bo"])
    table = _live(java_oracle, tmp_path / "lake", life)
    theirs = Path(shutil.move(table / "metadata", tmp_path / "theirs"))
    context = TableContext.open(LocalFileIO(), str(table), "db.t")
    snapshot = context.snapshots.latest()
    assert snapshot is not None
    IcebergSnapshots(context, IcebergManifests(context, f"{table}/metadata")).first(snapshot, Inheritance("uuid"))
    for pattern in ("snap-*.avro", "*-m1.avro"):
        (ours,) = (table / "metadata").glob(pattern)
        assert json.dumps(avro_schema(ours), sort_keys=True) == json.dumps(
            avro_schema(next(theirs.glob(pattern))), sort_keys=True
        )
