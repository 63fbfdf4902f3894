"""Compaction as a service for write-only writers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest

import tidelake
from tests.compaction.lakes import commits, content, file_counts, local_io, new_table, orphans, with_io, write
from tests.support.faulty_file_io import Call, Fault, FaultyFileIO
from tidelake.compaction.__main__ import main
from tidelake.compaction.cancellation import CancellationToken
from tidelake.compaction.jobs.request import CompactionRequest
from tidelake.compaction.jobs.watch import watch
from tidelake.compaction.report import CompactionReport
from tidelake.errors import BadInput, CorruptFile, UnsupportedFeature
from tidelake.storage.model.table import TableContext

PATIENCE_S = 60  # only what hangs takes so long
OFTEN = {"continuous.discovery-interval": "20 ms"}
MINOR = CompactionRequest()


class Watching:
    """A watch in a thread, and its reports."""

    def __init__(self) -> None:
        self.cancellation = CancellationToken()
        self.reports: list[CompactionReport] = []
        self.error: BaseException | None = None
        self._news = threading.Condition()

    def reported(self, report: CompactionReport) -> None:
        with self._news:
            self.reports.append(report)
            self._news.notify_all()

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Looks whenever there is a report, or the watch has ended."""
        with self._news:
            assert self._news.wait_for(lambda: condition() or self.error is not None, PATIENCE_S)
        if self.error is not None:
            raise self.error

    def end(self, error: BaseException | None) -> None:
        with self._news:
            self.error = error
            self._news.notify_all()


@contextmanager
def watching(
    warehouse: Path, names: Callable[[], Sequence[str]] = lambda: ["db.t"], *, keep_going: bool = False
) -> Iterator[Watching]:
    catalog = tidelake.open_catalog(str(warehouse))

    def open_table(name: str) -> TableContext:
        return catalog.table(name).context

    state = Watching()

    def run() -> None:
        try:
            watch(names, open_table, MINOR, state.cancellation, state.reported, keep_going=keep_going)
        except BaseException as e:
            state.end(e)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield state
    finally:
        state.cancellation.cancel()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def test_the_watch_keeps_levels_few_next_to_a_write_only_writer(tmp_path: Path) -> None:
    table = new_table(tmp_path, keyed=True, options=OFTEN)
    with watching(tmp_path) as state, table.writer(commit_user="etl") as writer:
        for n in range(1, 21):
            writer.write(pa.table({"k": [n, n + 1], "v": [f"{n}"] * 2, "p": ["a"] * 2}))
            writer.commit(n)
            if n % 5 == 0:
                state.wait_until(lambda n=n: len(state.reports) >= n // 5)  # type: ignore[misc]
        state.wait_until(lambda: sum(file_counts(table.context).values()) < 5)
    assert content(table) == [(n, f"{min(n, 20)}", "a") for n in range(1, 22)]
    assert {s.commit_user for s in table.snapshots() if s.commit_kind.value == "APPEND"} == {"etl"}
    assert orphans(table.context) == set()


def test_the_watch_ignores_its_own_snapshots(tmp_path: Path) -> None:
    """Otherwise it would never end: full compactions of the same file, or files that stay small."""
    table = new_table(tmp_path, options={**OFTEN, "compaction.min.file-num": "2"})
    write(table, *commits(2))
    has_looked_again = threading.Event()
    looks: list[int] = []

    def names() -> list[str]:
        looks.append(len(table.snapshots()))
        if looks.count(3) > 3:
            has_looked_again.set()
        return ["db.t"]

    with watching(tmp_path, names):
        assert has_looked_again.wait(PATIENCE_S)
    assert len(table.snapshots()) == 3


def test_columns_added_while_watching_are_kept(tmp_path: Path) -> None:
    table = new_table(tmp_path, options={**OFTEN, "compaction.min.file-num": "2"})
    with watching(tmp_path) as state:
        write(table, *commits(2))
        state.wait_until(lambda: len(state.reports) == 1)
        newer = tidelake.open_catalog(str(tmp_path)).alter_table("db.t", [tidelake.AddColumn("extra", pa.int32())])
        with newer.writer() as writer:
            writer.write(pa.table({"k": [99], "v": ["x"], "p": ["a"], "extra": pa.array([7], pa.int32())}))
            writer.commit()
        state.wait_until(lambda: len(state.reports) == 2)
    assert (99, "x", "a", 7) in [tuple(row.values()) for row in newer.scan().to_arrow().to_pylist()]


def test_a_table_that_is_dropped_ends_its_watch(tmp_path: Path) -> None:
    table = new_table(tmp_path, options=OFTEN)
    write(table, *commits(5))
    with watching(tmp_path) as state:
        state.wait_until(lambda: bool(state.reports))
        tidelake.open_catalog(str(tmp_path)).drop_table("db.t")
        with pytest.raises((BadInput, CorruptFile, FileNotFoundError)):  # the latter, when it was seen half deleted
            state.wait_until(lambda: False)


def test_a_database_watch_continues_without_a_broken_or_dropped_table(tmp_path: Path) -> None:
    names = ["db.broken", "db.gone", "db.good"]
    tables = {name: new_table(tmp_path, name=name, options=OFTEN) for name in names}
    for table in tables.values():
        write(table, *commits(5))
    broken = Path(tables["db.broken"].location)
    for file in (broken / "bucket-0").iterdir():
        file.write_bytes(b"")
    catalog = tidelake.open_catalog(str(tmp_path))

    with watching(tmp_path, lambda: names, keep_going=True) as state:
        state.wait_until(lambda: {report.table for report in state.reports} == {"db.gone", "db.good"})
        catalog.drop_table("db.gone")
        write(tables["db.good"], *commits(5))
        state.wait_until(lambda: [report.table for report in state.reports].count("db.good") == 2)


class SimulatedTime(CancellationToken):
    """Time that passes only while the watch waits. Cancelled when that much time has passed."""

    def __init__(self, for_ms: int) -> None:
        super().__init__()
        self.now_ms = 0
        self._for_ms = for_ms

    def wait_ms(self, wait_ms: float) -> None:
        self.now_ms += int(wait_ms)
        if self.now_ms >= self._for_ms:
            self.cancel()


def test_a_failed_table_is_retried_without_a_new_commit(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    write(table, *commits(5))
    faults = [Fault.BEFORE]
    io = FaultyFileIO(local_io(tmp_path), lambda call: faults.pop() if call.name == "open_output" and faults else None)
    reports: list[CompactionReport] = []
    time = SimulatedTime(for_ms=10_000)
    watch(
        lambda: ["db.t"],
        lambda _: with_io(table, io),
        MINOR,
        time,
        reports.append,
        keep_going=True,
        now_ms=lambda: time.now_ms,
    )
    assert [report.snapshot_ids for report in reports] == [(6,)]
    assert not faults


def test_a_broken_table_is_retried_with_growing_delays() -> None:
    time, tried_ms = SimulatedTime(for_ms=24 * 3_600_000), list[int]()

    def open_table(_: str) -> TableContext:
        tried_ms.append(time.now_ms)
        raise OSError("connection reset")

    watch(lambda: ["db.broken"], open_table, MINOR, time, keep_going=True, now_ms=lambda: time.now_ms)
    waits_ms = [after - before for before, after in pairwise(tried_ms)]
    assert waits_ms[:4] == [100, 200, 400, 800]
    assert waits_ms[20:] == [300_000] * len(waits_ms[20:])
    assert len(waits_ms) > 200, "it is never given up"


def test_a_busy_table_does_not_delay_the_others(tmp_path: Path) -> None:
    """While a file of it is written, more comes than the compaction takes."""
    tables = {
        name: new_table(tmp_path, name=name, keyed=True, options={"num-sorted-run.compaction-trigger": "2"})
        for name in ("db.busy", "db.quiet")
    }
    for table in tables.values():
        write(table, *commits(6))

    def act(call: Call) -> None:
        if call.name == "open_output" and call.file_name.startswith("data-"):
            write(tables["db.busy"], *commits(3))

    io = FaultyFileIO(local_io(tmp_path), act)
    cancellation, reported = CancellationToken(), list[str]()

    def keep(report: CompactionReport) -> None:
        assert len(report.snapshot_ids) == 1
        reported.append(report.table)
        if len(reported) == 4:
            cancellation.cancel()

    contexts = {"db.busy": with_io(tables["db.busy"], io), "db.quiet": tables["db.quiet"].context}
    watch(lambda: list(contexts), contexts.__getitem__, MINOR, cancellation, keep)
    assert reported == ["db.busy", "db.quiet", "db.busy", "db.busy"]


def test_old_snapshots_of_write_only_tables_expire_while_they_are_watched(tmp_path: Path) -> None:
    kept = {"snapshot.num-retained.min": "2", "snapshot.num-retained.max": "3"}
    table = new_table(tmp_path, options={**kept, "compaction.min.file-num": "2"})
    cancellation, asked = SimulatedTime(for_ms=100_000), list[int]()

    def names() -> list[str]:
        asked.append(len(asked))
        write(table, *(commits(3) if len(asked) < 6 else ()))
        return ["db.t"]

    watch(names, lambda _: table.context, MINOR, cancellation, now_ms=lambda: cancellation.now_ms)
    assert table.snapshots()[-1].id == 20
    assert len(table.snapshots()) == 3
    assert orphans(table.context) == set()


@pytest.mark.parametrize("write_only", [pytest.param(True, id="write-only"), pytest.param(False, id="compacting")])
def test_a_full_compaction_runs_every_n_commits_for_write_only_writers(write_only: bool, tmp_path: Path) -> None:
    """Writers that compact count for themselves."""
    options = {"full-compaction.delta-commits": "4", "num-sorted-run.compaction-trigger": "100"}
    table = new_table(tmp_path, keyed=True, options=options)
    reports: list[CompactionReport] = []
    contexts = [table.context if write_only else table.context.with_options({"write-only": "false"})]
    cancellation = SimulatedTime(for_ms=100_000)
    waits = [0]

    def names() -> list[str]:
        waits[0] += 1
        if waits[0] <= 11:
            write(table, [(waits[0], "x", "a")])
        return ["db.t"]

    watch(names, lambda _: contexts[0], MINOR, cancellation, reports.append, now_ms=lambda: cancellation.now_ms)
    kinds = [snapshot.commit_kind.value for snapshot in table.snapshots()]
    expected = [*(["APPEND"] * 4 + ["COMPACT"]) * 2, *["APPEND"] * 3] if write_only else ["APPEND"] * 11
    assert kinds == expected
    assert {one.reason for report in reports for one in report.buckets} == (
        {"full compaction"} if write_only else set()
    )


def test_a_restarted_watch_counts_commits_from_the_snapshots(tmp_path: Path) -> None:
    options = {"full-compaction.delta-commits": "4", "num-sorted-run.compaction-trigger": "100"}
    table = new_table(tmp_path, keyed=True, options=options)
    reports: list[CompactionReport] = []
    for _ in range(9):
        write(table, [(1, "x", "a")])
        cancellation = SimulatedTime(for_ms=10_000)
        watch(lambda: ["db.t"], lambda _: table.context, MINOR, cancellation, reports.append)
    assert [report.snapshot_ids for report in reports] == [(5,), (10,)]


def test_a_lost_file_blocks_no_other_partition_and_is_logged_with_growing_delays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = new_table(tmp_path, keyed=True, partitioned=True)
    write(table, *commits(6, partitions="abc"))
    next(Path(table.location, "p=b", "bucket-0").iterdir()).unlink()
    reports: list[CompactionReport] = []
    cancellation = SimulatedTime(for_ms=10_000)
    arguments = (lambda: ["db.t"], lambda _: table.context, MINOR, cancellation, reports.append)
    watch(*arguments, keep_going=True, now_ms=lambda: cancellation.now_ms)
    assert [len(report.buckets) for report in reports] == [2]
    assert file_counts(table.context) == {("p=a", 0, 5): 1, ("p=b", 0, 0): 6, ("p=c", 0, 5): 1}
    waits_ms = [int(record.getMessage().rpartition("=")[2]) for record in caplog.records]
    assert waits_ms == sorted(set(waits_ms)), "told again only when it has lasted longer"
    with pytest.raises(CorruptFile, match="tidelake table verify"):
        watch(lambda: ["db.t"], lambda _: table.context, MINOR, CancellationToken())


@pytest.mark.parametrize("error", [OSError("connection reset"), BadInput("no database db")], ids=str)
def test_a_temporary_listing_failure_does_not_end_a_database_watch(error: Exception, tmp_path: Path) -> None:
    table = new_table(tmp_path, options={"compaction.min.file-num": "2"})
    time, asked_ms = SimulatedTime(for_ms=100_000), list[int]()
    reports: list[CompactionReport] = []

    def names() -> list[str]:
        asked_ms.append(time.now_ms)
        if 1 < len(asked_ms) < 6:
            raise error
        if len(asked_ms) == 6:
            write(table, *commits(2))
        return ["db.t"]

    watch(names, lambda _: table.context, MINOR, time, reports.append, keep_going=True, now_ms=lambda: time.now_ms)
    assert [after - before for before, after in pairwise(asked_ms[1:6])] == [100, 200, 400, 800]
    assert len(reports) == 1
    for keep_going in (False, True):
        with pytest.raises(type(error), match=str(error)):  # at first, a name that was mistyped
            watch(failing(error), lambda _: table.context, MINOR, CancellationToken(), keep_going=keep_going)


def failing(error: Exception) -> Callable[[], list[str]]:
    def names() -> list[str]:
        raise error

    return names


def test_an_unsupported_table_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = new_table(tmp_path, keyed=True)
    write(table, *commits(1))
    refused = table.context.with_options({"commit.callbacks": "org.example.Callback"})
    cancellation = SimulatedTime(for_ms=3_600_000)
    watch(
        lambda: ["db.t"],
        lambda _: refused,
        MINOR,
        cancellation,
        keep_going=True,
        now_ms=lambda: cancellation.now_ms,
    )
    assert [record.getMessage().partition(" ")[0] for record in caplog.records] == ["table"], caplog.text
    assert "commit.callbacks = org.example.Callback: cannot compact" in caplog.text
    with pytest.raises(UnsupportedFeature):
        watch(lambda: ["db.t"], lambda _: refused, MINOR, CancellationToken())


def test_the_watch_runs_only_due_compactions() -> None:
    def fail(name: str) -> TableContext:
        raise AssertionError(name)

    for request in (CompactionRequest(full=True), CompactionRequest(order_by=("k",))):
        with pytest.raises(BadInput, match="watching compacts only what is due"):
            watch(list, fail, request, CancellationToken())


# ---------------------------------------------------------------- as a program


def python_m_compaction(*arguments: str | Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "compaction", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_the_program_compacts_once_and_prints_json(tmp_path: Path) -> None:
    table = new_table(tmp_path, keyed=True)
    write(table, *commits(6))
    out, err = python_m_compaction(tmp_path, "db.t", "--full").communicate(timeout=PATIENCE_S)
    reported = json.loads(out)
    assert (reported["table"], reported["snapshots"], err) == ("db.t", [7], "")
    assert reported["buckets"][0]["reason"] == "full compaction"
    program = python_m_compaction(tmp_path, "db.nothing")
    out, err = program.communicate(timeout=PATIENCE_S)
    assert (program.returncode, out) == (1, "")
    assert err.startswith("error: ")
    assert "Traceback" not in err


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("option", "code", "message"),
    [
        pytest.param("s3.endpoint:http://x", 2, "write KEY=VALUE, not 's3.endpoint:http://x'", id="no equals sign"),
        pytest.param("metastore=glue", 1, "metastore = glue", id="a catalog that isn't there"),
    ],
)
def test_the_program_ignores_no_option(option: str, code: int, message: str, tmp_path: Path) -> None:
    program = python_m_compaction(tmp_path, "db.t", "--option", option)
    _, err = program.communicate(timeout=PATIENCE_S)
    assert program.returncode == code
    assert message in err


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(["--watch", "--full"], "--watch compacts only what is due", id="watching in full"),
        pytest.param(["--watch", "--order-by", "k"], "--watch compacts only what is due", id="watching and sorting"),
        pytest.param(["--strategy", "zorder"], "name the columns with --order-by", id="no columns"),
    ],
)
def test_contradictory_arguments_are_usage_errors(arguments: list[str], message: str, tmp_path: Path) -> None:
    program = python_m_compaction(tmp_path, "db.t", *arguments)
    out, err = program.communicate(timeout=PATIENCE_S)
    assert (program.returncode, out) == (2, "")
    assert message in err


@pytest.mark.parametrize(
    ("has_work", "code"), [pytest.param(True, 130, id="work is left"), pytest.param(False, 0, id="nothing is left")]
)
def test_the_exit_code_signals_remaining_work_to_a_scheduler(
    has_work: bool, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(new_table(tmp_path, keyed=True), *(commits(6) if has_work else ()))
    cancellation = CancellationToken()
    cancellation.cancel()
    monkeypatch.setattr("tidelake.compaction.__main__.cancelled_by_signals", lambda: nullcontext(cancellation))
    assert main([str(tmp_path), "db.t", "--full"]) == code
    reported = json.loads(capsys.readouterr().out)
    assert (reported["stopped"], reported["snapshots"]) == (has_work, [])


def test_column_lists_may_contain_blanks(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    write(table, *commits(6))
    assert main([str(tmp_path), "db.t", "--order-by", "k, v"]) == 0
    assert len(table.snapshots()) == 7


def test_the_program_watches_until_sigterm(tmp_path: Path) -> None:
    table = new_table(tmp_path, keyed=True, options=OFTEN)
    write(table, *commits(6))
    program = python_m_compaction(tmp_path, "db.t", "--watch")
    assert program.stdout is not None
    assert json.loads(program.stdout.readline())["snapshots"] == [7]
    write(table, *commits(6))
    assert json.loads(program.stdout.readline())["table"] == "db.t"
    os.kill(program.pid, signal.SIGTERM)
    out, err = program.communicate(timeout=PATIENCE_S)
    assert (program.returncode, out, err) == (0, "", "")
    assert orphans(table.context) == set()
