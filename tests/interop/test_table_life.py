"""Operations of Java besides writing (tags, branches, rollback, expiry, new schemas), as our readers and writers see
them.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest

import tidelake
from tests.interop.conftest import NewTable
from tests.interop.layouts import Layout, append, primary_key
from tests.interop.shared_table import KIND, NAME, Reader, SharedTable, changes, values
from tests.support.expected import difference

LAYOUT: Final = primary_key(
    "different buckets", ["int", "string"], options={"bucket": "2", "num-sorted-run.compaction-trigger": "3"}
)


@pytest.fixture
def table(new_table: NewTable) -> SharedTable:
    return made(new_table, LAYOUT)


def made(new_table: NewTable, layout: Layout) -> SharedTable:
    return new_table(layout.columns, primary_key=layout.key, partition_by=layout.partition, options=layout.options)


# ---------------------------------------------------------------- states that have a name


def test_a_tag_of_java_keeps_our_rows_when_their_snapshot_has_expired(table: SharedTable) -> None:
    table.write(LAYOUT.rows(range(10)))
    then = table.ours.scan().to_arrow()
    table.java.tag(table.warehouse, NAME, "first", snapshot=1)
    table.write(LAYOUT.rows(range(5, 20), turn=1))
    table.java_writes(LAYOUT.rows(range(8, 12), turn=2))
    table.java_compacts(full=True)
    table.java.expire(table.warehouse, NAME, retain_max=1, retain_min=1)
    assert difference(table.ours.scan(tag="first").to_arrow(), values(changeless(then))) is None
    assert table.ours.tags().keys() == {"first"}
    with pytest.raises(tidelake.SnapshotExpired, match="snapshot 1 no longer exists"):
        table.ours.scan(snapshot=1)
    table.check()


def test_a_branch_of_java_is_read_and_written_here(table: SharedTable) -> None:
    table.write(LAYOUT.rows(range(10)))
    table.java.tag(table.warehouse, NAME, "first")
    table.java.branch(table.warehouse, NAME, "dev", tag="first")
    branch = tidelake.open_catalog(str(table.warehouse)).table(f"{NAME}$branch_dev")
    with branch.writer() as writer:
        writer.write(LAYOUT.rows(range(8, 12), turn=3))
        writer.commit()
    table.java.write(table.warehouse, NAME, changes(LAYOUT.rows([11, 12], turn=4)), branch="dev")
    found = branch.scan().to_arrow()
    assert found.num_rows == 13
    assert difference(found, values(table.java.read(table.warehouse, NAME, branch="dev"))) is None
    table.check()  # the table itself is as it was


def test_a_consumer_of_ours_protects_snapshots_from_javas_expiry(table: SharedTable) -> None:
    for turn in range(4):
        table.write(LAYOUT.rows(range(5), turn=turn))
    follower = table.ours.follower(start=2, consumer="reader")
    step = follower.step()
    assert step is not None
    assert [batch.snapshot_id for batch in step] == [2, 2]
    newest = table.ours.snapshots()[-1].id
    table.java.expire(table.warehouse, NAME, retain_max=1, retain_min=1)
    assert [snapshot.id for snapshot in table.ours.snapshots()] == list(range(3, newest + 1))
    (consumer,) = table.java.system(table.warehouse, NAME, "consumers")
    assert consumer == {"consumer_id": "reader", "next_snapshot_id": 3}


# ---------------------------------------------------------------- while a writer of ours is open


@contextmanager
def open_writer(table: SharedTable, first: pa.Table) -> Iterator[tidelake.Writer]:
    """A writer that has made one commit, with identifier 1."""
    with table.ours.writer(commit_user="etl") as writer:
        writer.write(first)
        assert writer.commit(1) is not None
        table.model.write(changes(first))
        yield writer


def test_a_writer_continues_while_java_compacts(table: SharedTable) -> None:
    with open_writer(table, LAYOUT.rows(range(20))) as writer:
        for identifier in range(2, 6):
            rows = LAYOUT.rows(range(identifier, 25, identifier), turn=identifier)
            writer.write(rows)
            table.java_compacts(full=identifier % 2 == 0)
            assert writer.commit(identifier) is not None
            table.model.write(changes(rows))
            table.check([Reader.JAVA])
    table.check_history()


def test_rows_of_a_writer_overtaken_by_java_are_newer_than_those_of_java(table: SharedTable) -> None:
    """Both continue the same sequence numbers: ours are written again, behind Java's."""
    with open_writer(table, LAYOUT.rows(range(20))) as writer:
        table.java_writes(LAYOUT.rows(range(20), turn=1))
        rows = LAYOUT.rows(range(20), turn=2)
        writer.write(rows)
        assert writer.commit(2) is not None
        table.model.write(changes(rows))
    table.check()


def test_a_writer_continues_after_java_wrote_to_another_bucket(new_table: NewTable) -> None:
    layout = primary_key("partitioned", ["int"], partition=["boolean"])
    table = made(new_table, layout)
    true, false = (row_filter(layout.rows(range(40), turn=1), truth) for truth in (True, False))
    with open_writer(table, true) as writer:
        table.java_writes(false)
        writer.write(true)
        assert writer.commit(2) is not None
        table.model.write(changes(true))
    table.check()


def test_both_write_to_one_bucket_when_a_sequence_field_orders_rows(new_table: NewTable) -> None:
    layout = primary_key("ordered", ["int", "string"], options={"sequence.field": "int"})
    table = made(new_table, layout)

    def rows(version: int) -> pa.Table:
        plain = layout.rows(range(20), turn=version)
        return plain.set_column(1, "int", pa.array([version] * 20, pa.int32()))

    with open_writer(table, rows(1)) as writer:
        table.java_writes(rows(3))
        writer.write(rows(2))  # late: Java's rows stay
        assert writer.commit(2) is not None
        table.check()
        writer.write(rows(4))
        assert writer.commit(3) is not None
        table.model.write(changes(rows(4)))
    table.check()


def test_a_writer_gets_an_error_when_java_replaced_its_snapshot(table: SharedTable, tmp_path: Path) -> None:
    """Java's commit to a disk looks whether the id is free, and then moves its file there, over what came in between.

    The moment between can't be hit from outside: Java commits to a copy of the table, which is then laid over ours.
    """
    copy = tmp_path / "copy"
    with open_writer(table, LAYOUT.rows(range(20))) as writer:
        shutil.copytree(table.warehouse, copy)
        writer.write(LAYOUT.rows(range(5), turn=1))
        assert writer.commit(2) == 2
        theirs = changes(LAYOUT.rows(range(5, 10), turn=2))
        assert table.java.write(copy, NAME, theirs, commit_user="java") == 2
        shutil.copytree(copy, table.warehouse, dirs_exist_ok=True)
        table.model.write(theirs)
        writer.write(LAYOUT.rows(range(10, 15), turn=3))
        with pytest.raises(
            tidelake.CommitConflict, match="snapshot 2, which this writer committed, was replaced by one of java"
        ):
            writer.commit(3)
    table.check()
    lost_and_new = pa.concat_tables([LAYOUT.rows(range(5), turn=1), LAYOUT.rows(range(10, 15), turn=3)])
    assert table.write(lost_and_new, identifier=2) == 3
    table.check()


def test_a_writer_of_an_append_table_is_unaffected_by_java(new_table: NewTable) -> None:
    layout = append("rows", ["int", "string"])
    table = made(new_table, layout)
    with open_writer(table, layout.rows(range(5))) as writer:
        for identifier in (2, 3):
            table.java_writes(layout.rows(range(7), turn=identifier))
            table.java_compacts(full=True)
            writer.write(layout.rows(range(3), turn=identifier))
            assert writer.commit(identifier) is not None
            table.model.write(changes(layout.rows(range(3), turn=identifier)))
    table.check()


def test_a_writer_detects_that_java_rolled_back_its_commit(table: SharedTable) -> None:
    table.java_writes(LAYOUT.rows(range(5)))
    at_first = table.ours.scan().to_arrow()
    with table.ours.writer(commit_user="etl") as writer:
        writer.write(LAYOUT.rows(range(10), turn=1))
        assert writer.commit(1) == 2
        table.java.rollback(table.warehouse, NAME, snapshot=1)
        writer.write(LAYOUT.rows(range(10), turn=2))
        with pytest.raises(tidelake.TidelakeError, match="snapshot 2"):
            writer.commit(2)
    assert table.ours.scan().to_arrow().equals(at_first)
    assert [snapshot.id for snapshot in table.ours.snapshots()] == [1]
    table.write(LAYOUT.rows(range(10), turn=2), identifier=1)  # rolled back: identifier 1 is unknown
    table.check()


def test_a_writer_continues_after_java_expired_all_earlier_snapshots(table: SharedTable) -> None:
    with open_writer(table, LAYOUT.rows(range(20))) as writer:
        for identifier in (2, 3, 4):
            rows = LAYOUT.rows(range(20), turn=identifier)
            writer.write(rows)
            assert writer.commit(identifier) is not None
            table.model.write(changes(rows))
            table.java.expire(table.warehouse, NAME, retain_max=1, retain_min=1)
    table.check()


def test_a_writer_with_the_previous_schema_continues_to_write_it(table: SharedTable) -> None:
    with open_writer(table, LAYOUT.rows(range(10))) as writer:
        table.java.alter(
            table.warehouse, NAME, [{"add": {"name": "n", "type": "INT"}}, {"rename": {"name": "string", "to": "s"}}]
        )
        rows = LAYOUT.rows(range(5, 15), turn=1)
        writer.write(rows)
        assert writer.commit(2) is not None
        table.model.write(changes(rows))
    table.model.change(
        ["k", "int", "s", "n"],
        lambda row: {"k": row["k"], "int": row["int"], "s": row["string"], "n": None},
        keys=["k"],
    )
    table.check()
    table.java_writes(
        pa.table({"k": pa.array([3], pa.int32()), "int": pa.array([3], pa.int32()), "n": pa.array([4], pa.int32())})
    )
    table.java_compacts(full=True)
    table.check()


def row_filter(rows: pa.Table, truth: bool) -> pa.Table:
    return rows.filter(pa.array([value is truth for value in rows.column("boolean").to_pylist()]))


def changeless(rows: pa.Table) -> list[dict[str, object]]:
    assert KIND not in rows.schema.names
    return [{name: value for name, value in row.items() if name != "_kind"} for row in changes(rows)]
