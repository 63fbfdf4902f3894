"""Java writes a table while it is rewritten. It doesn't know the fence; its commits are found, and no row is lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tidelake
from tests.interop.rows_of_regions import COLUMNS, KEY, NAME, row
from tests.support.java_oracle import JavaOracle
from tests.support.line_server import Refused
from tidelake import SetOption
from tidelake.compaction import table_rewrite
from tidelake.errors import TidelakeError, UnsupportedFeature
from tidelake.storage.ddl.schema_changes import RewriteChange
from tidelake.storage.maintenance.verify import verify

STEPS = {
    "the first copy": "_Copy.add_all",
    "catching up": "_Rewrite._caught_up",
    "the fence": "_Rewrite._fence",
    "the last changes": "_Rewrite._settled",
    "the new schema": "_Rewrite._publish",
    "the swap": "_swap",
}


def once_around(step: str, write: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Write once before, and once after the first call of a step. Returns what happened."""
    happened: list[str] = []
    *owners, name = step.split(".")
    owner: Any = table_rewrite
    for part in owners:
        owner = getattr(owner, part)
    original = getattr(owner, name)

    def stepped(*arguments: Any, **named: Any) -> Any:
        if happened:
            return original(*arguments, **named)
        happened.append("before")
        write()
        try:
            return original(*arguments, **named)
        finally:
            happened.append("after")
            write()

    monkeypatch.setattr(owner, name, stepped)
    return happened


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(
    "changes",
    [
        pytest.param([KEY], id="more columns in the key"),
        pytest.param([SetOption("bucket", "3")], id="other buckets"),
        pytest.param([SetOption("merge-engine", "partial-update")], id="another engine"),
        pytest.param([SetOption("bucket-key", "region"), KEY], id="buckets by another column"),
    ],
)
def test_no_row_that_java_writes_meanwhile_is_lost(
    changes: list[RewriteChange], step: str, java_oracle: JavaOracle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java_oracle.create(tmp_path, NAME, COLUMNS, primary_keys=["id"], options={"bucket": "2"})
    expected = dict.fromkeys(range(20), "first")
    java_oracle.write(tmp_path, NAME, [row(key, "first") for key in range(20)])
    keys, refused = iter(range(100, 200)), list[str]()

    def write() -> None:
        key = next(keys)
        written = {key: f"new {key}", key - 95: f"again {key}"}
        try:
            java_oracle.write(tmp_path, NAME, [row(key, v) for key, v in written.items()])
        except Refused as error:  # Java compares numbers of buckets
            refused.append(str(error))
        else:
            expected.update(written)

    happened = once_around(STEPS[step], write, monkeypatch)
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.rewrite_table(NAME, changes)
    assert happened == ["before", "after"]
    table = catalog.table(NAME)
    for read in (table.scan().to_arrow().to_pylist(), java_oracle.read(tmp_path, NAME)):
        assert {found["id"]: found["v"] for found in read} == expected
        assert len(read) == len(expected)
    assert not verify(table.context)
    assert all("new bucket num" in text for text in refused)
    assert len(expected) > 20
    write()
    assert {found["id"]: found["v"] for found in catalog.table(NAME).scan().to_arrow().to_pylist()} == expected


@pytest.mark.parametrize(
    ("engine", "options", "expected"),
    [
        pytest.param("deduplicate", [KEY], 5, id="a row is replaced"),
        pytest.param("aggregation", [KEY, SetOption("fields.n.aggregate-function", "sum")], 15, id="a sum counts on"),
        pytest.param(
            "aggregation",
            [SetOption("fields.n.aggregate-function", "sum")],
            15,
            id="a sum counts on under the same key",
        ),
        pytest.param("partial-update", [KEY], 5, id="a null leaves a value"),
        pytest.param("first-row", [KEY], 10, id="the first row stays"),
    ],
)
def test_what_java_writes_before_the_swap_is_merged_by_the_new_engine_when_the_rewrite_is_finished(
    engine: str,
    options: list[RewriteChange],
    expected: int,
    java_oracle: JavaOracle,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    columns: list[dict[str, object]] = [*COLUMNS, {"name": "n", "type": "INT"}]
    java_oracle.create(tmp_path, NAME, columns, primary_keys=["id"], options={"bucket": "1"})
    java_oracle.write(tmp_path, NAME, [{**row(key, "first"), "n": 10} for key in range(4)])
    changes = [SetOption("merge-engine", engine), *options] if engine != "deduplicate" else options

    def die(*_: object) -> None:
        raise TidelakeError("the process died")

    with monkeypatch.context() as patched:
        patched.setattr("tidelake.compaction.table_rewrite._swap", die)
        with pytest.raises(TidelakeError, match="died"):
            tidelake.open_catalog(str(tmp_path)).rewrite_table(NAME, changes)
    java_oracle.write(tmp_path, NAME, [{**row(1, "second"), "n": 5}, {**row(9, "new"), "n": 1}])
    catalog = tidelake.open_catalog(str(tmp_path))
    if KEY in changes:
        with pytest.raises(UnsupportedFeature, match=r"files of two keys.*`tidelake table rewrite"):
            catalog.table(NAME).scan().to_arrow()
    catalog.rewrite_table(NAME)
    table = catalog.table(NAME)
    for read in (table.scan().to_arrow().to_pylist(), java_oracle.read(tmp_path, NAME)):
        assert sorted((found["id"], found["n"]) for found in read) == [(0, 10), (1, expected), (2, 10), (3, 10), (9, 1)]
    assert not verify(table.context)
