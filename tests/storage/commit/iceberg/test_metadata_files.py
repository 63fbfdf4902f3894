"""Orphans among the files of Iceberg metadata are found, and live files are not; lost ones are reported."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest

import tidelake
from tests.support.command_line import Call
from tests.support.iceberg import iceberg_rows, newest
from tidelake.storage.maintenance.orphans import clean_orphans
from tidelake.storage.maintenance.verify import verify
from tidelake.storage.maintenance.verify.inspection import inspect
from tidelake.storage.maintenance.verify.orphan_files import Orphans

ROWS: Final = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
ICEBERG: Final = {"metadata.iceberg.storage": "table-location"}
VECTORS: Final = {
    "metadata.iceberg.format-version": "3",
    "deletion-vectors.bitmap64": "true",
    "deletion-vectors.enabled": "true",
}


@pytest.fixture
def catalog(tmp_path: Path) -> tidelake.Catalog:
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("db")
    return catalog


@pytest.fixture
def metadata(tmp_path: Path) -> Path:
    return tmp_path / "db.db" / "t" / "metadata"


def grown_old(folder: Path) -> None:
    for path in folder.rglob("*"):
        os.utime(path, (0, 0))


def ids(metadata: Path) -> list[int]:
    found: list[int] = sorted(iceberg_rows(metadata)["id"].to_pylist())
    return found


@pytest.mark.parametrize("options", [ICEBERG, {**ICEBERG, **VECTORS}], ids=["version 2", "vectors"])
def test_nothing_that_a_reader_needs_is_an_orphan(
    catalog: tidelake.Catalog, metadata: Path, options: dict[str, str]
) -> None:
    table = catalog.create_table("db.t", ROWS, options=options)
    for start in (0, 10, 20):
        table.append([{"id": i, "name": "x"} for i in range(start, start + 5)])
    table.create_tag("first", snapshot=1)
    if "deletion-vectors.enabled" in options:
        table.delete("id = 3")
    grown_old(metadata.parent)
    before = {path.name for path in metadata.iterdir()}
    assert clean_orphans(table.context, older_than_ms=0).paths == ()
    assert {path.name for path in metadata.iterdir()} == before
    assert inspect(table.context, orphans_older_than_ms=0).orphans == Orphans((), 0, 0)


def test_dead_files_are_found_and_removed_when_they_are_old(catalog: tidelake.Catalog, metadata: Path) -> None:
    table = catalog.create_table("db.t", ROWS, options=ICEBERG)
    table.append([{"id": 1, "name": "x"}])
    dead = {"0c-m1.avro", "snap-1-0c.avro", "index-0c-1.puffin"}
    for name in dead:
        (metadata / name).write_bytes(b"x")
    foreign = metadata / "notes.txt"
    foreign.write_text("not ours")
    young = clean_orphans(table.context)
    assert (young.paths, young.young) == ((), 3)
    grown_old(metadata)
    reported = inspect(table.context).orphans
    assert reported is not None
    assert {Path(path).name for path in reported.paths} == dead
    removed = clean_orphans(table.context)
    assert ({Path(path).name for path in removed.paths}, removed.size_bytes) == (dead, 3)
    assert foreign.exists()
    assert ids(metadata) == [1]


def test_an_old_metadata_file_that_the_options_do_not_keep_is_dead_with_what_it_names(
    catalog: tidelake.Catalog, metadata: Path
) -> None:
    keep = {"metadata.iceberg.previous-versions-max": "0", "metadata.iceberg.delete-after-commit.enabled": "true"}
    table = catalog.create_table("db.t", ROWS, options={**ICEBERG, **keep})
    table.append([{"id": 1, "name": "x"}])
    old = newest(metadata).read_bytes()
    for i in (2, 3):
        table.append([{"id": i, "name": "x"}])
    (metadata / "v1.metadata.json").write_bytes(old)  # as after a crash before it was deleted
    grown_old(metadata)
    assert [Path(path).name for path in clean_orphans(table.context).paths] == ["v1.metadata.json"]
    assert ids(metadata) == [1, 2, 3]


def test_puffin_files_of_replaced_vectors_are_dead(catalog: tidelake.Catalog, metadata: Path) -> None:
    limits = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1", "snapshot.time-retained": "1 ms"}
    table = catalog.create_table("db.t", ROWS, options={**ICEBERG, **VECTORS, **limits})
    table.append([{"id": i, "name": "x"} for i in range(10)])
    for i in (3, 5, 7):
        table.delete(f"id = {i}")
    table.expire()
    grown_old(metadata)
    removed = {Path(path).name for path in clean_orphans(table.context).paths if path.endswith(".puffin")}
    assert len(removed) == 2
    assert ids(metadata) == [0, 1, 2, 4, 6, 8, 9]
    assert not verify(table.context)


@pytest.mark.parametrize("lost", ["*-m*.avro", "snap-*.avro", "v2.metadata.json"])
def test_a_lost_file_is_a_problem_and_then_nothing_here_is_an_orphan(
    catalog: tidelake.Catalog, metadata: Path, lost: str, call: Call, tmp_path: Path
) -> None:
    table = catalog.create_table("db.t", ROWS, options=ICEBERG)
    for i in (1, 2):
        table.append([{"id": i, "name": "x"}])
    path = sorted(metadata.glob(lost))[-1]
    if path.suffix == ".json":
        path.write_bytes(b"{")
    else:
        path.unlink()
    grown_old(metadata)
    (finding,) = verify(table.context)
    assert (finding.check, finding.where) == ("iceberg-metadata", str(path))
    assert clean_orphans(table.context, older_than_ms=0).paths == ()
    repaired = call("table", "iceberg", "db.t", "-w", tmp_path)
    assert repaired.code == 0, repaired.err
    assert str(newest(metadata)) in repaired.out
    assert not verify(table.context)
    assert ids(metadata) == [1, 2]


def test_the_command_makes_the_metadata_anew_and_refuses_tables_without_it(
    catalog: tidelake.Catalog, metadata: Path, call: Call, tmp_path: Path
) -> None:
    catalog.create_table("db.t", ROWS, options=ICEBERG).append([{"id": 1, "name": "x"}])
    catalog.create_table("db.plain", ROWS)
    before = {path.name for path in metadata.iterdir()}
    said = call("table", "iceberg", "db.t", "--anew", "-w", tmp_path, "--json")
    assert said.code == 0, said.err
    assert str(newest(metadata)) in said.out
    assert {path.name for path in metadata.iterdir()} != before
    assert ids(metadata) == [1]
    refused = call("table", "iceberg", "db.plain", "-w", tmp_path)
    assert refused.code == 1
    assert "metadata.iceberg.storage" in refused.err


def test_metadata_of_a_removed_option_and_of_branches_is_left_alone(catalog: tidelake.Catalog, metadata: Path) -> None:
    table = catalog.create_table("db.t", ROWS, options=ICEBERG)
    table.append([{"id": 1, "name": "x"}])
    (metadata / "0c-m1.avro").write_bytes(b"x")
    grown_old(metadata)
    catalog.alter_table("db.t", [tidelake.RemoveOption("metadata.iceberg.storage")])
    assert clean_orphans(catalog.table("db.t").context, older_than_ms=0).paths == ()
