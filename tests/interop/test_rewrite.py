"""Java continues a table that was rewritten: with another key, other buckets, another merge engine, another format."""

from __future__ import annotations

from pathlib import Path

import pytest

import tidelake
from tests.interop.rows_of_regions import COLUMNS, KEY, NAME, row
from tests.support.java_oracle import JavaOracle
from tidelake import SetOption, UpdateColumnType, UpdatePrimaryKey
from tidelake.errors import TidelakeError
from tidelake.storage.ddl.schema_changes import RewriteChange


@pytest.mark.parametrize(
    ("changes", "options"),
    [
        pytest.param([KEY], {"bucket": "2"}, id="another key"),
        pytest.param(
            [KEY, SetOption("bucket-key", "region"), SetOption("bucket", "3")], {"bucket": "2"}, id="other buckets"
        ),
        pytest.param([KEY, UpdateColumnType("id", "BIGINT")], {"bucket": "-1"}, id="dynamic buckets"),
        pytest.param([SetOption("bucket", "3")], {"bucket": "-1"}, id="from dynamic to fixed buckets"),
        pytest.param([SetOption("bucket", "-1")], {"bucket": "2"}, id="from fixed to dynamic buckets"),
        pytest.param([SetOption("merge-engine", "first-row")], {"bucket": "2"}, id="first rows"),
        pytest.param([SetOption("merge-engine", "partial-update")], {"bucket": "2"}, id="partial updates"),
        pytest.param([SetOption("file.format", "orc")], {"bucket": "2"}, id="orc"),
        pytest.param([SetOption("file.format", "avro")], {"bucket": "2"}, id="avro"),
        pytest.param(
            [KEY, SetOption("file.format", "orc")],
            {"bucket": "2", "changelog-producer": "lookup"},
            id="with a changelog",
        ),
        pytest.param([KEY], {"bucket": "2", "deletion-vectors.enabled": "true"}, id="with deletion vectors"),
    ],
)
def test_java_reads_and_continues_it(
    changes: list[RewriteChange], options: dict[str, str], java_oracle: JavaOracle, tmp_path: Path
) -> None:
    java_oracle.create(tmp_path, NAME, COLUMNS, primary_keys=["id"], options=options)
    java_oracle.write(tmp_path, NAME, [row(key, "java") for key in range(-5, 20)])
    java_oracle.write(tmp_path, NAME, [row(key, "again") for key in range(5, 10)], full=True)
    java_oracle.tag(tmp_path, NAME, "before")
    java_oracle.write(tmp_path, NAME, [row(key, "last") for key in (1, 2)])
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.rewrite_table(NAME, changes)
    expected = {key: "again" if 5 <= key < 10 else "java" for key in range(-5, 20)}
    if "bucket-key" not in str(changes):  # Java reads older snapshots under the newest options, which their key lacks
        tagged = java_oracle.read(tmp_path, NAME, tag="before")
        assert {found["id"]: found["v"] for found in tagged} == expected
    expected |= {1: "last", 2: "last"}
    assert {found["id"]: found["v"] for found in java_oracle.read(tmp_path, NAME)} == expected
    is_first_row = "first-row" in str(changes)
    java_oracle.write(tmp_path, NAME, [row(key, "new") for key in range(15, 30)], full=True)
    expected |= dict.fromkeys(range(20 if is_first_row else 15, 30), "new")
    for read in (java_oracle.read(tmp_path, NAME), catalog.table(NAME).scan().to_arrow().to_pylist()):
        assert {found["id"]: found["v"] for found in read} == expected
        assert len(read) == len(expected)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param([KEY], id="more columns in the key"),
        pytest.param([UpdatePrimaryKey(("region", "id")), SetOption("bucket", "4")], id="another order, other buckets"),
        pytest.param([SetOption("merge-engine", "first-row")], id="first rows"),
    ],
)
def test_java_reads_all_rows_of_a_rewrite_that_stopped_before_its_last_step(
    changes: list[RewriteChange], java_oracle: JavaOracle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java_oracle.create(tmp_path, NAME, COLUMNS, primary_keys=["id"], options={"bucket": "2"})
    java_oracle.write(tmp_path, NAME, [row(key, "java") for key in range(-5, 20)])
    java_oracle.write(tmp_path, NAME, [row(key, "again") for key in range(5, 10)])

    def die(*_: object) -> None:
        raise TidelakeError("the process died")

    monkeypatch.setattr("tidelake.compaction.table_rewrite._swap", die)
    with pytest.raises(TidelakeError, match="died"):
        tidelake.open_catalog(str(tmp_path)).rewrite_table(NAME, changes)
    monkeypatch.undo()
    expected = {key: "again" if 5 <= key < 10 else "java" for key in range(-5, 20)}
    read = java_oracle.read(tmp_path, NAME)
    assert ({found["id"]: found["v"] for found in read}, len(read)) == (expected, len(expected))
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.rewrite_table(NAME)
    read = java_oracle.read(tmp_path, NAME)
    assert ({found["id"]: found["v"] for found in read}, len(read)) == (expected, len(expected))
