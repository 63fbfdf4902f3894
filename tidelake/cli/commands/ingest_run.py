"""`tidelake ingest run`: runs a pipeline on this machine, and shows its progress."""

from __future__ import annotations

import argparse
import shlex
from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidelake.cli.arguments import Commands, add_config, command
from tidelake.cli.formatting import size_text
from tidelake.cli.output import CommandOutput
from tidelake.errors import BadInput, TidelakeError
from tidelake.storage.base import env
from tidelake.storage.base.clock import datetime_in_ms

if TYPE_CHECKING:
    from rich.text import Text

    from tidelake.ingest.config.config import ConfigFile
    from tidelake.ingest.pipeline.recovery_flags import RecoveryFlags
    from tidelake.ingest.pipeline.run_metrics import RunMetrics
    from tidelake.ingest.settings import Config

_RATE_SECONDS = 5.0  # the time span of the current rate


def add_run(verbs: Commands) -> None:
    parser = command(
        verbs,
        "run",
        run,
        "run a pipeline until its source ends, or until stopped",
        "Ctrl-C or SIGTERM commits what was read, then ends. A second one ends at once. Nothing is lost either way.\n"
        "SIGHUP takes a changed configuration, as `tidelake ingest reload` does.",
        log_level="info",
        is_service=True,
        example="tidelake ingest run shop.yaml --until latest",
    )
    add_config(parser)
    bounds = parser.add_mutually_exclusive_group()
    bounds.add_argument(
        "--until",
        choices=("latest", "end"),
        help="end where the source ends now, by either word; overrides `source.until`",
    )
    bounds.add_argument(
        "--until-timestamp",
        type=_epoch_ms,
        metavar="TIME",
        help="Kafka: end before the first record of this ISO time or later",
    )
    parser.add_argument(
        "--stay-when-refused",
        action="store_true",
        help="after a refusal (exit codes 3 and 4) end only after SIGTERM; until then /live answers and /ready is red. "
        "For supervisors that restart every process, as Kubernetes does",
    )
    add_recovery_flags(parser)


def add_recovery_flags(parser: argparse.ArgumentParser) -> None:
    flags = parser.add_argument_group(
        "options for a pipeline that refused to start",
        "Each applies to one start, and is recorded in the table's next snapshot.",
    )
    flags.add_argument(
        "--accept-gap",
        action="append",
        default=[],
        metavar="TABLE",
        help="skip the lost records and continue; no record is read twice",
    )
    flags.add_argument(
        "--rewind-to",
        action="append",
        default=[],
        metavar="TABLE=WHERE",
        help="read again from `earliest`, an ISO time, or TOPIC:PARTITION:OFFSET,…",
    )
    flags.add_argument(
        "--from-snapshot",
        action="append",
        default=[],
        metavar="TABLE=ID",
        help="continue at the position of this snapshot",
    )
    flags.add_argument(
        "--skip-record",
        action="append",
        default=[],
        metavar="TOPIC:PARTITION:OFFSET",
        help="skip this record, which stops the pipeline; it becomes a dead letter",
    )


def _epoch_ms(text: str) -> int:
    """Convert an ISO time to epoch milliseconds. Without a zone it is local time."""
    try:
        return datetime_in_ms(datetime.fromisoformat(text))
    except (ValueError, BadInput) as error:
        raise argparse.ArgumentTypeError(f"{error}. Example: 2026-05-01T12:00:00Z") from None


class StoppedAtOnce(TidelakeError):
    """A second signal arrived before all records that were read were committed."""


def run(
    out: CommandOutput,
    *,
    config: str,
    settings: Sequence[str],
    accept_gap: Sequence[str] = (),
    rewind_to: Sequence[str] = (),
    from_snapshot: Sequence[str] = (),
    skip_record: Sequence[str] = (),
    until: str | None = None,
    until_timestamp: int | None = None,
    stay_when_refused: bool = False,
) -> None:
    """Run a pipeline.

    until: `latest` or `end`: ends at the current end of the source
    until_timestamp: epoch milliseconds of the first record that is not read
    stay_when_refused: after a refusal, end only after a signal

    Raises StoppedAtOnce after a second signal: uncommitted records are read again at the next start.
    """
    from tidelake.ingest.config.config import ConfigFile
    from tidelake.ingest.pipeline import builder
    from tidelake.ingest.pipeline.recovery_flags import parse_recovery_flags

    bounds = [] if until is None else ["source.until=end"]
    if until_timestamp is not None:
        bounds = [f"source.until_timestamp_ms={until_timestamp}"]
    file = ConfigFile(Path(config), (*settings, *bounds))
    loaded, tables = file.load(), list[str]()
    if accept_gap or rewind_to or from_snapshot:
        tables = [table.name for table in builder.expanded(loaded).config.named_tables]
    flags = parse_recovery_flags(accept_gap, rewind_to, from_snapshot, tables, skip_record)
    again = run_command(config, settings)
    run_config(out, loaded, flags, again, stays_when_refused=stay_when_refused, file=file)


def run_config(
    out: CommandOutput,
    loaded: Config,
    flags: RecoveryFlags,
    command: str,
    *,
    stays_when_refused: bool = False,
    file: ConfigFile | None = None,
) -> None:
    """Run a pipeline, and show its progress. Raises as `run` does.

    command: the command to run it again, for messages
    stays_when_refused: after a refusal, end only after a signal
    file: the file of the configuration, for reloads; None if there is none
    """
    import asyncio

    from tidelake.cli.rendering.disk_full import DiskFull, pipeline_disk_full_text
    from tidelake.ingest.pipeline import builder, service
    from tidelake.storage.fileio.disk_space import find_disk_full_error

    watch = _ProgressLine()
    with _live_progress(out, watch):
        try:
            run = service.run(loaded, watch.begin, flags, command, stays_when_refused=stays_when_refused, file=file)
            progress = asyncio.run(run)
        except Exception as error:
            if (full := find_disk_full_error(error)) is None:
                raise
            tables = [table.name for table in builder.expanded(loaded).config.named_tables]
            raise DiskFull(pipeline_disk_full_text(full, command, loaded.warehouse, tables)) from error
    if out.is_json:
        out.document(_summary(progress, watch.seconds))
    else:
        out.note(f"{progress.ended}: {watch.line()}")
        for kind, count in sorted(progress.skipped.items()):
            out.note(f"  skipped, {kind}: {count:,}")
        for partition, offset in sorted(progress.unused_skips):
            out.note(
                f"  --skip-record {partition.topic}:{partition.partition}:{offset} had no effect: nothing failed there"
            )
        if progress.dead_letters:
            out.note(f"  dead letters: {progress.dead_letters:,}")
    if progress.ended == "stopped at once":
        raise StoppedAtOnce("stopped before everything was committed; the rest is read again at the next start")


def run_command(config: str, settings: Sequence[str]) -> str:
    """Return the command to run this pipeline again, ready to be pasted; the user has to fill in secrets."""
    from tidelake.ingest.secrets import HIDDEN, SECRET_NAME

    shown_settings = (
        f"{name}={HIDDEN if SECRET_NAME.search(name) else value}"
        for name, _, value in (setting.partition("=") for setting in settings)
    )
    flags = [part for setting in shown_settings for part in ("--set", setting)]
    return shlex.join(["tidelake", "ingest", "run", str(Path(config).absolute()), *flags])


class _ProgressLine:
    """The progress of a running pipeline, as one line."""

    def __init__(self) -> None:
        from tidelake.ingest.clock import SystemClock
        from tidelake.ingest.monitoring.observations import RunObservations
        from tidelake.ingest.pipeline.run_metrics import RunMetrics

        self._marks: deque[tuple[float, int]] = deque()
        self.begin(RunMetrics(RunObservations(0, SystemClock())))

    def begin(self, progress: RunMetrics) -> None:
        self._progress = progress
        self._started = env.monotonic_s()

    @property
    def seconds(self) -> float:
        return env.monotonic_s() - self._started

    def line(self) -> str:
        """Return the progress of the whole run."""
        return self._line(self._progress.records, self.seconds)

    def _line(self, records: int, seconds: float) -> str:
        """Return one line of progress.

        records: read in these seconds, for the rate
        seconds: for the rate
        """
        progress = self._progress
        parts = [
            f"{progress.records:,} records ({size_text(progress.source_bytes)})",
            f"{progress.rows:,} rows",
            f"{progress.checkpoints:,} checkpoint{'' if progress.checkpoints == 1 else 's'}",
            f"{self.seconds:,.1f} s",
            f"{records / max(seconds, 0.001):,.0f} records/s",
        ]
        return " · ".join(parts)

    def __rich__(self) -> Text:
        """Return the progress with the rate of the last seconds, and the newest snapshots."""
        from rich.text import Text

        self._marks.append((self.seconds, self._progress.records))
        while self._marks[0][0] < self.seconds - _RATE_SECONDS:
            self._marks.popleft()
        since, before = self._marks[0]
        newest = "  ".join(f"{table} #{snapshot}" for table, snapshot in sorted(self._progress.snapshots.items()))
        line = self._line(self._progress.records - before, self.seconds - since)
        return Text(f"{line}\n{newest}".rstrip())


def _live_progress(out: CommandOutput, watch: _ProgressLine) -> AbstractContextManager[Any]:
    """Show the progress line while the pipeline runs, if standard error is a terminal."""
    if out.is_json or out.logs_json or not out.error_console.is_terminal:
        return nullcontext()
    from rich.live import Live

    return Live(watch, console=out.error_console, refresh_per_second=4, transient=True)


def _summary(progress: RunMetrics, seconds: float) -> dict[str, Any]:
    return {
        "ended": progress.ended,
        "records": progress.records,
        "source_bytes": progress.source_bytes,
        "rows": progress.rows,
        "skipped": dict(progress.skipped),
        "dead_letters": progress.dead_letters,
        **(
            {"unused_skips": [f"{p.topic}:{p.partition}:{offset}" for p, offset in sorted(progress.unused_skips)]}
            if progress.unused_skips
            else {}
        ),
        "checkpoints": progress.checkpoints,
        "snapshots": progress.snapshots,
        "seconds": round(seconds, 3),
    }
