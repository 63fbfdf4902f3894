"""A table without rows may get any option. A writer that was opened before must not add rows of the old ones."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest

import tidelake
from tidelake import CommitConflict, SetOption

_COLUMNS: Final = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.int64())])
_ROWS: Final = [{"id": 1, "v": 2}]


@pytest.mark.parametrize(
    ("options", "altered"),
    [
        pytest.param({}, [("changelog-producer", "input")], id="its rows would lack a changelog"),
        pytest.param({}, [("merge-engine", "aggregation")], id="another merge engine"),
        pytest.param({}, [("deletion-vectors.enabled", "true")], id="its rows would be hidden"),
        pytest.param(
            {"changelog-producer": "full-compaction", "num-sorted-run.compaction-trigger": "2"},
            [("file.compression", "zstd"), ("num-sorted-run.compaction-trigger", "5")],
            id="a higher level: all rows would be announced again",
        ),
    ],
)
def test_its_commit_is_refused_and_names_the_option(
    options: dict[str, str], altered: list[tuple[str, str]], tmp_path: Path
) -> None:
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("db")
    table = catalog.create_table("db.t", _COLUMNS, primary_key=["id"], options={"bucket": "1", **options})
    with table.writer(commit_user="etl") as writer:
        writer.write(pa.Table.from_pylist(_ROWS, _COLUMNS))
        for key, value in altered:
            catalog.alter_table("db.t", [SetOption(key, value)])
        with pytest.raises(CommitConflict, match=f"altered while it had no rows.*{altered[-1][0]}.*open a new writer"):
            writer.commit(1)
    assert catalog.table("db.t").snapshots() == []
    with catalog.table("db.t").writer(commit_user="etl") as writer:  # the remedy
        writer.write(pa.Table.from_pylist(_ROWS, _COLUMNS))
        writer.commit(1)


@pytest.mark.parametrize(
    "altered",
    [
        pytest.param([("file.compression", "zstd"), ("num-sorted-run.stop-trigger", "9")], id="no rows depend on it"),
        pytest.param(
            [("num-levels", "6"), ("num-sorted-run.compaction-trigger", "9")], id="in an order that keeps the levels"
        ),
    ],
)
def test_options_that_may_change_with_rows_change_nothing_for_it(
    altered: list[tuple[str, str]], tmp_path: Path
) -> None:
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("db")
    options = {"bucket": "1", "changelog-producer": "full-compaction", "num-sorted-run.compaction-trigger": "5"}
    table = catalog.create_table("db.t", _COLUMNS, primary_key=["id"], options=options)
    with table.writer(commit_user="etl") as writer:
        writer.write(pa.Table.from_pylist(_ROWS, _COLUMNS))
        catalog.alter_table("db.t", [SetOption(key, value) for key, value in altered])
        writer.commit(1)
    assert catalog.table("db.t").scan().to_arrow().to_pylist() == _ROWS
