"""`Table.writer`: the state after a failed commit, for the next commit and for the table after closing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import tidelake
import tidelake.aio
from tests.support.faulty_file_io import Call, Fault, FaultyFileIO
from tidelake.storage.base.logs import FIELDS
from tidelake.storage.maintenance.maintenance_worker import MaintenanceWorker
from tidelake.storage.maintenance.verify import verify
from tidelake.storage.write.table_writer import TableWriter

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False)])
OPTIONS = {"full-compaction.delta-commits": "1", "commit.max-retries": "1"}


def make_table(place: Path, options: Mapping[str, str] | None = None) -> tidelake.Table:
    catalog = tidelake.open_catalog(str(place))
    catalog.create_database("db")
    return catalog.create_table("db.t", COLUMNS, primary_key=["id"], options={**OPTIONS, **(options or {})})


def faulty(table: tidelake.Table) -> tuple[FaultyFileIO, tidelake.Table]:
    """The same table, through a store that fails."""
    io = FaultyFileIO(table.context.io)
    return io, tidelake.Table(replace(table.context, io=io))


def write(writer: tidelake.Writer, *ids: int) -> None:
    writer.write(pa.table({"id": list(ids)}, COLUMNS))


def ids_of(table: tidelake.Table) -> list[int]:
    return sorted(table.scan().to_arrow()["id"].to_pylist())


def files_of(place: Path) -> set[str]:
    return {path.name for path in place.rglob("data-*")}


def live_files_of(table: tidelake.Table) -> set[str]:
    return {file.file_name for split in table.scan().splits() for file in split.files}


def no_room_for_manifests(call: Call) -> Fault | None:
    return Fault.BEFORE if call.name == "open_output" and "/manifest/" in call.path else None


def no_answer(_: Call) -> Fault | None:
    return Fault.AFTER


def interrupt(_: Call) -> Fault | None:
    raise KeyboardInterrupt


def nothing(_: Call) -> Fault | None:
    return None


@pytest.mark.parametrize("identifiers", [(None, None), (2, 2), (2, 3)], ids=["one-off", "again", "the next number"])
def test_rows_of_a_commit_that_failed_on_a_full_disk_are_in_the_next_one(
    tmp_path: Path, identifiers: tuple[int | None, int | None]
) -> None:
    """Also what was compacted for both: the second compaction reads what the first one wrote."""
    table = make_table(tmp_path)
    io, same = faulty(table)
    with same.writer(commit_user="etl") as writer:
        write(writer, 1)
        writer.commit(1)
        write(writer, 2)
        io.fault = no_room_for_manifests
        with pytest.raises(OSError, match="manifest"):
            writer.commit(identifiers[0])
        io.fault = nothing
        assert ids_of(table) == [1]
        write(writer, 3)
        assert writer.commit(identifiers[1]) == 4
        assert len(live_files_of(table)) == 1
        write(writer, 4)
        assert writer.commit(4) == 6
    assert ids_of(table) == [1, 2, 3, 4]
    assert not verify(table.context, deep=True)


@pytest.mark.parametrize(
    ("end", "warns"),
    [
        pytest.param("with", True, id="the with block ends"),
        pytest.param("close", True, id="close"),
        pytest.param("commit", False, id="after a commit"),
        pytest.param("error", False, id="the block raises"),
        pytest.param("nothing", False, id="nothing written"),
    ],
)
@pytest.mark.parametrize("is_async", [False, True], ids=["blocking", "async"])
def test_rows_that_are_dropped_without_a_commit_are_logged(
    tmp_path: Path, end: str, warns: bool, is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    table = make_table(tmp_path)

    def use(writer: tidelake.Writer) -> None:
        if end != "nothing":
            write(writer, 1)
            write(writer, 2)
        if end == "commit":
            writer.commit()
        if end == "close":
            writer.close()
        if end == "error":
            raise KeyError("the caller's")

    async def use_async() -> None:
        async with tidelake.aio.Writer(table.writer()) as writer:
            use(writer._inner)

    with suppress(KeyError):
        if is_async:
            asyncio.run(use_async())
        else:
            with table.writer() as writer:
                use(writer)
    events = [getattr(record, FIELDS) for record in caplog.records if hasattr(record, FIELDS)]
    found = [event["rows"] for event in events if "without a commit" in event["event"]]
    assert found == ([2] if warns else [])


def test_a_writer_closed_after_a_full_disk_leaves_no_files(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    io, same = faulty(table)
    with same.writer(commit_user="etl") as writer:
        write(writer, 1)
        writer.commit(1)
        write(writer, 2)
        io.fault = no_room_for_manifests
        with pytest.raises(OSError, match="manifest"):
            writer.commit(2)
        io.fault = nothing
    assert files_of(tmp_path) == live_files_of(table)
    assert ids_of(table) == [1]


@pytest.mark.parametrize(
    ("publishing", "afterwards", "error", "landed"),
    [
        pytest.param(no_answer, no_answer, tidelake.CommitOutcomeUnknown, True, id="no answer from then on"),
        pytest.param(interrupt, nothing, KeyboardInterrupt, False, id="interrupted"),
        pytest.param(
            nothing, no_room_for_manifests, tidelake.CommitOutcomeUnknown, True, id="no room for what was compacted"
        ),
    ],
)
def test_a_commit_that_may_have_landed_keeps_its_files_and_can_only_be_repeated(
    tmp_path: Path,
    publishing: Callable[[Call], Fault | None],
    afterwards: Callable[[Call], Fault | None],
    error: type[BaseException],
    landed: bool,
) -> None:
    """publishing, afterwards: the fault when the rows' snapshot is created, and the fault after it."""
    table = make_table(tmp_path)
    io, same = faulty(table)
    with same.writer(commit_user="etl") as writer:
        write(writer, 1)
        writer.commit(1)
        write(writer, 2)

        def fault(call: Call) -> Fault | None:
            if call.name != "create_if_absent":
                return None
            io.fault = afterwards
            return publishing(call)

        io.fault = fault
        with pytest.raises(error):
            writer.commit(2)
        io.fault = nothing
        with pytest.raises(tidelake.CommitOutcomeUnknown, match=r"Call commit\(2\) again"):
            write(writer, 3)
        with pytest.raises(tidelake.CommitOutcomeUnknown, match=r"Call commit\(2\) again"):
            writer.commit(3)
        before = files_of(tmp_path)
    assert files_of(tmp_path) == before
    assert ids_of(table) == ([1, 2] if landed else [1])
    assert len(before) > len(live_files_of(table)), "what was compacted stays too"


def test_an_unknown_commit_stays_unknown_when_its_repetition_fails_before_publishing(tmp_path: Path) -> None:
    """The second attempt published nothing; the first may have."""
    table = make_table(tmp_path)
    io, same = faulty(table)
    with same.writer(commit_user="etl") as writer:
        write(writer, 1)
        io.fault = lambda call: interrupt(call) if call.name == "create_if_absent" else None
        with pytest.raises(KeyboardInterrupt):
            writer.commit(1)
        io.fault = no_room_for_manifests
        with pytest.raises(OSError, match="manifest"):
            writer.commit(1)
        io.fault = nothing
        with pytest.raises(tidelake.CommitOutcomeUnknown):
            write(writer, 2)
        assert writer.commit(1) == 2
        write(writer, 2)
        writer.commit(2)
    assert ids_of(table) == [1, 2]


def test_a_writer_whose_abort_fails_still_deletes_the_files_of_a_failed_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(tmp_path)
    io, same = faulty(table)
    slow = same.writer(commit_user="slow")
    write(slow, 1)
    io.fault = no_room_for_manifests
    with pytest.raises(OSError, match="manifest"):
        slow.commit()
    io.fault = nothing

    def fail(_: TableWriter) -> None:
        raise PermissionError(13, "not allowed")

    closings, close = list[bool](), MaintenanceWorker.close

    def observed(worker: MaintenanceWorker, *, finish: bool) -> None:
        closings.append(finish)
        close(worker, finish=finish)

    monkeypatch.setattr(TableWriter, "abort", fail)
    monkeypatch.setattr(MaintenanceWorker, "close", observed)
    with pytest.raises(PermissionError):
        slow.close()
    assert files_of(tmp_path) == live_files_of(table)
    assert closings == [True]


# ---------------------------------------------------------------- replays


@pytest.mark.parametrize("producer", ["none", "input"])
@pytest.mark.parametrize("overwrite", [False, True], ids=["commit", "overwrite"])
def test_a_replayed_identifier_leaves_no_files(tmp_path: Path, producer: str, overwrite: bool) -> None:
    """Neither data nor changelog nor compacted files; and the writer continues."""
    table = make_table(tmp_path, {"changelog-producer": producer})
    with table.writer(commit_user="etl") as writer:
        write(writer, 1)
        writer.commit(1)
    with table.writer(commit_user="etl", overwrite=overwrite) as writer:
        before = {path for path in tmp_path.rglob("*") if path.is_file()}
        write(writer, 1)
        assert writer.commit(1) is None
        assert {path for path in tmp_path.rglob("*") if path.is_file()} == before
        write(writer, 2)
        assert writer.commit(2) is not None
    assert ids_of(table) == ([2] if overwrite else [1, 2])
    assert verify(table.context, deep=True) == []


@pytest.mark.parametrize(
    ("unanswered", "left"),
    [pytest.param(1, 1, id="rows landed, compaction not"), pytest.param(2, 0, id="both landed")],
)
def test_a_replay_of_a_landed_commit_keeps_its_files(tmp_path: Path, unanswered: int, left: int) -> None:
    """unanswered: after the publication of so many snapshots nothing answers. left: uncompacted files."""
    table = make_table(tmp_path)
    io, same = faulty(table)
    with same.writer(commit_user="etl") as writer:
        write(writer, 1)
        published = 0

        def fault(call: Call) -> Fault | None:
            nonlocal published
            published += call.name == "create_if_absent"
            if published < unanswered:
                return None
            io.fault = lambda _: Fault.BEFORE
            return Fault.AFTER

        io.fault = lambda call: fault(call) if call.name == "create_if_absent" else None
        with pytest.raises(tidelake.CommitOutcomeUnknown):
            writer.commit(1)
        io.fault = nothing
        assert writer.commit(1) is None
        assert files_of(tmp_path) >= live_files_of(table)
        levels = [file.level for split in table.scan().splits() for file in split.files]
        assert levels.count(0) == left
        write(writer, 2)
        writer.commit(2)
    assert ids_of(table) == [1, 2]
    assert verify(table.context, deep=True) == []
