"""Measures reads of `t$files` of a table with a hundred thousand data files.

The data files do not exist. The table consists only of manifests, as many as its writer rolls. As a program this module
runs the job: the public API, which opens the table again each time.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

import tidelake
from benchmarks.clock import Clock, tell
from benchmarks.contest import TIDELAKE, Contender, Sample, contest, median_ratio, ours
from benchmarks.java import JAVA, JVM
from benchmarks.sections import RACE_HEADER, Goal, PageSection, Plan, race_lines
from tests.support.java_oracle import JavaOracle
from tidelake.storage.commit.commit_increment import CommitIncrement
from tidelake.storage.commit.commit_message import CommitMessage, Committable
from tidelake.storage.commit.table_commit import TableCommit
from tidelake.storage.files.data_file import DataFileMeta, SimpleStats
from tidelake.storage.model.binary_row import serialize_rows
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.format import FileSource
from tidelake.storage.model.types import DataType, arrow_type

FILES: Final = 100_000
_BUCKETS: Final = 10
_FILES_OF_BUCKET: Final = 20
NAME: Final = "bench.files"
_LIMIT_S: Final = 2.0


def sections(plan: Plan) -> Iterator[PageSection]:
    files = max(500, int(FILES * plan.scale))
    warehouse = str(plan.scratch / "many-files")
    write_metadata(warehouse, files)
    contenders: dict[str, Contender] = {TIDELAKE: ours("many_files", {"warehouse": warehouse, "files": files})}
    if plan.has_java:
        java = JavaOracle(jvm=JVM)
        try:
            contenders[JAVA] = JavaFiles(java, warehouse, files)
            contenders[JAVA].run()  # warms up the JVM
            samples = contest(contenders, plan.fewer_pairs)
        finally:
            java.close()
    else:
        samples = contest(contenders, plan.fewer_pairs)
    cpu_s = sorted(sample.cpu_s for sample in samples[TIDELAKE])[len(samples[TIDELAKE]) // 2]
    targets = [Goal(f"all columns of {files:,} files in ≤ {_LIMIT_S:g} CPU-s", f"{cpu_s:.2f} s", cpu_s <= _LIMIT_S)]
    if JAVA in samples:
        ratio = median_ratio(samples, TIDELAKE, JAVA)
        targets.append(Goal(f"≥ 1 × {JAVA}", f"{ratio:.2f} ×", ratio >= 1))
    about = (
        f"All columns of `$files`, for {files:,} data files with statistics of six columns. Rows are files. Catalog "
        "and table are opened in a new process each time. Java runs in one JVM, which has read the table once before."
    )
    yield PageSection("$files of many files", about, RACE_HEADER, race_lines("all columns", samples), targets, samples)


def write_metadata(warehouse: str, files: int, commits: int = 4) -> None:
    """Write a table with manifests, and without data files."""
    catalog = tidelake.open_catalog(warehouse)
    catalog.create_database("bench", if_not_exists=True)
    columns = [("id", pa.int64()), ("dt", pa.string()), ("name", pa.string())]
    schema = pa.schema([*columns, ("amount", pa.float64()), ("n", pa.int32()), ("ts", pa.timestamp("ms"))])
    options = {"bucket": str(_BUCKETS), "write-only": "true"}
    table = catalog.create_table(NAME, schema, primary_key=["dt", "id"], partition_by=["dt"], options=options)
    commit = TableCommit(table.context, "bench")
    metas = _metas(table, files)
    days = -(-files // (_BUCKETS * _FILES_OF_BUCKET))
    partitions = serialize_rows([pa.array([f"day-{n:06}" for n in range(days)])], _types(table, ["dt"]))
    groups = [metas[at : at + _FILES_OF_BUCKET] for at in range(0, files, _FILES_OF_BUCKET)]
    messages = [
        CommitMessage(
            BucketId(partitions[number // _BUCKETS], number % _BUCKETS), CommitIncrement(new_files=tuple(group))
        )
        for number, group in enumerate(groups)
    ]
    for identifier in range(commits):
        commit.commit(Committable(identifier + 1, messages[identifier::commits]))


def _types(table: tidelake.Table, names: Sequence[str]) -> list[DataType]:
    return [table.context.schema.by_name[name].type for name in names]


def _metas(table: tidelake.Table, files: int) -> list[DataFileMeta]:
    rng = np.random.default_rng(16)
    names = table.context.schema.names
    values: dict[str, Any] = {
        "id": np.sort(rng.integers(0, 1 << 40, 2 * files)),
        "dt": [f"day-{n // _BUCKETS // _FILES_OF_BUCKET:06}" for n in range(files)],
        "name": np.char.add("customer-", rng.integers(0, 10**7, 2 * files).astype(str)),
        "amount": rng.random(2 * files).round(6) * 1000,
        "n": rng.integers(0, 1 << 20, 2 * files).astype(np.int32),
        "ts": rng.integers(1_700_000_000_000, 1_790_000_000_000, 2 * files),
    }
    bounds = []
    for half in (slice(0, None, 2), slice(1, None, 2)):
        columns = [
            pa.array(values[name] if name == "dt" else values[name][half]).cast(arrow_type(field.type))
            for name, field in zip(names, table.context.schema.fields, strict=True)
        ]
        keys = serialize_rows([columns[0]], _types(table, ["id"]))
        bounds.append((keys, serialize_rows(columns, _types(table, names))))
    (min_keys, minima), (max_keys, maxima) = bounds
    nulls = tuple([0] * len(names))
    template = DataFileMeta(
        *("", 1 << 20, 10_000, b"", b"", SimpleStats(b"", b"", (0,)), SimpleStats(b"", b"", nulls), 0, 9_999, 0, 0),
        creation_time_ms=1_790_000_000_000,
        delete_row_count=0,
        file_source=FileSource.APPEND,
    )
    return [
        replace(
            template,
            file_name=f"data-{n:08x}-2b3e-4c5d-8e9f-0a1b2c3d4e5f-0.parquet",
            min_key=min_keys[n],
            max_key=max_keys[n],
            key_stats=SimpleStats(min_keys[n], max_keys[n], (0,)),
            value_stats=SimpleStats(minima[n], maxima[n], nulls),
            min_sequence_number=n * 10_000,
            max_sequence_number=n * 10_000 + 9_999,
        )
        for n in range(files)
    ]


@dataclass(frozen=True, slots=True)
class JavaFiles:
    java: JavaOracle
    warehouse: str
    files: int

    def run(self) -> Sample:
        *_, found, cost = self.java.command("system", self.warehouse, NAME, "files", count=True, timed=True)
        assert found == {"rows": self.files}
        return Sample(self.files, **cost)


# ---------------------------------------------------------------- the job


def read_files(warehouse: str, files: int) -> None:
    catalog = tidelake.open_catalog(warehouse)
    catalog.table(f"{NAME}$options").scan().to_arrow()
    clock = Clock()
    with clock:
        found = tidelake.open_catalog(warehouse).table(f"{NAME}$files").scan().to_arrow()
    assert len(found) == files
    tell(files, clock)


if __name__ == "__main__":
    read_files(**json.loads(sys.argv[1]))
