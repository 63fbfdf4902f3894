"""What a configuration makes of records in Spark's tasks: columns, names, masks, filters, derived columns, histories.

The sinks are pickled, as for a task. `tests/contracts/test_drivers.py` compares the tables with those of the service.
"""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidelake
from tidelake.ingest.config.config import parse_config
from tidelake.ingest.formats.base import WITHHELD_REASON
from tidelake.ingest.settings import Config
from tidelake.ingest.spark.batch_rows import open_reader
from tidelake.ingest.spark.batch_statistics import BatchStatistics
from tidelake.spark.query_tables import sinks_of

SECRET = "ann@example.org"
ROWS: list[tuple[str, dict[str, Any] | None, dict[str, Any] | None]] = [
    ("c", None, {"id": 1, "email": SECRET, "n": 5}),
    ("c", None, {"id": 2, "email": "b", "n": 6}),
    ("u", {"id": 1, "email": SECRET, "n": 5}, {"id": 1, "email": "c", "n": 8}),
    ("d", {"id": 2, "email": "b", "n": 6}, None),
]


def lines(*values: str) -> pa.RecordBatch:
    """A batch of Spark's, with the lines of a change-log folder."""
    place = {"topic": "t", "partition": 0, "timestamp_ms": 7}
    texts = [json.dumps({**place, "offset": n, "key": '{"id":1}', "value": value}) for n, value in enumerate(values)]
    return pa.RecordBatch.from_pydict({"value": texts})


def changes() -> list[str]:
    source = {"connector": "postgresql", "db": "shop", "schema": "s", "table": "users", "ts_ms": 3}
    return [json.dumps({"op": o, "before": b, "after": a, "source": source}) for o, b, a in ROWS]


def configuration(home: Path, settings: str) -> Config:
    text = (
        f"warehouse: {home}/lake\nsource: {{type: change-log-folder, path: {home}}}\nmask_salt: salt\n"
        f"errors: {{tolerance: all}}\ntables: [{{name: s.users, match: s.users, {settings}}}]\n"
    )
    return parse_config(text, "users.yaml", pipeline="users")


def read(home: Path, settings: str, columns: str, key: list[str], batch: pa.RecordBatch) -> Any:
    """The rows of the table, without the columns of their order, and the dead letters."""
    catalog = tidelake.open_catalog(str(home / "lake"))
    catalog.create_database("s")
    types = {"id": pa.int64(), "n": pa.int64(), "doubled": pa.int64(), "partition": pa.int32(), "offset": pa.int64()}
    types |= {"op_ts": pa.timestamp("ms", "UTC")}
    schema = pa.schema([(name, types.get(name, pa.string())) for name in columns.split()])
    context = catalog.create_table("s.users", schema, primary_key=key).context
    (sink,) = sinks_of(configuration(home, settings))
    rows = pickle.loads(pickle.dumps(sink.input))
    statistics = BatchStatistics()
    found = [row for _, part in open_reader([(context, rows)], statistics).rows(batch) for row in part.to_pylist()]
    letters = [json.loads(line) for line in statistics.table(0).dead_letters]
    kept = [*columns.split(), "_VALUE_KIND"]
    return [tuple(row[name] for name in kept) for row in found], letters


@pytest.mark.parametrize(
    ("settings", "columns", "rows"),
    [
        pytest.param(
            "masks: {email: redact}, rename_columns: {n: total}, columns: {total: BIGINT}",
            "id email total",
            [(1, "***", "5", 0), (2, "***", "6", 0), (1, "***", "8", 2), (2, "***", "6", 3)],
            id="a mask and another name",
        ),
        pytest.param(
            "keep_columns: [id, n]", "id n", [(1, 5, 0), (2, 6, 0), (1, 8, 2), (2, 6, 3)], id="only some columns"
        ),
        pytest.param(
            "filter: n < 7, drop_columns: [email]",
            "id n",
            [(1, 5, 0), (2, 6, 0), (1, 8, 3), (2, 6, 3)],
            id="a filter that a row leaves",
        ),
        pytest.param(
            "drop_columns: [email, n], computed_columns: {doubled: 'truncate(id, 2)'}, metadata_columns: [offset]",
            "id doubled offset",
            [(1, 0, 0, 0), (2, 2, 1, 0), (1, 0, 2, 2), (2, 2, 3, 3)],
            id="computed and metadata columns",
        ),
    ],
)
def test_tasks_shape_rows_as_configured(
    tmp_path: Path, settings: str, columns: str, rows: list[tuple[Any, ...]]
) -> None:
    assert read(tmp_path, settings, columns, ["id"], lines(*changes())) == (rows, [])


def test_a_history_has_each_change_as_a_row(tmp_path: Path) -> None:
    rows, letters = read(
        tmp_path, "mode: append, keep_columns: [id, n]", "id n op offset topic partition op_ts", [], lines(*changes())
    )
    assert {row[-1] for row in rows} == {0}
    assert [row[:4] for row in rows] == [
        *((1, 5, "+I", 0), (2, 6, "+I", 1)),
        *((1, 5, "-U", 2), (1, 8, "+U", 2), (2, 6, "-D", 3)),
    ]
    assert letters == []


@pytest.mark.parametrize(("settings", "is_shown"), [("masks: {email: redact}", False), ("drop_columns: [n]", True)])
def test_dead_letters_of_a_table_with_masks_show_no_record(tmp_path: Path, settings: str, is_shown: bool) -> None:
    broken = changes()[0].replace('"op"', '"not-op"')
    columns = "id email n" if not is_shown else "id email"
    _, letters = read(tmp_path, settings, columns, ["id"], lines(broken))
    assert (SECRET in json.dumps(letters)) == is_shown
    assert [letter["reason"] == WITHHELD_REASON for letter in letters] == [not is_shown]
