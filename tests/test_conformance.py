"""The page of who reads which of our tables: its form, its cases, and how it is made from a report of the tests."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pyarrow as pa
import pytest

import tidelake
from tests.support import conformance
from tests.support.conformance import Outcome, record

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = (ROOT / "docs" / "conformance.md").read_text(encoding="utf-8")
LINK: Final = re.compile(r'\[[^\]]+\]\(\.\./(tests/[\w/]+\.py) "([^"]+)"\)')


def program() -> Any:
    """docs/conformance.py, which is in no package."""
    spec = spec_from_file_location("conformance_page", ROOT / "docs" / "conformance.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module  # for its dataclasses
    spec.loader.exec_module(module)
    return module


PROGRAM: Final = program()

# ---------------------------------------------------------------- the page


def grids() -> list[list[list[str]]]:
    blocks = re.findall(r"(?:^\|.*\n)+", PAGE, re.MULTILINE)
    return [[re.split(r"(?<!\\)\|", line)[1:-1] for line in block.splitlines()] for block in blocks]


def test_every_row_of_a_table_has_as_many_cells_as_its_head() -> None:
    assert len(grids()) == 8
    for grid in grids():
        assert len({len(row) for row in grid}) == 1, grid[0]
        assert len(grid) > 2, grid[0]


def test_each_reader_has_a_column_and_reads_something() -> None:
    for grid in grids()[:5]:
        assert tuple(cell.strip() for cell in grid[0][1:]) == PROGRAM.READERS
    for column in range(1, len(PROGRAM.READERS) + 1):
        assert any("✓" in row[column] for row in grids()[0][2:])


@cache
def functions(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_every_case_is_a_test() -> None:
    links = LINK.findall(PAGE)
    assert len(links) > 100
    assert len(links) == PAGE.count("](../tests/")
    missing = [f"{path}: {title}" for path, title in links if title.partition("(")[0] not in functions(path)]
    assert missing == [], "run `make conformance`"


@pytest.mark.interop
def test_every_case_has_the_parameters_that_the_page_names() -> None:
    links = set(LINK.findall(PAGE))
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "", *sorted({path for path, _ in links})]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    nodes = [line.partition("::") for line in run.stdout.splitlines() if "::" in line]
    found = {(path, PROGRAM.title_of(test)) for path, _, test in nodes}
    assert sorted(links - found) == [], "run `make conformance`"


# ---------------------------------------------------------------- how it is made


def reading(reader: str, outcome: str = "pass", **more: Any) -> dict[str, Any]:
    found = {"reader": reader, "writer": "Tidelake", "outcome": outcome, "engine": "deduplicate", "reason": ""}
    kinds = {"formats": ["parquet"], "types": ["INT"], "indexes": ["none"], "buckets": "fixed"}
    return {**found, **kinds, **more}


def report(tmp_path: Path, tests: dict[str, list[dict[str, Any]]], failed: str = "") -> Path:
    lines = []
    for name, readings in tests.items():
        notes = "".join(
            f'<property name="conformance" value="{json.dumps(one).replace(chr(34), "&quot;")}"/>' for one in readings
        )
        failure = "<failure/>" if name == failed else ""
        lines.append(
            f'<testcase classname="tests.interop.test_types" name="{name}"><properties>{notes}</properties>{failure}'
            "</testcase>"
        )
    path = tmp_path / "report.xml"
    path.write_text(f"<testsuites><testsuite>{''.join(lines)}</testsuite></testsuites>")
    return path


def test_a_failed_test_leaves_the_page_as_it_is(tmp_path: Path) -> None:
    path = report(tmp_path, {"test_a[x]": [reading("Java")], "test_b": []}, failed="test_b")
    with pytest.raises(PROGRAM.TestsFailed, match=r"tests/interop/test_types\.py::test_b"):
        PROGRAM.cases_of(path)


def test_the_worst_read_of_a_kind_of_table_in_a_test_counts(tmp_path: Path) -> None:
    path = report(tmp_path, {"test_a": [reading("Java"), reading("Java", "differs", reason="why"), reading("Java")]})
    (case,) = PROGRAM.cases_of(path)
    assert (case.outcome, case.reason) == ("differs", "why")


def test_a_test_that_was_run_again_counts_as_in_the_last_report(tmp_path: Path) -> None:
    (tmp_path / "again").mkdir()
    first = report(tmp_path, {"test_a": [reading("Java", "differs")], "test_b": [reading("Java")]}, failed="test_a")
    again = report(tmp_path / "again", {"test_a": [reading("Java")]})
    assert [(case.test, case.outcome) for case in PROGRAM.cases_of(first, again)] == [
        ("test_a", "pass"),
        ("test_b", "pass"),
    ]


def cells(tmp_path: Path, tests: dict[str, list[dict[str, Any]]], row: str) -> list[str]:
    text = PROGRAM.page(PROGRAM.cases_of(report(tmp_path, tests)), {"Java": "2"})
    found = re.search(rf"^\| {re.escape(row)} \|(.*)\|$", text, re.MULTILINE)
    assert found is not None
    return [re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", cell).strip() for cell in found[1].split("|")]


@pytest.mark.parametrize(
    ("outcomes", "cell"),
    [
        (["pass"], "✓"),
        (["pass", "differs"], "✓"),
        (["pass", "differs", "differs"], "differs"),
        (["refused"], "refused"),
        ([], "–"),
    ],
    ids=["read", "half of the cases", "most cases", "refused", "no case"],
)
def test_a_property_has_the_outcome_of_most_of_its_cases(tmp_path: Path, outcomes: list[str], cell: str) -> None:
    tests = {f"test_{n}": [reading("Java", outcome)] for n, outcome in enumerate(outcomes)}
    tests["test_other"] = [reading("pypaimon")]
    assert cells(tmp_path, tests, "deduplicate")[:2] == [cell, "✓"]


def test_a_type_has_the_outcome_of_each_format_where_they_differ(tmp_path: Path) -> None:
    tests = {
        "test_orc": [reading("pypaimon-rust", "differs", types=["DATE"], formats=["orc"])],
        "test_avro": [reading("pypaimon-rust", types=["DATE"], formats=["avro"])],
        "test_parquet": [reading("pypaimon-rust", types=["DATE"]), reading("Java", types=["DATE"])],
    }
    assert cells(tmp_path, tests, "DATE")[:3] == ["✓", "–", "differs orc; ✓ avro, parquet"]


def test_a_type_is_not_blamed_for_another_one_of_a_wide_table(tmp_path: Path) -> None:
    wide = [reading("pypaimon", "differs", types=["CHAR", "DATE", "INT", "TIME"])]
    tests = {"test_wide_1": wide, "test_wide_2": wide, "test_one": [reading("pypaimon", types=["DATE", "INT"])]}
    assert cells(tmp_path, tests, "DATE")[1] == "✓"
    assert cells(tmp_path, tests, "TIME")[1] == "differs"


def test_who_differs_is_listed_with_the_reason_and_with_who_is_right(tmp_path: Path) -> None:
    tests = {"test_a[x]": [reading("pypaimon", "differs", reason="it cuts | times"), reading("Java")]}
    text = PROGRAM.page(PROGRAM.cases_of(report(tmp_path, tests)), {})
    link = '[x](../tests/interop/test_types.py "test_a(x)")'
    assert f"| pypaimon | differs | it cuts \\| times | {link} | Tidelake and Java |" in text


# ---------------------------------------------------------------- what the tests note down


def test_a_read_is_noted_down_with_the_kind_of_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(conformance.SWITCH, "1")
    item = SimpleNamespace(user_properties=[])
    monkeypatch.setattr(conformance._Current, "item", item)
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("db")
    schema = pa.schema([pa.field("id", pa.int64(), False), ("at", pa.timestamp("ms")), ("tags", pa.list_(pa.string()))])
    options = {
        "bucket": "2",
        "merge-engine": "partial-update",
        "file.format": "orc",
        "file-index.bloom-filter.columns": "id",
        "deletion-vectors.enabled": "true",
    }
    table = catalog.create_table("db.t", schema, primary_key=["id"], options=options)
    record("Java", tmp_path, "db.t")
    assert item.user_properties == []  # nobody of us wrote it
    table.upsert(pa.table({"id": [1], "at": [None], "tags": [None]}, schema))
    record("Java", tmp_path, "db.t$snapshots", Outcome.DIFFERS, reason="why")
    record("Java", tmp_path, "db.none")
    record("Java", tmp_path / "none", "db.t")
    ((name, text),) = item.user_properties
    assert name == "conformance"
    assert json.loads(text) == {
        "reader": "Java",
        "writer": "Tidelake",
        "outcome": "differs",
        "engine": "partial-update",
        "formats": ["orc"],
        "types": ["ARRAY", "BIGINT", "TIMESTAMP(3)"],
        "indexes": ["bloom-filter", "deletion vectors"],
        "buckets": "fixed",
        "reason": "why",
    }
    monkeypatch.delenv(conformance.SWITCH)
    record("pypaimon", tmp_path, "db.t")
    assert len(item.user_properties) == 1
