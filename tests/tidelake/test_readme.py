"""The examples of the README work, line by line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.tidelake.shop_log import create_shop_tables, rows_in_key_order, write_shop_log
from tidelake.cli.demo.shop import ORDERS
from tidelake.ingest.config.config import parse_config

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT: Final = Path(__file__).parents[2]
README: Final = (ROOT / "README.md").read_text(encoding="utf-8")


def block(heading: str) -> str:
    """The first piece of code under a heading."""
    found = re.search(rf"^## {heading}\n.*?^```\w+\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    assert found is not None, heading
    return found[1]


def test_the_ten_lines_of_the_readme_write_and_read_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(block("Ten lines"), {})
    rows, changes = capsys.readouterr().out.splitlines()
    assert rows == "[{'id': 1, 'amount': 3.5}, {'id': 2, 'amount': 20.0}]"
    assert changes.count("'_VALUE_KIND': 0") == 2
    assert len([line for line in block("Ten lines").splitlines() if line.strip()]) <= 12


def test_the_kafka_configuration_of_the_readme_is_valid() -> None:
    config = parse_config(block("Kafka"), "shop.yaml", pipeline="shop")
    assert config.source.topics == ["shop.public.orders"]  # type: ignore[union-attr]


def test_the_spark_lines_of_the_readme_keep_a_table_up_to_date(spark: SparkSession, tmp_path: Path) -> None:
    shop = write_shop_log(tmp_path / "changes")
    tables = create_shop_tables(tmp_path / "lake")
    names: dict[str, Any] = {"spark": spark}
    exec(block("Spark").replace("/data/", f"{tmp_path}/"), names)
    query = names["query"]
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    assert rows_in_key_order(ORDERS, tables["orders"].scan().to_arrow()) == shop.expected_rows(ORDERS).to_pylist()


def test_every_linked_page_exists() -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", README)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []
