"""Guarantees of the local disk only: what is fsynced and when, full and read-only disks, file systems without links."""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest

from tests.support.external_services import UNSHARE
from tidelake.errors import BadInput, UnsupportedFeature
from tidelake.storage.fileio import FileIO, local, open_file_io


@pytest.fixture
def io() -> FileIO:
    return open_file_io("/")


def names(folder: Path) -> set[str]:
    return {entry.name for entry in folder.iterdir()}


# ---------------------------------------------------------------- what is fsynced, and when


@dataclass
class Trace:
    """The system calls that durability is made of, in order: ("fsync", path), ("link", target) ..."""

    steps: list[tuple[str, str]] = field(default_factory=list)

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        real_fsync = os.fsync

        def fsync(descriptor: int) -> None:
            path = os.readlink(f"/proc/self/fd/{descriptor}")
            is_directory = stat.S_ISDIR(os.fstat(descriptor).st_mode)
            self.steps.append(("fsync directory" if is_directory else "fsync file", os.path.basename(path)))
            real_fsync(descriptor)

        monkeypatch.setattr(os, "fsync", fsync)
        for name in ("mkdir", "link", "rename", "replace"):
            monkeypatch.setattr(os, name, self._recording(name, getattr(os, name)))

    def _recording(self, name: str, real: Callable[..., None]) -> Callable[..., None]:
        def call(*arguments: str) -> None:
            self.steps.append((name, os.path.basename(arguments[-1])))
            real(*arguments)

        return call

    @property
    def reported(self) -> list[str]:
        """Steps as words; the unique part of a temporary name is left out."""
        return [f"{step} {'temporary' if name.endswith('.tmp') else name}" for step, name in self.steps]


@pytest.fixture
def trace(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Trace:
    (tmp_path / "t").mkdir()
    trace = Trace()
    trace.install(monkeypatch)
    return trace


@pytest.fixture
def strict(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that promises no more than POSIX does."""
    monkeypatch.setattr(local, "keeps_names", lambda _: False)


@pytest.fixture
def journaling(monkeypatch: pytest.MonkeyPatch) -> None:
    """One whose fsync of a file keeps its name too."""
    monkeypatch.setattr(local, "keeps_names", lambda _: True)


def test_create_if_absent_makes_the_content_durable_before_the_name(io: FileIO, tmp_path: Path, trace: Trace) -> None:
    assert io.create_if_absent(f"{tmp_path}/t/snapshot-1", b"{}")
    assert trace.reported == ["fsync file temporary", "link snapshot-1", "fsync directory t"]


@pytest.mark.usefixtures("journaling")
def test_an_output_is_durable_with_one_fsync(io: FileIO, tmp_path: Path, trace: Trace) -> None:
    with io.open_output(f"{tmp_path}/t/dt=1/data-1") as output:
        output.stream.write(b"rows")
    assert trace.reported == ["mkdir dt=1", "rename data-1", "fsync file data-1"]


@pytest.mark.usefixtures("strict")
def test_an_output_is_durable_with_one_fsync_for_bytes_and_one_for_the_name(
    io: FileIO, tmp_path: Path, trace: Trace
) -> None:
    with io.open_output(f"{tmp_path}/t/data-1") as output:
        output.stream.write(b"rows")
    assert trace.reported == ["rename data-1", "fsync file data-1", "fsync directory t"]


def test_write_makes_the_content_durable_before_it_replaces(io: FileIO, tmp_path: Path, trace: Trace) -> None:
    io.write(f"{tmp_path}/t/consumer-c", b"1")
    assert trace.reported == ["fsync file temporary", "replace consumer-c", "fsync directory t"]


def test_a_hint_costs_no_fsync(io: FileIO, tmp_path: Path, trace: Trace) -> None:
    io.write(f"{tmp_path}/t/LATEST", b"1", durable=False)
    assert trace.reported == ["replace LATEST"]


def test_a_large_write_is_split_into_the_pieces_that_the_system_accepts(
    io: FileIO, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real_write(descriptor, data[:3]))
    with io.open_output(f"{tmp_path}/manifest-1") as output:
        output.write(b"ten bytes.")
    io.write(f"{tmp_path}/LATEST", b"12345", durable=False)
    assert (io.read(f"{tmp_path}/manifest-1"), io.read(f"{tmp_path}/LATEST")) == (b"ten bytes.", b"12345")


@pytest.mark.parametrize("durable", [True, False])
def test_a_rewritten_file_is_never_missing(
    io: FileIO, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durable: bool
) -> None:
    """Readers that find no LATEST list the whole directory."""
    latest, seen = tmp_path / "LATEST", list[str]()
    io.write(str(latest), b"1", durable=durable)
    for name in ("replace", "open", "unlink", "write", "close"):
        real = getattr(os, name)

        def noting(*args: object, real: Callable[..., object] = real, **named: object) -> object:
            found = real(*args, **named)
            seen.append(latest.read_text() if latest.exists() else "missing")
            return found

        monkeypatch.setattr(os, name, noting)
    io.write(str(latest), b"2", durable=durable)
    assert set(seen) == {"1", "2"}


def test_a_growing_file_is_read_to_its_end(io: FileIO, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "f").write_bytes(b"0123456789")
    real_fstat = os.fstat
    monkeypatch.setattr(os, "fstat", lambda descriptor: os.stat_result([*real_fstat(descriptor)[:6], 3, 0, 0, 0]))
    assert io.read(f"{tmp_path}/f") == b"0123456789"


@pytest.mark.usefixtures("strict")
def test_new_parent_directories_are_durable_from_the_top_down(io: FileIO, tmp_path: Path, trace: Trace) -> None:
    with io.open_output(f"{tmp_path}/t/dt=1/bucket-0/data-1"):
        pass
    assert trace.reported == [
        *("mkdir dt=1", "fsync directory t"),
        *("mkdir bucket-0", "fsync directory dt=1"),
        *("rename data-1", "fsync file data-1", "fsync directory bucket-0"),
    ]


@pytest.mark.usefixtures("strict")
def test_a_renamed_directory_is_durable_at_both_ends(io: FileIO, tmp_path: Path, trace: Trace) -> None:
    io.write(f"{tmp_path}/t/a/f", b"")
    trace.steps.clear()
    io.rename_directory(f"{tmp_path}/t/a", f"{tmp_path}/u/b")
    assert trace.reported == [
        *("mkdir u", f"fsync directory {tmp_path.name}"),
        *("rename b", "fsync directory u", "fsync directory t"),
    ]


@pytest.mark.parametrize(
    ("number", "keeps"),
    [
        pytest.param(0xEF53, True, id="ext4"),
        pytest.param(0x58465342, True, id="XFS"),
        pytest.param(0x9123683E, True, id="Btrfs"),
        pytest.param(0x6969, False, id="NFS"),
        pytest.param(None, False, id="no answer"),
    ],
)
def test_file_systems_that_persist_names_with_files_are_recognised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int | None, keeps: bool
) -> None:
    class LibC:
        def statfs(self, path: bytes, found: ctypes.Array[ctypes.c_char]) -> int:
            assert path == os.fsencode(tmp_path)
            ctypes.c_long.from_buffer(found).value = number or 0
            return 0 if number else -1

    monkeypatch.setattr(local, "_libc", LibC)
    assert local.keeps_names(str(tmp_path)) is keeps


# ---------------------------------------------------------------- a full disk


# Runs in a mount namespace of its own, where any user may mount: nothing to clean up, nothing to be root for.
ON_A_SMALL_DISK = """
import errno, os, sys
from tidelake.storage.fileio import open_file_io

folder = sys.argv[1]
io, big = open_file_io(folder), bytes(1_000_000)


def stream(path):
    with io.open_output(path) as output:
        for _ in range(100):
            output.stream.write(big[:10_000])


def expect(code, call, *arguments):
    try:
        call(*arguments)
    except OSError as error:
        assert error.errno == code, error
        assert error.filename == arguments[0], error
        assert arguments[0] in str(error), error
    else:
        raise AssertionError(f"{call} succeeded")
"""

FULL_DISK = """
io.write(f"{folder}/kept", b"old")
for call in (lambda path: io.write(path, big), lambda path: io.create_if_absent(path, big), stream):
    expect(errno.ENOSPC, call, f"{folder}/f")
    assert os.listdir(folder) == ["kept"], os.listdir(folder)
expect(errno.ENOSPC, lambda path: io.write(path, big), f"{folder}/kept")
assert io.read(f"{folder}/kept") == b"old"
stream_small = io.open_output(f"{folder}/small")
with stream_small as output:
    output.stream.write(b"fits again")
assert sorted(os.listdir(folder)) == ["kept", "small"]
"""

READ_ONLY = """
for call in (lambda path: io.write(path, b"1"), lambda path: io.create_if_absent(path, b"1"), stream, io.delete):
    expect(errno.EROFS, call, f"{folder}/f")
expect(errno.EROFS, lambda path: io.create_if_absent(path, b"1"), f"{folder}/t/snapshot/snapshot-1")
assert io.list_directory(folder) == []
"""


@pytest.mark.needs("a small disk")
@pytest.mark.parametrize(
    ("options", "script"),
    [pytest.param("size=256k", FULL_DISK, id="full"), pytest.param("ro", READ_ONLY, id="read-only")],
)
def test_a_full_or_read_only_disk_raises_and_leaves_no_files(tmp_path: Path, options: str, script: str) -> None:
    mount = f'mount -t tmpfs -o {options} none "$1" && exec "$2" -c "$3" "$1"'
    run = subprocess.run(
        [*UNSHARE, "sh", "-ec", mount, "sh", str(tmp_path), sys.executable, ON_A_SMALL_DISK + script],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr


def test_a_file_above_the_process_limit_raises_and_leaves_no_files(tmp_path: Path) -> None:
    script = """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
for call in (lambda path: io.write(path, big), lambda path: io.create_if_absent(path, big), stream):
    expect(errno.EFBIG, call, f"{folder}/f")
    assert os.listdir(folder) == [], os.listdir(folder)
"""
    command = [sys.executable, "-c", ON_A_SMALL_DISK + script, str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("broken", ["fsync", "rename"])
def test_an_output_that_cannot_be_published_leaves_no_files(
    io: FileIO, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "the disk is dying")

    monkeypatch.setattr(os, broken, fail)
    with pytest.raises(OSError, match=r"data-1'$") as caught, io.open_output(f"{tmp_path}/data-1") as output:
        output.stream.write(b"rows")
    assert caught.value.errno == errno.EIO
    assert names(tmp_path) == set()


@pytest.mark.usefixtures("strict")
def test_an_output_whose_name_is_not_durable_is_removed(
    io: FileIO, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: str) -> None:
        raise OSError(errno.EIO, "the disk is dying")

    monkeypatch.setattr(local, "_sync_directory", fail)
    with pytest.raises(OSError, match="data-1"), io.open_output(f"{tmp_path}/data-1") as output:
        output.stream.write(b"rows")
    assert names(tmp_path) == set()


def test_an_output_that_cannot_be_opened_leaves_no_files(
    io: FileIO, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_many(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(pa, "OSFile", too_many)
    open_before = names(Path("/proc/self/fd"))
    with pytest.raises(OSError, match="data-1"), io.open_output(f"{tmp_path}/data-1") as output:
        output.stream.write(b"rows")
    assert names(tmp_path) == set()
    assert names(Path("/proc/self/fd")) == open_before


# ---------------------------------------------------------------- file systems without links


def refuse_links(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """Simulates a file system without hard links: link fails as on vfat, and the rename is real."""

    def link(_: str, __: str) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", link)


@pytest.mark.parametrize("code", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS], ids=errno.errorcode.get)
def test_without_hard_links_renameat2_is_used(
    io: FileIO, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    refuse_links(monkeypatch, code)
    assert io.create_if_absent(f"{tmp_path}/größe 1", b"first")
    assert not io.create_if_absent(f"{tmp_path}/größe 1", b"second")
    assert (tmp_path / "größe 1").read_bytes() == b"first"
    assert names(tmp_path) == {"größe 1"}


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOSYS], ids=errno.errorcode.get)
def test_a_file_system_with_neither_is_refused(
    io: FileIO, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    refuse_links(monkeypatch, errno.EPERM)
    monkeypatch.setattr(local, "_libc", lambda: LibC(code))
    monkeypatch.setattr(ctypes, "get_errno", lambda: code)
    with pytest.raises(UnsupportedFeature, match="no hard links and no rename"):
        io.create_if_absent(f"{tmp_path}/f", b"1")
    assert names(tmp_path) == set()


def test_a_c_library_without_renameat2_is_refused(io: FileIO, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_links(monkeypatch, errno.EPERM)
    monkeypatch.setattr(local, "_libc", object)
    with pytest.raises(UnsupportedFeature, match="no hard links and no rename"):
        io.create_if_absent(f"{tmp_path}/f", b"1")
    assert names(tmp_path) == set()


class LibC:
    """One whose file system does not know RENAME_NOREPLACE."""

    def __init__(self, code: int) -> None:
        self.code = code

    def renameat2(self, *_: object) -> int:
        return -1


def test_a_hard_link_that_fails_for_another_reason_raises(
    io: FileIO, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_links(monkeypatch, errno.ENOSPC)
    with pytest.raises(OSError, match="snapshot-1") as caught:
        io.create_if_absent(f"{tmp_path}/snapshot-1", b"1")
    assert caught.value.errno == errno.ENOSPC
    assert names(tmp_path) == set()


def test_a_repeated_hard_link_that_succeeded_counts_as_success(
    io: FileIO, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As over NFS, when the first answer gets lost."""
    real_link = os.link

    def link_twice(source: str, target: str) -> None:
        real_link(source, target)
        real_link(source, target)

    monkeypatch.setattr(os, "link", link_twice)
    assert io.create_if_absent(f"{tmp_path}/snapshot-1", b"ours")
    assert (tmp_path / "snapshot-1").read_bytes() == b"ours"
    assert names(tmp_path) == {"snapshot-1"}
    assert not io.create_if_absent(f"{tmp_path}/snapshot-1", b"another's")


# ---------------------------------------------------------------- paths, names


@pytest.mark.parametrize("prefix", ["", "file:", "file://", "file://localhost", "FILE://"])
def test_a_local_path_may_be_a_url(tmp_path: Path, prefix: str) -> None:
    location = f"{prefix}{tmp_path}/dt=1%3A2/a b"
    io = open_file_io(location)
    io.write(location, b"1")
    assert (tmp_path / "dt=1%3A2" / "a b").read_bytes() == b"1"
    with io.open_output(location) as output:
        assert output.path == location
    assert io.list_directory(f"{prefix}{tmp_path}")[0].name == "dt=1%3A2"


def test_a_relative_path_starts_at_the_working_directory(
    io: FileIO, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert io.create_if_absent("f", b"1")
    io.write("warehouse/t/f", b"2")
    with io.open_output("g") as output:
        output.stream.write(b"3")
    io.rename_directory("warehouse", "lake")
    assert names(tmp_path) == {"f", "g", "lake"}
    assert io.read("lake/t/f") == b"2"


@pytest.mark.parametrize("path", ["s3://bucket/f", "memory://m/f", "file://host/f", "file://"])
def test_a_path_of_another_store_is_refused_and_makes_no_directories(
    io: FileIO, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput):
        io.write(path, b"1")
    assert names(tmp_path) == set()


@pytest.mark.parametrize("letter", ["x", "ß", "東", "🌊"])
def test_the_longest_allowed_file_name_is_accepted(io: FileIO, tmp_path: Path, letter: str) -> None:
    name = letter * (255 // len(letter.encode()))
    assert io.create_if_absent(f"{tmp_path}/{name}", b"1")
    io.write(f"{tmp_path}/{name}", b"2")
    with io.open_output(f"{tmp_path}/{name}") as output:
        output.stream.write(b"3")
    assert names(tmp_path) == {name}


def test_temporary_files_are_hidden_files_in_the_same_directory(io: FileIO, tmp_path: Path) -> None:
    """Java's orphan cleaner removes what is not named snapshot-* from snapshot/."""
    with io.open_output(f"{tmp_path}/snapshot/snapshot-1"):
        [temporary] = names(tmp_path / "snapshot")
    assert temporary.startswith(".snapshot-1.")
    assert temporary.endswith(".tmp")


def test_a_broken_link_is_not_listed_and_a_link_has_the_size_of_its_target(io: FileIO, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "broken").symlink_to(tmp_path / "nothing")
    assert {(e.name, e.is_directory) for e in io.list_directory(str(tmp_path))} == {("real", True), ("link", True)}


def test_a_file_without_permission_raises_instead_of_being_missing(
    io: FileIO, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(path: str) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr(os, "stat", denied)
    with pytest.raises(PermissionError):
        io.exists(f"{tmp_path}/f")
