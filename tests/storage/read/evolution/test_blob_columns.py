"""BLOB columns of a Java table: the bytes, or descriptors of their location."""

from __future__ import annotations

from pathlib import Path

import pytest

import tidelake
from tests.support.cases import TESTS, GoldenTable
from tidelake.storage.files.formats.blob.descriptor import BlobDescriptor


@pytest.fixture
def table(tmp_path: Path) -> tidelake.Table:
    golden = GoldenTable("java", "types_blob", TESTS / "golden" / "java" / "types_blob.tar.zst")
    return tidelake.open_catalog(str(golden.unpack(tmp_path))).table(golden.identifier)


def test_descriptors_refer_to_the_bytes_of_a_read(table: tidelake.Table) -> None:
    as_descriptor = tidelake.open_catalog(table.location.rpartition("/golden.db")[0]).table(
        "golden.types_blob", {"blob-as-descriptor": "true"}
    )
    values = table.scan(columns=["b"]).to_arrow().column("b").to_pylist()
    named: list[bytes | None] = []
    for data in as_descriptor.scan(columns=["b"]).to_arrow().column("b").to_pylist():
        if data is None:
            named.append(None)
            continue
        place = BlobDescriptor.from_bytes(data)
        named.append(Path(place.uri).read_bytes()[place.offset : place.offset + place.length])
    assert named == values
    assert None in values


def test_a_condition_selects_the_blobs_of_its_rows(table: tidelake.Table) -> None:
    found = table.scan(columns=["b", "_ROW_ID"], filter=tidelake.col("id") == 3).to_arrow()
    assert found.to_pylist() == [{"b": b"", "_ROW_ID": 2}]


def test_a_condition_on_row_ids_reads_these_rows_alone(table: tidelake.Table) -> None:
    scan = table.scan(columns=["id"], filter=tidelake.col("_ROW_ID") >= 3)
    assert scan.to_arrow().column("id").to_pylist() == [4]
    assert len(scan.splits()[0].files) == 2, "the files of rows 0 to 2 are left out by their row ids"
