"""Expiry on one branch keeps everything readable that any branch still references."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import tidelake
from tests.storage.commit.expire.branched_table_model import BranchedLife
from tidelake import Table
from tidelake.errors import SnapshotExpired
from tidelake.storage.commit.expire.retention import Retention
from tidelake.storage.fileio.memory import MemoryFileIO
from tidelake.storage.maintenance.verify import Severity, inspect

# Changelogs live longer than snapshots; the numbers themselves are drawn.
OUTLIVING = {
    "snapshot.num-retained.min": "1",
    "snapshot.num-retained.max": "1",
    "changelog.num-retained.min": "2",
    "changelog.num-retained.max": "2",
}
TABLES = [
    pytest.param({}, id="no changelog"),
    pytest.param({"changelog-producer": "input"}, id="changelog of the input"),
    pytest.param(OUTLIVING, id="deltas outlive their snapshots"),
    pytest.param({**OUTLIVING, "changelog-producer": "input"}, id="changelogs outlive their snapshots"),
]
ONE = Retention(num_min=1, num_max=1, time_ms=0, limit=1000)


def new_life(seed: int, options: dict[str, str], *, is_tame: bool = False) -> BranchedLife:
    return BranchedLife(MemoryFileIO(), f"memory://{uuid.uuid4()}/t", seed, options, is_tame=is_tame)


def live(life: BranchedLife, steps: int) -> None:
    for _ in range(steps):
        life.step()
        try:
            life.check()
        except Exception as error:
            error.add_note("; ".join(life.done))
            raise
    report = inspect(life.main.table)
    assert report.problems == []


@pytest.mark.parametrize("options", TABLES)
@pytest.mark.parametrize("seed", [1, pytest.param(3, marks=pytest.mark.interop)])
def test_all_retained_states_are_readable_after_each_step_with_branches(options: dict[str, str], seed: int) -> None:
    live(new_life(seed, options), steps=50)


@pytest.mark.long
@pytest.mark.parametrize("options", TABLES)
@pytest.mark.parametrize("seed", range(100, 130))
def test_all_retained_states_are_readable_in_many_longer_histories(options: dict[str, str], seed: int) -> None:
    live(new_life(seed, options), steps=100)


@pytest.mark.parametrize("options", TABLES)
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.interop)])
def test_files_referenced_by_no_branch_are_deleted(options: dict[str, str], seed: int) -> None:
    life = new_life(seed, options, is_tame=True)
    live(life, steps=30)
    for line in (*life.lines.values(), *life.lines.values()):
        life.expire_to(line, ONE, ONE)
    life.check()
    report = inspect(life.main.table, orphans_older_than_ms=-(10**15))
    assert report.orphans is not None
    assert report.orphans.paths == ()


# ---------------------------------------------------------------- rows, through public names


def write(table: Table, key: int) -> None:
    with table.writer() as writer:
        writer.write(pa.table({"id": [key], "v": [key]}))
        writer.commit()


def change_counts(table: Table) -> list[int]:
    return [change.rows.num_rows for change in table.changes(start=1)]


def branched_table(folder: Path, producer: str, *, before_branch: int = 0) -> tuple[Table, Table]:
    """Main, and a branch of a tag on its first snapshot, laid out as Java does. before_branch: rounds of main."""
    catalog = tidelake.open_catalog(str(folder))
    catalog.create_database("d")
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])
    options = {"bucket": "1", "changelog-producer": producer, "write-only": "true", **OUTLIVING}
    main = catalog.create_table("d.t", columns, primary_key=["id"], options=options)
    write(main, 1)
    root = Path(main.location)
    (root / "tag").mkdir()
    shutil.copy(root / "snapshot/snapshot-1", root / "tag/tag-g")
    for key in range(100, 100 + before_branch):
        write(main, key)
        main.expire()
    branch = root / "branch/branch-b"
    shutil.copytree(root / "schema", branch / "schema")
    (branch / "snapshot").mkdir()
    (branch / "tag").mkdir()
    shutil.copy(root / "tag/tag-g", branch / "snapshot/snapshot-1")
    shutil.copy(root / "tag/tag-g", branch / "tag/tag-g")
    return main, catalog.table("d.t$branch_b")


@pytest.mark.parametrize("producer", ["none", "input"])
@pytest.mark.parametrize("keeps_tag", [True, False], ids=["tag kept", "tag deleted"])
@pytest.mark.parametrize("active", ["main", "branch"])
def test_changelogs_that_expire_on_one_side_keep_the_other_side_complete(
    tmp_path: Path, producer: str, keeps_tag: bool, active: str
) -> None:
    main, branch = branched_table(tmp_path, producer)
    writing, resting = (main, branch) if active == "main" else (branch, main)
    if not keeps_tag:
        Path(writing.context.paths.tag("g")).unlink()
    for key in (5, 6, 7, 8):
        write(writing, key)
        writing.expire()
        assert resting.scan().to_arrow().to_pylist() == [{"id": 1, "v": 1}]
        assert resting.scan(tag="g").to_arrow().num_rows == 1
        assert change_counts(resting) == [1]
        assert inspect(main.context).problems == []
    assert writing.scan().to_arrow().num_rows == 5


def test_a_branch_of_a_tag_whose_changelog_expired_is_sound(tmp_path: Path) -> None:
    """The table at the tag is whole; its changelog expired with the snapshot."""
    main, branch = branched_table(tmp_path, "input", before_branch=5)
    report = inspect(main.context)
    assert [finding.check for finding in report.findings] == ["changelog-expired"]
    assert [finding.severity for finding in report.findings] == [Severity.NOTE]
    assert report.orphans is not None
    with pytest.raises(SnapshotExpired, match="before branch b got the snapshot from a tag"):
        change_counts(branch)
    write(branch, 2)
    assert [change.rows.num_rows for change in branch.changes(start=2)] == [1]
    assert branch.scan().to_arrow().num_rows == 2
    assert inspect(main.context).problems == []


def bring_back_by_a_rollback_of_java(table: Table) -> None:
    """Ours leaves out the changelog."""
    root = Path(table.location)
    for path in (root / "snapshot").iterdir():
        path.unlink()
    shutil.copy(root / "tag/tag-g", root / "snapshot/snapshot-1")


def bring_back_by_fast_forward(table: Table) -> None:
    table.fast_forward("b")


@pytest.mark.parametrize("bring_back", [bring_back_by_a_rollback_of_java, bring_back_by_fast_forward])
def test_main_is_sound_with_a_tag_s_snapshot_whose_changelog_expired_also_without_the_tag(
    tmp_path: Path, bring_back: Callable[[Table], None]
) -> None:
    main, _ = branched_table(tmp_path, "input", before_branch=5)
    bring_back(main)
    main.delete_branch("b")
    main.delete_tag("g")
    report = inspect(main.context)
    assert [(finding.check, finding.severity) for finding in report.findings] == [("changelog-expired", Severity.NOTE)]
    write(main, 2)
    assert [change.rows.num_rows for change in main.changes(start=2)] == [1]
    assert inspect(main.context).problems == []


def test_a_lost_required_changelog_is_a_problem(tmp_path: Path) -> None:
    """That of a first snapshot could have expired before the snapshot came here from a tag."""
    main, _ = branched_table(tmp_path, "input")
    write(main, 2)
    name = main.snapshots()[-1].changelog_manifest_list
    assert name is not None
    Path(main.context.paths.manifest(name)).unlink()
    assert [finding.check for finding in inspect(main.context).problems] == ["manifest-unreadable"]
