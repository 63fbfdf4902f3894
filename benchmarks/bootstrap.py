"""Measures the first load of a table: a bootstrap, and beside it commits of a writer that end with a full compaction.

As a program this module runs one of the jobs: the public API, with the rows in memory before the clock starts.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

import tidelake
from benchmarks.clock import Clock, bytes_below, tell
from benchmarks.contest import TIDELAKE, Sample, contest, ours
from benchmarks.rows import keys_of, with_keys
from benchmarks.runs import TABLE, WARM_UP_TABLE
from benchmarks.sections import RACE_HEADER, Goal, PageSection, Plan, at_least, race_lines

_ROWS: Final = 3_000_000
_COMMIT_ROWS: Final = 100_000
_WARM_UP_ROWS: Final = 1_000
_ORDINARY: Final = "commits and a full compaction"
_DUMPS: Final = {
    "by key": {"changelog-producer": "none"},
    "by key, with a changelog by lookup": {"changelog-producer": "lookup"},
    "shuffled": {"changelog-producer": "none"},
}


def sections(plan: Plan) -> Iterator[PageSection]:
    rows = int(_ROWS * plan.scale)
    lines: list[list[str]] = []
    targets: list[Goal] = []
    samples: dict[str, Sequence[Sample]] = {}
    for dump, options in _DUMPS.items():
        about = {"rows": rows, "by_key": dump != "shuffled", "options": options}
        found = contest(
            {
                TIDELAKE: ours("bootstrap", {"what": "bootstrap", "warehouse": str(plan.scratch / "b"), **about}),
                _ORDINARY: ours("bootstrap", {"what": "ordinary", "warehouse": str(plan.scratch / "o"), **about}),
            },
            plan.fewer_pairs,
        )
        lines += race_lines(f"dump {dump}", found)
        targets += at_least(f"dump {dump}", found, 2, _ORDINARY)
        written = {name: statistics.median(one.details["data_bytes"] for one in of) for name, of in found.items()}
        share = written[TIDELAKE] / written[_ORDINARY]
        targets.append(Goal(f"dump {dump}: bytes of files ≤ half", f"{share:.2f} ×", share <= 0.5))
        samples |= {f"{dump}, {name}": one for name, one in found.items()}
    text = (
        f"A dump of {rows:,} rows with the columns of `w1`, into an empty table with two buckets. `{TIDELAKE}` is "
        "`table.bootstrap`. Its peer is a writer of the same release that commits every 100,000 rows, as a pipeline "
        "does, compacts beside it, and is followed by a full compaction. File bytes are those of all data and "
        "changelog files that were written. The rows are in memory before the clock starts."
    )
    yield PageSection("The first load of a table", text, RACE_HEADER, lines, targets, samples)


# ---------------------------------------------------------------- the jobs


def bootstrap(warehouse: str, rows: int, by_key: bool, options: dict[str, str]) -> None:
    clock = Clock()
    for name, count in ((WARM_UP_TABLE, _WARM_UP_ROWS), (TABLE, rows)):
        clock, dump = Clock(), _dump(count, by_key=by_key)
        table = _new_table(warehouse, name, dump[0].schema, options)
        with clock:
            table.bootstrap(pa.RecordBatchReader.from_batches(dump[0].schema, dump))
    _tell(warehouse, rows, clock)


def ordinary(warehouse: str, rows: int, by_key: bool, options: dict[str, str]) -> None:
    clock = Clock()
    for name, count in ((WARM_UP_TABLE, _WARM_UP_ROWS), (TABLE, rows)):
        clock, dump = Clock(), _dump(count, by_key=by_key)
        table = _new_table(warehouse, name, dump[0].schema, options)
        with clock:
            with table.writer(commit_user="bench") as writer:
                for identifier, batch in enumerate(dump, 1):
                    writer.write(batch)
                    writer.commit(identifier)
            table.compact(full=True)
    _tell(warehouse, rows, clock)


def _dump(rows: int, *, by_key: bool) -> list[pa.RecordBatch]:
    rng = np.random.default_rng(13)
    keys = keys_of(np.arange(rows))
    keys = np.sort(keys) if by_key else rng.permutation(keys)
    whole = with_keys(rng, keys)
    schema = pa.schema([whole.schema.field(0).with_nullable(False), *list(whole.schema)[1:]])
    batches: list[pa.RecordBatch] = whole.cast(schema).combine_chunks().to_batches(_COMMIT_ROWS)
    return batches


def _new_table(warehouse: str, name: str, schema: pa.Schema, options: dict[str, str]) -> tidelake.Table:
    catalog = tidelake.open_catalog(warehouse)
    catalog.create_database("bench", if_not_exists=True)
    if name in catalog.list_tables("bench"):
        catalog.drop_table(f"bench.{name}")
    return catalog.create_table(f"bench.{name}", schema, primary_key=["id"], options={"bucket": "2", **options})


def _tell(warehouse: str, rows: int, clock: Clock) -> None:
    folder = f"{warehouse}/bench.db/{TABLE}"
    tell(rows, clock, data_bytes=bytes_below(folder, "data-") + bytes_below(folder, "changelog-"))


if __name__ == "__main__":
    arguments = json.loads(sys.argv[1])
    {"bootstrap": bootstrap, "ordinary": ordinary}[arguments.pop("what")](**arguments)
