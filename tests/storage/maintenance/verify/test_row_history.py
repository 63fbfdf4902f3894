"""Every version of a row, with its snapshot, its file and its merge."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import tidelake
from tidelake.row_origin import merge_description, writer_of
from tidelake.storage.maintenance.verify.row_history import row_history
from tidelake.storage.model.format import RowKind

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])
KINDED = SCHEMA.append(pa.field("_VALUE_KIND", pa.int8()))


@pytest.fixture
def table(tmp_path: Path) -> tidelake.Table:
    """Key 1: inserted, updated, both compacted (3), deleted, inserted again. Key 2 is written once, with each."""
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("db")
    options = {"bucket": "1", "changelog-producer": "input", "write-only": "true"}
    table = catalog.create_table("db.t", SCHEMA, primary_key=["id"], options=options)
    write(table, 1, 0, "a")
    write(table, 2, 2, "b")
    table.compact(full=True)
    write(table, 4, 3, "b")
    write(table, 5, 0, "c")
    return table


def write(table: tidelake.Table, number: int, kind: int, value: str) -> None:
    with table.writer(commit_user="etl") as writer:
        writer.write(pa.table({"id": [1, 2], "v": [value, str(number)], "_VALUE_KIND": [kind, 0]}, KINDED))
        writer.commit(number)


def test_every_version_of_a_row_is_returned_with_its_origin(table: tidelake.Table) -> None:
    history = row_history(table.context, {"id": 1})
    reported = [
        (v.snapshot and v.snapshot.id, v.kind.symbol, v.row["v"][0].as_py(), v.level, v.is_live, len(v.made_from))
        for v in history.versions
    ]
    highest = table.context.options.num_levels - 1
    assert reported == [
        (1, "+I", "a", 0, False, 0),
        (2, "+U", "b", 0, False, 0),
        (3, "+U", "b", highest, True, 2),
        (4, "-D", "b", 0, True, 0),
        (5, "+I", "c", 0, True, 0),
    ]
    assert [writer_of(version) for version in history.versions][:3] == ["append of etl"] * 2 + ["compaction of 2 files"]
    assert history.visible is not None
    assert history.visible.to_pylist() == [{"id": 1, "v": "c"}]
    number = history.versions[-1].sequence_number
    assert (
        merge_description(table.context, history) == f"deduplicate of 3 rows: the newest wins, sequence number {number}"
    )


def test_the_changelog_of_a_row_is_returned_too(table: tidelake.Table) -> None:
    changes = row_history(table.context, {"id": 1}).changes
    assert [(c.snapshot.id, c.kind, c.row["v"][0].as_py()) for c in changes] == [
        (1, RowKind.INSERT, "a"),
        (2, RowKind.UPDATE_AFTER, "b"),
        (4, RowKind.DELETE, "b"),
        (5, RowKind.INSERT, "c"),
    ]


def test_a_row_is_explained_as_of_a_snapshot(table: tidelake.Table) -> None:
    gone = row_history(table.context, {"id": 1}, 4)
    assert gone.visible is None
    assert len(gone.live) == 2
    compacted = row_history(table.context, {"id": 1}, 3)
    assert merge_description(table.context, compacted).startswith(
        "no merge: one row, of level 5, made by compaction of 2"
    )
    nowhere = row_history(table.context, {"id": 77})
    assert (nowhere.versions, nowhere.visible) == ([], None)
    assert merge_description(table.context, nowhere) == "no file of the snapshot holds the key"


def test_a_version_of_an_expired_snapshot_is_kept_without_its_origin(table: tidelake.Table) -> None:
    table.expire(retain_min=1, retain_max=1, retain_ms=0)
    history = row_history(table.context, {"id": 1})
    assert [version.snapshot and version.snapshot.id for version in history.versions] == [None, None, 5]
    assert writer_of(history.versions[0]) == "a snapshot that expired"


def test_an_invalid_key_is_refused(table: tidelake.Table) -> None:
    with pytest.raises(tidelake.BadInput, match="is identified by id; given: v"):
        row_history(table.context, {"v": "a"})
    with pytest.raises(tidelake.BadInput, match="snapshot 9"):
        row_history(table.context, {"id": 1}, 9)
