"""BLOB columns stored in ordinary files as descriptors of bytes elsewhere."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tidelake.errors import CorruptFile, UnsupportedFeature
from tidelake.storage.fileio.local import LocalFileIO
from tidelake.storage.files.formats.blob.descriptor import BlobDescriptor
from tidelake.storage.model.options import TableOptions
from tidelake.storage.model.schema.table_schema import TableSchema
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import INT, AtomicType, DataField, Root
from tidelake.storage.read.evolution.blob_column import with_inline_blobs

FIELDS = (DataField(0, "id", INT), DataField(1, "b", AtomicType(Root.BLOB)))


def read(*values: bytes | None, **options: str) -> list[bytes | None]:
    given = {"blob-descriptor-field": "b", **{key.replace("_", "-"): value for key, value in options.items()}}
    schema = TableSchema(0, FIELDS, 1, options=given)
    context = TableContext(LocalFileIO(), "/t", "db.t", schema, TableOptions(given))
    columns = {"id": pa.array([0] * len(values), pa.int32()), "b": pa.array(values, pa.binary())}
    found = with_inline_blobs(context, pa.record_batch(columns), FIELDS).column("b").to_pylist()
    return list(found)


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    path = tmp_path / "photo.bin"
    path.write_bytes(b"0123456789")
    return path


def test_bytes_are_returned_in_place_of_descriptors(elsewhere: Path) -> None:
    places = [(0, 3), (3, 0), (5, -1), (0, 10)]
    values = [BlobDescriptor(str(elsewhere), *place).to_bytes() for place in places]
    by_uri = BlobDescriptor(f"file:{elsewhere}", 9, 1).to_bytes()
    assert read(*values, None, by_uri) == [b"012", b"", b"56789", b"0123456789", None, b"9"]


def test_descriptors_are_returned_on_request(elsewhere: Path) -> None:
    value = BlobDescriptor(str(elsewhere), 0, 3).to_bytes()
    assert read(value, blob_as_descriptor="true") == [value]


@pytest.mark.parametrize(("offset", "length"), [(0, 11), (11, -1), (-1, 2), (10, 1)])
def test_a_descriptor_outside_of_its_file_raises(offset: int, length: int, elsewhere: Path) -> None:
    with pytest.raises(CorruptFile, match=r"photo\.bin"):
        read(BlobDescriptor(str(elsewhere), offset, length).to_bytes())


def test_a_missing_blob_file_raises(elsewhere: Path) -> None:
    elsewhere.unlink()
    with pytest.raises(CorruptFile, match="column b refers to"):
        read(BlobDescriptor(str(elsewhere), 0, 1).to_bytes())


def test_bytes_that_are_no_descriptor_are_refused() -> None:
    with pytest.raises(UnsupportedFeature, match="not a descriptor"):
        read(b"\x07 neither a descriptor nor one of Java's other forms")
