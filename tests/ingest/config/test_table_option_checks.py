"""Table options are checked before a table is created: when the configuration is parsed, and once the columns are
known. A table is created completely or not at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.ingest.tables.test_pipeline_tables import ORDERS, Lake, record
from tidelake.errors import BadInput, ConfigError, TidelakeError
from tidelake.ingest.config.config import parse_config
from tidelake.ingest.formats.source_table import SourceTable

TEXT = """\
pipeline: shop
warehouse: /lake
source: {type: change-log-folder, path: /in}
tables:
  - name: shop.orders
    primary_key: [id]
    options:
      %s
"""


@dataclass(frozen=True)
class Case:
    id: str
    option: str
    message: str


@pytest.mark.parametrize(
    "case",
    [
        Case(
            "a typo", "bukcet: 4", r"shop\.yaml:8: shop\.orders: Paimon has no option 'bukcet'; did you mean 'bucket'\?"
        ),
        Case("another", "merge-engin: aggregation", r"did you mean 'merge-engine'\?"),
        Case(
            "a word that is none",
            "merge-engine: agregation",
            r"shop\.yaml:8: .*option merge-engine = 'agreg",
        ),
        Case("no number", "bucket: many", r"shop\.yaml:8: shop\.orders: option bucket = 'many'"),
        Case("no size", "write-buffer-size: big", r"shop\.yaml:8: shop\.orders: option write-buffer-size = 'big'"),
        Case(
            "what this release lacks",
            "commit.callbacks: org.example.Callback",
            r"shop\.yaml:8: .*commit\.callbacks = org\.example\.Callback",
        ),
        Case("a setting of ours", "primary-key: id", r"has the same meaning as `primary_key`"),
    ],
    ids=lambda case: case.id,
)
def test_an_invalid_table_option_is_refused_when_the_configuration_is_parsed(case: Case) -> None:
    with pytest.raises(ConfigError, match=case.message):
        parse_config(TEXT % case.option, "shop.yaml", environment={})


@pytest.mark.parametrize("option", ["bucket: 4", "owner-team: shop", "fields.n.aggregate-function: sum", "bucket: '2'"])
def test_valid_options_are_accepted(option: str) -> None:
    assert parse_config(TEXT % option, "shop.yaml", environment={}).tables[0].raw_options


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


@pytest.mark.parametrize(
    "options",
    [
        {"sequence.field": "nowhere"},
        {"merge-engine": "aggregation", "fields.name.aggregate-function": "sum"},
        {"bucket-key": "nowhere"},
        {"bucket": "4", "bucket-key": "nowhere"},
        {"deletion-vectors.enabled": "true", "merge-engine": "first-row"},
    ],
    ids="; ".join,
)
def test_options_that_contradict_the_columns_are_refused_before_anything_is_created(
    lake: Lake, options: dict[str, str]
) -> None:
    with pytest.raises(TidelakeError):
        lake.tables(options=options, primary_key=["id"]).create(record(id=1, name="a"), {ORDERS: 0})
    assert lake.catalog.list_databases() == []
    tables = lake.tables(primary_key=["id"])
    assert tables.create(record(id=1, name="a"), {ORDERS: 0})  # once it is corrected nothing is left of it
    assert lake.catalog.load("shop.orders").schema.options == {}


def test_options_that_a_writer_refuses_are_refused_before_the_table_is_created(lake: Lake) -> None:
    tables = lake.tables(primary_key=["id"])

    def refuse(context: object) -> object:
        raise BadInput("no writer for it")

    tables._open_sink = refuse  # type: ignore[assignment]
    with pytest.raises(BadInput, match="no writer"):
        tables.create(record(id=1), {SourceTable("log", "shop", "public", "orders"): 0})
    assert lake.catalog.list_databases() == []
