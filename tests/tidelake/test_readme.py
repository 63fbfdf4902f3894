"""The first page: its examples work, its pictures show commands that exist, and its links lead somewhere."""

from __future__ import annotations

import email
import html
import re
import shlex
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.tidelake.shop_log import create_shop_tables, rows_in_key_order, write_shop_log
from tidelake.cli.demo.shop import ORDERS, TABLES
from tidelake.cli.parser import parse
from tidelake.ingest.config.config import parse_config

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT: Final = Path(__file__).parents[2]
README: Final = (ROOT / "README.md").read_text(encoding="utf-8")
PICTURES: Final = ROOT / "docs" / "pictures"
LINK: Final = re.compile(r"""\]\(([^)]+)\)|(?:src|srcset|href)="([^"]+)\"""")


def block(heading: str, page: str = "README.md") -> str:
    """The first piece of code under a heading."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = re.search(rf"^## {heading}\n.*?^```\w+\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert found is not None, heading
    return found[1]


def links(text: str) -> list[str]:
    return [markdown or tag for markdown, tag in LINK.findall(text)]


def lines_of_terminal(kind: str) -> list[str]:
    """The lines that the picture of the terminal shows."""
    lines: dict[str, str] = {}
    for y, text in re.findall(
        r'<text x="[^"]+" y="(\d+)"[^>]*>([^<]*)<', (PICTURES / f"terminal-{kind}.svg").read_text()
    ):
        lines[y] = f"{lines.get(y, '')} {html.unescape(text)}".strip()
    return list(lines.values())


def test_the_first_page_is_short() -> None:
    assert len(README.splitlines()) <= 120
    assert README.index("pip install tidelake") < README.index("make demo")


def test_the_ten_lines_of_the_readme_write_and_read_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(block("Ten lines of Python"), {})
    rows, changes = capsys.readouterr().out.splitlines()
    assert rows == "[{'id': 1, 'amount': 3.5}, {'id': 2, 'amount': 20.0}]"
    assert changes.count("'_VALUE_KIND': 0") == 2
    assert len([line for line in block("Ten lines of Python").splitlines() if line.strip()]) <= 12


def test_the_kafka_configuration_of_the_readme_is_valid() -> None:
    config = parse_config(block("Ten lines of YAML"), "shop.yaml", pipeline="shop")
    assert config.source.topics == ["shop.public.orders", "shop.public.customers"]  # type: ignore[union-attr]
    assert [table.name for table in config.tables] == ["shop.orders", "shop.customers"]
    assert len([line for line in block("Ten lines of YAML").splitlines() if not line.startswith("#")]) <= 10


def test_the_first_lines_for_spark_keep_a_table_up_to_date(spark: SparkSession, tmp_path: Path) -> None:
    shop = write_shop_log(tmp_path / "changes")
    tables = create_shop_tables(tmp_path / "lake")
    names: dict[str, Any] = {"spark": spark}
    exec(block("The first stream", "docs/spark.md").replace("/data/", f"{tmp_path}/"), names)
    query = names["query"]
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    assert rows_in_key_order(ORDERS, tables["orders"].scan().to_arrow()) == shop.expected_rows(ORDERS).to_pylist()


def test_every_linked_page_and_picture_exists() -> None:
    local = [link.partition("#")[0] for link in links(README) if not link.startswith("http")]
    assert sum(link.endswith(".svg") for link in local) == 6
    assert [link for link in local if not (ROOT / link).exists()] == []


@pytest.mark.parametrize("kind", ["light", "dark"])
def test_the_terminal_shows_commands_that_exist_and_what_the_demo_prints(kind: str) -> None:
    lines = lines_of_terminal(kind)
    commands = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    assert [shlex.split(command)[:3] for command in commands] == [
        ["tidelake", "demo", "--engine"],
        ["tidelake", "table", "scan"],
    ]
    for command in commands:
        parse(shlex.split(command)[1:])  # exits if the command line would refuse it
    printed = "\n".join(lines)
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tidelake/cli/demo").glob("*.py"))
    source += (ROOT / "tidelake/cli/commands/demo.py").read_text(encoding="utf-8")
    for phrase in (
        "change records of a shop to",
        "asyncio, in this process",
        "every record is in its table",
        "Each table compared with the shop, row by row:",
        "inserts minus deletes equal the row count",
        "while the log still grew",
    ):
        assert phrase in printed
        assert phrase in source
    assert all(f"✓ {table.full_name}" in printed for table in TABLES)


def test_the_pictures_that_are_drawn_from_this_repository_are_current() -> None:
    program = [sys.executable, str(ROOT / "docs/pictures.py"), "--check"]
    run = subprocess.run(program, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")


def test_the_readme_of_a_package_has_no_relative_link(tmp_path: Path) -> None:
    """A package index shows it without the files beside it."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    run = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = email.message_from_bytes(archive.read(name))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    described = metadata.get_payload()
    assert isinstance(described, str)
    found = links(described)
    assert len(found) == len(links(README)) > 20
    assert [link for link in found if not link.startswith("https://")] == []
    pictures = [link for link in found if link.endswith(".svg")]
    assert [link for link in pictures if not link.startswith(f"{project['urls']['Source']}/raw/")] == []
    assert {f"{name}, {address}" for name, address in project["urls"].items()} == set(
        metadata.get_all("Project-URL", [])
    )
