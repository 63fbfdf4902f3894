"""A trial: the user's pipeline runs on two scratch warehouses, once undisturbed, once in processes that are killed,
taken over, compacted beside, and whose requests to the store get lost. Both must end with the same rows.

Nothing outside of the scratch warehouses is written, and no consumer group is joined: the newest records of the source
are copied to a temporary folder, and read from there.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, aclosing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

import msgspec

from tidelake.doctor.chaos.comparison import compare
from tidelake.doctor.chaos.lossy_file_io import LOST_ANSWER, LOST_REQUEST
from tidelake.doctor.chaos.pipeline_process import FENCED, Task, Work
from tidelake.doctor.chaos.scratch_lake import PREFIX, ScratchPipeline, check_scratch
from tidelake.doctor.checks import Finding, Status
from tidelake.errors import BadInput
from tidelake.ingest.pipeline.configured_source import newest_records, with_short_limit
from tidelake.ingest.settings import Config
from tidelake.ingest.sources.change_log_record import encode_records
from tidelake.storage.base import env

_UNDISTURBED_S_MAX: Final = 600.0
_DISTURBANCES: Final = ("kill", "kill", "kill", "stop", "take-over", "take-over")
_START_S: Final = (0.1, 2.0)  # until a process is disturbed that is about to start
_WORK_S: Final = (0.1, 4.0)  # until a process is disturbed that reads records
_START_SHARE: Final = 0.25  # of the rounds
_STARTED_S_MAX: Final = 60.0
_COMPACTIONS: Final = 0.5  # share of the rounds with a compaction beside
_FED_AT_TAKE_OVER: Final = 0.02  # share of the records: the older process meets its successor when it commits
_POLL_S: Final = 0.05
_OUTPUT_CHARACTERS: Final = 3_000


@dataclass(slots=True)
class Trial:
    """What was tried, and found.

    seed: repeats the order of the disturbances. When they hit depends on the machine.
    records: number of records of the sample.
    tried: number of each disturbance.
    findings: by table name.
    kept: the scratch warehouse, if it was kept.
    """

    seed: int
    records: int = 0
    tried: Counter[str] = field(default_factory=Counter)
    findings: list[tuple[str, Finding]] = field(default_factory=list)
    kept: str | None = None

    @property
    def is_sound(self) -> bool:
        return all(finding.status is Status.OK for _, finding in self.findings)


def run_trial(
    config: Path, settings: Sequence[str], *, seed: int, seconds: float, records: int, say: Callable[[str], None]
) -> Trial:
    """Make a trial. Blocks for about `seconds`, and the time of an undisturbed run.

    config, settings: as for `load_config`.
    seconds: how long the pipeline is disturbed.
    records: how many of the newest records are used.
    say: gets a line for each step.

    Raises BadInput if the undisturbed run fails or the disturbed one does not end; the errors of the configuration, the
    source and the warehouse.
    """
    trial = Trial(seed)
    with tempfile.TemporaryDirectory(prefix="tidelake-chaos-") as directory:
        home = Path(directory)
        own = ScratchPipeline(str(config), settings, "", "").users_own()
        lines = asyncio.run(_sample(own, records))
        trial.records = len(lines)
        if not lines:
            raise BadInput(f"the source of {config} has no records: there is nothing to try. Run it once some arrived")
        root = f"{own.warehouse.rstrip('/')}/{PREFIX}{env.new_uuid().hex[:12]}"
        check_scratch(root)
        lakes = [
            ScratchPipeline(str(config.absolute()), settings, f"{root}/{name}", str(home / name))
            for name in ("undisturbed", "disturbed")
        ]
        for lake in lakes:
            Path(lake.folder).mkdir()
        undisturbed, disturbed = lakes
        say(f"seed {seed}: {len(lines):,} records, scratch warehouse {root}")
        is_kept = False
        try:
            for lake in lakes:
                lake.create_tables()
            say("an undisturbed run")
            _undisturbed_run(undisturbed, home, lines)
            say(f"a run that is disturbed for {seconds:,.0f} s")
            _DisturbedRun(disturbed, home, lines, trial, Random(seed)).go(seconds)
            trial.findings = compare(undisturbed, disturbed)
            is_kept = not trial.is_sound
        finally:
            if is_kept:
                trial.kept = root
            else:
                undisturbed.file_io().delete_directory(root)
    return trial


async def _sample(config: Config, records: int) -> list[bytes]:
    """Return the newest records as lines of a change log."""
    lines: list[bytes] = []
    async with aclosing(newest_records(with_short_limit(config), records)) as batches:
        async for raw in batches:
            lines += encode_records(raw).splitlines(keepends=True)
    return lines[:records]


def _undisturbed_run(lake: ScratchPipeline, home: Path, lines: Sequence[bytes]) -> None:
    _append(lake, lines)
    with _process(lake, Work.FINISH, home) as process:
        try:
            code = process.popen.wait(_UNDISTURBED_S_MAX)
        except subprocess.TimeoutExpired:
            raise BadInput(f"an undisturbed run took more than {_UNDISTURBED_S_MAX:g} s. Try fewer records") from None
        if code:
            raise BadInput(
                f"an undisturbed run of the pipeline failed, so there is nothing to compare with:\n{process.output()}\n"
                "Mend that first, or leave out its records: a start may lack rows that older records made"
            )


def _append(lake: ScratchPipeline, lines: Sequence[bytes]) -> None:
    with (Path(lake.folder) / "sample.jsonl").open("ab") as file:
        file.writelines(lines)


@dataclass(slots=True)
class _Process:
    """A process, the file that says it reads records, and its standard error."""

    popen: subprocess.Popen[bytes]
    started: Path
    log: Path

    def sleep(self, seconds: float) -> None:
        """Sleep so long, or until it ends."""
        _wait_until(lambda: self.popen.poll() is not None, seconds)

    def wait_until_it_reads(self) -> None:
        _wait_until(lambda: self.started.exists() or self.popen.poll() is not None, _STARTED_S_MAX)

    def output(self) -> str:
        return self.log.read_text(errors="replace")[-_OUTPUT_CHARACTERS:].strip()


def _wait_until(is_reached: Callable[[], bool], seconds: float) -> None:
    end_s = env.monotonic_s() + seconds
    while not is_reached() and env.monotonic_s() < end_s:
        env.sleep(_POLL_S)


@contextmanager
def _process(
    lake: ScratchPipeline, work: Work, home: Path, seed: int = 0, mishaps: Path | None = None
) -> Generator[_Process]:
    """Start a process. It is killed at the end of the block, if it still runs."""
    stem = home / env.new_uuid().hex
    path, log, started = (stem.with_suffix(suffix) for suffix in (".json", ".log", ".started"))
    task = Task(lake, work, seed, str(started), None if mishaps is None else str(mishaps))
    path.write_bytes(msgspec.json.encode(task))
    with log.open("wb") as output:
        # In a session of its own: Ctrl-C ends it through this process, not past it.
        popen = subprocess.Popen(
            [sys.executable, "-m", "tidelake.doctor.chaos.pipeline_process", str(path)],
            stdin=subprocess.PIPE,  # never written: its end tells the process that this one ended
            stdout=subprocess.DEVNULL,
            stderr=output,
            start_new_session=True,
        )
    try:
        yield _Process(popen, started, log)
    finally:
        if popen.poll() is None:
            popen.kill()
        popen.wait()
        assert popen.stdin is not None
        popen.stdin.close()


class _DisturbedRun:
    """Runs processes, one after the other, and disturbs each. Records arrive between them."""

    def __init__(self, lake: ScratchPipeline, home: Path, lines: Sequence[bytes], trial: Trial, random: Random) -> None:
        self._lake = lake
        self._home = home
        self._lines = lines
        self._trial = trial
        self._random = random
        self._fed = 0

    def go(self, seconds: float) -> None:
        begun_s = env.monotonic_s()
        while (spent_s := env.monotonic_s() - begun_s) < seconds:
            self._round(min(1.0, (spent_s + _WORK_S[1]) / seconds))
        self._feed(1.0)
        with self._start(Work.FINISH, is_lossy=False) as last:
            code = last.popen.wait()
            if code:
                raise BadInput(f"the disturbed pipeline did not end:\n{last.output()}")
        self._count_mishaps()

    def _round(self, share: float) -> None:
        with self._start(Work.RUN) as process:
            self._feed(share * self._random.uniform(0.5, 1.0))
            with self._compaction():
                if self._random.random() < _START_SHARE:
                    process.sleep(self._random.uniform(*_START_S))
                else:
                    process.wait_until_it_reads()
                    process.sleep(self._random.uniform(*_WORK_S))
                if process.popen.poll() is None:
                    self._disturb(process)
                else:
                    self._tried("ended by an error, and started again")

    def _disturb(self, process: _Process) -> None:
        match self._random.choice(_DISTURBANCES):
            case "kill":
                process.popen.kill()
                self._tried("killed while it read" if process.started.exists() else "killed while it started")
            case "stop":
                process.popen.send_signal(signal.SIGTERM)
                process.sleep(_STARTED_S_MAX)
                self._tried("stopped")
            case _:
                with self._start(Work.RUN) as newer:
                    newer.wait_until_it_reads()
                    self._feed(self._fed / len(self._lines) + _FED_AT_TAKE_OVER)
                    process.sleep(_WORK_S[1])
                    was_fenced = process.popen.poll() == FENCED
                    self._tried("taken over, and fenced" if was_fenced else "two at once, and killed")

    @contextmanager
    def _compaction(self) -> Generator[None]:
        if self._random.random() >= _COMPACTIONS:
            yield
            return
        with self._start(Work.COMPACT) as compaction:
            yield
            compaction.sleep(self._random.uniform(*_WORK_S))
            ended = compaction.popen.poll()
            outcome = {None: "compaction beside, killed", 0: "compaction beside"}
            self._tried(outcome.get(ended, "compaction beside, with an error"))

    def _start(self, work: Work, *, is_lossy: bool = True) -> AbstractContextManager[_Process]:
        seed = self._random.randrange(1 << 31)
        return _process(self._lake, work, self._home, seed, self._mishaps if is_lossy else None)

    def _tried(self, what: str) -> None:
        self._trial.tried[what] += 1

    @property
    def _mishaps(self) -> Path:
        return self._home / "mishaps"

    def _count_mishaps(self) -> None:
        counted = Counter(self._mishaps.read_bytes()) if self._mishaps.exists() else Counter()
        self._trial.tried["lost requests to the store"] += counted[LOST_REQUEST[0]]
        self._trial.tried["lost answers of the store"] += counted[LOST_ANSWER[0]]

    def _feed(self, share: float) -> None:
        """Let records arrive, until this share of all has."""
        end = min(len(self._lines), max(self._fed, round(len(self._lines) * share)))
        _append(self._lake, self._lines[self._fed : end])
        self._fed = end
