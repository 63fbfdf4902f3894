"""Measures lookups of one row in a hundred files, with a Bloom filter and without, and the filter's cost in a flush.

As a program this module runs the job of Tidelake: the public API. Each lookup opens the table again.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import tidelake
from benchmarks.clock import Clock, tell
from benchmarks.contest import TIDELAKE, Contender, Sample, contest, median_ratio, ours
from benchmarks.flush import VARIANTS as FLUSHES
from benchmarks.java import JAVA, JVM
from benchmarks.rows import row_files, rows_per_commit
from benchmarks.sections import RACE_HEADER, Goal, PageSection, Plan, race_lines, thousands
from tests.support.java_oracle import JavaOracle
from tidelake import col

WITHOUT: Final = f"{TIDELAKE} without indexes"
NAME: Final = "bench.rows"
FILES: Final = 100
LOOKUPS: Final = 20
LOOKUPS_WITHOUT: Final = 3
_ROWS_PER_FILE: Final = 100_000
_TIMES_FASTER: Final = 20
_TIMES_JAVA: Final = 2
_FLUSH_SHARE_MAX: Final = 0.15


def lookup_sections(plan: Plan) -> Iterator[PageSection]:
    rows = max(100, int(_ROWS_PER_FILE * plan.scale))
    files = FILES if plan.scale >= 1 else max(5, int(FILES * plan.scale))
    warehouse = str(plan.scratch / "lookups")
    ids = _write(warehouse, files, rows)
    arguments = {"warehouse": warehouse, "ids": ids[:LOOKUPS].tolist(), "options": {}}
    without = {"ids": ids[:LOOKUPS_WITHOUT].tolist(), "options": {"file-index.read.enabled": "false"}}
    contenders: dict[str, Contender] = {
        TIDELAKE: ours("file_indexes", arguments),
        WITHOUT: ours("file_indexes", {**arguments, **without}),
    }
    if plan.has_java:
        java = JavaOracle(jvm=JVM)
        try:
            contenders[JAVA] = JavaLookups(java, warehouse, ids[:LOOKUPS].tolist())
            contenders[JAVA].run()  # warms up the JVM
            samples = contest(contenders, plan.fewer_pairs)
        finally:
            java.close()
    else:
        samples = contest(contenders, plan.fewer_pairs)
    ratio = median_ratio(samples, TIDELAKE, WITHOUT)
    targets = [Goal(f"≥ {_TIMES_FASTER} × without indexes", f"{ratio:.1f} ×", ratio >= _TIMES_FASTER)]
    if JAVA in samples:
        ratio = median_ratio(samples, TIDELAKE, JAVA)
        targets.append(Goal(f"≥ {_TIMES_JAVA} × {JAVA}", f"{ratio:.2f} ×", ratio >= _TIMES_JAVA))
    about = (
        f"A lookup of one row by its id, in {files} files of {rows:,} rows whose ids are in random order, with a Bloom "
        f"filter (items = {rows}, fpp = 0.01) in a file next to each data file. Each lookup opens catalog and table "
        "again. Java runs in one JVM, which has done all lookups once before."
    )
    lines = [[name, *_rates(of_one)] for name, of_one in samples.items()]
    header = ["", "runs", "ms of CPU for a lookup: min", "median", "max"]
    yield PageSection("Point lookups with a Bloom filter", about, header, lines, targets, samples)


def _rates(samples: Sequence[Sample]) -> list[str]:
    each = sorted(1000 / sample.rows_per_cpu_s for sample in samples)
    return [str(len(each)), f"{each[0]:.1f}", f"**{each[len(each) // 2]:.1f}**", f"{each[-1]:.1f}"]


def _write(warehouse: str, files: int, rows: int) -> NDArray[np.int64]:
    """Write a table with `files` files. Returns one id of each file."""
    rng = np.random.default_rng(16)
    ids = rng.permutation(2 * files * rows)[: files * rows].astype(np.int64)
    catalog = tidelake.open_catalog(warehouse)
    catalog.create_database("bench", if_not_exists=True)
    schema = pa.schema([("id", pa.int64()), ("name", pa.string()), ("amount", pa.float64()), ("kind", pa.int32())])
    options = {
        "bucket": "-1",
        "write-only": "true",
        "file-index.bloom-filter.columns": "id",
        "file-index.bloom-filter.id.items": str(rows),
        "file-index.bloom-filter.id.fpp": "0.01",
    }
    table = catalog.create_table(NAME, schema, options=options)
    with table.writer(commit_user="bench") as writer:
        for number in range(files):
            of_file = ids[number * rows : (number + 1) * rows]
            names = pa.array(np.char.add("customer-", (of_file % 9973).astype(str)))
            columns = [pa.array(of_file), names, rng.random(rows), rng.integers(0, 1000, rows).astype(np.int32)]
            writer.write(pa.table([pa.array(column) for column in columns], schema=schema))
            writer.commit()
    return ids[::rows]


@dataclass(frozen=True, slots=True)
class JavaLookups:
    java: JavaOracle
    warehouse: str
    ids: Sequence[int]

    def run(self) -> Sample:
        costs = []
        for wanted in self.ids:
            where = ["=", "id", wanted]
            *rows, cost = self.java.command("read", self.warehouse, NAME, where=where, timed=True)
            assert [row["id"] for row in rows] == [wanted]
            costs.append(cost)
        wall_s, cpu_s = (sum(cost[name] for cost in costs) for name in ("wall_s", "cpu_s"))
        return Sample(len(costs), wall_s, cpu_s, max(cost["peak_mib"] for cost in costs))


# ---------------------------------------------------------------- flush


def flush_sections(plan: Plan) -> Iterator[PageSection]:
    variant = FLUSHES["w1"][0]
    files = row_files("w1", plan.data, plan.scale)
    options = {"bucket": "1", "write-only": "true", "file.compression": "zstd"}
    indexes = {
        "a Bloom filter of the key": "id",
        "a Bloom filter of a text": "name",
    }
    rows = rows_per_commit("w1", plan.scale)
    contenders = {TIDELAKE: ours("flush", _flush_arguments(plan, files, variant.key, options))}
    for label, column in indexes.items():
        indexed = {
            "file-index.bloom-filter.columns": column,
            f"file-index.bloom-filter.{column}.items": str(rows),
        }
        contenders[label] = ours("flush", _flush_arguments(plan, files, variant.key, {**options, **indexed}))
    samples = contest(contenders, plan.pairs)
    targets = []
    for label in indexes:
        share = median_ratio(samples, TIDELAKE, label) - 1
        text = f"{label} costs ≤ {_FLUSH_SHARE_MAX:.0%} of a flush"
        targets.append(Goal(text, f"{share:.1%}", share <= _FLUSH_SHARE_MAX))
    about = (
        f"The flush of {variant.label}, {thousands(rows)} rows per commit, without an index, and with an index in a "
        "file next to each data file (items = the rows of a file, fpp = 0.1)."
    )
    yield PageSection(
        "Flush with a Bloom filter", about, RACE_HEADER, race_lines(variant.label, samples), targets, samples
    )


def _flush_arguments(
    plan: Plan, files: Sequence[str], key: Sequence[str], options: Mapping[str, str]
) -> Mapping[str, object]:
    warehouse = str(plan.scratch / "indexed-flush")
    return {"warehouse": warehouse, "files": files, "key": key, "key_as_text": False, "options": options}


# ---------------------------------------------------------------- the job


def look_up(warehouse: str, ids: Sequence[int], options: Mapping[str, str]) -> None:
    def one(wanted: int) -> None:
        table = tidelake.open_catalog(warehouse).table(NAME, options)
        found = table.scan(filter=col("id") == wanted).to_arrow()
        assert found["id"].to_pylist() == [wanted]

    one(ids[-1])
    clock = Clock()
    for wanted in ids:
        with clock:
            one(wanted)
    tell(len(ids), clock)


if __name__ == "__main__":
    look_up(**json.loads(sys.argv[1]))
