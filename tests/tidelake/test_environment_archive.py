"""An environment is packed, unpacked somewhere else, and its interpreter finds its packages there."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

from tidelake.environment_archive import pack_environment
from tidelake.errors import BadInput


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    """With three distributions, one of them PySpark."""
    made = tmp_path / "env ü"
    venv.create(made, symlinks=True)
    for name, version in (("tidelake", "1.2"), ("Greeting", "0.1"), ("pyspark", "4.3.0")):
        folder = packages_of(made) / name.lower()
        (folder / "__pycache__").mkdir(parents=True)
        (folder / "__pycache__" / "old.pyc").write_bytes(b"of this machine")
        (folder / "__init__.py").write_text(f"WHERE = __file__\nVERSION = {version!r}\n")
        info = packages_of(made) / f"{name}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\nName: text\n")
    return made


def packages_of(prefix: Path) -> Path:
    (found,) = prefix.glob("lib/python*/site-packages")
    return found


def test_a_packed_environment_runs_where_it_is_unpacked(prefix: Path, tmp_path: Path) -> None:
    to = tmp_path / "packed.tar.gz"
    to.write_bytes(b"of an earlier run")
    packed = pack_environment(prefix, to)
    assert packed.packages == ("Greeting 0.1", "tidelake 1.2")
    assert packed.size_bytes == to.stat().st_size
    assert packed.interpreter == Path(sys.executable).resolve()
    assert [path for path in tmp_path.iterdir() if path.suffix == ".part"] == []
    prefix.rename(tmp_path / "gone")  # nothing of it is needed
    elsewhere = tmp_path / "elsewhere"
    with tarfile.open(to) as archive:
        names = archive.getnames()
        archive.extractall(elsewhere, filter="fully_trusted")
    assert [name for name in names if "pyspark" in name or "__pycache__" in name] == []
    program = "import greeting, sys, tidelake; print(greeting.WHERE, tidelake.VERSION, sys.prefix, sep='\\n')"
    run = subprocess.run(
        [elsewhere / "bin" / "python", "-I", "-c", program], capture_output=True, text=True, check=True
    )
    where, version, found = run.stdout.splitlines()
    assert Path(where).resolve().is_relative_to(elsewhere.resolve())
    assert (version, Path(found).resolve()) == ("1.2", elsewhere.resolve())


def editable(prefix: Path) -> None:
    members = {"url": "file:///src/greeting", "dir_info": {"editable": True}}
    (packages_of(prefix) / "Greeting-0.1.dist-info" / "direct_url.json").write_text(json.dumps(members))


def outside(prefix: Path) -> None:
    (packages_of(prefix) / "others.pth").write_text("# a comment\nimport sys\n../\n/opt/others\n")


def with_system_packages(prefix: Path) -> None:
    config = prefix / "pyvenv.cfg"
    config.write_text(config.read_text().replace("packages = false", "packages = true"))


def without_tidelake(prefix: Path) -> None:
    (packages_of(prefix) / "tidelake-1.2.dist-info" / "METADATA").write_text("Name: other\nVersion: 1\n")


def no_environment(prefix: Path) -> None:
    (prefix / "pyvenv.cfg").unlink()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (editable, r"Greeting is installed as editable.* file:///src/greeting\. Install it without `-e`"),
        (outside, r"others\.pth adds /opt/others, which is outside of the environment"),
        (with_system_packages, "packages of its base interpreter.*that has its own"),
        (without_tidelake, r"does not have the package tidelake: .*pip install 'tidelake\[spark\]'"),
        (no_environment, "is no virtual environment.*python -m venv env"),
    ],
)
def test_an_environment_that_needs_more_than_its_files_is_refused_and_nothing_is_written(
    spoil: Callable[[Path], None], message: str, prefix: Path, tmp_path: Path
) -> None:
    spoil(prefix)
    with pytest.raises(BadInput, match=message):
        pack_environment(prefix, tmp_path / "packed.tar.gz")
    assert not list(tmp_path.glob("packed*"))
