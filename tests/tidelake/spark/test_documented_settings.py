"""The table "What `spark run` does" of docs/spark.md: what it calls refused is refused, and nothing else."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from tests.tidelake.spark.test_pipeline_query import config
from tidelake.errors import UnsupportedFeature
from tidelake.ingest.config.config import parse_config
from tidelake.ingest.settings import Config
from tidelake.spark.pipeline_query import check_settings

PAGE: Final = Path(__file__).parents[3] / "docs" / "spark.md"
KAFKA: Final = "source: {type: kafka, bootstrap_servers: b, topics: t, until_timestamp_ms: 7}"

SETTINGS: Final = {
    "formats": ["format: canal-json"],
    "`keep_columns`": ["ENTRY keep_columns: [id]", "ENTRY masks: {note: hash}\nmask_salt: s", "ENTRY filter: 'id > 1'"],
    "`computed_columns`": ["ENTRY computed_columns: {a: 'truncate(id, 2)'}, mode: append, options: {bucket: -1}"],
    "`errors.tolerance: all`": ["errors: {tolerance: all, dead_letters: {table: ops.letters}}"],
    "`errors.tolerance` as a number": ["errors: {tolerance: 3}"],
    "new columns": ["schema_evolution: {mode: evolve}"],
    "`rename.column`": [
        "schema_evolution: {include: [rename.column]}",
        "schema_evolution: {include: [drop.column]}",
        "ENTRY schema_evolution: {include: [drop.column]}",
        "MANY schema_evolution: {include: [drop.column]}",
    ],
    "`truncates: apply`": [f"format_options: {{truncates: {value}}}" for value in ("apply", "skip", "fail")],
    "`deletes: soft`": ["ENTRY deletes: soft"],
    "`mode: scd2`": ["ENTRY mode: scd2", "MANY mode: scd2"],
    "records of several tables": ["ENTRY match: '*'}, {name: shop.copy, match: '*'"],
    "entries of many tables": ["MANY options: {bucket: 2}"],
    "`paused`": ["ENTRY paused: true}, {name: shop.other"],
    "`--skip-record`": [],  # an option of the other command
    "`freshness`": ["freshness: {target_ms: 500}", "ENTRY freshness: {target_ms: 500}"],
    "`bootstrap`": ["bootstrap: {enabled: true}", "ENTRY bootstrap: {enabled: true}"],
    "`lineage`": ["lineage: {transport: {type: http, url: 'http://l'}}"],
    "`source.until_timestamp_ms`": [KAFKA],
    "`metrics`": ["metrics: {port: 0}"],
}
"""The beginning of a row to settings that it is about. ENTRY, MANY: of an entry of one table, or of many."""


def documented() -> dict[str, str]:
    """The first cell of each row to the second one."""
    table = PAGE.read_text(encoding="utf-8").split("\n## What `spark run` does\n")[1].split("\n## ")[0]
    rows = [re.split(r" ?\| ?", line.strip("|\n "))[:2] for line in table.splitlines() if line.startswith("|")][2:]
    return dict(rows)


def with_settings(home: Path, settings: str) -> Config:
    kind, _, rest = settings.partition(" ")
    if kind not in ("ENTRY", "MANY"):
        base = config(home)
        text = f"warehouse: {home}/lake\ntables: [{{name: shop.orders}}]\n{settings}\n"
        if not settings.startswith("source:"):
            text += f"source: {{type: change-log-folder, path: {home}/changes, until: end}}\n"
        return parse_config(text, "shop.yaml", pipeline=base.pipeline)
    of_entry, _, others = rest.partition("\n")
    name = "'shop.{table}'" if kind == "MANY" else "shop.orders"
    text = f"warehouse: {home}/lake\ntables: [{{name: {name}, {of_entry}}}]\n{others}\n"
    text += f"source: {{type: change-log-folder, path: {home}/changes, until: end}}\n"
    return parse_config(text, "shop.yaml", pipeline="shop")


def test_each_row_of_the_page_is_tried() -> None:
    rows = documented()
    tried = {first: [start for start in SETTINGS if first.startswith(start)] for first in rows}
    assert all(len(starts) >= 1 for starts in tried.values()), tried
    assert {start for starts in tried.values() for start in starts} == SETTINGS.keys()


@pytest.mark.parametrize(
    ("start", "settings"),
    [pytest.param(start, of, id=f"{start}: {of}") for start, given in SETTINGS.items() for of in given],
)
def test_what_the_page_calls_refused_is_refused_by_its_name_and_nothing_else(
    start: str, settings: str, tmp_path: Path
) -> None:
    (says,) = [
        second
        for first, second in documented().items()
        if max((one for one in SETTINGS if first.startswith(one)), key=len) == start
    ]
    refusal = None
    with suppress(UnsupportedFeature):
        try:
            check_settings(with_settings(tmp_path, settings))
        except UnsupportedFeature as error:
            refusal = str(error)
            raise
    assert (refusal is not None) == says.startswith("refused"), (says, refusal)
    if refusal is not None:
        assert start.strip("`") in refusal
        assert "tidelake ingest run" in refusal
