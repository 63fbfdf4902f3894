"""HDFS: addresses, settings, what a lost answer leaves, and errors with their remedies."""

from __future__ import annotations

import multiprocessing
import pickle
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import hdfs_native
import pyarrow as pa
import pytest

import tidelake
from tests.support.hdfs import Hdfs
from tidelake.errors import AccessDenied, BadInput, UnsupportedFeature
from tidelake.storage.fileio import open_file_io
from tidelake.storage.fileio.hdfs_client import as_os_errors
from tidelake.storage.fileio.retrying import is_transient

MOUNTED = "hadoop.fs.viewfs.mounttable.lakes."


# ---------------------------------------------------------------- addresses


@pytest.mark.interop
def test_a_path_without_an_authority_is_in_the_default_file_system(hdfs: Hdfs) -> None:
    path = hdfs.new_folder().removeprefix(hdfs.uri)
    io = open_file_io("hdfs:///", {"hadoop.fs.defaultFS": hdfs.uri})
    assert io.create_if_absent(f"hdfs://{path}/f", b"1")
    assert open_file_io(hdfs.uri).read(f"{hdfs.uri}{path}/f") == b"1"


def test_the_settings_may_be_in_a_folder(hdfs: Hdfs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = hdfs.new_folder()
    setting = f"<property><name>fs.defaultFS</name><value>{hdfs.uri}</value></property>"
    (tmp_path / "core-site.xml").write_text(f"<configuration>{setting}</configuration>")
    open_file_io(hdfs.uri).write(f"{folder}/f", b"1")
    path = "hdfs://" + folder.removeprefix(hdfs.uri) + "/f"
    assert open_file_io(path, {"hadoop-conf-dir": str(tmp_path)}).read(path) == b"1"
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    assert open_file_io(path, {"hadoop.dfs.client.use.datanode.hostname": "false"}).read(path) == b"1"


def test_viewfs_leads_to_the_clusters_of_its_mount_table(hdfs: Hdfs) -> None:
    folder = hdfs.new_folder()
    options = {f"{MOUNTED}link./warm": folder, f"{MOUNTED}linkFallback": f"{folder}/rest"}
    io = open_file_io("viewfs://lakes/warm", options)
    assert io.create_if_absent("viewfs://lakes/warm/t/snapshot-1", b"1")
    assert not io.create_if_absent("viewfs://lakes/warm/t/snapshot-1", b"2")
    assert [entry.name for entry in io.list_directory("viewfs://lakes/warm/t")] == ["snapshot-1"]
    assert io.list_directory("viewfs://lakes/warm/t/snapshot-1") == []
    assert open_file_io(folder).read(f"{folder}/t/snapshot-1") == b"1"


@pytest.mark.parametrize(
    ("location", "options", "message"),
    [
        pytest.param("hdfs://nameservice/f", {}, "Write the port.*HADOOP_CONF_DIR", id="unknown name service"),
        pytest.param("hdfs:///f", {}, "Name the cluster in the location.*fs.defaultFS", id="no default"),
        pytest.param("viewfs://lakes/f", {}, "HADOOP_CONF_DIR.*linkFallback", id="no mount table"),
        pytest.param("hdfs://me@host:1/f", {}, "HADOOP_USER_NAME", id="user"),
        pytest.param("hdfs://host:1/a//f", {}, "empty part", id="empty part"),
        pytest.param(
            "hdfs://127.0.0.1:1/f", {"hadoop-conf-dir": "/no/such"}, "'/no/such', which is no directory", id="no folder"
        ),
        pytest.param(
            "hdfs://host:1/f",
            {"security.kerberos.login.keytab": "/k"},
            "Set both, or use the ticket cache",
            id="keytab without a principal",
        ),
    ],
)
def test_an_address_that_leads_nowhere_is_refused_with_the_remedy(
    location: str, options: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    monkeypatch.delenv("HADOOP_HOME", raising=False)
    with pytest.raises(BadInput, match=message):
        open_file_io(location, options).read(location)


def test_a_catalog_passes_on_the_folder_of_the_settings(tmp_path: Path) -> None:
    catalog = tidelake.open_catalog("hdfs:///lake", **{"hadoop-conf-dir": f"{tmp_path}/none"})
    with pytest.raises(BadInput, match="/none', which is no directory"):
        catalog.list_databases()


def test_settings_that_the_client_does_not_know_are_logged(hdfs: Hdfs, caplog: pytest.LogCaptureFixture) -> None:
    options = {
        "hadoop.dfs.replication": "2",
        "hadoop.dfs.client.use.datanode.hostname": "true",
        "security.kerberos.login.use-ticket-cache": "true",
    }
    assert not open_file_io(hdfs.uri, options).exists(f"{hdfs.uri}/none")
    [message] = [line for line in caplog.messages if "without effect" in line]
    assert "['security.kerberos.login.use-ticket-cache', 'hadoop.dfs.replication']" in message


def test_options_of_others_are_not_pickled_and_values_are_not_shown() -> None:
    io = open_file_io("hdfs://h:1", {"jdbc.password": "hidden", "hadoop.fs.defaultFS": "hdfs://x:1"})
    assert b"hidden" not in pickle.dumps(io)
    assert repr(io) == "HdfsFileIO(hadoop.fs.defaultFS=...)"


# ---------------------------------------------------------------- errors


def test_a_cluster_that_is_down_is_named_and_tried_again() -> None:
    with pytest.raises(OSError, match=r"refused.*Is the cluster up.*hdfs://127\.0\.0\.1:1/f") as caught:
        once = {"hadoop.dfs.client.failover.max.attempts": "1"}
        open_file_io("hdfs://127.0.0.1:1", once).read("hdfs://127.0.0.1:1/f")
    assert is_transient(caught.value)


def test_denied_access_is_no_missing_file(hdfs: Hdfs, tmp_path: Path) -> None:
    """The user is chosen when the client is opened, so this asks another process."""
    folder = hdfs.new_folder()
    open_file_io(folder).write(f"{folder}/f", b"1")
    hdfs_native.Client(hdfs.uri).set_permission(folder.removeprefix(hdfs.uri), 0o700)
    program = (
        "import os; os.environ['HADOOP_USER_NAME'] = 'mallory'\n"
        "from tidelake.errors import AccessDenied\n"
        "from tidelake.storage.fileio import open_file_io\n"
        f"io, path = open_file_io({folder!r}), {folder!r} + '/f'\n"
        "for call in (io.exists, io.read, io.delete, lambda path: io.create_if_absent(path + '2', b'')):\n"
        "    try: print(call(path))\n"
        "    except AccessDenied as error: print('user=mallory' in str(error), 'kinit' in str(error))\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.split("\n") == ["True True"] * 4 + [""]


RPC = 'RPCError("org.apache.hadoop.{}", "{}\\n\\tat org.apache.Server.run(Server.java:1)")'


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        (RPC.format("security.AccessControlException", "Permission denied: user=x"), AccessDenied, "user=x.*kinit"),
        (RPC.format("hdfs.protocol.NSQuotaExceededException", "The quota"), OSError, "The quota"),
        (RPC.format("hdfs.server.namenode.SafeModeException", "Cannot create"), BlockingIOError, "Cannot create"),
        (RPC.format("fs.InvalidPathException", "Invalid path name /a:b"), BadInput, "Invalid path name"),
        (RPC.format("fs.ParentNotDirectoryException", "/f (is not a directory)"), NotADirectoryError, "not a dir"),
        ('GSSAPIError(GSS_S_FAILURE, 1, "No credentials cache")', AccessDenied, "KRB5CCNAME"),
        ("NoSASLMechanism", AccessDenied, "kinit"),
    ],
)
def test_errors_of_the_server_are_raised_by_their_kind(text: str, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message) as caught, as_os_errors("hdfs://h:1/f"):
        raise RuntimeError(text)
    assert "Server.java" not in str(caught.value)


def test_a_name_that_hdfs_does_not_allow_is_bad_input(hdfs: Hdfs) -> None:
    folder = hdfs.new_folder()
    with pytest.raises(BadInput, match="a:b"):
        open_file_io(folder).write(f"{folder}/a:b/f", b"")


def test_without_the_client_the_error_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['hdfs_native'] = None\n"
        "import importlib.util; importlib.util.find_spec = lambda name: None\n"
        "from tidelake.storage.fileio import open_file_io\n"
        "open_file_io('hdfs://h:1').read('hdfs://h:1/f')"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "UnsupportedFeature: hdfs:// locations: they need the package hdfs-native" in run.stderr
    assert "pip install 'tidelake[hdfs]'" in run.stderr


def _use(uri: str) -> None:
    with pytest.raises(UnsupportedFeature, match="forked from a process that had used HDFS"):
        open_file_io(uri).exists(f"{uri}/f")


def test_a_forked_child_is_refused_and_does_not_hang(hdfs: Hdfs) -> None:
    assert not open_file_io(hdfs.uri).exists(f"{hdfs.uri}/f")
    program = (
        "import os, sys\n"
        "from tests.storage.fileio.test_hdfs import _use\n"
        "from tidelake.storage.fileio import open_file_io\n"
        f"open_file_io({hdfs.uri!r}).exists({hdfs.uri!r} + '/f')\n"
        "child = os.fork()\n"
        f"if not child: _use({hdfs.uri!r}); os._exit(0)\n"
        "sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


# ---------------------------------------------------------------- commits


class LostAnswer:
    """A client whose rename succeeds, and then reports what a second name node answers to the repeated call."""

    def __init__(self, client: hdfs_native.Client, error: Exception) -> None:
        self._client = client
        self._error = error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def rename(self, source: str, target: str, overwrite: bool) -> None:
        self._client.rename(source, target, overwrite)
        raise self._error


@pytest.mark.parametrize("error", [FileNotFoundError("rename source is not found"), FileExistsError("exists")])
def test_a_repeated_rename_after_a_lost_answer_is_a_success(
    hdfs: Hdfs, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    io, folder = open_file_io(hdfs.uri), hdfs.new_folder()
    client = hdfs_native.Client(hdfs.uri)
    monkeypatch.setattr("tidelake.storage.fileio.hdfs.open_client", lambda *_: LostAnswer(client, error))
    assert io.create_if_absent(f"{folder}/snapshot-1", b"ours")
    assert io.read(f"{folder}/snapshot-1") == b"ours"


def test_after_an_answer_that_says_nothing_the_outcome_is_unknown(hdfs: Hdfs, monkeypatch: pytest.MonkeyPatch) -> None:
    io, folder = open_file_io(hdfs.uri), hdfs.new_folder()
    client = hdfs_native.Client(hdfs.uri)
    broken = LostAnswer(client, OSError("connection reset"))
    monkeypatch.setattr("tidelake.storage.fileio.hdfs.open_client", lambda *_: broken)
    with pytest.raises(OSError, match="connection reset"):
        io.create_if_absent(f"{folder}/snapshot-1", b"ours")
    assert [entry.name for entry in io.list_directory(folder)] == ["snapshot-1"]


SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])


def _commit(warehouse: str, number: int, count: int) -> None:
    table = tidelake.open_catalog(warehouse).table("shop.events")
    with table.writer(commit_user=f"writer-{number}") as writer:
        for identifier in range(1, count + 1):
            writer.write(pa.table({"id": [number * 1000 + identifier], "v": [f"writer-{number}"]}, SCHEMA))
            writer.commit(identifier=identifier)


@pytest.mark.interop
def test_no_commit_of_two_racing_processes_is_lost(hdfs: Hdfs) -> None:
    count, warehouse = 8, hdfs.new_folder()
    catalog = tidelake.open_catalog(warehouse)
    catalog.create_database("shop")
    options = {"bucket": "-1", "commit.max-retries": "1000"}
    table = catalog.create_table("shop.events", SCHEMA, options=options)
    context = multiprocessing.get_context("spawn")
    racers = [context.Process(target=_commit, args=(warehouse, number, count)) for number in range(2)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    assert [racer.exitcode for racer in racers] == [0, 0]
    ids = sorted(table.scan().to_arrow()["id"].to_pylist())
    assert ids == [number * 1000 + n for number in range(2) for n in range(1, count + 1)]
    committed = {(s.commit_user, s.commit_identifier) for s in table.snapshots()}
    assert len(committed) == 2 * count


def test_of_renames_at_once_one_wins_without_a_trace_of_the_others(hdfs: Hdfs) -> None:
    io, folder = open_file_io(hdfs.uri), hdfs.new_folder()
    racers, start = 8, threading.Barrier(8)

    def race(number: int) -> bool:
        start.wait()
        return io.create_if_absent(f"{folder}/snapshot-1", str(number).encode())

    with ThreadPoolExecutor(racers) as threads:
        won = list(threads.map(race, range(racers)))
    assert won.count(True) == 1
    assert io.read(f"{folder}/snapshot-1") == str(won.index(True)).encode()
    assert [entry.name for entry in io.list_directory(folder)] == ["snapshot-1"]
