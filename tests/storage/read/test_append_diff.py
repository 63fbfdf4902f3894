"""The difference of two states of a table without a primary key, and ranges of tags of every kind of table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidelake
from tests.support.java_oracle import JavaOracle
from tests.support.levels import examples
from tidelake.storage.model.format import KIND_COLUMN, RowKind

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.list_(pa.float64()))])
Rows = Counter[tuple[int, str]]


def add(table: tidelake.Table, keys: Sequence[int], of_each: float = 0.5) -> None:
    with table.writer() as writer:
        writer.write(pa.table({"k": keys, "v": [[key * of_each, None] for key in keys]}, SCHEMA))
        writer.commit()


def counted(rows: Sequence[dict[str, Any]]) -> Rows:
    return Counter((row["k"], repr(row["v"])) for row in rows)


def turned(before: Rows, table: tidelake.Table, between: tuple[str | int, str | int]) -> Rows:
    """The state before, after the changes of the difference."""
    rows = Counter(before)
    for change in table.changes(between=between, between_mode="diff"):
        for row in change.rows.to_pylist():
            sign = -1 if row[KIND_COLUMN] == RowKind.DELETE else 1
            rows[row["k"], repr(row["v"])] += sign
    assert min(rows.values(), default=0) >= 0, "a row went that was not there"
    return +rows


STEPS = st.lists(
    st.one_of(
        st.lists(st.integers(0, 3), min_size=1, max_size=4),
        st.sampled_from(["compact", "delete", "overwrite"]),
    ),
    min_size=2,
    max_size=6,
)


@settings(max_examples=examples(50))
@given(steps=STEPS, bucket=st.sampled_from(["-1", "2"]), vectors=st.booleans(), data=st.data())
def test_a_difference_turns_one_state_into_the_other(
    steps: list[list[int] | str], bucket: str, vectors: bool, data: st.DataObject
) -> None:
    catalog = tidelake.open_catalog("memory://append-differences/lake")
    catalog.create_database("db")
    try:
        keys = {"bucket-key": "k"} if bucket == "2" else {}
        options = {"bucket": bucket, "deletion-vectors.enabled": str(vectors).lower(), **keys}
        table = catalog.create_table("db.t", SCHEMA, options=options)
        add(table, [0, 1, 1])
        for step in steps:
            match step:
                case "compact":
                    table.compact(full=True)
                case "delete" if vectors and bucket == "-1":
                    table.delete(pc.field("k") == 1)
                case "overwrite":
                    with table.writer(overwrite=True) as writer:
                        writer.write(pa.table({"k": [1, 2], "v": [[0.5, None], None]}, SCHEMA))
                        writer.commit()
                case list():
                    add(table, step)
        last = table.snapshots()[-1].id
        ends = sorted(data.draw(st.tuples(st.integers(1, last), st.integers(1, last))))
        states = [counted(table.scan(snapshot=end).to_arrow().to_pylist()) for end in ends]
        assert turned(states[0], table, (ends[0], ends[1])) == states[1]
        came = counted(table.scan(between=(ends[0], ends[1]), between_mode="diff").to_arrow().to_pylist())
        assert came == states[1] - states[0]
    finally:
        catalog.drop_database("db", cascade=True)


@pytest.fixture
def catalog(tmp_path: Path) -> tidelake.Catalog:
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("db")
    return catalog


def test_rows_between_two_tags_are_those_that_came_whatever_a_compaction_rewrote(catalog: tidelake.Catalog) -> None:
    table = catalog.create_table("db.t", SCHEMA)
    for day in (1, 2, 3):
        add(table, [day])
        table.create_tag(f"day-{day}")
    table.compact(full=True)
    table.create_tag("compacted")
    table.expire(retain_max=1, retain_min=1, retain_ms=0)
    for tag in ("day-3", "compacted"):
        assert sorted(table.scan(between=("day-1", tag)).to_arrow()["k"].to_pylist()) == [2, 3]
    assert list(table.changes(between=("day-3", "compacted"))) == []


def test_java_reads_the_same_rows_between_two_tags(
    catalog: tidelake.Catalog, tmp_path: Path, java_oracle: JavaOracle
) -> None:
    append = catalog.create_table("db.append", SCHEMA)
    keyed = {"bucket": "1", "deletion-vectors.enabled": "true"}
    waiting = catalog.create_table("db.waiting", SCHEMA, primary_key=["k"], options={**keyed, "write-only": "true"})
    compacted = catalog.create_table("db.compacted", SCHEMA, primary_key=["k"], options=keyed)
    options = {"bucket": "-2", "postpone.batch-write-fixed-bucket": "false"}
    postponed = catalog.create_table("db.postponed", SCHEMA, primary_key=["k"], options=options)
    for table in (append, waiting, compacted, postponed):
        add(table, [1, 2])
        if table is postponed:
            table.compact()
        table.create_tag("one")
        add(table, [2, 3], 0.25)
        table.create_tag("two", snapshot=3 if table is compacted else None)  # an APPEND snapshot
        ours = table.scan(between=("one", "two")).to_arrow()["k"].to_pylist()
        theirs = java_oracle.read(tmp_path, table.name, options={"incremental-between": "one,two"})
        assert sorted(ours) == sorted(row["k"] for row in theirs), table.name


@pytest.mark.parametrize("key", [[], ["k"]], ids=["without a key", "with a key"])
@pytest.mark.parametrize("mode", ["auto", "delta", "changelog", "diff"])
def test_a_range_of_an_empty_table_has_no_rows(key: list[str], mode: str, catalog: tidelake.Catalog) -> None:
    table = catalog.create_table("db.t", SCHEMA, primary_key=key)
    assert list(table.changes(between=(1, 7), between_mode=mode)) == []
    assert table.scan(between=(1, 7), between_mode=mode).to_arrow().num_rows == 0


def test_the_audit_log_of_a_difference_names_what_went_and_what_came(catalog: tidelake.Catalog) -> None:
    options = {"deletion-vectors.enabled": "true"}
    table = catalog.create_table("db.t", SCHEMA, options=options)
    add(table, [1, 2])
    table.create_tag("one")
    table.delete(pc.field("k") == 2)
    add(table, [3])
    table.create_tag("two")
    rows = catalog.table("db.t$audit_log").scan(between=("one", "two")).to_arrow().to_pylist()
    assert [(row["rowkind"], row["k"]) for row in rows] == [("-D", 2), ("+I", 3)]
