"""Work that begins at the newest snapshot goes on at a newer one if others replace and expire it meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

import tidelake
from tests.support.faulty_file_io import Call, Fault, FaultyFileIO
from tidelake import Table
from tidelake.catalog import Catalog
from tidelake.compaction.postpone_compaction import postponed_files
from tidelake.ingest.monitoring.table_levels import TableLevelsReader
from tidelake.storage.catalog.filesystem import FileSystemCatalog
from tidelake.storage.fileio.local import LocalFileIO
from tidelake.storage.maintenance.partition_done import partitions_like

NAME: Final = "db.t"
_COLUMNS: Final = pa.schema([("id", pa.int64()), ("day", pa.string()), ("v", pa.int64())])
_BEFORE: Final = [{"id": 1, "day": "2026-01-01", "v": 1}, {"id": 2, "day": "2026-01-02", "v": 1}]
_AFTER: Final = [{"id": 2, "day": "2026-01-02", "v": 2}, {"id": 3, "day": "2026-01-01", "v": 2}]


def _write(table: Table) -> None:
    table.upsert([{"id": 4, "day": "2026-01-01", "v": 3}])


def _add(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [*rows, {"id": 4, "day": "2026-01-01", "v": 3}]


def _same(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return rows


@pytest.mark.parametrize(
    ("options", "key", "act", "expected"),
    [
        pytest.param({"bucket": "1"}, ["id", "day"], _write, _add, id="a write, fixed buckets"),
        pytest.param({"bucket": "-1"}, ["id", "day"], _write, _add, id="a write, dynamic buckets"),
        pytest.param(
            {"bucket": "1", "changelog-producer": "lookup"},
            ["id", "day"],
            _write,
            _add,
            id="a write that looks rows up",
        ),
        pytest.param({"bucket": "-2"}, ["id", "day"], lambda t: t.compact(), _same, id="postponed rows"),
        pytest.param(
            {"bucket": "-2"}, ["id", "day"], lambda t: postponed_files(t.context), _same, id="what is postponed"
        ),
        pytest.param({"bucket": "1"}, ["id", "day"], lambda t: t.compact(full=True), _same, id="a compaction"),
        pytest.param(
            {"bucket": "1", "partition.expiration-time": "3650 d", "partition.timestamp-formatter": "yyyy-MM-dd"},
            ["id", "day"],
            lambda t: t.expire_partitions(),
            _same,
            id="expiry of partitions",
        ),
        pytest.param(
            {"bucket": "1"},
            ["id", "day"],
            lambda t: t.delete("day = '2026-01-01'"),
            lambda rows: [row for row in rows if row["day"] != "2026-01-01"],
            id="a delete of a partition",
        ),
        pytest.param(
            {"bucket": "1"},
            ["id", "day"],
            lambda t: partitions_like(t.context, [{"day": "2026-01-02"}]),
            _same,
            id="done",
        ),
        pytest.param(
            {"bucket": "1"}, ["id", "day"], lambda t: TableLevelsReader(t.context).read(), _same, id="the levels"
        ),
    ],
)
def test_it_goes_on_at_a_newer_one(
    options: dict[str, str],
    key: list[str],
    act: Callable[[Table], object],
    expected: Callable[[list[dict[str, Any]]], list[dict[str, Any]]],
    tmp_path: Path,
) -> None:
    others = tidelake.open_catalog(str(tmp_path))
    others.create_database("db")
    theirs = others.create_table(NAME, _COLUMNS, primary_key=key, partition_by=["day"], options=options)
    theirs.append(_BEFORE)

    def replace_and_expire(call: Call) -> Fault | None:
        if call.name.startswith("read") and call.file_name.startswith("manifest-list-") and not replaced:
            replaced.append(call.file_name)
            theirs.overwrite(_AFTER)
            theirs.expire(retain_min=1, retain_max=1, retain_ms=0)
        return None

    replaced: list[str] = []
    io = FaultyFileIO(LocalFileIO())
    table = Catalog(FileSystemCatalog(io, str(tmp_path))).table(NAME)
    io.fault = replace_and_expire
    act(table)
    assert len(replaced) == 1
    theirs.compact(full=options["bucket"] != "-2")
    assert sorted(theirs.scan().to_arrow().to_pylist(), key=lambda row: row["id"]) == expected(_AFTER)
