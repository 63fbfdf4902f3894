"""`Table.writer`: what is left when it is closed."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import tidelake

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False)])


def test_a_writer_that_cannot_drop_its_rows_drops_the_files_of_a_failed_commit_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("db")
    table = catalog.create_table("db.t", COLUMNS, primary_key=["id"])
    slow = table.writer(commit_user="slow")
    slow.write(pa.table({"id": [1]}, COLUMNS))
    with table.writer(commit_user="quick") as quick:
        quick.write(pa.table({"id": [2]}, COLUMNS))
        quick.commit()
    with pytest.raises(tidelake.CommitConflict):
        slow.commit()

    def fail() -> None:
        raise PermissionError(13, "not allowed")

    monkeypatch.setattr(slow._writer, "abort", fail)
    with pytest.raises(PermissionError):
        slow.close()
    named = {file.file_name for split in table.scan().splits() for file in split.files}
    assert {path.name for path in tmp_path.rglob("data-*")} == named
    assert slow._expiry.is_closing
