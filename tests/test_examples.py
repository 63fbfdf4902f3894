"""The examples do what their pages show, and what they promise beyond that."""

from __future__ import annotations

import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest

import tidelake
from tests.support.cases import recorded_truth
from tests.support.kafka_broker import KafkaBroker
from tests.support.sessions import BLOCK, commands, run_page

ROOT: Final = Path(__file__).parent.parent
EXAMPLES: Final = ROOT / "examples"
PROJECTS: Final = ("cdc-shop", "daily-report", "notebook", "search-index", "spark-job")
BROKER: Final = "localhost:9092"
PATIENCE_S: Final = 120  # only a failing test waits so long


def copied(name: str, tmp_path: Path, broker: str = BROKER) -> Path:
    """A copy of an example, in a folder from which it finds the recordings. Its files name this broker."""
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    folder = tmp_path / "examples" / name
    shutil.copytree(EXAMPLES / name, folder)
    for path in folder.iterdir():
        path.write_text(path.read_text(encoding="utf-8").replace(BROKER, broker), encoding="utf-8")
    return folder


def run(folder: Path, *command: str) -> str:
    """Run a Python program of an example, and return what it prints."""
    done = subprocess.run([sys.executable, *command], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_each_example_is_a_folder_that_the_overview_names() -> None:
    folders = {path.name for path in EXAMPLES.iterdir() if path.is_dir() and (path / "README.md").exists()}
    overview = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert folders == set(PROJECTS) == set(re.findall(r"\]\(([\w-]+)/README\.md\)", overview))


@pytest.mark.parametrize("name", PROJECTS)
def test_a_page_runs_every_program_of_its_folder(name: str) -> None:
    page = (EXAMPLES / name / "README.md").read_text(encoding="utf-8")
    shown = "\n".join(
        command.text for kind, _, text in BLOCK.findall(page) if kind == "console" for command in commands(text)
    )
    programs = {path.name for path in (EXAMPLES / name).iterdir() if path.suffix in (".py", ".yaml", ".ipynb")}
    assert programs
    assert {program for program in programs if program not in shown} == set()


@pytest.mark.parametrize("page", sorted(EXAMPLES.rglob("*.md")), ids=lambda path: path.parent.name)
def test_links_lead_to_files(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    assert links
    assert [link for link in links if not (page.parent / link).exists()] == []


# ---------------------------------------------------------------- cdc-shop


@pytest.mark.interop
@pytest.mark.timeout(600)
def test_the_tables_of_the_shop_are_those_of_the_database(private_kafka_broker: KafkaBroker, tmp_path: Path) -> None:
    folder = copied("cdc-shop", tmp_path, private_kafka_broker.address)
    assert run_page(folder / "README.md", folder) >= 5
    catalog = tidelake.open_catalog(str(folder / "lake"))
    tables = {f"public.{name}": catalog.table(f"shop.{name}") for name in catalog.list_tables("shop")}
    counts = {name: table.scan(columns=table.primary_key).to_arrow().num_rows for name, table in tables.items()}
    assert counts == {name: len(table["rows"]) for name, table in recorded_truth("pg-shop")["tables"].items()}


# ---------------------------------------------------------------- spark-job


@pytest.mark.interop
@pytest.mark.needs("Spark")
@pytest.mark.timeout(900)
def test_the_spark_job_reads_each_file_once(tmp_path: Path) -> None:
    folder = copied("spark-job", tmp_path)
    assert run_page(folder / "README.md", folder, SPARK_LOCAL_IP="127.0.0.1") == 5


# ---------------------------------------------------------------- search-index


@pytest.mark.interop
def test_the_search_index_follows_its_table(tmp_path: Path) -> None:
    folder = copied("search-index", tmp_path)
    assert run_page(folder / "README.md", folder) >= 8


@pytest.mark.interop
def test_a_search_index_that_was_killed_continues_where_it_was(tmp_path: Path) -> None:
    folder = copied("search-index", tmp_path)
    run(folder, "products.py", "morning")
    with subprocess.Popen([sys.executable, "index.py", "--forever"], cwd=folder) as process:
        deadline = time.monotonic() + PATIENCE_S
        while len(indexed(folder)) < 3:
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
    run(folder, "products.py", "evening")
    assert run(folder, "index.py").startswith("4 changes, ")
    assert indexed(folder) == stored(folder)


@pytest.mark.interop
def test_a_search_index_begins_again_after_an_overwrite(tmp_path: Path) -> None:
    folder = copied("search-index", tmp_path)
    run(folder, "products.py", "morning")
    run(folder, "index.py")
    table = tidelake.open_catalog(str(folder / "lake")).table("shop.products")
    table.overwrite(pa.table({"id": [9], "name": ["Silk"], "description": [None]}, table.schema))
    run(folder, "products.py", "evening")
    run(folder, "index.py")
    assert indexed(folder) == stored(folder) == {1: "Wool hat", 4: "Cotton shirt", 9: "Silk"}


def indexed(folder: Path) -> dict[int, str]:
    with sqlite3.connect(folder / "index.db") as index:
        try:
            return dict(index.execute("SELECT rowid, name FROM products").fetchall())
        except sqlite3.OperationalError:  # not made yet
            return {}


def stored(folder: Path) -> dict[int, str]:
    rows = tidelake.open_catalog(str(folder / "lake")).table("shop.products").scan().to_arrow()
    return dict(zip(rows["id"].to_pylist(), rows["name"].to_pylist(), strict=True))


# ---------------------------------------------------------------- daily-report


@pytest.mark.interop
def test_the_daily_report_adds_up_to_the_table(tmp_path: Path) -> None:
    folder = copied("daily-report", tmp_path)
    assert run_page(folder / "README.md", folder) >= 7


@pytest.mark.interop
def test_the_daily_report_may_miss_nights_and_run_twice(tmp_path: Path) -> None:
    folder = copied("daily-report", tmp_path)
    run(folder, "orders.py")
    catalog = tidelake.open_catalog(str(folder / "lake"))
    orders = catalog.table("shop.orders")
    orders.delete_tag("2026-05-02")
    assert run(folder, "report.py") == "2026-05-01: 2 rows\n2026-05-03: 2 rows\n"
    whole = (
        catalog.table("shop.daily_orders").scan().to_arrow().sort_by([("day", "ascending"), ("country", "ascending")])
    )
    assert run(folder, "report.py", "2026-05-03", "2026-05-01") == "2026-05-03: 2 rows\n2026-05-01: 2 rows\n"
    again = (
        catalog.table("shop.daily_orders").scan().to_arrow().sort_by([("day", "ascending"), ("country", "ascending")])
    )
    assert again == whole
    assert again["amount"].to_pylist() == [pa.scalar(text).cast(pa.decimal128(18, 2)).as_py() for text in AMOUNTS]


AMOUNTS: Final = ("30.00", "8.50", "12.25", "-8.50")


@pytest.mark.interop
def test_the_daily_report_handles_a_day_without_changes_and_orders_without_a_country(tmp_path: Path) -> None:
    folder = copied("daily-report", tmp_path)
    run(folder, "orders.py")
    orders = tidelake.open_catalog(str(folder / "lake")).table("shop.orders")
    orders.create_tag("2026-05-04")
    orders.upsert(pa.table({"id": [5], "country": [None], "amount": [None]}, orders.schema))
    orders.create_tag("2026-05-05")
    assert run(folder, "report.py").endswith("2026-05-04: 0 rows\n2026-05-05: 1 row\n")


@pytest.mark.interop
def test_the_daily_report_refuses_a_day_without_a_tag(tmp_path: Path) -> None:
    folder = copied("daily-report", tmp_path)
    run(folder, "orders.py")
    done = subprocess.run(
        [sys.executable, "report.py", "2026-06-01"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "shop.orders has no tag 2026-06-01: the day is not over, or its tag has expired\n"


# ---------------------------------------------------------------- notebook


@pytest.mark.interop
def test_the_notebook_shows_what_its_cells_give(tmp_path: Path) -> None:
    folder = copied("notebook", tmp_path)
    assert run_page(folder / "README.md", folder, TMPDIR=str(tmp_path), COLUMNS="100") == 1
