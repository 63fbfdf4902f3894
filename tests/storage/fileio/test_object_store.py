"""Behaviour of a real S3 server only: fetched bytes, multipart uploads, Hadoop directories, errors."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq
import pytest

from tests.support.counting_forwarder import CountingForwarder, counting_forwarder
from tests.support.s3_server import S3Server
from tidelake.errors import AccessDenied, BadInput
from tidelake.storage.fileio import FileIO, open_file_io, stores
from tidelake.storage.fileio.object_output import PART_BYTES
from tidelake.storage.fileio.range_reader import TAIL_BYTES

KIB = 1 << 10
# Headers of one answer.
HEADERS_BYTES = 1 * KIB


@pytest.fixture
def bucket(s3_server: S3Server) -> str:
    return s3_server.new_bucket()


@pytest.fixture
def s3(s3_server: S3Server) -> FileIO:
    return open_file_io("s3://", s3_server.options)


@pytest.fixture
def boto(s3_server: S3Server) -> Any:
    return s3_server.client()


# ---------------------------------------------------------------- how much is fetched


@pytest.fixture
def wire(s3_server: S3Server) -> Iterator[CountingForwarder]:
    host, port = s3_server.endpoint.removeprefix("http://").split(":")
    with counting_forwarder(host, int(port)) as forwarder:
        yield forwarder


@pytest.fixture
def s3_over_wire(s3_server: S3Server, wire: CountingForwarder) -> FileIO:
    return open_file_io("s3://", {**s3_server.options, "s3.endpoint": f"http://{wire.address}"})


def eight_columns(rows: int) -> pa.Table:
    random = np.random.default_rng(7)
    return pa.table({f"c{n}": random.random(rows) for n in range(8)})


@pytest.mark.parametrize("pre_buffer", [False, True], ids=["column by column", "with pre_buffer"])
@pytest.mark.parametrize("columns", [["c2"], ["c2", "c3"], ["c0", "c7"]], ids="+".join)
def test_parquet_fetches_the_footer_and_the_columns_read(
    s3: FileIO, s3_over_wire: FileIO, wire: CountingForwarder, bucket: str, columns: list[str], pre_buffer: bool
) -> None:
    path, table = f"s3://{bucket}/data-1.parquet", eight_columns(120_000)
    with s3.open_output(path) as output:
        pq.write_table(table, output.stream, row_group_size=30_000, compression="none", use_dictionary=False)
    file = pq.ParquetFile(s3_over_wire.open_input(path), pre_buffer=pre_buffer)
    assert file.read(columns=columns) == table.select(columns)

    chunks = [
        file.metadata.row_group(group).column(int(column[1:])).total_compressed_size
        for group in range(4)
        for column in columns
    ]
    least = sum(chunks)
    assert s3.size_bytes(path) > 7_600_000
    assert least < wire.received_bytes < least + TAIL_BYTES + HEADERS_BYTES * (1 + len(chunks))


def test_a_small_parquet_file_takes_one_request(
    s3: FileIO, s3_over_wire: FileIO, wire: CountingForwarder, bucket: str
) -> None:
    path, table = f"s3://{bucket}/data-1.parquet", eight_columns(2_800)
    with s3.open_output(path) as output:
        pq.write_table(table, output.stream, row_group_size=100)
    size_bytes = s3.size_bytes(path)
    assert 192 * KIB < size_bytes < TAIL_BYTES
    assert pq.read_table(s3_over_wire.open_input(path)) == table
    assert wire.received_bytes < size_bytes + HEADERS_BYTES


def test_orc_fetches_the_footer_and_the_column_read(
    s3: FileIO, s3_over_wire: FileIO, wire: CountingForwarder, bucket: str
) -> None:
    path, table = f"s3://{bucket}/data-1.orc", eight_columns(120_000)
    with s3.open_output(path) as output:
        pa.orc.write_table(table, output.stream, compression="uncompressed")
    assert pa.orc.read_table(s3_over_wire.open_input(path), columns=["c2"]) == table.select(["c2"])
    assert wire.received_bytes < s3.size_bytes(path) / 4


# ---------------------------------------------------------------- multipart uploads


@pytest.mark.parametrize(
    ("size_bytes", "parts"),
    [
        pytest.param(PART_BYTES - 1, 0, id="small is one put"),
        pytest.param(3 * PART_BYTES + 1, 4, id="large goes in parts"),
    ],
)
def test_a_file_above_the_threshold_is_uploaded_in_parts(
    s3: FileIO, boto: Any, bucket: str, size_bytes: int, parts: int
) -> None:
    data = os.urandom(size_bytes)
    with s3.open_output(f"s3://{bucket}/f") as output:
        output.stream.write(data)
        uploads = boto.list_multipart_uploads(Bucket=bucket).get("Uploads", [])
        assert len(uploads) == (1 if parts else 0)
    assert boto.get_object(Bucket=bucket, Key="f")["Body"].read() == data
    assert boto.head_object(Bucket=bucket, Key="f")["ETag"].strip('"').partition("-")[2] == (
        str(parts) if parts else ""
    )


def test_an_upload_whose_block_raises_leaves_no_parts(s3: FileIO, boto: Any, bucket: str) -> None:
    with pytest.raises(ValueError, match="no"), s3.open_output(f"s3://{bucket}/f") as output:
        output.stream.write(bytes(3 * PART_BYTES))
        assert boto.list_multipart_uploads(Bucket=bucket)["Uploads"]
        raise ValueError("no")
    assert not boto.list_multipart_uploads(Bucket=bucket).get("Uploads")
    assert not boto.list_objects_v2(Bucket=bucket).get("Contents")


# ---------------------------------------------------------------- what Hadoop leaves in a bucket


@pytest.fixture
def marked(boto: Any, bucket: str) -> str:
    """A table directory as a Java writer leaves it: an empty object `directory/` for each mkdirs."""
    for key in ("db/", "db/t/", "db/t/snapshot/", "db/t/snapshot/snapshot-1"):
        boto.put_object(Bucket=bucket, Key=key, Body=b"")
    return f"s3://{bucket}/db"


def test_a_directory_marker_is_not_listed_as_a_file(s3: FileIO, marked: str) -> None:
    assert [(e.name, e.is_directory) for e in s3.list_directory(marked)] == [("t", True)]
    assert [(e.name, e.is_directory) for e in s3.list_directory(f"{marked}/t/snapshot")] == [("snapshot-1", False)]
    assert not s3.exists(f"{marked}/t/snapshot")


def test_a_directory_with_markers_can_be_renamed_and_deleted(s3: FileIO, marked: str) -> None:
    s3.rename_directory(f"{marked}/t", f"{marked}/u")
    assert s3.exists(f"{marked}/u/snapshot/snapshot-1")
    assert not s3.exists(f"{marked}/t/snapshot/snapshot-1")
    s3.delete_directory(f"{marked}/u")
    assert not s3.exists(f"{marked}/u/snapshot/snapshot-1")


# ---------------------------------------------------------------- errors, secrets


def test_a_missing_bucket_is_named(s3: FileIO) -> None:
    path = "s3://no-such-bucket/f"
    for call in (lambda: s3.read(path), lambda: s3.write(path, b""), lambda: s3.list_directory(path)):
        with pytest.raises(OSError, match="no-such-bucket"):
            call()


@pytest.mark.parametrize("wrong", ["s3.access-key", "s3.secret-key"])
def test_wrong_credentials_raise_a_permission_error_without_the_secret(
    s3_server: S3Server, bucket: str, wrong: str
) -> None:
    options = {**s3_server.options, wrong: "hush-hush"}
    path = f"s3://{bucket}/f"
    s3 = open_file_io(path, options)
    with pytest.raises(AccessDenied, match=path) as caught:
        s3.read(path)
    assert "hush" not in f"{caught.value} {s3!r}"
    assert s3_server.secret_key not in f"{caught.value} {s3!r}"


def test_a_store_that_does_not_answer_raises_an_os_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "RETRY", {"max_retries": 1, "backoff": {"init_backoff": timedelta(microseconds=1)}})
    s3 = open_file_io("s3://b/f", {"s3.endpoint": "http://127.0.0.1:1", "s3.access-key": "a", "s3.secret-key": "b"})
    with pytest.raises(OSError, match="s3://b/f"):
        s3.read("s3://b/f")


def test_an_object_that_vanishes_while_it_is_read_is_not_found(s3: FileIO, bucket: str) -> None:
    path = f"s3://{bucket}/f"
    s3.write(path, os.urandom(1_000_000))
    file = s3.open_input(path)
    s3.delete(path)
    with pytest.raises(FileNotFoundError, match=path):
        file.read(10)


def test_a_whole_bucket_is_not_deleted(s3: FileIO, bucket: str) -> None:
    s3.write(f"s3://{bucket}/f", b"")
    for path in (f"s3://{bucket}", f"s3://{bucket}/"):
        with pytest.raises(BadInput, match="whole bucket"):
            s3.delete_directory(path)
    assert [entry.name for entry in s3.list_directory(f"s3://{bucket}")] == ["f"]


def test_a_whole_bucket_is_no_file(s3: FileIO, bucket: str) -> None:
    path = f"s3://{bucket}"
    assert not s3.exists(path)
    for call in (lambda: s3.read(path), lambda: s3.write(path, b""), lambda: s3.create_if_absent(path, b"")):
        with pytest.raises(BadInput, match="whole bucket"):
            call()


def test_a_directory_does_not_move_to_another_bucket(s3: FileIO, bucket: str) -> None:
    with pytest.raises(BadInput, match="different buckets"):
        s3.rename_directory(f"s3://{bucket}/t", "s3://another/t")


@pytest.mark.parametrize(
    "path",
    ["s3://", "s3:///f", "s3://b//f", "s3://b/a/../f", "s3://b/./f", "s3://b/a\x01b", "/local/f", "ftp://b/f"],
)
def test_an_invalid_path_is_bad_input(s3: FileIO, path: str) -> None:
    with pytest.raises(BadInput):
        s3.read(path)


def test_s3a_and_s3_are_the_same_store(s3: FileIO, bucket: str) -> None:
    s3.write(f"s3a://{bucket}/f", b"1")
    assert s3.read(f"s3://{bucket}/f") == b"1"
    s3.delete_all([f"s3n://{bucket}/f", f"s3://{bucket}/g"])
    assert s3.list_directory(f"s3://{bucket}") == []


def test_written_bytes_are_copied(s3: FileIO, bucket: str) -> None:
    buffer = bytearray(b"before")
    with s3.open_output(f"s3://{bucket}/f") as output:
        output.stream.write(buffer)
        buffer[:] = b"after!"
    assert s3.read(f"s3://{bucket}/f") == b"before"
