"""A branch is whole, or it can't be opened: whatever interrupts its creation."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest

import tidelake
from tests.support.faulty_file_io import Fault, FaultyFileIO, ProcessDied
from tidelake import AddColumn, Table
from tidelake.catalog import Catalog
from tidelake.errors import BadInput
from tidelake.storage.catalog.filesystem import FileSystemCatalog
from tidelake.storage.fileio.local import LocalFileIO
from tidelake.storage.maintenance.verify.inspection import inspect
from tidelake.storage.model.paths import BRANCH_CLAIM

NAME: Final = "db.t"
_CALLS_MAX: Final = 40


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """A table of three schemas. Its snapshot has the newest one."""
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("db")
    catalog.create_table(NAME, pa.schema([("id", pa.int64()), ("v", pa.int64())]), primary_key=["id"])
    for column in ("a", "b"):
        catalog.alter_table(NAME, [AddColumn(column, "INT")])
    catalog.table(NAME).append([{"id": 1, "v": 7, "a": None, "b": 2}])
    return str(tmp_path)


def _table(folder: str, io: FaultyFileIO) -> Table:
    return Catalog(FileSystemCatalog(io, folder)).table(NAME)


def _state(folder: str) -> str:
    """What a user finds of the branch."""
    table = tidelake.open_catalog(folder).table(NAME)
    assert [finding.check for finding in inspect(table.context).findings] in ([], ["branch-incomplete"])
    if "dev" not in table.branches():
        return "none"
    try:
        rows = tidelake.open_catalog(folder).table(f"{NAME}$branch_dev").scan().to_arrow().to_pylist()
    except BadInput as error:
        return "incomplete" if "creation was interrupted" in str(error) else str(error)
    assert rows == [{"id": 1, "v": 7, "a": None, "b": 2}]
    return "whole"


@pytest.mark.parametrize("fault", [Fault.BEFORE, Fault.AFTER])
def test_after_an_error_it_is_gone_or_whole(fault: Fault, folder: str) -> None:
    """Or only its name is claimed: when it is unknown whose claim or branch that is."""
    found = []
    for number in range(_CALLS_MAX):
        io = FaultyFileIO(LocalFileIO())
        table = _table(folder, io)
        io.fail_call(number, fault)
        try:
            table.create_branch("dev", snapshot=1)
            created = True
        except OSError:
            created = False
        is_claimed = BRANCH_CLAIM in {call.file_name for call in io.calls[-2:]} and not created
        found.append((created, "claimed" if is_claimed else _state(folder)))
        with suppress(BadInput):
            tidelake.open_catalog(folder).table(NAME).delete_branch("dev")
    assert set(found) == {(True, "whole"), (False, "none"), (False, "claimed")}


@pytest.mark.parametrize("fault", [Fault.BEFORE, Fault.AFTER])
def test_after_a_crash_it_is_whole_or_can_be_deleted_and_created_again(fault: Fault, folder: str) -> None:
    found = set()
    for number in range(_CALLS_MAX):
        io = FaultyFileIO(LocalFileIO())
        table = _table(folder, io)
        io.crash_call(number, fault)
        with suppress(ProcessDied, OSError):
            table.create_branch("dev", snapshot=1)
        state = _state(folder)
        found.add(state)
        again = tidelake.open_catalog(folder).table(NAME)
        if state != "none":
            again.delete_branch("dev")
        again.create_branch("dev", snapshot=1)
        assert _state(folder) == "whole"
        again.delete_branch("dev")
    assert found == {"none", "incomplete", "whole"}
