"""The pages that show sessions in a terminal: their files are written, their commands run, their output compared."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
import yaml

import tidelake
from tests.support.kafka_broker import KafkaBroker
from tests.support.sessions import BLOCK, is_shown, run_page

DOCS: Final = Path(__file__).parents[1] / "docs"


@pytest.mark.parametrize(
    ("expected", "said", "shown"),
    [
        pytest.param(["a", "b"], ["a", "b   "], True, id="blanks at the end of a line do not count"),
        pytest.param(["a"], ["a", "b"], False, id="a line too many"),
        pytest.param(["a", "..."], ["a"], True, id="no lines"),
        pytest.param(["...", "c"], ["a", "b", "c"], True, id="any lines"),
        pytest.param(["3 rows ..."], ["3 rows · 1 s"], True, id="any text"),
        pytest.param(["3 rows ..."], ["4 rows · 1 s"], False, id="another number"),
    ],
)
def test_a_session_is_compared_line_by_line(expected: list[str], said: list[str], shown: bool) -> None:
    assert is_shown(expected, said) is shown


@pytest.mark.interop
@pytest.mark.parametrize(
    "page", sorted(path.name for path in DOCS.glob("*.md") if "```console" in path.read_text(encoding="utf-8"))
)
def test_what_a_page_shows_is_what_happens(page: str, tmp_path: Path) -> None:
    run_page(DOCS / page, tmp_path)


@pytest.mark.interop
def test_the_last_step_of_the_tutorial_fills_a_table_from_a_broker(kafka_broker: KafkaBroker, tmp_path: Path) -> None:
    """Its topic has no name of this test: the tutorial names it."""
    page = (DOCS / "tutorial.md").read_text(encoding="utf-8")
    for _, title, text in BLOCK.findall(page):
        if title:
            (tmp_path / title).write_text(text, encoding="utf-8")
    (changes,) = re.findall(r"^```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    pipeline = yaml.safe_load((tmp_path / "shop.yaml").read_text(encoding="utf-8")) | yaml.safe_load(changes)
    pipeline["source"]["bootstrap_servers"] = kafka_broker.address
    (tmp_path / "shop.yaml").write_text(yaml.safe_dump(pipeline), encoding="utf-8")
    for command in (
        ("shop.py",),
        ("to_kafka.py", kafka_broker.address),
        ("-m", "tidelake", "ingest", "run", "shop.yaml", "--until", "latest"),
    ):
        run = subprocess.run([sys.executable, *command], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stdout + run.stderr
    table = tidelake.open_catalog(str(tmp_path / "kafka-lake")).table("shop.orders")
    assert sorted(table.scan(columns=["id"]).to_arrow()["id"].to_pylist()) == [1, 2, 3]
