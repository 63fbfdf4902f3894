"""Blob files: written values are read back one by one, damage is reported, and the bytes equal Java's."""

from __future__ import annotations

import io
import struct
import zlib

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelake.errors import CorruptFile, UnsupportedFeature
from tidelake.storage.files.formats.blob.blob_file import (
    BlobFile,
    BlobFileWriter,
    decode_lengths,
    encode_lengths,
    pieces,
)
from tidelake.storage.files.formats.blob.blob_format import BlobFormat
from tidelake.storage.files.formats.blob.descriptor import BlobDescriptor
from tidelake.storage.model.types import INT, AtomicType, DataField, Root

BLOB = DataField(0, "b", AtomicType(Root.BLOB))
# Two values, the second empty, between them a null; as Java wrote them.
JAVAS = bytes.fromhex(
    "cf114e58010212000000000000001c87f1c8cf114e58100000000000000053 7fdf03242522030000 0001".replace(" ", "")
)


def file_of(values: list[bytes | None]) -> bytes:
    out = io.BytesIO()
    writer = BlobFileWriter(pa.PythonFile(out, "w"))
    for value in values:
        writer.add(value)
    writer.close()
    return out.getvalue()


def opened(data: bytes) -> BlobFile:
    return BlobFile(pa.BufferReader(data), "b.blob")


def values_of(file: BlobFile) -> list[bytes | None]:
    found = (file.value(row) for row in range(len(file.lengths)))
    return [None if value is None else bytes(value) for value in found]


def test_a_written_file_equals_javas_byte_by_byte() -> None:
    assert values_of(opened(JAVAS)) == [b"\x01\x02", None, b""]
    assert file_of([b"\x01\x02", None, b""]) == JAVAS


@given(st.lists(st.none() | st.binary(max_size=40)))
def test_written_values_are_read_back(values: list[bytes | None]) -> None:
    assert values_of(opened(file_of(values))) == values


@given(st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_lengths_of_any_size_are_read_back(numbers: list[int]) -> None:
    array = np.array(numbers, np.int64)
    assert decode_lengths(encode_lengths(array)).tolist() == numbers


@given(st.lists(st.integers(0, 100)), st.integers(1, 7), st.integers(1, 150))
def test_pieces_contain_every_row_once_and_stay_within_the_limit(sizes: list[int], rows: int, most_bytes: int) -> None:
    cut = list(pieces(np.array(sizes, np.int64), rows, most_bytes))
    assert [row for start, stop in cut for row in range(start, stop)] == list(range(len(sizes)))
    assert all(stop - start == 1 or sum(sizes[start:stop]) <= most_bytes for start, stop in cut)
    assert all(stop - start <= rows for start, stop in cut)


def test_a_placeholder_differs_from_null() -> None:
    out = io.BytesIO()
    writer = BlobFileWriter(pa.PythonFile(out, "w"))
    writer.add(None)
    writer.add_placeholder()
    writer.close()
    assert opened(out.getvalue()).is_placeholder.tolist() == [False, True]


@pytest.mark.parametrize(
    ("damaged", "message"),
    [
        pytest.param(b"", "a blob file", id="empty"),
        pytest.param(JAVAS[:-1] + b"\x02", "version 2", id="a version to come"),
        pytest.param(JAVAS[:-5] + struct.pack("<ib", 99, 1), "lengths", id="lengths longer than the file"),
        pytest.param(JAVAS[:-6] + b"\xff" + JAVAS[-5:], "no end", id="a length that does not end"),
        pytest.param(JAVAS[1:], "records of", id="too short"),
    ],
)
def test_a_damaged_file_is_reported_when_opened(damaged: bytes, message: str) -> None:
    with pytest.raises(CorruptFile, match=message):
        opened(damaged)


@pytest.mark.parametrize("at", [0, 4, 6, 14], ids=["magic", "value", "length", "CRC-32"])
def test_a_damaged_record_is_reported_when_read(at: int) -> None:
    damaged = bytearray(JAVAS)
    damaged[at] ^= 1
    file = opened(bytes(damaged))
    with pytest.raises(CorruptFile, match="CRC-32"):
        file.value(0)
    assert file.value(1) is None


def test_a_crc_may_cover_the_length_or_not() -> None:
    """Java's and pypaimon 2.1.0's cover it. The one of pypaimon's main branch covers magic and value only."""
    record_bytes = 4 + 2 + 8 + 4
    without_length = zlib.crc32(JAVAS[: 4 + 2])
    other = bytearray(JAVAS)
    other[record_bytes - 4 : record_bytes] = struct.pack("<I", without_length)
    assert values_of(opened(bytes(other))) == values_of(opened(JAVAS))
    for at in (0, 4, 6, 14):
        damaged = bytearray(other)
        damaged[at] ^= 1
        with pytest.raises(CorruptFile, match="CRC-32"):
            opened(bytes(damaged)).value(0)


def test_a_blob_file_contains_only_a_blob_column() -> None:
    with pytest.raises(UnsupportedFeature, match="column n INT in blob files"):
        list(BlobFormat().read(pa.BufferReader(JAVAS), "b.blob", [DataField(1, "n", INT)], batch_rows=10))
    batches = BlobFormat().read(pa.BufferReader(JAVAS), "b.blob", [BLOB], batch_rows=2)
    assert [batch.column("b").to_pylist() for batch in batches] == [[b"\x01\x02", None], [b""]]


@given(st.text(), st.integers(0, 2**63 - 1), st.integers(-1, 2**63 - 1))
def test_descriptors_are_read_back(uri: str, offset: int, length: int) -> None:
    descriptor = BlobDescriptor(uri, offset, length)
    assert descriptor.to_bytes().startswith(b"\x02CSEDBOLB")
    assert BlobDescriptor.from_bytes(descriptor.to_bytes()) == descriptor


def test_a_descriptor_of_the_first_version_has_no_magic() -> None:
    data = struct.pack("<bi", 1, 1) + b"u" + struct.pack("<qq", 3, 4)
    assert BlobDescriptor.from_bytes(data) == BlobDescriptor("u", 3, 4)


@pytest.mark.parametrize("data", [b"", b"\x01", b"\x03" + bytes(40), b"\x02" + bytes(40), b"\x01\xff\xff\xff\x7f"])
def test_other_bytes_are_not_a_descriptor(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"descriptor|URI"):
        BlobDescriptor.from_bytes(data)
