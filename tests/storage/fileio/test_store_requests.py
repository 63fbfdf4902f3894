"""The requests to an object store, counted by operation and kind of file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

import pytest

from tests.support.s3_server import S3Server
from tidelake.storage.fileio import FileIO, open_file_io
from tidelake.storage.fileio.object_output import PART_BYTES
from tidelake.storage.fileio.store_requests import STORE_REQUESTS, Operation, kind_of


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("s3://b/lake/d.db/t/bucket-0/data-1-0.parquet", "data"),
        ("s3://b/lake/d.db/t/day=1/bucket-3/changelog-1-0.parquet", "data"),
        ("s3://b/lake/d.db/t/bucket-0", "data"),
        ("s3://b/lake/d.db/t/manifest/manifest-1-0", "manifest"),
        ("s3://b/lake/d.db/t/manifest/manifest-list-1-0", "manifest_list"),
        ("s3://b/lake/d.db/t/manifest/index-manifest-1-0", "index_manifest"),
        ("s3://b/lake/d.db/t/index/index-1-0", "index"),
        ("s3://b/lake/d.db/t/snapshot/snapshot-7", "snapshot"),
        ("s3://b/lake/d.db/t/snapshot/LATEST", "hint"),
        ("s3://b/lake/d.db/t/snapshot/EARLIEST", "hint"),
        ("s3://b/lake/d.db/t/snapshot", "snapshot"),
        ("s3://b/lake/d.db/t/schema/schema-0", "schema"),
        ("s3://b/lake/d.db/t/schema/", "schema"),
        ("s3://b/lake/d.db/t/consumer/consumer-tidelake-shop", "consumer"),
        ("s3://b/lake/shop.progress", "other"),
        ("s3://b/lake", "other"),
    ],
)
def test_a_path_tells_the_kind_of_file(path: str, kind: str) -> None:
    assert kind_of(path) == kind


@pytest.fixture
def s3(s3_server: S3Server) -> FileIO:
    return open_file_io("s3://", s3_server.options)


@pytest.fixture
def table(s3_server: S3Server) -> str:
    return f"s3://{s3_server.new_bucket()}/d.db/t"


def counted(work: Callable[[], object]) -> Mapping[tuple[str, str], int]:
    before = Counter(STORE_REQUESTS.counts())
    work()
    return {(str(operation), kind): n for (operation, kind), n in (Counter(STORE_REQUESTS.counts()) - before).items()}


def test_each_call_counts_what_the_store_charges(s3: FileIO, table: str) -> None:
    snapshot, data = f"{table}/snapshot/snapshot-1", f"{table}/bucket-0/data-1"
    s3.create_if_absent(snapshot, b"{}")  # the first one of a bucket also tries the store

    def write(nbytes: int) -> None:
        with s3.open_output(data) as output:
            output.write(bytes(nbytes))

    cases: list[tuple[Callable[[], object], dict[tuple[str, str], int]]] = [
        (lambda: s3.create_if_absent(f"{table}/snapshot/snapshot-2", b"{}"), {("PUT", "snapshot"): 1}),
        (lambda: s3.read(snapshot), {("GET", "snapshot"): 1}),
        (lambda: s3.exists(f"{table}/schema/schema-9"), {("HEAD", "schema"): 1}),
        (lambda: s3.write(f"{table}/snapshot/LATEST", b"1"), {("PUT", "hint"): 1}),
        (lambda: s3.list_directory(f"{table}/snapshot"), {("LIST", "snapshot"): 1}),
        (lambda: write(10), {("PUT", "data"): 1}),
        (lambda: write(2 * PART_BYTES + 1), {("PUT", "data"): 5}),  # begin, three parts, complete
        (lambda: s3.open_input(data), {("GET", "data"): 1}),
        (lambda: s3.delete_all([data, snapshot]), {("DELETE", "data"): 1}),
    ]
    for work, expected in cases:
        assert counted(work) == expected


def test_a_request_that_fails_counts_and_all_are_timed(s3: FileIO, table: str) -> None:
    def read() -> None:
        with pytest.raises(FileNotFoundError):
            s3.read(f"{table}/snapshot/snapshot-1")

    before = STORE_REQUESTS.durations().get(Operation.GET)
    timed = 0 if before is None else before.count
    assert counted(read) == {("GET", "snapshot"): 1}
    assert STORE_REQUESTS.durations()[Operation.GET].count == timed + 1
