"""A power cut before any system call of a table's life on a local disk."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.crash.points import Points
from tests.crash.table_life import COMPACT_AT_TWO, EXPIRE_ALL_BUT_ONE, NAME, Life, TableKind, look
from tests.support.faulty_file_io import ProcessDied
from tests.support.model_disk import Kept, ModelDisk
from tidelake.storage.fileio.local import LocalFileIO

APPEND = TableKind("append", False, {"bucket": "-1"}, commits=2)
CHANGELOG = TableKind("changelog", True, {"bucket": "1", "changelog-producer": "input"}, commits=4)

EXPIRING = TableKind("expiring", False, {"bucket": "-1", **EXPIRE_ALL_BUT_ONE}, commits=4)
COMPACTING = TableKind("compacting", True, {"bucket": "1", **COMPACT_AT_TWO}, commits=4)
LONG = [pytest.mark.long, pytest.mark.timeout(900)]


@pytest.mark.exhaustive
@pytest.mark.parametrize("keeps_names", [True, False], ids=["fsync keeps names", "fsync as in POSIX"])
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(APPEND, id="append"),
        *(pytest.param(kind, id=kind.id, marks=LONG) for kind in (CHANGELOG, EXPIRING, COMPACTING)),
    ],
)
def test_committed_rows_survive_and_uncommitted_rows_are_not_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, points: Points, kind: TableKind, keeps_names: bool
) -> None:
    number, is_whole = 0, False
    while not is_whole:
        root = tmp_path / f"{number}"
        root.mkdir()
        life = Life(LocalFileIO(), f"{root}/lake", kind)
        with monkeypatch.context() as patches:
            disk = ModelDisk(root, patches, keeps_names=keeps_names)
            disk.dies_before = number
            try:
                life.run()
                is_whole = True
            except ProcessDied:
                pass
        where = f"before step {number}, after {disk.steps[-3:]}"
        for kept in Kept:
            disk.after_power_cut(kept, tmp_path / f"{number}-{kept.name}")
            warehouse = f"{tmp_path}/{number}-{kept.name}/lake"
            found = look(LocalFileIO(), warehouse)
            assert not found.problems, (where, kept)
            assert len(found.identifiers) >= len(life.acknowledged), (where, kept)
            assert found.rows == kind.after(found.identifiers), (where, kept)
            points.tried(f"power cut, {kept.name.lower()}")
        Life(LocalFileIO(), warehouse, kind).run()
        found = look(LocalFileIO(), warehouse)
        assert found.identifiers == list(range(1, kind.commits + 1)), where
        assert found.rows == kind.after(found.identifiers), where
        disk.close()
        number += 1
    assert number > 50


@pytest.mark.parametrize(
    ("kind", "allowed"), [pytest.param(APPEND, 5, id="append"), pytest.param(CHANGELOG, 7, id="with a changelog")]
)
def test_a_commit_needs_few_fsyncs_beyond_one_per_data_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: TableKind, allowed: int
) -> None:
    """A changelog needs two more fsyncs, for its manifest and its manifest list."""
    disk = ModelDisk(tmp_path, monkeypatch, keeps_names=True)
    Life(LocalFileIO(), f"{tmp_path}/lake", kind).run()
    table = f"lake/{NAME.replace('.', '.db/')}"
    kinds = Counter("data" if "bucket-" in path else "metadata" for path in disk.fsyncs if path.startswith(table))
    assert kinds["data"] == kind.commits * (2 if kind is CHANGELOG else 1)
    assert kinds["metadata"] == kind.commits * allowed + 2  # and those of the table's schema
    disk.close()
