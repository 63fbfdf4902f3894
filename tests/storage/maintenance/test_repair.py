"""Only lost files are removed from a table. A purged table is empty and sound."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import tidelake
from tests.support.java_oracle import JavaOracle
from tidelake.storage.commit.manifests.manifest_file_meta import ManifestFileMeta
from tidelake.storage.commit.manifests.manifest_store import ManifestStore
from tidelake.storage.commit.manifests.snapshot_files import table_manifests
from tidelake.storage.maintenance import repair

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.string())])


@pytest.fixture
def table(tmp_path: Path) -> tidelake.Table:
    """Three commits, a row and a file each."""
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("db")
    options = {"bucket": "1", "write-only": "true", "manifest.merge-min-count": "100"}
    table = catalog.create_table("db.t", SCHEMA, primary_key=["id", "day"], partition_by=["day"], options=options)
    for number in (1, 2, 3):
        write(table, number)
    return table


def write(table: tidelake.Table, number: int) -> None:
    with table.writer(commit_user="u") as writer:
        writer.write(pa.table({"id": [number], "day": ["mon" if number < 3 else "tue"]}, SCHEMA))
        writer.commit(number)


def ids(table: tidelake.Table) -> list[int]:
    found: list[int] = sorted(reopened(table).scan().to_arrow().column("id").to_pylist())
    return found


def reopened(table: tidelake.Table) -> tidelake.Table:
    return tidelake.open_catalog(str(Path(table.location).parent.parent)).table(table.name)


def data_file(table: tidelake.Table, number: int) -> Path:
    """Of the commit with this number."""
    files = tidelake.open_catalog(str(Path(table.location).parent.parent)).table(f"{table.name}$files")
    (path,) = files.scan(snapshot=number, filter=tidelake.col("min_key") == f"[{number}]").to_arrow()["file_path"]
    return Path(path.as_py())


def manifest_of(table: tidelake.Table, snapshot: int) -> Path:
    before = {m.file_name for m in manifests(table, snapshot - 1)}
    (name,) = (m.file_name for m in manifests(table, snapshot) if m.file_name not in before)
    return Path(table.location, "manifest", name)


def manifests(table: tidelake.Table, snapshot: int) -> list[ManifestFileMeta]:
    return table_manifests(table.context.shared(ManifestStore), table.context.snapshots.get(snapshot))


def test_a_table_without_lost_files_is_not_changed(table: tidelake.Table) -> None:
    assert table.remove_missing_files() == []
    assert table.remove_missing_manifests() == []
    assert len(table.snapshots()) == 3


def test_lost_files_are_removed_and_the_others_are_readable(table: tidelake.Table, java_oracle: JavaOracle) -> None:
    lost = data_file(table, 2)
    lost.unlink()
    with pytest.raises(tidelake.TidelakeError):
        ids(table)
    assert table.remove_missing_files(dry_run=True) == [str(lost)]
    assert len(table.snapshots()) == 3
    assert table.remove_missing_files() == [str(lost)]
    assert ids(table) == [1, 3]
    assert table.snapshots()[-1].commit_kind.value == "OVERWRITE"
    javas = java_oracle.read(Path(table.location).parent.parent, table.name)
    assert sorted(row["id"] for row in javas) == [1, 3]
    write(table, 4)
    assert ids(table) == [1, 3, 4]


def test_a_bucket_without_its_directory_is_removed_completely(table: tidelake.Table) -> None:
    bucket = data_file(table, 1).parent
    for number in (1, 2):
        data_file(table, number).unlink()
    bucket.rmdir()
    assert len(table.remove_missing_files()) == 2
    assert ids(table) == [3]


def test_a_lost_manifest_is_removed_with_the_files_it_added(table: tidelake.Table, java_oracle: JavaOracle) -> None:
    lost = manifest_of(table, 2)
    lost.unlink()
    again = reopened(table)
    assert again.remove_missing_manifests(dry_run=True) == [lost.name]
    assert again.remove_missing_manifests() == [lost.name]
    assert ids(table) == [1, 3]
    newest = again.snapshots()[-1]
    assert (newest.id, newest.total_record_count, newest.delta_record_count) == (4, 2, 0)
    javas = java_oracle.read(Path(table.location).parent.parent, table.name)
    assert sorted(row["id"] for row in javas) == [1, 3]
    write(again, 5)
    assert ids(table) == [1, 3, 5]


def test_files_revived_by_a_lost_manifest_are_removed_next(table: tidelake.Table) -> None:
    """The lost manifest deleted them, and expiry took them; the third one was only raised, and is read again."""
    table.compact(full=True)
    table.expire(retain_min=1, retain_max=1, retain_ms=0)
    newest = table.snapshots()[-1].id
    before = [m.file_name for m in manifests(table, newest)]
    Path(table.location, "manifest", before[-1]).unlink()
    again = reopened(table)
    assert again.remove_missing_manifests() == [before[-1]]
    assert len(again.remove_missing_files()) == 2
    assert ids(table) == [3]


def test_a_concurrent_commit_is_a_conflict(table: tidelake.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest_of(table, 2).unlink()
    again = reopened(table)

    class Losing:
        def commit(self, *_: object) -> bool:
            return False

    monkeypatch.setattr(repair, "snapshot_commit_of", lambda _: Losing())
    files = len(list(Path(table.location, "manifest").iterdir()))
    with pytest.raises(tidelake.CommitConflict, match="try again"):
        again.remove_missing_manifests()
    assert len(list(Path(table.location, "manifest").iterdir())) == files


def test_a_purged_table_has_no_rows_and_no_history(table: tidelake.Table, java_oracle: JavaOracle) -> None:
    table.create_tag("kept", snapshot=1)
    table.create_branch("dev", snapshot=2)
    follower = table.follow(start="earliest", consumer="c")
    next(iter(follower))
    table.purge()
    assert ids(table) == []
    assert (len(table.snapshots()), table.tags(), table.branches()) == (1, {}, [])
    left = [p for p in Path(table.location).rglob("*") if p.is_file() and p.parent.name not in ("schema", "snapshot")]
    assert {path.parent.name for path in left} <= {"manifest"}
    assert java_oracle.read(Path(table.location).parent.parent, table.name) == []
    table.purge()
    write(table, 9)
    assert ids(table) == [9]


def test_a_table_without_snapshots_can_be_purged(tmp_path: Path) -> None:
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("db")
    table = catalog.create_table("db.empty", SCHEMA)
    table.purge()
    assert table.snapshots() == []
