"""Tables with a primary key and deletion vectors: compaction marks replaced rows, and readers skip them without a
merge.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import tidelake
from tests.compaction.test_changelog_histories import LAYOUTS, OFTEN_COMPACTED, STEPS, new_table, write
from tests.support.changelog_fold import check_changelog
from tests.support.levels import examples
from tests.support.merge_engines import ENGINES, Engine, Rows
from tidelake.compaction.compact_manager import compact_manager_factory
from tidelake.compaction.scheduler import InlineScheduler
from tidelake.storage.commit.commit_message import Committable
from tidelake.storage.commit.table_commit import TableCommit
from tidelake.storage.maintenance.verify import inspect, verify
from tidelake.storage.model.snapshots.snapshot import SnapshotStore
from tidelake.storage.write.lookup.row_lookup import lookup_newest_rows
from tidelake.storage.write.memory_budget import MemoryBudget
from tidelake.storage.write.table_writer import TableWriter
from tidelake.table import Table

VECTORS: Final = {"deletion-vectors.enabled": "true"}
ALL_LEVELS: Final = {"deletion-vectors.merge-on-read": "true"}
# of other engines what was compacted together can be seen, and files differ in size with vectors
COMPARABLE: Final = [engine for engine in ENGINES if engine.is_associative and engine.name != "first-row"]
ALLOWED: Final = [(engine, producer) for engine in COMPARABLE for producer in ("none", "lookup")]


def rows_of(table: Table, **how: Any) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in table.scan(**how).to_arrow().to_pylist()), key=repr)


def with_all_levels(table: Table) -> Table:
    return Table(table.context.with_options(ALL_LEVELS))


@settings(max_examples=examples(20), phases=(Phase.explicit, Phase.generate))
@given(
    case=st.sampled_from(ALLOWED),
    layout=st.sampled_from(LAYOUTS),
    bitmap64=st.booleans(),
    keys=st.sampled_from([6, 60]),
    steps=STEPS,
    seed=st.integers(0, 2**32),
)
def test_a_table_with_deletion_vectors_equals_one_without(
    case: tuple[Engine, str],
    layout: Mapping[str, str],
    bitmap64: bool,
    keys: int,
    steps: list[tuple[str, int]],
    seed: int,
) -> None:
    """This holds for reads of all levels at any time, and for readers that skip level 0 after a compaction."""
    engine, producer = case
    options = {"bucket": "1", **OFTEN_COMPACTED, **engine.options, **layout}
    form = {"deletion-vectors.bitmap64": str(bitmap64).lower()}
    table = new_table({**options, **VECTORS, **form, "changelog-producer": producer})
    model = new_table({**options, "force-lookup": "true"})
    histories = [(table, Rows(engine, Random(seed), keys)), (model, Rows(engine, Random(seed), keys))]
    for what, count in steps:
        for one, rows in histories:
            if what.endswith("job"):
                one.compact(full=what == "full job")
            else:
                write(one, rows, count, write_only=what == "leave to a job")
        expected = rows_of(model)
        assert rows_of(with_all_levels(table)) == expected
        if what != "leave to a job":
            assert rows_of(table) == expected
    table.compact(full=True)
    table.compact(full=True)
    assert not any(split.deletion_files for split in table.scan().splits()), "all marked rows are gone"
    if producer == "lookup":
        check_changelog(table)
    assert verify(table.context, deep=True) == []


# ---------------------------------------------------------------- one key


COLUMNS: Final = pa.schema([pa.field("k", pa.int32(), nullable=False), ("v", pa.int64()), ("t", pa.string())])
NO_REWRITE: Final = {
    "num-sorted-run.compaction-trigger": "50",
    "num-levels": "6",
    "compaction.max-size-amplification-percent": "100000000",
}


def small_table(**options: str) -> Table:
    """With a thousand rows on the highest level, that no commit of a few rows rewrites."""
    catalog = tidelake.open_catalog(f"memory://{uuid4()}/lake")
    catalog.create_database("db")
    named = {key.replace("__", ".").replace("_", "-"): value for key, value in options.items()}
    table = catalog.create_table(
        "db.t", COLUMNS, primary_key=["k"], options={"bucket": "1", **VECTORS, **NO_REWRITE, **named}
    )
    with table.writer() as writer:
        writer.write(pa.table({"k": range(1000), "v": [100] * 1000, "t": ["base"] * 1000}, schema=COLUMNS))
        writer.commit()
    table.compact(full=True)
    return table


def change(k: int, v: int | None, t: str | None = None, kind: int = 0) -> pa.Table:
    rows = pa.table({"k": [k], "v": [v], "t": [t]}, schema=COLUMNS)
    return rows.append_column("_VALUE_KIND", pa.array([kind], pa.int8()))


def changes_of(table: Table, start: int) -> list[tuple[int, int | None]]:
    """Kind and v of each changelog row, snapshot by snapshot."""
    found = [row for batch in table.changes(start=start) for row in batch.rows.to_pylist()]
    return [(row["_VALUE_KIND"], row["v"]) for row in found]


def test_the_older_row_is_marked_in_its_file_and_readers_do_not_merge() -> None:
    table = small_table()
    with table.writer() as writer:
        writer.write(change(7, 200))
        writer.commit()
    splits = table.scan().splits()
    assert all(split.raw_convertible for split in splits)
    (marked,) = [deletion for split in splits for deletion in split.deletion_files.values()]
    assert marked.vector.cardinality == 1
    assert sorted(file.level for split in splits for file in split.files) == [4, 5]
    assert rows_of(table, filter=tidelake.col("k") == 7) == [(7, 200, None)]
    assert len(rows_of(table, filter=tidelake.col("v") == 100)) == 999
    assert not inspect(table.context, deep=True).findings


def test_level_0_rows_wait_for_compaction_unless_all_levels_are_requested() -> None:
    table = small_table(write_only="true")
    with table.writer() as writer:
        writer.write(change(7, 200))
        writer.commit()
    seven = tidelake.col("k") == 7
    assert rows_of(table, filter=seven) == [(7, 100, "base")]
    assert rows_of(with_all_levels(table), filter=seven) == [(7, 200, None)]
    latest = SnapshotStore(table.context.io, table.context.paths).latest()
    found, rows = lookup_newest_rows(
        table.context, latest, pa.RecordBatch.from_pydict({"k": pa.array([7, 8], pa.int32())})
    )
    assert (found.tolist(), rows.column("v").to_pylist()) == ([True, True], [200, 100])
    table.compact()
    assert rows_of(table, filter=seven) == [(7, 200, None)]


def test_a_deleted_key_leaves_no_row_and_no_delete() -> None:
    table = small_table()
    with table.writer() as writer:
        writer.write(change(7, None, kind=3))
        writer.commit()
    assert rows_of(table, filter=tidelake.col("k") == 7) == []
    splits = table.scan().splits()
    assert [file.level for split in splits for file in split.files] == [5]
    assert len(rows_of(table)) == 999


def test_several_compactions_in_one_commit_leave_one_index_file() -> None:
    table = small_table(write_buffer_spillable="false")
    compactions = list[object]()
    factory = compact_manager_factory(InlineScheduler(), listener=lambda *done: compactions.append(done))
    writer = TableWriter(table.context, memory=MemoryBudget(1), compactor_factory=factory)  # flushes each write
    for v in (200, 300, 400):
        for k in (7, v // 100):
            writer.write(change(k, v))
    TableCommit(table.context, "etl").commit(Committable(1, writer.prepare_commit(1)))
    writer.abort()
    assert len(compactions) > 1
    assert rows_of(table, filter=tidelake.col("k") == 7) == [(7, 400, None)]
    report = inspect(table.context, deep=True)
    assert not report.findings
    assert report.orphans is not None
    assert not report.orphans.young


# ---------------------------------------------------------------- where Java's stale lookups go wrong


def life_of_a_key(table: Table) -> None:
    """Update, delete and insert of one key, by one writer. It reads the file of the base before
    the row there is marked.
    """
    with table.writer(commit_user="etl") as writer:
        for number, row in enumerate((change(7, 150, "b"), change(7, 150, "b", kind=3), change(7, 200)), start=1):
            writer.write(row)
            writer.commit(number)


def test_an_insert_after_a_delete_is_an_insert_in_the_changelog() -> None:
    """apache/paimon issue 8204: Java emits -U of the deleted row, and +U."""
    table = small_table(changelog_producer="lookup")
    start = len(table.snapshots()) + 1
    life_of_a_key(table)
    assert changes_of(table, start) == [(1, 100), (2, 150), (3, 150), (0, 200)]
    check_changelog(table)


@pytest.mark.parametrize("producer", ["none", "lookup"])
def test_a_sum_starts_over_after_a_delete(producer: str) -> None:
    """Java makes it 301: the deleted row is added once more."""
    options = {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"}
    table = small_table(**{**options, "aggregation.remove-record-on-delete": "true"}, changelog_producer=producer)
    life_of_a_key(table)
    assert rows_of(table, filter=tidelake.col("k") == 7, columns=["v"]) == [(200,)]


@pytest.mark.parametrize("producer", ["none", "lookup"])
def test_a_deleted_value_does_not_reappear_in_a_null_column(producer: str) -> None:
    options = {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"}
    table = small_table(**options, changelog_producer=producer)
    life_of_a_key(table)
    assert rows_of(table, filter=tidelake.col("k") == 7) == [(7, 200, None)]


def test_an_update_to_the_same_values_is_no_change_where_rows_are_deduplicated_and_no_row_is_lost() -> None:
    """apache/paimon issue 5724: with row-deduplicate, the row itself got lost."""
    table = small_table(**{"changelog-producer": "lookup", "changelog-producer.row-deduplicate": "true"})
    start = len(table.snapshots()) + 1
    with table.writer() as writer:
        writer.write(change(7, 100, "base"))
        writer.commit()
    assert changes_of(table, start) == []
    assert rows_of(table, filter=tidelake.col("k") == 7) == [(7, 100, "base")]
    table.compact(full=True)
    assert len(rows_of(table)) == 1000
