"""Measures a pipeline's first load of a table from a source's initial snapshot, with and without `bootstrap`.

As a program this module runs one of the two.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow.compute as pc

import tidelake
from benchmarks.clock import Clock, bytes_below, tell
from benchmarks.contest import TIDELAKE, Sample, contest, ours
from benchmarks.ingest_run import run_apart
from benchmarks.order_messages import COLUMNS, row
from benchmarks.sections import RACE_HEADER, Goal, PageSection, Plan, race_lines

_MODULE: Final = "pipeline_bootstrap"
_RECORDS: Final = 2_000_000
_FILE_RECORDS: Final = 250_000
_PARTITIONS: Final = 4
_TABLE: Final = "bench.orders"
_ORDINARY: Final = "without bootstrap"
_CHECKPOINT_BYTES: Final = 50 << 20
_PRODUCERS: Final = ("none", "lookup")


def sections(plan: Plan) -> Iterator[PageSection]:
    records = int(_RECORDS * plan.scale)
    folder = plan.data / f"snapshot-{records}"
    _write_snapshot(folder, records)
    lines: list[list[str]] = []
    goals: list[Goal] = []
    samples: dict[str, Sequence[Sample]] = {}
    for producer in _PRODUCERS:
        about = {"folder": str(folder), "records": records, "producer": producer}
        found = contest(
            {
                name: ours(_MODULE, {"is_sorted": is_sorted, "warehouse": str(plan.scratch / str(is_sorted)), **about})
                for name, is_sorted in ((TIDELAKE, True), (_ORDINARY, False))
            },
            plan.fewer_pairs,
        )
        lines += race_lines(f"changelog-producer = {producer}", found)
        written = {name: statistics.median(one.details["data_bytes"] for one in of) for name, of in found.items()}
        share = written[TIDELAKE] / written[_ORDINARY]
        goals.append(Goal(f"producer {producer}: bytes of files ≤ half", f"{share:.2f} ×", share <= 0.5))
        samples |= {f"{producer}, {name}": one for name, one in found.items()}
    text = (
        f"Debezium's snapshot of {records:,} rows (JSON without schemas, {_PARTITIONS} partitions, keys in a random "
        "order) from a folder into an empty table with two buckets, by the code of `tidelake ingest run`. "
        f"`{TIDELAKE}` "
        "has `bootstrap: {enabled: true}`. Its peer is the same pipeline without it: a checkpoint after 50 MiB of "
        "records, and a full compaction at the end, so that both tables have the same files. The clock includes "
        "reading and decoding, which take the same time in both."
    )
    yield PageSection("The first load of a table by a pipeline", text, RACE_HEADER, lines, goals, samples)


def _write_snapshot(folder: Path, records: int) -> None:
    """Create the files if they are absent."""
    keys = np.random.default_rng(17).permutation(records).tolist()
    folder.mkdir(parents=True, exist_ok=True)
    encode = msgspec.json.Encoder().encode
    for begin in range(0, records, _FILE_RECORDS):
        path = folder / f"{begin // _FILE_RECORDS:03}.jsonl"
        if path.exists():
            continue
        unfinished = path.with_suffix(".tmp")
        with unfinished.open("wb") as file:
            for number, key in enumerate(keys[begin : begin + _FILE_RECORDS], begin):
                file.write(encode(_record(number, key)) + b"\n")
        unfinished.rename(path)


def _record(number: int, key: int) -> dict[str, Any]:
    time_ms = 1_700_000_000_000 + number
    source = {"version": "2.5.0.Final", "connector": "mysql", "name": "s", "ts_ms": time_ms, "db": "shop"}
    source |= {"table": "orders", "snapshot": "true", "file": "mysql-bin.000003", "pos": 4}
    value = {"before": None, "after": row(key, 0), "source": source, "op": "r", "ts_ms": time_ms + 5}
    partition, offset = number % _PARTITIONS, number // _PARTITIONS
    return {
        "topic": "s.shop.orders",
        "partition": partition,
        "offset": offset,
        "timestamp_ms": time_ms,
        "key": json.dumps({"id": key}),
        "value": msgspec.json.encode(value).decode(),
    }


# ---------------------------------------------------------------- the job


def load(folder: str, warehouse: str, records: int, producer: str, *, is_sorted: bool) -> None:
    catalog = tidelake.open_catalog(warehouse)
    catalog.create_database("bench", if_not_exists=True)
    catalog.drop_table(_TABLE, if_exists=True)
    options = {"bucket": "2", "changelog-producer": producer}
    table = catalog.create_table(_TABLE, COLUMNS, primary_key=["id"], options=options)
    settings = {
        "pipeline": "bench",
        "warehouse": warehouse,
        "source": {"type": "change-log-folder", "path": folder, "until": "end"},
        "tables": [{"name": _TABLE, "match": "s.shop.orders"}],
        "checkpoint": {"bytes_max": _CHECKPOINT_BYTES},
        "bootstrap": {"enabled": is_sorted},
    }
    reported = run_apart(settings)
    clock = Clock(reported.pop("wall_s"), reported.pop("cpu_s"))
    if not is_sorted:
        with clock:
            table.compact(full=True)
    rows = table.scan().to_arrow()
    expected = records * (records - 1) // 2
    if rows.num_rows != records or pc.sum(rows["id"]).as_py() != expected:
        raise AssertionError(f"{rows.num_rows} rows, of {records}")
    reported.pop("rows")
    place = f"{warehouse}/{_TABLE.replace('.', '.db/')}"
    tell(records, clock, **reported, data_bytes=bytes_below(place, "data-") + bytes_below(place, "changelog-"))


if __name__ == "__main__":
    load(**json.loads(sys.argv[1]))
