"""Measures what an analyst asks a compacted table: all rows in Polars, an aggregate, one row by its key, a first batch.

Beside pypaimon, and beside DuckDB and Polars, which read plain Parquet files of the same rows. As a program this module
runs the job of Tidelake, or with `plain` that of the plain files.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import duckdb
import polars as pl
import pyarrow.parquet as pq

import tidelake
from benchmarks.clock import Clock, tell
from benchmarks.contest import TIDELAKE, Job, Sample, Samples, contest, median_ratio, ours
from benchmarks.flush import PEER_PROGRAM
from benchmarks.rows import rows_per_commit
from benchmarks.runs import TABLE, write_runs
from benchmarks.sections import RACE_HEADER, RUST, Goal, PageSection, Plan, at_least, peak_at_most, race_lines

PLAIN: Final = "plain Parquet"
QUESTIONS: Final[Mapping[str, str]] = {
    "polars": "all rows to Polars",
    "aggregate": "aggregate of all rows in DuckDB",
    "point": "one row by its key in DuckDB",
    "first": "first batch",
}
_WORKLOAD: Final = "w3"
_AT_MOST: Final = 1.3  # times the time of plain Parquet
_AT_LEAST: Final = 1.5  # times the speed of pypaimon
_AGGREGATE_PEAK_MIB: Final = 500
_REPETITIONS: Final = {"polars": 1, "aggregate": 3, "point": 10, "first": 10}


def sections(plan: Plan) -> Iterator[PageSection]:
    warehouse, plain, rows, key = _prepared(plan)
    lines: list[list[str]] = []
    goals: list[Goal] = []
    all_samples: dict[str, Sequence[Sample]] = {}
    for question, label in QUESTIONS.items():
        arguments: dict[str, Any] = {"warehouse": warehouse, "question": question, "input_rows": rows, "key": key}
        jobs = {TIDELAKE: ours("frames", arguments), PLAIN: ours("frames", {**arguments, "plain": plain})}
        if plan.pypaimon is not None and plan.has_rust:
            jobs[RUST] = Job((plan.pypaimon, str(PEER_PROGRAM), "frames"), arguments)
        samples = contest(jobs, plan.fewer_pairs)
        _check_same_answers(samples)
        lines += race_lines(label, samples)
        goals += at_least(label, samples, _AT_LEAST)
        ratio = 1 / median_ratio(samples, TIDELAKE, PLAIN)
        goals.append(Goal(f"{label}: ≤ {_AT_MOST:g} × the time of {PLAIN}", f"{ratio:.2f} ×", ratio <= _AT_MOST))
        if question == "aggregate":
            goals.append(peak_at_most(label, samples[TIDELAKE], _AGGREGATE_PEAK_MIB))
        all_samples |= {f"{label}, {name}": of_one for name, of_one in samples.items()}
    about = (
        f"{rows:,} rows with 6 columns (`w3` of `benchmarks/rows.py`) in a primary-key table after a full compaction. "
        f"{PLAIN}: the same rows in the order of the key, one file, with the same codec, read by Polars and DuckDB. "
        "pypaimon answers the questions for DuckDB with Arrow's functions, over the columns that it needs. Planning is "
        "included, opening a connection of DuckDB is not. Rows per CPU-second are those of the table times the "
        "repetitions. Each run is a new process, which asked the question once before the clock started."
    )
    yield PageSection("Questions to a compacted table", about, RACE_HEADER, lines, goals, all_samples)


def _prepared(plan: Plan) -> tuple[str, str, int, int]:
    """Return the warehouse, the folder of plain files, the number of rows and a key. Writes them at the first call."""
    warehouse, plain = plan.scratch / "frames", plan.scratch / "frames-plain"
    name = f"bench.{TABLE}"
    if not plain.exists():
        write_runs(str(warehouse), _WORKLOAD, plan.scale, {"bucket": "1"})
        table = tidelake.open_catalog(str(warehouse)).table(name)
        table.compact(full=True)
        plain.mkdir()
        with pq.ParquetWriter(plain / "rows.parquet", table.schema, compression="zstd") as file:
            for batch in table.scan():
                file.write_batch(batch, row_group_size=1 << 20)
    scan = tidelake.open_catalog(str(warehouse)).table(name).scan(columns=["id"])
    keys = scan.to_arrow()["id"]
    assert 0 < len(keys) <= 10 * rows_per_commit(_WORKLOAD, plan.scale)
    return str(warehouse), str(plain), len(keys), keys[len(keys) // 2].as_py()


def _check_same_answers(samples: Samples) -> None:
    found = {name: {str(sample.details["answer"]) for sample in of_one} for name, of_one in samples.items()}
    if len(set.union(*found.values())) != 1:
        raise AssertionError(f"contenders give different answers: {found}")


# ---------------------------------------------------------------- the job


def ask(warehouse: str, question: str, input_rows: int, key: int, plain: str | None = None) -> None:
    answer: Any = None
    connection = duckdb.connect()
    for repetitions, clock in ((1, Clock()), (_REPETITIONS[question], Clock())):
        with clock:
            for _ in range(repetitions):
                if plain is None:
                    answer = _of_table(connection, warehouse, question, key)
                else:
                    answer = _of_plain_files(connection, plain, question, key)
    tell(input_rows * _REPETITIONS[question], clock, answer=answer)


def _of_table(connection: Any, warehouse: str, question: str, key: int) -> Any:
    scan = tidelake.open_catalog(warehouse).table(f"bench.{TABLE}").scan()
    match question:
        case "polars":
            return scan.to_polars().collect().height
        case "first":
            return next(scan.to_batches()).num_rows > 0
    return _by_duckdb(scan.to_duckdb("t", connection), question, key)


def _of_plain_files(connection: Any, folder: str, question: str, key: int) -> Any:
    path = str(Path(folder) / "rows.parquet")
    if question == "polars":
        return pl.scan_parquet(path).collect().height
    connection.execute(f"create or replace view t as from read_parquet('{path}')")
    if question == "first":
        return connection.sql("from t").to_arrow_reader(65_536).read_next_batch().num_rows > 0
    return _by_duckdb(connection, question, key)


def _by_duckdb(connection: Any, question: str, key: int) -> Any:
    if question == "point":
        return connection.execute(f"select note from t where id = {key}").fetchall()[0][0]
    groups = connection.execute("select qty, sum(amount) from t group by qty").fetchall()
    return [len(groups), str(sum(amount for _, amount in groups))]


if __name__ == "__main__":
    ask(**json.loads(sys.argv[1]))
