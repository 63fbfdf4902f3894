"""The contract of storage/fileio/base.py, checked for every FileIO: local disk, memory, real servers of S3 and HDFS."""

from __future__ import annotations

import io
import multiprocessing
import os
import pickle
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier
from pathlib import Path
from uuid import uuid4

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.hdfs import Hdfs
from tests.support.s3_server import S3Server
from tidelake.storage.fileio import FileIO, open_file_io

DAY_MS = 86_400_000
LARGE_BYTES = 20_000_000  # several parts of a multipart upload


@dataclass(frozen=True, slots=True)
class Place:
    """A FileIO and an empty directory to use it on."""

    io: FileIO
    root: str

    def path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def names(self, directory: str = "") -> set[str]:
        return {entry.name for entry in self.io.list_directory(f"{self.root}/{directory}".rstrip("/"))}

    def put(self, *names: str) -> None:
        for name in names:
            self.io.write(self.path(name), name.encode())


def _local(request: pytest.FixtureRequest) -> Place:
    folder: Path = request.getfixturevalue("tmp_path")
    return Place(open_file_io(str(folder)), f"{folder}/table")


def _memory(_: pytest.FixtureRequest) -> Place:
    root = f"memory://{uuid4().hex}"
    return Place(open_file_io(root), f"{root}/table")


def _s3(request: pytest.FixtureRequest) -> Place:
    server: S3Server = request.getfixturevalue("s3_server")
    root = f"s3://{server.new_bucket()}"
    return Place(open_file_io(root, server.options), f"{root}/table")


def _hdfs(request: pytest.FixtureRequest) -> Place:
    cluster: Hdfs = request.getfixturevalue("hdfs")
    root = cluster.new_folder()
    return Place(open_file_io(root), f"{root}/table")


ON_S3 = pytest.param(_s3, marks=pytest.mark.needs("S3 server"))
ON_HDFS = pytest.param(_hdfs, marks=[pytest.mark.needs("HDFS"), pytest.mark.interop])  # each call takes milliseconds


@pytest.fixture(params=[_local, _memory, ON_S3, ON_HDFS], ids=["local", "memory", "s3", "hdfs"])
def place(request: pytest.FixtureRequest) -> Place:
    make: Callable[[pytest.FixtureRequest], Place] = request.param
    return make(request)


@pytest.fixture(params=[_local, ON_S3, ON_HDFS], ids=["local", "s3", "hdfs"])
def shared_place(request: pytest.FixtureRequest) -> Place:
    """One that other processes see too."""
    make: Callable[[pytest.FixtureRequest], Place] = request.param
    return make(request)


ODD_NAMES = [
    pytest.param("dt=2024-01-01%3A00/bucket-0/data-1.parquet", id="escaped partition"),
    pytest.param("%/f", id="lone percent sign"),
    pytest.param("a%25b/%2Ff", id="what looks like an escape is none"),
    pytest.param("a b/c d", id="spaces"),
    pytest.param("a+b&c=d;e,f@g!$()/h", id="signs with a meaning in URLs"),
    pytest.param("#fragment/query?x", id="hash, question mark"),
    pytest.param('it\'s "quoted"/`~^|{}[]<>*', id="quotes, brackets"),
    pytest.param("Größe/東京/🌊", id="unicode"),
    pytest.param("e\u0301/\u00e9", id="unicode is not normalised"),
    pytest.param("a\\b", id="backslash"),
    pytest.param(".hidden/..dots..", id="dots"),
    pytest.param("x" * 200, id="long"),
]


# ---------------------------------------------------------------- reading


def test_is_a_file_io(place: Place) -> None:
    assert isinstance(place.io, FileIO)


def test_written_bytes_are_read_back(place: Place) -> None:
    place.io.write(place.path("f"), b"\x00\xffbytes\n")
    assert place.io.read(place.path("f")) == b"\x00\xffbytes\n"
    assert place.io.size_bytes(place.path("f")) == 8
    assert place.io.exists(place.path("f"))


@pytest.mark.parametrize("call", ["read", "open_input", "size_bytes"])
def test_a_missing_file_is_not_found_and_named(place: Place, call: str) -> None:
    with pytest.raises(FileNotFoundError, match="snapshot-7"):
        getattr(place.io, call)(place.path("snapshot-7"))
    assert not place.io.exists(place.path("snapshot-7"))


def test_a_directory_does_not_exist_as_a_file(place: Place) -> None:
    place.put("bucket-0/f")
    assert not place.io.exists(place.path("bucket-0"))
    assert not place.io.exists(place.path("bucket-0/f/below-a-file"))


def test_an_empty_file_is_a_file(place: Place) -> None:
    place.io.write(place.path("written"), b"")
    assert place.io.create_if_absent(place.path("created"), b"")
    with place.io.open_output(place.path("streamed")):
        pass
    for name in ("written", "created", "streamed"):
        assert place.io.exists(place.path(name))
        assert place.io.read(place.path(name)) == b""
        assert place.io.size_bytes(place.path(name)) == 0
        with place.io.open_input(place.path(name)) as file:
            assert file.size() == 0
            assert file.read() == b""
    assert not place.io.create_if_absent(place.path("created"), b"something")


@pytest.mark.parametrize("name", ODD_NAMES)
def test_names_are_used_unchanged(place: Place, name: str) -> None:
    path = place.path(name)
    directory, _, last = name.rpartition("/")
    assert place.io.create_if_absent(path, b"1")
    assert not place.io.create_if_absent(path, b"2")
    assert place.names(directory) == {last}
    place.io.write(path, b"3")
    with place.io.open_output(f"{path}-4") as output:
        output.stream.write(b"4")
    assert place.io.read(path) == b"3"
    assert place.io.open_input(f"{path}-4").read() == b"4"
    assert place.names(directory) == {last, f"{last}-4"}
    place.io.delete(path)
    assert place.names(directory) == {f"{last}-4"}
    place.io.delete_all([f"{path}-4"])
    assert not place.io.exists(f"{path}-4")


def test_an_input_is_read_at_random(place: Place) -> None:
    data = os.urandom(300_000)
    place.io.write(place.path("f"), data)
    with place.io.open_input(place.path("f")) as file:
        assert file.size() == len(data)
        assert file.read(10) == data[:10]
        file.seek(-10, os.SEEK_END)
        assert file.read() == data[-10:]
        file.seek(100_000)
        assert file.read(150_000) == data[100_000:250_000]
        assert file.tell() == 250_000
        file.seek(5)
        assert file.read() == data[5:]
        assert file.read(1) == b""


def test_parquet_is_read_back_unchanged(place: Place) -> None:
    table = pa.table({"id": range(50_000), "name": [f"name-{i}" for i in range(50_000)]})
    with place.io.open_output(place.path("bucket-0/data-1.parquet")) as output:
        pq.write_table(table, output.stream, row_group_size=10_000)
    assert pq.read_table(place.io.open_input(place.path("bucket-0/data-1.parquet"))) == table


def test_avro_is_read_back_unchanged(place: Place) -> None:
    schema = fastavro.parse_schema({"type": "record", "name": "r", "fields": [{"name": "id", "type": "long"}]})
    rows = [{"id": i} for i in range(200_000)]
    with place.io.open_output(place.path("manifest/manifest-1")) as output:
        fastavro.writer(output.stream, schema, rows)
    assert list(fastavro.reader(place.io.open_input(place.path("manifest/manifest-1")))) == rows
    assert list(fastavro.reader(io.BytesIO(place.io.read(place.path("manifest/manifest-1"))))) == rows


# ---------------------------------------------------------------- outputs: whole, or not at all


@pytest.mark.parametrize("size_bytes", [3, LARGE_BYTES], ids=["small", "large"])
def test_an_output_appears_whole_when_its_block_ends(place: Place, size_bytes: int) -> None:
    path, data = place.path("bucket-0/data-1"), os.urandom(size_bytes)
    with place.io.open_output(path) as output:
        assert output.path == path
        for start in range(0, size_bytes, 1_000_000):
            output.stream.write(data[start : start + 1_000_000])
            assert not place.io.exists(path)
            assert "data-1" not in place.names("bucket-0")
    assert place.io.read(path) == data
    assert place.names("bucket-0") == {"data-1"}


@pytest.mark.parametrize("size_bytes", [0, 3, LARGE_BYTES], ids=["empty", "small", "large"])
def test_an_output_accepts_all_content_in_one_write(place: Place, size_bytes: int) -> None:
    path, data = place.path("manifest/manifest-1"), os.urandom(size_bytes)
    with place.io.open_output(path) as output:
        output.write(data)
        assert not place.io.exists(path)
    assert place.io.read(path) == data
    assert place.names("manifest") == {"manifest-1"}


@pytest.mark.parametrize("size_bytes", [0, 3, LARGE_BYTES], ids=["nothing written", "small", "large"])
@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt()], ids=["error", "interrupt"])
def test_an_output_whose_block_raises_leaves_nothing(place: Place, size_bytes: int, error: BaseException) -> None:
    with pytest.raises(type(error)) as caught, place.io.open_output(place.path("bucket-0/data-1")) as output:
        for _ in range(0, size_bytes, 1_000_000):
            output.stream.write(bytes(1_000_000))
        raise error
    assert caught.value is error
    assert place.names("bucket-0") == set()
    assert not place.io.exists(place.path("bucket-0/data-1"))


def test_an_output_appears_although_its_writer_closed_the_stream(place: Place) -> None:
    with place.io.open_output(place.path("f")) as output:
        output.stream.write(b"all")
        output.stream.close()
    assert place.io.read(place.path("f")) == b"all"


def test_a_writer_that_closed_the_stream_and_then_failed_leaves_nothing(place: Place) -> None:
    with pytest.raises(ValueError, match="late"), place.io.open_output(place.path("f")) as output:
        output.stream.write(b"all")
        output.stream.close()
        raise ValueError("late")
    assert place.names() == set()


def test_outputs_open_at_once_do_not_mix(place: Place) -> None:
    def write(number: int) -> None:
        with place.io.open_output(place.path(f"dt={number % 3}/bucket-0/data-{number}")) as output:
            for _ in range(100):
                output.stream.write(bytes([number]) * 1000)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(write, range(24)))
    for number in range(24):
        assert place.io.read(place.path(f"dt={number % 3}/bucket-0/data-{number}")) == bytes([number]) * 100_000


# ---------------------------------------------------------------- write: old or new


@pytest.mark.parametrize("durable", [True, False], ids=["durably", "as a hint"])
def test_write_replaces(place: Place, durable: bool) -> None:
    place.io.write(place.path("snapshot/LATEST"), b"10", durable=durable)
    place.io.write(place.path("snapshot/LATEST"), b"9", durable=durable)
    assert place.io.read(place.path("snapshot/LATEST")) == b"9"
    assert place.names("snapshot") == {"LATEST"}


def test_a_concurrent_reader_of_write_sees_the_old_or_the_new_content(place: Place) -> None:
    path = place.path("f")
    versions = [bytes([version]) * 100_000 for version in range(30)]
    place.io.write(path, versions[0])
    done = threading.Event()

    def read_on() -> None:
        while not done.is_set():
            assert place.io.read(path) in versions

    with ThreadPoolExecutor(2) as threads:
        readers = [threads.submit(read_on) for _ in range(2)]
        for version in versions:
            place.io.write(path, version)
        done.set()
        for reader in readers:
            reader.result()


# ---------------------------------------------------------------- create_if_absent: one winner


def test_create_if_absent_returns_true_for_the_first_call_and_false_for_the_second(place: Place) -> None:
    assert place.io.create_if_absent(place.path("snapshot/snapshot-1"), b"first")
    assert not place.io.create_if_absent(place.path("snapshot/snapshot-1"), b"second")
    assert place.io.read(place.path("snapshot/snapshot-1")) == b"first"
    assert place.names("snapshot") == {"snapshot-1"}


def test_create_if_absent_returns_false_for_equal_content_too(place: Place) -> None:
    assert place.io.create_if_absent(place.path("schema/schema-0"), b"{}")
    assert not place.io.create_if_absent(place.path("schema/schema-0"), b"{}")


def test_content_of_another_call_is_kept(place: Place) -> None:
    place.io.write(place.path("f"), b"written")
    assert not place.io.create_if_absent(place.path("f"), b"created")
    assert place.io.read(place.path("f")) == b"written"


def test_a_deleted_name_can_be_created_again(place: Place) -> None:
    assert place.io.create_if_absent(place.path("f"), b"1")
    place.io.delete(place.path("f"))
    assert place.io.create_if_absent(place.path("f"), b"2")
    assert place.io.read(place.path("f")) == b"2"


def test_of_many_threads_one_creates(place: Place) -> None:
    racers = 12

    def race(number: int, name: str, start: threading.Barrier) -> bool:
        start.wait()
        return place.io.create_if_absent(place.path(name), f"{number} ".encode() * 5000)

    with ThreadPoolExecutor(racers) as threads:
        for name in (f"snapshot/snapshot-{n}" for n in range(20)):
            start = threading.Barrier(racers)
            results = [threads.submit(race, number, name, start) for number in range(racers)]
            winners = [number for number, result in enumerate(results) if result.result()]
            assert len(winners) == 1
            assert place.io.read(place.path(name)) == f"{winners[0]} ".encode() * 5000
    assert place.names("snapshot") == {f"snapshot-{n}" for n in range(20)}


PROCESSES = 4
ROUNDS = 25


def _race_in_process(place: Place, number: int, start: Barrier, won: Path) -> None:
    won.touch()
    for n in range(ROUNDS):
        start.wait()
        if place.io.create_if_absent(place.path(f"snapshot/snapshot-{n}"), f"{number} ".encode() * 5000):
            with won.open("a") as file:
                file.write(f"{n}\n")


def test_of_many_processes_one_creates(shared_place: Place, tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")  # what is handed over is pickled, as for Spark's executors
    start = context.Barrier(PROCESSES)
    files = [tmp_path / f"won-{number}" for number in range(PROCESSES)]
    racers = [
        context.Process(target=_race_in_process, args=(shared_place, number, start, file))
        for number, file in enumerate(files)
    ]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    assert [racer.exitcode for racer in racers] == [0] * PROCESSES

    wins = sorted((int(n), number) for number, file in enumerate(files) for n in file.read_text().split())
    assert [n for n, _ in wins] == list(range(ROUNDS))
    for n, number in wins:
        assert shared_place.io.read(shared_place.path(f"snapshot/snapshot-{n}")) == f"{number} ".encode() * 5000
    assert shared_place.names("snapshot") == {f"snapshot-{n}" for n in range(ROUNDS)}


def test_a_concurrent_reader_of_create_if_absent_sees_nothing_or_all_content(place: Place) -> None:
    whole = os.urandom(2_000_000)
    done = threading.Event()

    def read_on(path: str) -> int:
        seen = 0
        while not (done.is_set() and seen):
            try:
                assert place.io.read(path) == whole
                seen += 1
            except FileNotFoundError:
                assert not seen
        return seen

    with ThreadPoolExecutor(2) as threads:
        for n in range(5):
            done.clear()
            readers = [threads.submit(read_on, place.path(f"f-{n}")) for _ in range(2)]
            assert place.io.create_if_absent(place.path(f"f-{n}"), whole)
            done.set()
            assert all(reader.result() for reader in readers)


# ---------------------------------------------------------------- listing


def test_a_listing_has_the_direct_children(place: Place) -> None:
    place.put("f", "bucket-0/a", "bucket-0/deeper/b", "bucket-00/c")
    assert {(e.name, e.size_bytes, e.is_directory) for e in place.io.list_directory(place.root)} == {
        ("f", 1, False),
        ("bucket-0", 0, True),
        ("bucket-00", 0, True),
    }
    assert place.names("bucket-0") == {"a", "deeper"}
    assert {entry.name for entry in place.io.list_directory(place.path("bucket-0/"))} == {"a", "deeper"}


def test_a_listing_contains_modification_times(place: Place) -> None:
    place.put("f")
    [entry] = place.io.list_directory(place.root)
    assert abs(entry.modified_ms - time.time() * 1000) < DAY_MS


def test_a_directory_that_is_not_there_has_no_children(place: Place) -> None:
    place.put("f")
    assert place.io.list_directory(place.path("missing")) == []
    assert place.io.list_directory(place.path("missing/deeper")) == []
    assert place.io.list_directory(place.path("f")) == []


def test_a_listing_of_many_files_is_complete_and_they_can_all_be_deleted(place: Place) -> None:
    names = {f"manifest-{n}" for n in range(1100)}  # stores hand out 1,000 at a time
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda name: place.put(f"manifest/{name}"), names))
    assert place.names("manifest") == names
    place.io.delete_all(place.path(f"manifest/{name}") for name in names - {"manifest-5"})
    assert place.names("manifest") == {"manifest-5"}


# ---------------------------------------------------------------- deleting


def test_deleting_twice_is_no_error(place: Place) -> None:
    place.put("f")
    place.io.delete(place.path("f"))
    place.io.delete(place.path("f"))
    place.io.delete(place.path("never/was"))
    assert not place.io.exists(place.path("f"))


def test_deleting_many_ignores_missing_files(place: Place) -> None:
    place.put("a", "b", "c")
    place.io.delete_all(place.path(name) for name in ["missing", "a", "missing/too", "c"])
    place.io.delete_all([])
    assert place.names() == {"b"}


def test_deleting_a_directory_deletes_all_below_it_and_nothing_else(place: Place) -> None:
    place.put("t/a", "t/deep/er/b", "t2/c", "t-d")
    place.io.delete_directory(place.path("t"))
    place.io.delete_directory(place.path("t"))
    assert place.io.list_directory(place.path("t")) == []
    assert place.names() - {"t"} == {"t2", "t-d"}
    assert place.names("t2") == {"c"}


# ---------------------------------------------------------------- directories made on purpose


def test_a_created_directory_is_listed_and_empty(place: Place) -> None:
    place.put("f")
    for _ in range(2):
        place.io.make_directory(place.path("shop.db"))
    (made,) = [entry for entry in place.io.list_directory(place.root) if entry.is_directory]
    assert made.name == "shop.db"
    assert place.io.list_directory(place.path("shop.db")) == []


def test_a_created_directory_stays_after_its_last_file_is_deleted(place: Place) -> None:
    place.io.make_directory(place.path("shop.db"))
    place.put("shop.db/orders/f")
    place.io.delete_directory(place.path("shop.db/orders"))
    assert "shop.db" in place.names()


def test_a_created_directory_can_be_deleted(place: Place) -> None:
    place.put("f")
    place.io.make_directory(place.path("shop.db"))
    place.io.delete_directory(place.path("shop.db"))
    assert place.names() == {"f"}


def test_a_directory_with_content_is_not_removed_as_an_empty_one(place: Place) -> None:
    place.put("a/b/f")
    assert not place.io.delete_empty_directory(place.path("a/b"))
    assert not place.io.delete_empty_directory(place.path("a"))
    assert place.io.read(place.path("a/b/f")) == b"a/b/f"
    place.io.delete(place.path("a/b/f"))
    place.io.delete_empty_directory(place.path("a/b"))
    assert place.names("a") == set()
    assert not place.io.delete_empty_directory(place.path("a/b"))


# ---------------------------------------------------------------- renaming


def test_renaming_a_directory_moves_all_below_it(place: Place) -> None:
    place.put("shop.db/a/f", "shop.db/a/dt=1%3A2/deep/g h", "shop.db/ab/f")
    place.io.rename_directory(place.path("shop.db/a"), place.path("other.db/b"))
    assert place.io.read(place.path("other.db/b/f")) == b"shop.db/a/f"
    assert place.io.read(place.path("other.db/b/dt=1%3A2/deep/g h")) == b"shop.db/a/dt=1%3A2/deep/g h"
    assert place.io.list_directory(place.path("shop.db/a")) == []
    assert place.names("shop.db/ab") == {"f"}


def test_renaming_onto_a_directory_that_exists_is_refused(place: Place) -> None:
    place.put("a/f", "b/g")
    with pytest.raises(FileExistsError, match="b"):
        place.io.rename_directory(place.path("a"), place.path("b"))
    assert (place.names("a"), place.names("b")) == ({"f"}, {"g"})


def test_renaming_onto_an_empty_directory_takes_its_place(place: Place) -> None:
    place.put("a/f")
    place.io.make_directory(place.path("b/"))
    place.io.rename_directory(place.path("a"), place.path("b"))
    assert (place.names("a"), place.names("b")) == (set(), {"f"})


def test_renaming_a_directory_that_is_not_there_is_not_found(place: Place) -> None:
    place.put("f")
    with pytest.raises(FileNotFoundError, match="missing"):
        place.io.rename_directory(place.path("missing"), place.path("b"))
    assert place.names() == {"f"}


# ---------------------------------------------------------------- travelling


def test_a_pickled_file_io_reads_the_same_files(place: Place) -> None:
    place.put("f")
    again = pickle.loads(pickle.dumps(place.io))
    assert again.read(place.path("f")) == b"f"
    assert not again.create_if_absent(place.path("f"), b"other")
