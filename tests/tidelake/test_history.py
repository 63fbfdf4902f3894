"""Tags, branches, rollbacks and orphans, as users create and delete them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import tidelake
from tests.support.command_line import Call
from tidelake.storage.commit.expire.retained_states import state_lists
from tidelake.storage.maintenance.verify import inspect

SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.int64())])


@pytest.fixture
def table(tmp_path: Path) -> tidelake.Table:
    """Three commits of key 1, with watermarks 10, 20, 30."""
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("db")
    table = catalog.create_table("db.t", SCHEMA, primary_key=["k"], options={"bucket": "1", "write-only": "true"})
    for value in (1, 2, 3):
        commit(table, value)
    return table


def commit(table: tidelake.Table, value: int) -> None:
    with table.writer() as writer:
        writer.write(pa.table({"k": [1], "v": [value]}, SCHEMA))
        writer.commit(watermark=value * 10)


def value_of(table: tidelake.Table, **at: object) -> int:
    (row,) = table.scan(**at).to_arrow().to_pylist()  # type: ignore[arg-type]
    return int(row["v"])


def branch_of(table: tidelake.Table, name: str) -> tidelake.Table:
    catalog = tidelake.open_catalog(str(Path(table.location).parent.parent))
    return catalog.table(f"db.t$branch_{name}")


def files_of(table: tidelake.Table) -> set[Path]:
    return {path for path in Path(table.location).rglob("*") if path.is_file()}


def test_a_tag_keeps_its_snapshot_until_it_is_deleted(table: tidelake.Table) -> None:
    table.create_tag("first", snapshot=1)
    table.compact(full=True)
    table.expire(retain_min=1, retain_max=1, retain_ms=0)
    assert value_of(table, tag="first") == 1
    before = files_of(table)
    assert table.delete_tag("first") == len(before - files_of(table)) - 1 > 0  # and the tag's own
    assert value_of(table) == 3
    with pytest.raises(tidelake.BadInput, match="no tag 'first'"):
        table.delete_tag("first")


def test_a_tag_without_its_files_can_be_deleted(table: tidelake.Table, caplog: pytest.LogCaptureFixture) -> None:
    """A put without an answer may create the tag when its snapshot has expired."""
    table.create_tag("late", snapshot=1)
    table.expire(retain_min=1, retain_max=1, retain_ms=0)
    context = table.context
    for manifest_list in state_lists(context.tags.get("late")):
        context.io.delete(context.paths.manifest(manifest_list.name))
    table = tidelake.open_catalog(str(Path(context.location).parents[1])).table(table.name)  # with empty caches
    assert table.delete_tag("late") == 0
    assert list(table.tags()) == []
    assert "files of a deleted tag stay, for the orphan cleaner" in caplog.text


def test_deleting_a_tag_of_an_existing_snapshot_deletes_no_file(table: tidelake.Table) -> None:
    table.create_tag("a", snapshot=2)
    assert table.delete_tag("a") == 0
    assert value_of(table, snapshot=2) == 2


def test_each_of_two_tags_keeps_its_snapshot(table: tidelake.Table) -> None:
    table.create_tag("a", snapshot=1)
    table.expire(retain_min=1, retain_max=1, retain_ms=0)
    table.create_tag("b", snapshot=1)
    assert table.delete_tag("a") == 0
    assert value_of(table, tag="b") == 1


def test_a_tag_is_renamed_and_replaced(table: tidelake.Table) -> None:
    table.create_tag("a", snapshot=1)
    table.rename_tag("a", "b")
    assert list(table.tags()) == ["b"]
    table.replace_tag("b")
    assert value_of(table, tag="b") == 3
    for name, snapshot in (("b", None), (" ", None), ("c", 9)):
        with pytest.raises(tidelake.BadInput):
            table.create_tag(name, snapshot=snapshot)


def test_tags_expire_after_their_retention(table: tidelake.Table) -> None:
    table.create_tag("short", retain=timedelta(0))
    table.create_tag("long", retain=timedelta(days=1))
    table.create_tag("for ever")
    assert table.expire_tags(dry_run=True) == ["short"]
    assert table.expire_tags() == ["short"]
    assert table.expire_tags(older_than=datetime.now() + timedelta(hours=1)) == ["for ever"]
    assert list(table.tags()) == ["long"]


def test_a_branch_starts_at_its_tag_or_snapshot(table: tidelake.Table) -> None:
    table.create_tag("first", snapshot=1)
    table.create_branch("of_tag", tag="first")
    table.create_branch("of_snapshot", snapshot=2)
    table.create_branch("empty")
    assert table.branches() == ["empty", "of_snapshot", "of_tag"]
    assert value_of(branch_of(table, "of_tag")) == 1
    assert value_of(branch_of(table, "of_snapshot")) == 2
    assert branch_of(table, "empty").snapshots() == []
    with pytest.raises(tidelake.BadInput, match="already"):
        table.create_branch("empty")
    with pytest.raises(tidelake.BadInput):
        table.create_branch("123")


def test_files_of_a_branch_are_kept_when_the_table_expires(table: tidelake.Table) -> None:
    table.create_branch("b", snapshot=1)
    table.compact(full=True)
    table.expire(retain_min=1, retain_max=1, retain_ms=0)
    assert value_of(branch_of(table, "b")) == 1


def test_fast_forward_makes_the_table_equal_to_the_branch(table: tidelake.Table) -> None:
    table.create_tag("second", snapshot=2)
    table.create_branch("b", tag="second")
    commit(branch_of(table, "b"), 7)
    table.create_tag("late", snapshot=3)
    assert table.fast_forward("b").id == 3
    assert value_of(table) == 7
    assert list(table.tags()) == ["second"]
    assert [snapshot.id for snapshot in table.snapshots()] == [1, 2, 3]
    table.delete_branch("b")
    assert table.branches() == []
    assert value_of(table) == 7
    commit(table, 8)
    assert value_of(table) == 8


def test_after_another_branch_was_taken_a_fast_forward_leaves_none_of_its_snapshots(table: tidelake.Table) -> None:
    """Snapshot 2 would be the other branch's, and snapshot 3 would not follow it."""
    table.create_tag("first", snapshot=1)
    table.create_tag("third", snapshot=3)
    table.create_branch("one", tag="first")
    table.create_branch("other", tag="third")
    for value in (11, 12, 13):
        commit(branch_of(table, "one"), value)
    table.fast_forward("one")
    assert [snapshot.id for snapshot in table.snapshots()] == [1, 2, 3, 4]
    commit(branch_of(table, "other"), 21)
    assert table.fast_forward("other").id == 4
    assert value_of(table) == 21
    assert [snapshot.id for snapshot in table.snapshots()] == [3, 4]
    assert inspect(table.context).problems == []
    commit(table, 22)
    assert [change.snapshot_id for change in table.changes(start=3)] == [3, 4, 5]


def test_snapshots_that_a_branch_was_created_from_stay_also_after_a_rollback_to_its_tag(table: tidelake.Table) -> None:
    table.create_tag("second", snapshot=2)
    table.create_branch("b", tag="second")
    table.rollback(tag="second")
    commit(branch_of(table, "b"), 7)
    table.fast_forward("b")
    assert [snapshot.id for snapshot in table.snapshots()] == [1, 2, 3]
    assert inspect(table.context).problems == []


@pytest.mark.parametrize(
    ("to", "value", "gone"),
    [({"snapshot": 2}, 2, [3]), ({"tag": "first"}, 1, [2, 3]), ({"watermark": 25}, 2, [3]), ({"as_of": 2**42}, 3, [])],
)
def test_a_table_is_rolled_back(table: tidelake.Table, to: dict[str, object], value: int, gone: Sequence[int]) -> None:
    table.create_tag("first", snapshot=1)
    table.create_tag("last", snapshot=3)
    assert list(table.rollback(**to, dry_run=True).snapshots) == gone  # type: ignore[arg-type]
    assert value_of(table) == 3
    table.rollback(**to)  # type: ignore[arg-type]
    assert value_of(table) == value
    assert ("last" in table.tags()) == (value == 3)
    commit(table, 9)
    assert value_of(table) == 9


def test_a_table_is_rolled_back_to_a_snapshot_kept_only_by_a_tag(table: tidelake.Table) -> None:
    table.create_tag("first", snapshot=1)
    table.expire(retain_min=1, retain_max=1, retain_ms=0)
    table.rollback(tag="first")
    assert [snapshot.id for snapshot in table.snapshots()] == [1]
    commit(table, 4)
    assert value_of(table) == 4
    with pytest.raises(tidelake.BadInput, match="takes one of"):
        table.rollback()


def test_orphans_are_deleted_when_old_enough(table: tidelake.Table) -> None:
    live = files_of(table)
    orphan = Path(table.location) / "bucket-0" / "data-0-orphan.parquet"
    orphan.write_bytes(b"1234")
    assert table.clean_orphans().paths == ()
    found = table.clean_orphans(older_than_ms=-0, dry_run=True)
    assert (found.paths, found.size_bytes) == ((str(orphan),), 4)
    assert orphan.exists()
    table.rollback(snapshot=2)
    assert len(table.clean_orphans(older_than_ms=0).paths) > 1
    assert not orphan.exists()
    assert files_of(table) < live
    assert value_of(table) == 2


def test_no_orphan_is_deleted_while_metadata_is_unreadable(table: tidelake.Table) -> None:
    orphan = Path(table.location) / "bucket-0" / "data-0-orphan.parquet"
    orphan.write_bytes(b"1234")
    Path(table.context.paths.manifest(table.snapshots()[0].delta_manifest_list)).write_bytes(b"broken")
    with pytest.raises(tidelake.CorruptFile, match="to know what is named"):
        table.clean_orphans(older_than_ms=0)
    assert orphan.exists()


def test_a_system_table_cannot_be_tagged(table: tidelake.Table) -> None:
    files = tidelake.open_catalog(str(Path(table.location).parent.parent)).table("db.t$files")
    with pytest.raises(tidelake.BadInput, match="is a system table: it can't be tagged"):
        files.create_tag("a")
    with pytest.raises(tidelake.BadInput, match="is a system table: it can't be rolled back"):
        files.rollback(snapshot=1)


@pytest.mark.parametrize(
    ("arguments", "member"),
    [
        (["tag", "create", "db.t", "a", "--retain", "1 h"], {"tag": "a", "snapshot": 3}),
        (["branch", "create", "db.t", "b"], {"branch": "b"}),
        (["rollback", "db.t", "--snapshot", "1", "--dry-run"], {"snapshots": [2, 3], "changelogs": [], "tags": []}),
        (["orphans", "db.t", "--older-than", "0 s", "--dry-run"], {"paths": [], "size_bytes": 0, "young": 0}),
        (["tag", "expire", "db.t"], {"expired": []}),
    ],
)
def test_history_commands_work(
    call: Call, table: tidelake.Table, arguments: list[str], member: dict[str, object]
) -> None:
    answer = call("table", *arguments, "--warehouse", str(Path(table.location).parent.parent), "--json")
    assert json.loads(answer.out) == member


def test_a_branch_is_renamed(table: tidelake.Table) -> None:
    commit(table, 1)
    table.create_branch("dev", snapshot=1)
    table.create_branch("other")
    table.rename_branch("dev", "next")
    assert table.branches() == ["next", "other"]
    assert value_of(branch_of(table, "next")) == 1
    for name, new_name, why in [("dev", "x", "no branch 'dev'"), ("next", "other", "already has a branch 'other'")]:
        with pytest.raises(tidelake.BadInput, match=why):
            table.rename_branch(name, new_name)
    with pytest.raises(tidelake.BadInput):
        table.rename_branch("next", "main")
