"""Merged branches: rows added in one branch are added to the other once, if both branches only added rows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest

import tidelake
from tests.support.java_oracle import JavaOracle

SCHEMA = pa.schema([("id", pa.int64())])


def new_table(folder: Path, options: Mapping[str, str] | None = None) -> tidelake.Table:
    catalog = tidelake.open_catalog(str(folder))
    catalog.create_database("db")
    return catalog.create_table("db.t", SCHEMA, options={"bucket": "-1", "write-only": "true", **(options or {})})


def branch(table: tidelake.Table, name: str) -> tidelake.Table:
    return tidelake.open_catalog(str(Path(table.location).parent.parent)).table(f"{table.name}$branch_{name}")


def add(table: tidelake.Table, *ids: int) -> None:
    with table.writer(commit_user="u") as writer:
        writer.write(pa.table({"id": ids}, SCHEMA))
        writer.commit()


def ids(table: tidelake.Table) -> list[int]:
    found: list[int] = sorted(table.scan().to_arrow().column("id").to_pylist())
    return found


@pytest.fixture
def parted(tmp_path: Path) -> tidelake.Table:
    """1 and 2, then a branch `dev` that adds 10 while the table adds 3."""
    table = new_table(tmp_path)
    add(table, 1)
    add(table, 2)
    table.create_branch("dev", snapshot=2)
    add(branch(table, "dev"), 10)
    add(table, 3)
    return table


def test_rows_of_both_branches_exist_once(parted: tidelake.Table, java_oracle: JavaOracle, tmp_path: Path) -> None:
    assert parted.merge_branch("dev") == 4
    assert ids(parted) == [1, 2, 3, 10]
    assert parted.merge_branch("dev") is None
    add(branch(parted, "dev"), 11)
    parted.merge_branch("dev")
    assert ids(parted) == [1, 2, 3, 10, 11]
    assert sorted(row["id"] for row in java_oracle.read(tmp_path, "db.t")) == [1, 2, 3, 10, 11]


def test_a_branch_is_brought_up_to_date_with_main(parted: tidelake.Table) -> None:
    dev = branch(parted, "dev")
    dev.merge_branch("main")
    assert ids(dev) == [1, 2, 3, 10]
    assert ids(parted) == [1, 2, 3]
    parted.merge_branch("dev")
    assert ids(parted) == [1, 2, 3, 10]


def test_merged_files_survive_the_deletion_of_their_branch(parted: tidelake.Table) -> None:
    parted.merge_branch("dev")
    parted.delete_branch("dev")
    parted.expire(retain_min=1, retain_max=1, retain_ms=0)
    parted.clean_orphans(older_than_ms=0)
    assert ids(parted) == [1, 2, 3, 10]


def test_a_branch_created_empty_is_merged_completely(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    add(table, 1)
    table.create_branch("fresh")
    add(branch(table, "fresh"), 7)
    table.merge_branch("fresh")
    assert ids(table) == [1, 7]


def test_a_branch_compacted_since_the_fork_is_refused(parted: tidelake.Table) -> None:
    """Its rows of before would be there twice."""
    dev = branch(parted, "dev")
    dev.compact(full=True)
    with pytest.raises(tidelake.BadInput, match="snapshot 4 of 'dev' is COMPACT"):
        parted.merge_branch("dev")
    assert ids(parted) == [1, 2, 3]


def test_compactions_before_the_fork_are_accepted(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    add(table, 1)
    add(table, 2)
    table.compact(full=True)
    table.create_branch("dev", snapshot=3)
    add(branch(table, "dev"), 10)
    table.merge_branch("dev")
    assert ids(table) == [1, 2, 10]


def test_a_merge_is_refused_if_the_common_snapshot_expired(parted: tidelake.Table) -> None:
    parted.expire(retain_min=1, retain_max=1, retain_ms=0)
    with pytest.raises(tidelake.BadInput, match=r"no common snapshot, and '(dev|main)' begins with"):
        parted.merge_branch("dev")


def test_refusals_name_the_reason(parted: tidelake.Table, tmp_path: Path) -> None:
    with pytest.raises(tidelake.BadInput, match="has no branch 'nothing'; its branches are: dev"):
        parted.merge_branch("nothing")
    with pytest.raises(tidelake.BadInput, match="it is the same branch"):
        parted.merge_branch("main")
    parted.create_branch("fresh")
    with pytest.raises(tidelake.BadInput, match="'fresh' has no snapshot"):
        parted.merge_branch("fresh")
    tidelake.open_catalog(str(tmp_path)).alter_table("db.t", [tidelake.AddColumn("more", "INT")])
    with pytest.raises(tidelake.BadInput, match="columns differ"):
        tidelake.open_catalog(str(tmp_path)).table("db.t").merge_branch("dev")


def test_tables_with_a_primary_key_are_refused(tmp_path: Path) -> None:
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("db")
    table = catalog.create_table("db.t", SCHEMA, primary_key=["id"], options={"bucket": "1"})
    add(table, 1)
    table.create_branch("dev", snapshot=1)
    with pytest.raises(tidelake.BadInput, match="primary key"):
        table.merge_branch("dev")
