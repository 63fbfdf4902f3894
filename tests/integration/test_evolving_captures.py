"""Captures whose source tables changed during the recording: a table created from the first record follows to
the end.
"""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import tidelake
from tests.support.cases import recorded_topics, recorded_truth
from tests.support.database_text import same_value
from tests.support.recorded_truth import rows_of
from tidelake.ingest.config.config import parse_config
from tidelake.ingest.pipeline.builder import build_pipeline
from tidelake.storage.catalog.opening import open_catalog


@dataclass(frozen=True)
class EvolvingCase:
    """settings: of the table, as YAML. types: some columns at the end. lost: cells that no record contains, by
    column.
    """

    capture: str
    variant: str
    table: str
    key: tuple[str, ...]
    types: dict[str, str]
    lost: dict[str, int]
    settings: str = ""

    @property
    def id(self) -> str:
        return f"{self.capture}/{self.variant}/{self.table}"


GROWN = {"price": "DECIMAL(12, 4)", "stock": "BIGINT", "weight": "DOUBLE", "rating": "INT", "color": "STRING"}
UNSIGNED = "columns: {{{0}: 'DECIMAL(20, 0)'}}, source_types: {{{0}: bigint unsigned}}"
CASES = [
    *(
        EvolvingCase("pg-evolve", v, "products", ("id",), GROWN, {"rating": 1})
        for v in ("json-schema", "json-schema-numeric")
    ),
    EvolvingCase(
        "pg-evolve",
        "json-plain",
        "products",
        ("id",),
        {"price": "DECIMAL(10, 4)", "stock": "BIGINT", "rating": "STRING"},  # as wide as its values
        {"rating": 1, "brand": 73, "weight": 1},
        "columns: {id: INT, price: 'DECIMAL(8, 2)', stock: INT, weight: DOUBLE}",
    ),
    *(
        EvolvingCase("pg-evolve", v, "visits", ("id",), {"extra": "STRING"}, {"extra": 40})
        for v in ("json-schema", "json-schema-numeric")
    ),
    EvolvingCase(
        "mysql-shop",
        "json-schema",
        "carts",
        ("cart_id",),
        {"total": "DECIMAL(18, 6)", "channel": "STRING"},
        {"channel": 121},
        UNSIGNED.format("client_no"),
    ),
    EvolvingCase(
        "mysql-shop", "json-schema-numeric", "carts", ("cart_id",), {"total": "DECIMAL(18, 6)"}, {"channel": 121}
    ),
    EvolvingCase(
        "mysql-shop",
        "json-schema",
        "clients",
        ("region", "no"),
        {"vip": "SMALLINT", "gold_member": "SMALLINT", "limit_": "DECIMAL(12, 3)"},
        {"gold_member": 116},
        UNSIGNED.format("'no'"),
    ),
]


async def run(case: EvolvingCase, folder: Path, bytes_max: int) -> None:
    log = folder / "log"
    log.mkdir()
    for topic, path in recorded_topics(case.capture, case.variant).items():
        if topic.endswith(f".{case.table}"):
            shutil.copy(path, log / path.name)
    key = ", ".join(f"'{name}'" for name in case.key)
    settings = case.settings and ", " + case.settings
    text = (
        f"{{warehouse: {folder}/lake, source: {{type: change-log-folder, path: {log}, until: end}}, "
        f"checkpoint: {{bytes_max: {bytes_max}}}, "
        f"tables: [{{name: shop.{case.table}, primary_key: [{key}], options: {{bucket: 2}}{settings}}}]}}"
    )
    await build_pipeline(parse_config(text, "evolve.yaml", (), {}, "evolve")).run()


def wrong_cells(case: EvolvingCase, folder: Path) -> Counter[str]:
    """Cells that are not what the database printed, by column; a row that is missing, or too many, under its key."""
    tables = recorded_truth(case.capture)["tables"]
    truth: dict[str, Any] = tables.get(case.table) or tables[f"public.{case.table}"]
    types = {column["name"]: column["type"] for column in truth["columns"]}
    table = tidelake.open_catalog(str(folder / "lake")).table(f"shop.{case.table}")
    held = {tuple(str(row[name]) for name in case.key): row for row in rows_of(table.scan().to_arrow())}
    wrong: Counter[str] = Counter()
    for cells in truth["rows"]:
        printed = dict(zip(types, cells, strict=True))
        row = held.pop(tuple(printed[name] for name in case.key), None)
        if row is None:
            wrong[f"missing: {printed}"] += 1
            continue
        wrong.update(name for name, kind in types.items() if not same_value(kind, printed[name], row.get(name)))
    wrong.update(f"too many: {key}" for key in held)
    return wrong


@pytest.mark.parametrize("bytes_max", [pytest.param(1, id="often"), pytest.param(40_000, id="seldom")])
@pytest.mark.exhaustive(kept=6)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_the_table_equals_the_database_at_the_end(case: EvolvingCase, bytes_max: int, tmp_path: Path) -> None:
    asyncio.run(run(case, tmp_path, bytes_max))
    assert wrong_cells(case, tmp_path) == Counter(case.lost)
    fields = open_catalog(str(tmp_path / "lake")).load(f"shop.{case.table}").schema.by_name
    assert {name: str(fields[name].type) for name in case.types} == case.types
