"""After any history of a table, the changes up to a snapshot with a changelog add up to the table."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Final
from uuid import uuid4

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import tidelake
from tests.support.changelog_fold import check_changelog
from tests.support.levels import examples
from tests.support.merge_engines import ENGINES, KIND, SCHEMA, Engine, Rows
from tidelake.storage.maintenance.verify import verify
from tidelake.table import Table
from tidelake.writer import Writer

OFTEN_COMPACTED: Final = {
    "num-sorted-run.compaction-trigger": "2",
    "num-levels": "5",
    "file.format": "avro",  # without the large footers that make all files one size
    "compaction.max-size-amplification-percent": "1000000",
    "snapshot.num-retained.min": "1000",
}
LAYOUTS: Final[tuple[Mapping[str, str], ...]] = (
    {},
    {"bucket": "2"},
    {"target-file-row-num": "5", "compaction.small-file-ratio": "0", "target-file-size": "1 kb"},
    {"compaction.max-size-amplification-percent": "50", "num-levels": "3"},
    {"lookup.cache-max-disk-size": "0 b"},
    {"lookup.cache-max-disk-size": "4 kb", "lookup.cache-max-memory-size": "0 b"},
    {"lookup.cache.bloom.filter.enabled": "false", "data-file.thin-mode": "true"},
)
PRODUCERS: Final = ("lookup", "full-compaction")
ALLOWED: Final = [
    pytest.param(engine, producer, id=f"{engine.about}, {producer}")
    for engine in ENGINES
    for producer in PRODUCERS
    if not (engine.name == "first-row" and producer == "full-compaction")
]
# (what happens, to how many rows)
STEPS: Final = st.lists(
    st.tuples(st.sampled_from(["commit", "commit", "commit", "leave to a job", "job", "full job"]), st.integers(1, 30)),
    min_size=3,
    max_size=9,
)


@pytest.mark.exhaustive(kept=3)
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("engine", "producer"), ALLOWED)
def test_applying_the_changelog_gives_the_table(engine: Engine, producer: str) -> None:
    reported = 0

    @settings(max_examples=examples(6))  # 36 tables of them
    @given(
        layout=st.sampled_from(LAYOUTS),
        deduplicates=st.booleans(),
        keys=st.sampled_from([6, 60]),
        steps=STEPS,
        seed=st.integers(0, 2**32),
    )
    @example(layout=LAYOUTS[0], deduplicates=False, keys=60, steps=[("commit", 30)] * 3, seed=0)
    def check(
        layout: Mapping[str, str], deduplicates: bool, keys: int, steps: list[tuple[str, int]], seed: int
    ) -> None:
        nonlocal reported
        row_deduplicate = {"changelog-producer.row-deduplicate": str(deduplicates).lower()}
        producing = {"changelog-producer": producer, **row_deduplicate}
        table = new_table({"bucket": "1", **OFTEN_COMPACTED, **engine.options, **producing, **layout})
        rows = Rows(engine, Random(seed), keys)
        for what, count in steps:
            if what.endswith("job"):
                table.compact(full=what == "full job")
            else:
                write(table, rows, count, write_only=what == "leave to a job")
        table.compact(full=True)
        reported_now = check_changelog(table)
        assert reported_now or table.scan().to_arrow().num_rows == 0
        reported += reported_now
        assert verify(table.context) == []

    check()
    assert reported


def new_table(options: Mapping[str, str]) -> Table:
    catalog = tidelake.open_catalog(f"memory://{uuid4().hex}/lake")
    catalog.create_database("db")
    columns = pa.schema([field.with_nullable(field.name != "k") for field in SCHEMA if field.name != KIND])
    return catalog.create_table("db.t", columns, primary_key=["k"], options=options)


def write(table: Table, rows: Rows, count: int, *, write_only: bool) -> None:
    """Several commits of one writer."""
    context = table.context.with_options({"write-only": "true"}) if write_only else table.context
    with Writer(context, "etl") as writer:
        for start in range(0, count, 10):
            writer.write(rows.batch(min(10, count - start)))
            writer.commit()
