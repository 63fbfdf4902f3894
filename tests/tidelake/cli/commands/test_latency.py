"""`tidelake table latency`: the times between records and the snapshots that show their rows."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

import tidelake
from tests.support.command_line import Call
from tidelake.checkpoint.record_times import RECORD_TIMES_PROPERTY, CommitLatency, RecordTimes, commit_latencies
from tidelake.storage.base.clock import epoch_ms

SECOND = 1_000


def write_log(root: Path, ages_ms: list[int]) -> Path:
    """A topic of records that are so old, and a pipeline that commits each on its own."""
    (root / "in").mkdir()
    source = {"db": "shop", "schema": "public", "table": "t", "connector": "postgresql"}
    for number, age_ms in enumerate(ages_ms):
        value = {"before": None, "after": {"id": number}, "op": "c", "source": source}
        line = {"topic": "t", "partition": 0, "offset": number, "timestamp_ms": epoch_ms() - age_ms}
        text = json.dumps({**line, "key": None, "value": json.dumps(value)}) + "\n"
        (root / "in" / f"{number:03}.jsonl").write_text(text)
    path = root / "shop.yaml"
    path.write_text(
        f"pipeline: p\nwarehouse: {root}/lake\n"
        f"source: {{type: change-log-folder, path: {root}/in, until: end}}\n"
        "tables: [{name: shop.t}]\ncheckpoint: {bytes_max: 1}\n"
    )
    return path


def test_a_table_alone_says_how_long_its_records_took(call: Call, tmp_path: Path) -> None:
    ages_ms = [1 * SECOND, 90 * SECOND, 4_000 * SECOND]
    assert call("ingest", "run", write_log(tmp_path, ages_ms)).code == 0
    said = call("table", "latency", "shop.t", "-w", tmp_path / "lake", "--json")
    assert said.code == 0, said.err
    document = said.document
    assert document["commits"] == 3
    for members in (document["oldest"], document["newest"]):  # one record each
        assert 90 * SECOND <= members["p50_ms"] < 150 * SECOND
        assert 4_000 * SECOND <= members["p100_ms"] < 4_060 * SECOND
    assert sum(one["commits"] for one in document["histogram"]) == 3
    assert document["histogram"][-1] == {"up_to_ms": None, "commits": 1}  # beyond an hour
    shown = call("table", "latency", "shop.t", "-w", tmp_path / "lake").out
    assert shown.startswith("shop.t: 3 commits, ")
    assert "oldest record" in shown
    assert "█" in shown


def test_the_newest_snapshots_count(call: Call, tmp_path: Path) -> None:
    assert call("ingest", "run", write_log(tmp_path, [4_000 * SECOND, 0])).code == 0
    said = call("table", "latency", "shop.t", "-w", tmp_path / "lake", "--limit", "1", "--json")
    assert said.document["commits"] == 1
    assert said.document["oldest"]["p100_ms"] < 4_000 * SECOND


@pytest.mark.parametrize("rows", [0, 1])
def test_a_table_without_such_snapshots_is_refused_by_name(call: Call, tmp_path: Path, rows: int) -> None:
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("shop")
    table = catalog.create_table("shop.t", pa.schema([("id", pa.int64())]))
    if rows:
        table.append(pa.table({"id": [1]}))
    said = call("table", "latency", "shop.t", "-w", tmp_path)
    assert said.code == 1
    assert f"no snapshot of shop.t has the times of its records, of {rows} that were read" in said.err


# ---------------------------------------------------------------- the property


def table_with(tmp_path: Path, *properties: dict[str, str]) -> tidelake.Table:
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("shop")
    table = catalog.create_table("shop.t", pa.schema([("id", pa.int64())]))
    with table.writer(commit_user="p") as writer:
        for number, of_commit in enumerate(properties, 1):
            writer.write(pa.table({"id": [number]}))
            writer.commit(number, properties=of_commit)
    return table


def test_a_record_from_the_future_took_no_time(tmp_path: Path) -> None:
    future = RecordTimes(epoch_ms() + 10**6, epoch_ms() + 10**6)
    [found] = commit_latencies(table_with(tmp_path, {RECORD_TIMES_PROPERTY: future.to_text()}).snapshots())
    assert (found.oldest_ms, found.newest_ms) == (0, 0)


def test_snapshots_of_other_writers_are_left_out(tmp_path: Path) -> None:
    table = table_with(tmp_path, {}, {RECORD_TIMES_PROPERTY: RecordTimes(1, 2).to_text()}, {})
    second = table.snapshots()[1]
    assert list(commit_latencies(table.snapshots())) == [
        CommitLatency(2, second.time_ms, second.time_ms - 1, second.time_ms - 2)
    ]


@pytest.mark.parametrize("text", ["{", "{}", '{"oldest_ms": "x", "newest_ms": 1}', "7"])
def test_a_damaged_property_is_named(tmp_path: Path, text: str) -> None:
    table = table_with(tmp_path, {RECORD_TIMES_PROPERTY: text})
    with pytest.raises(tidelake.CorruptFile, match=r"snapshot 1.*tidelake\.record-times"):
        list(commit_latencies(table.snapshots()))
