"""Findings of `verify` for damaged deletion vectors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import tidelake
from tidelake.storage.commit.manifests.index_manifest import read_index_manifest
from tidelake.storage.files.index_file import IndexFileMeta, index_file_path
from tidelake.storage.maintenance.verify import verify
from tidelake.storage.maintenance.verify.index_check import VectorCheck

VECTORS = {"deletion-vectors.enabled": "true"}


@pytest.fixture(params=["false", "true"], ids=["32 bits", "64 bits"])
def table(tmp_path: Path, request: pytest.FixtureRequest) -> tidelake.Table:
    """Ten rows, of which 3 and 7 are deleted."""
    catalog = tidelake.open_catalog(str(tmp_path / "lake"))
    catalog.create_database("db")
    form = {"deletion-vectors.bitmap64": request.param}
    made = catalog.create_table("db.t", pa.schema([("k", pa.int64())]), options={"bucket": "-1", **VECTORS, **form})
    with made.writer() as writer:
        writer.write(pa.table({"k": range(10)}))
        writer.commit()
    made.delete(tidelake.col("k").is_in([3, 7]))
    return made


def index_file(table: tidelake.Table) -> tuple[IndexFileMeta, str]:
    (entry,) = read_index_manifest(table.context, table.snapshots()[-1].index_manifest)
    return entry.file, index_file_path(table.context, entry.partition, entry.bucket, entry.file)


def flip(at: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(flip(0), id="another version"),
        pytest.param(flip(4), id="another length"),
        pytest.param(flip(-2), id="a bit of its end"),
        pytest.param(lambda data: bytes(len(data)), id="zeros"),
    ],
)
def test_a_vector_that_cannot_be_read_is_named(table: tidelake.Table, damage: Callable[[bytes], bytes]) -> None:
    assert verify(table.context) == []
    file, path = index_file(table)
    place = Path(path)
    place.write_bytes(damage(place.read_bytes()))
    (finding,) = verify(table.context)
    assert finding.check == "deletion-vector"
    assert file.vectors[0].data_file in finding.what
    assert "can't be read" in finding.what
    assert finding.remedy


def test_a_vector_with_another_row_count_than_its_manifest_is_named(table: tidelake.Table) -> None:
    file, path = index_file(table)
    reported = replace(file, vectors=(replace(file.vectors[0], cardinality=3),))
    (finding,) = VectorCheck().check(table.context, reported, path, {}, "snapshot 2")
    assert "3 deleted rows" in finding.what


@pytest.mark.parametrize(("rows", "is_sound"), [(8, True), (7, False), (0, False)])
def test_a_vector_that_marks_rows_behind_the_end_is_named(table: tidelake.Table, rows: int, is_sound: bool) -> None:
    file, path = index_file(table)
    check = VectorCheck()
    found = list(check.check(table.context, file, path, {file.vectors[0].data_file: rows}, "snapshot 2"))
    assert [finding.what.partition("marks ")[2] for finding in found] == (
        [] if is_sound else [f"row 7, and the file has {rows} rows"]
    )
    assert list(check.check(table.context, file, path, {}, "snapshot 3")) == [], "once is enough"
