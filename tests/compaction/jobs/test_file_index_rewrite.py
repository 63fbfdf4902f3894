"""Existing files get the indexes of the current options, and unused indexes are deleted."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
import pytest

import tidelake
from tests.storage.files.test_file_indexes import kinds_in
from tests.support.command_line import Call
from tidelake import Catalog, CommitConflict, RemoveOption, SetOption, Table, col
from tidelake.errors import BadInput
from tidelake.storage.commit.table_commit import TableCommit
from tidelake.storage.files.data_file import DataFileMeta
from tidelake.storage.maintenance.verify import verify

SCHEMA: Final = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), pa.field("p", pa.int32(), nullable=False), ("v", pa.string())]
)
BESIDE: Final = {"file-index.in-manifest-threshold": "1 b"}


@pytest.fixture
def catalog() -> Catalog:
    opened = tidelake.open_catalog(f"memory://{uuid4().hex}/lake")
    opened.create_database("db")
    return opened


def new_table(catalog: Catalog, options: Mapping[str, str] | None = None, *, key: bool = True) -> Table:
    return catalog.create_table(
        "db.t",
        SCHEMA,
        primary_key=["id", "p"] if key else [],
        partition_by=["p"],
        options={"bucket": "1" if key else "-1", "metadata.stats-mode": "none", **BESIDE, **(options or {})},
    )


def commit(table: Table, first: int, partition: int = 1) -> None:
    ids = range(first, first + 10)
    with table.writer() as writer:
        writer.write(
            pa.table([pa.array(ids), pa.array([partition] * 10, pa.int32()), [f"v{i}" for i in ids]], schema=SCHEMA)
        )
        writer.commit()


def alter(catalog: Catalog, **options: str | None) -> Table:
    changes: list[Any] = [
        RemoveOption(f"file-index.{key}") if value is None else SetOption(f"file-index.{key}", value)
        for key, value in options.items()
    ]
    catalog.alter_table("db.t", changes)
    return catalog.table("db.t")


def files(table: Table) -> list[DataFileMeta]:
    return [file for split in table.scan().splits() for file in split.files]


def index_names(table: Table) -> set[str]:
    listing = [s.name for p in (1, 2) for s in table.context.io.list_directory(f"{table.location}/p={p}/bucket-0")]
    return {name for name in listing if name.endswith(".index")}


def kinds(table: Table, file: DataFileMeta) -> dict[str, list[str]]:
    if file.embedded_index is not None:
        return kinds_in(file.embedded_index)
    (name,) = file.extra_files
    return kinds_in(table.context.io.read(f"{table.location}/p=1/bucket-0/{name}"))


def bitmap_of(column: str) -> dict[str, str | None]:
    return {"bitmap.columns": column}


def test_file_indexes_are_added_and_removed(catalog: Catalog) -> None:
    commit(new_table(catalog), 0)
    table = alter(catalog, **bitmap_of("v"))
    before = files(table)
    found = table.rewrite_file_index()
    assert (found.checked, found.rewritten, found.snapshot_id) == (1, 1, 2)
    assert table.snapshots()[-1].commit_kind == "COMPACT"
    (file,) = files(table)
    assert file.file_name == before[0].file_name
    assert file.extra_files == (f"{file.file_name}.index",)
    assert kinds(table, file) == {"v": ["bitmap"]}
    assert table.scan(filter=col("v") == "v3").to_arrow().num_rows == 1
    assert table.rewrite_file_index().snapshot_id is None

    table = alter(catalog, **{"bitmap.columns": None, "range-bitmap.columns": "v", "bsi.columns": "id"})
    assert table.rewrite_file_index().rewritten == 1
    (file,) = files(table)
    assert file.extra_files == (f"{file.file_name}-1.index",)
    assert kinds(table, file) == {"v": ["range-bitmap"], "id": ["bsi"]}

    table = alter(catalog, **{"in-manifest-threshold": "1 mb"})
    assert table.rewrite_file_index().rewritten == 1
    assert [(f.extra_files, f.embedded_index is None) for f in files(table)] == [((), False)]

    table = alter(catalog, **{"range-bitmap.columns": None, "bsi.columns": None})
    assert table.rewrite_file_index().rewritten == 1
    assert [(f.extra_files, f.embedded_index) for f in files(table)] == [((), None)]
    assert verify(table.context) == []


def test_an_old_index_is_deleted_with_the_last_snapshot_tag_or_branch_that_references_it(catalog: Catalog) -> None:
    commit(new_table(catalog, {"file-index.bitmap.columns": "v"}), 0)
    (name,) = (file.file_name for file in files(catalog.table("db.t")))
    table = alter(catalog, **{"range-bitmap.columns": "v"})
    table.rewrite_file_index()
    assert index_names(table) == {f"{name}.index", f"{name}-1.index"}
    assert table.scan(snapshot=1, filter=col("v") == "v3").to_arrow().num_rows == 1
    commit(table, 100)
    table.expire(retain_max=1, retain_min=1, retain_ms=0)
    assert f"{name}.index" not in index_names(table)
    assert f"{name}-1.index" in index_names(table)
    assert table.scan(filter=col("v") == "v3").to_arrow().num_rows == 1
    assert verify(table.context) == []


def test_an_old_index_is_kept_while_a_tag_references_it(tmp_path: Path) -> None:
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("db")
    commit(new_table(catalog, {"file-index.bitmap.columns": "v"}), 0)
    tag = tmp_path / "db.db/t/tag/tag-kept"
    tag.parent.mkdir()
    tag.write_bytes((tmp_path / "db.db/t/snapshot/snapshot-1").read_bytes())
    table = alter(catalog, **{"range-bitmap.columns": "v"})
    table.rewrite_file_index()
    commit(table, 100)
    table.expire(retain_max=1, retain_min=1, retain_ms=0)
    assert table.scan(tag="kept", filter=col("v") == "v3").to_arrow().num_rows == 1
    assert len(index_names(table)) == 3
    assert verify(table.context) == []


def test_only_the_selected_partitions_are_read(catalog: Catalog) -> None:
    plain = new_table(catalog, key=False)
    commit(plain, 0, 1)
    commit(plain, 10, 2)
    table = alter(catalog, **bitmap_of("v"))
    dry = table.rewrite_file_index(where=col("p") == 2, dry_run=True)
    assert (dry.checked, dry.rewritten, dry.snapshot_id, index_names(table)) == (1, 1, None, set())
    assert table.rewrite_file_index(where=col("p") == 2).rewritten == 1
    assert [bool(file.extra_files) for file in files(table)] == [False, True]
    with pytest.raises(BadInput, match="can't select"):
        table.rewrite_file_index(where=col("v") == "v3")


def test_columns_renamed_or_changed_in_type_are_indexed(catalog: Catalog) -> None:
    commit(new_table(catalog), 0)
    catalog.alter_table("db.t", [tidelake.RenameColumn("v", "w"), tidelake.AddColumn("n", "INT")])
    table = alter(catalog, **bitmap_of("w,n"))
    assert table.rewrite_file_index().rewritten == 1
    assert kinds(table, files(table)[0]) == {"v": ["bitmap"]}
    assert table.scan(filter=col("w") == "nowhere").to_arrow().num_rows == 0
    assert [file.left_out for file in table.scan(filter=col("w") == "nowhere").explain()] == ["index"]


def test_a_lost_race_is_no_error_and_a_failed_commit_leaves_no_files(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(new_table(catalog), 0)
    table = alter(catalog, **bitmap_of("v"))
    publish = TableCommit.commit
    lost = [True]

    def losing(self: TableCommit, *arguments: Any, **named: Any) -> Any:
        if lost and lost.pop():
            raise CommitConflict("somebody was first")
        return publish(self, *arguments, **named)

    monkeypatch.setattr(TableCommit, "commit", losing)
    assert table.rewrite_file_index().snapshot_id == 2
    lost += [True] * 10
    table = alter(catalog, **bitmap_of("v,id"))
    with pytest.raises(CommitConflict):
        table.rewrite_file_index()
    assert index_names(table) == {f"{files(table)[0].file_name}.index"}
    assert verify(table.context) == []


def test_the_command_reports_the_changes(tmp_path: Path, call: Call) -> None:
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("db")
    commit(new_table(catalog), 0)
    alter(catalog, **bitmap_of("v"))
    arguments = ("table", "rewrite-file-index", "db.t", "-w", tmp_path)
    assert call(*arguments, "--dry-run").out == "1 of 1 files of db.t would get other indexes\n"
    assert call(*arguments).out == "1 of 1 files of db.t got other indexes: snapshot 2\n"
    assert call(*arguments, "--json").document == {"checked": 1, "rewritten": 0, "snapshot": None}
