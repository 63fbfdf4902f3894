"""The installed package: which names it owns, and whether it works beside a project that uses the same words.

The wheel is built and installed once, into an environment of its own. Other packages come from the environment of the
tests, which is behind it on the path.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

pytestmark = pytest.mark.interop

ROOT: Final = Path(__file__).parent.parent
FOLDERS: Final = ("storage", "ingest", "checkpoint", "compaction")  # the words that a project may use, too
INSTALLED: Final = ["pyspark_tidelake", "pyspark_tidelake_kafka", "tidelake"]

APP: Final = """
import checkpoint, compaction, ingest, storage

import pyarrow as pa
import tidelake


def rows_written(warehouse):
    catalog = tidelake.open_catalog(warehouse)
    catalog.create_database("db")
    table = catalog.create_table("db.t", pa.schema([pa.field("id", pa.int64(), nullable=False)]), primary_key=["id"])
    with table.writer() as writer:
        writer.write(pa.table({"id": [1, 2]}))
        writer.commit()
    table.compact(full=True)
    return table.scan().to_arrow().num_rows

assert [one.OWNER for one in (checkpoint, compaction, ingest, storage)] == ["the project"] * 4
if __name__ == "__main__":
    print(rows_written("lake"), "rows by", tidelake.__file__)
"""
TEST: Final = """
from app import rows_written

def test_rows_are_written(tmp_path):
    assert rows_written(str(tmp_path)) == 2
"""
SPARK_JOB: Final = """
import checkpoint, compaction, ingest, storage

import pyarrow as pa
from pyspark.sql import SparkSession

import tidelake.spark

def owner_in_executor(_):
    import storage
    return storage.OWNER

spark = SparkSession.builder.config("spark.sql.shuffle.partitions", "1").getOrCreate()
catalog = tidelake.open_catalog("lake")
catalog.create_database("s")
schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
table = catalog.create_table("s.t", schema, primary_key=["id"], options={"bucket": "1"})
tidelake.spark.write(spark.range(3), "s.t", "lake")
tidelake.spark.register(spark)
read = spark.read.format("tidelake").options(warehouse="lake", table="s.t").load().count()
(owner,) = spark.sparkContext.parallelize([0], 1).map(owner_in_executor).collect()
print(table.scan().to_arrow().num_rows, "rows written,", read, "read beside", owner)
"""


@dataclass(frozen=True)
class Installation:
    """wheel: the file it was installed from."""

    wheel: Path
    bin: Path

    def run(self, *command: str, in_folder: Path, **variables: str) -> str:
        """Run a program of this environment. Returns its output; fails with all of it if the program does."""
        kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
        run = subprocess.run(
            [str(self.bin / command[0]), *command[1:]],
            cwd=in_folder,
            env={**kept, **variables},
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode == 0, run.stdout + run.stderr
        return run.stdout


def built(source: Path, into: Path, *, target: str) -> Path:
    """Build a wheel or an sdist. Returns its file."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(into)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    (found,) = into.iterdir()
    return found


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    folder = tmp_path_factory.mktemp("installation")
    wheel = built(ROOT, folder / "wheel", target="wheel")
    venv.create(folder / "venv", symlinks=True)
    bin_folder = folder / "venv" / "bin"
    pip = [sys.executable, "-m", "pip", "--python", str(bin_folder / "python"), "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "--quiet", "--no-deps", "--no-index", "--no-compile", str(wheel)], check=True)
    (packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
    others = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    (packages / "packages_of_the_tests.pth").write_text("\n".join(others) + "\n")
    return Installation(wheel, bin_folder)


def make_project(at: Path, kind: str) -> Path:
    """Make a project that has code of each of the four names."""
    at.mkdir()
    for name in FOLDERS:
        code = 'OWNER = "the project"\n'
        if kind == "modules":
            (at / f"{name}.py").write_text(code)
        else:
            (at / name).mkdir()
            (at / name / "__init__.py").write_text(code)
    (at / "app.py").write_text(APP)
    (at / "test_app.py").write_text(TEST)
    return at


def test_only_our_own_names_are_installed(installation: Installation) -> None:
    with zipfile.ZipFile(installation.wheel) as wheel:
        names = {name.partition("/")[0] for name in wheel.namelist()}
    assert sorted(name for name in names if not name.endswith(".dist-info")) == INSTALLED


def test_the_wheel_has_every_file_of_the_packages(installation: Installation) -> None:
    """Each once: the links in `tidelake/` are followed, and the folders at the top are not packages of their own. The
    pages that `tidelake help` shows are there, too.
    """
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    tracked = [os.fsdecode(name) for name in listing.stdout.split(b"\0") if name]
    tops = {name: f"tidelake/{name}" for name in FOLDERS} | {name: name for name in INSTALLED}
    files = {
        tops[top] + name.removeprefix(top): name
        for name in tracked
        if (top := name.partition("/")[0]) in tops and (ROOT / name).is_file()
    }
    files |= {f"tidelake/pages/{page.name}": f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")}
    with zipfile.ZipFile(installation.wheel) as wheel:
        found = {name for name in wheel.namelist() if ".dist-info/" not in name}
        assert found == files.keys()
        assert [name for name, path in files.items() if wheel.read(name) != (ROOT / path).read_bytes()] == []


def test_a_wheel_of_the_source_distribution_is_the_same(installation: Installation, tmp_path: Path) -> None:
    archive = built(ROOT, tmp_path / "sdist", target="sdist")
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path / "source", filter="data")
    (source,) = (tmp_path / "source").iterdir()
    assert [path for path in source.rglob("*") if path.is_symlink()] == []
    assert built(source, tmp_path / "wheel", target="wheel").read_bytes() == installation.wheel.read_bytes()


def test_the_image_builds_the_same_wheel(installation: Installation, tmp_path: Path) -> None:
    """The files that `docker/Dockerfile` copies are enough. Docker copies a link as a link."""
    dockerfile = (ROOT / "docker" / "Dockerfile").read_text(encoding="utf-8")
    for line in re.findall(r"^COPY (?!--)(.*)$", dockerfile, re.MULTILINE):
        *sources, target = line.split()
        for source in sources:
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, tmp_path / "src" / target, symlinks=True)
            else:
                (tmp_path / "src").mkdir(exist_ok=True)
                shutil.copy(ROOT / source, tmp_path / "src")
    wheel = built(tmp_path / "src", tmp_path / "wheel", target="wheel")
    assert wheel.read_bytes() == installation.wheel.read_bytes()


@pytest.mark.exhaustive(kept=2)
@pytest.mark.parametrize("kind", ["folders", "modules"])
@pytest.mark.parametrize(
    "command",
    [
        pytest.param(["python", "app.py"], id="a program"),
        pytest.param(["python", "-m", "app"], id="a module"),
        pytest.param(["python", "-c", "import app; print(app.rows_written('lake'), 'rows')"], id="a line"),
        pytest.param(["python", "-m", "pytest", "-q", "-p", "no:cacheprovider"], id="pytest"),
    ],
)
def test_python_runs_beside_code_of_the_same_names(
    kind: str, command: list[str], installation: Installation, tmp_path: Path
) -> None:
    project = make_project(tmp_path / "project", kind)
    printed = installation.run(*command, in_folder=project)
    assert "2 rows" in printed or "1 passed" in printed
    if "rows by" in printed:
        assert str(installation.bin.parent) in printed


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", ["folders", "modules"])
@pytest.mark.parametrize("command", [["tidelake"], ["python", "-m", "tidelake"]], ids=" ".join)
def test_the_command_line_runs_beside_code_of_the_same_names(
    kind: str, command: list[str], installation: Installation, tmp_path: Path
) -> None:
    project = make_project(tmp_path / "project", kind)
    installation.run("python", "app.py", in_folder=project)
    printed = installation.run(*command, "table", "list", "-w", "lake", in_folder=project, PYTHONPATH=str(project))
    assert "db.t" in printed


@pytest.mark.interop
@pytest.mark.timeout(900)  # four Python processes and a JVM start in turn
@pytest.mark.needs("Spark")
def test_spark_runs_a_job_that_ships_code_of_the_same_names(installation: Installation, tmp_path: Path) -> None:
    project = make_project(tmp_path / "project", "folders")
    with zipfile.ZipFile(tmp_path / "jobs.zip", "w") as archive:
        for path in project.rglob("__init__.py"):
            archive.write(path, path.relative_to(project))
    jobs = tmp_path / "jobs"
    jobs.mkdir()
    (jobs / "job.py").write_text(SPARK_JOB)
    program = "import pyspark; print(pyspark.__path__[0])"
    spark_home = installation.run("python", "-c", program, in_folder=tmp_path).strip()
    printed = installation.run(
        f"{spark_home}/bin/spark-submit",
        *("--master", "local[1]", "--conf", "spark.ui.enabled=false"),
        *("--py-files", str(tmp_path / "jobs.zip"), "job.py"),
        in_folder=jobs,
        PYSPARK_PYTHON=str(installation.bin / "python"),
        SPARK_HOME=spark_home,
    )
    assert printed.splitlines()[-1] == "3 rows written, 3 read beside the project"
