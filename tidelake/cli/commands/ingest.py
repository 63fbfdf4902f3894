"""`tidelake ingest …`: runs a pipeline on this machine."""

from __future__ import annotations

import asyncio
import shlex
import time
from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidelake.checkpoint.moved_rows_state import MovedRowsState
from tidelake.checkpoint.offsets import SourcePosition
from tidelake.cli.formatting import offsets_by_topic, size_text
from tidelake.cli.output import CommandOutput
from tidelake.cli.rendering.disk_full import DiskFull, pipeline_disk_full_text
from tidelake.cli.rendering.estimate import print_estimate
from tidelake.ingest.clock import SystemClock
from tidelake.ingest.config.config import load_config, shown
from tidelake.ingest.evolution.behavior import SchemaBehavior
from tidelake.ingest.monitoring.observations import RunObservations
from tidelake.ingest.pipeline import builder
from tidelake.ingest.pipeline.pipeline_recovery import RecoveredPipeline
from tidelake.ingest.pipeline.recovery_flags import RecoveryFlags, parse_recovery_flags
from tidelake.ingest.pipeline.run_metrics import RunMetrics
from tidelake.ingest.quarantine.record_log import read_notices
from tidelake.ingest.secrets import HIDDEN, SECRET_NAME
from tidelake.ingest.settings import Config
from tidelake.storage.base.clock import epoch_ms
from tidelake.storage.base.errors import TidelakeError
from tidelake.storage.catalog.opening import open_catalog
from tidelake.storage.fileio import open_file_io
from tidelake.storage.fileio.disk_space import find_disk_full_error

if TYPE_CHECKING:
    from rich.text import Text


_PARTITIONS_SHOWN = 8  # of each table in a plan
_RATE_SECONDS = 5.0  # the time span of the current rate


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
) -> None:
    """Run a pipeline.

    until: `latest` ends at the current end of the source
    until_timestamp: epoch milliseconds of the first record that is not read

    Raises StoppedAtOnce after a second signal: uncommitted records are read again at the next start.
    """
    bounds = ["source.until=end"] if until == "latest" else []
    if until_timestamp is not None:
        bounds = [f"source.until_timestamp_ms={until_timestamp}"]
    loaded = builder.expanded(load_config(Path(config), [*settings, *bounds]))
    tables = [table.name for table in loaded.named_tables]
    flags = parse_recovery_flags(accept_gap, rewind_to, from_snapshot, tables, skip_record)
    run_config(out, loaded, flags, _command(config, settings))


def run_config(out: CommandOutput, loaded: Config, flags: RecoveryFlags, command: str) -> None:
    """Run a pipeline, and show its progress. Raises as `run` does.

    command: the command to run it again, for messages
    """
    tables = [table.name for table in loaded.named_tables]
    watch = _ProgressLine()
    with _live_progress(out, watch):
        try:
            progress = asyncio.run(builder.run(loaded, watch.begin, flags, command))
        except Exception as error:
            if (full := find_disk_full_error(error)) is None:
                raise
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


def _command(config: str, settings: Sequence[str]) -> str:
    """Return the command to run this pipeline again, ready to be pasted; the user has to fill in secrets."""
    shown_settings = (
        f"{name}={HIDDEN if SECRET_NAME.search(name) else value}"
        for name, _, value in (setting.partition("=") for setting in settings)
    )
    flags = [part for setting in shown_settings for part in ("--set", setting)]
    return shlex.join(["tidelake", "ingest", "run", str(Path(config).absolute()), *flags])


class _ProgressLine:
    """The progress of a running pipeline, as one line."""

    def __init__(self) -> None:
        self._marks: deque[tuple[float, int]] = deque()
        self.begin(RunMetrics(RunObservations(0, SystemClock())))

    def begin(self, progress: RunMetrics) -> None:
        self._progress = progress
        self._started = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started

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
    if out.is_json or not out.error_console.is_terminal:
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


# ---------------------------------------------------------------- plan


def plan(
    out: CommandOutput,
    *,
    config: str,
    settings: Sequence[str],
    details: bool = False,
    sample: int = 0,
    accept_gap: Sequence[str] = (),
    rewind_to: Sequence[str] = (),
    from_snapshot: Sequence[str] = (),
    skip_record: Sequence[str] = (),
) -> None:
    """Show where `run` would start. Writes nothing; reads the source's partitions.

    details: list all topics and partitions
    sample: number of the newest records to read for an estimate
    """
    loaded = builder.expanded(load_config(Path(config), settings))
    tables = [table.name for table in loaded.named_tables]
    flags = parse_recovery_flags(accept_gap, rewind_to, from_snapshot, tables, skip_record)
    pipeline = builder.build_pipeline(loaded, flags, _command(config, settings))
    recovered = asyncio.run(pipeline.plan())
    planned = {**_plan(loaded, recovered), "lag": _lag(pipeline.observed)}
    if sample:
        from tidelake.ingest.pipeline.estimate import estimate

        found = asdict(asyncio.run(estimate(loaded, sample)))
        planned |= {"estimate": found["tables"], "obstacles": found["obstacles"], "passed_over": found["passed_over"]}
    if out.is_json:
        out.document(planned)
    else:
        _print_plan(out, planned, details=details)
        if sample:
            print_estimate(out, planned, details=details)


def _plan(config: Config, recovered: RecoveredPipeline) -> dict[str, Any]:
    catalog = open_catalog(config.warehouse, config.warehouse_options)
    settings = shown(config)
    return {
        "pipeline": config.pipeline,
        "last_checkpoint": recovered.last_identifier or None,
        "tables": [
            {
                "name": table.name,
                "exists": table.name in recovered.unreadable or catalog.table_exists(table.name),
                "unreadable": str(recovered.unreadable[table.name]) if table.name in recovered.unreadable else None,
                "match": table.match_patterns,
                "position_from": "start" if table.name in recovered.fresh else "table",
                "next_offsets": offsets_by_topic(recovered.positions.get(table.name, SourcePosition()).ends),
                "moved_rows": _moved_rows(recovered.moved_rows.get(table.name, MovedRowsState())),
                "schema_evolution": str(SchemaBehavior(config.schema_evolution_of(table))),
            }
            for table in config.named_tables
        ],
        "new_tables": [
            {
                "name": table.name,
                "match": table.match_patterns,
                "schema_evolution": str(SchemaBehavior(config.schema_evolution_of(table))),
            }
            for table in config.templates
        ],
        "left_behind": [
            name
            for name in recovered.progress.removed_tables([table.name for table in config.named_tables])
            if catalog.table_exists(name)
        ],
        "differences": [
            {**asdict(difference), "text": str(difference)}
            for difference in builder.configuration_differences(config, recovered.unreadable)
        ],
        "quarantine": quarantined_tables(config),
        "reads_from": offsets_by_topic(recovered.starts),
        "settings": settings,
    }


def _lag(observed: RunObservations) -> dict[str, dict[int, int]] | None:
    """Return the offsets left to read, by topic and partition; None if the source doesn't know them."""
    known = {partition: at.lag for partition, at in observed.partitions.items() if at.end is not None}
    return offsets_by_topic(known) if known else None


def quarantined_tables(config: Config) -> list[dict[str, Any]]:
    """Return the tables in quarantine, with their waiting records."""
    location = config.quarantine_location
    notices = read_notices(open_file_io(location, config.warehouse_options), location)
    return [{**asdict(notice), "since_ms_ago": max(0, epoch_ms() - notice.since_ms)} for notice in notices]


def print_quarantine(out: CommandOutput, quarantined: Sequence[dict[str, Any]]) -> None:
    from rich.text import Text

    for table in quarantined:
        out.console.print(
            Text(
                f"{table['table']} is in quarantine ({table['state']}) for {table['since_ms_ago'] / 1000:,.0f} s, "
                f"{table['attempts']:,} attempts; {table['records']:,} records wait ({size_text(table['nbytes'])})\n"
                f"  {table['reason']}"
            )
        )


def _moved_rows(state: MovedRowsState) -> dict[str, Any] | None:
    """Return the rows that left their key and have not arrived at another."""
    if state.file is None:
        return None
    oldest = None if state.oldest_ms is None else max(0, epoch_ms() - state.oldest_ms)
    return {"rows": state.rows, "bytes": state.nbytes, "oldest_age_ms": oldest, "dropped": state.dropped}


def _print_plan(out: CommandOutput, planned: dict[str, Any], *, details: bool) -> None:
    from rich import box
    from rich.table import Table as Grid
    from rich.text import Text

    settings = planned["settings"]
    facts = Grid.grid(padding=(0, 3, 0, 0))
    facts.add_column(style="bold", no_wrap=True)
    facts.add_column(overflow="fold")
    checkpoint = settings["checkpoint"]
    for name, fact in (
        ("pipeline", planned["pipeline"]),
        ("warehouse", settings["warehouse"]),
        ("source", _source_text(settings["source"])),
        (
            "checkpoint",
            f"every {checkpoint['interval_ms'] / 1000:g} s, or {size_text(checkpoint['bytes_max'])} of records",
        ),
        ("bad records", f"tolerance: {settings['errors']['tolerance']}"),
        ("schema", _schema_evolution_text([*planned["tables"], *planned["new_tables"]])),
        ("lag", _lag_text(planned["lag"])),
        ("last one", f"checkpoint {planned['last_checkpoint'] or 'none: this pipeline has never committed'}"),
    ):
        facts.add_row(name, Text(str(fact)))
    grid = Grid(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    for title in ("table", "reads", "state", "continues at"):
        grid.add_column(title, overflow="fold")
    for table in planned["tables"]:
        state = "exists" if table["exists"] else "created at its first record"
        position = _position_text(table, details)
        if table["unreadable"] is not None:
            state, position = "can't be read", "unknown: the table is left out until it can be read"
        grid.add_row(*map(Text, (table["name"], ", ".join(table["match"]), state, position)))
    for table in planned["new_tables"]:
        state = "created when a record names it"
        grid.add_row(*map(Text, (table["name"], ", ".join(table["match"]), state, "the first record")))
    moved_rows_lines = [
        Text(f"{table['name']}: {_moved_rows_text(table['moved_rows'])}")
        for table in planned["tables"]
        if table["moved_rows"] is not None
    ]
    for shown_part in (facts, Text(), grid, *([Text()] if moved_rows_lines else []), *moved_rows_lines):
        out.console.print(shown_part)
    for table in planned["tables"]:
        if table["unreadable"] is not None:
            out.console.print(Text(table["unreadable"]))
    print_quarantine(out, planned["quarantine"])
    for name in planned["left_behind"]:
        text = f"{name}: the pipeline wrote to it before, but no entry names it now: it gets no more records"
        out.console.print(Text(text))
    for difference in planned["differences"]:
        remedy = f"; {difference['command']}" if difference["command"] else ""
        out.console.print(Text(f"{difference['text']}: the table is not changed{remedy}"))


def _schema_evolution_text(tables: Sequence[dict[str, Any]]) -> str:
    """Return how changes of the source's columns are handled, by table if they differ."""
    texts = {table["name"]: table["schema_evolution"] for table in tables}
    if len(set(texts.values())) == 1:
        return str(next(iter(texts.values())))
    return "\n".join(f"{name}: {text}" for name, text in texts.items())


def _lag_text(lag: dict[str, dict[int, int]] | None) -> str:
    if lag is None:
        return "unknown: the source doesn't report where it ends, or has no records yet"
    total = sum(sum(partitions.values()) for partitions in lag.values())
    return f"at most {total:,} records to read" if total else "nothing to read"


def _moved_rows_text(moved: dict[str, Any]) -> str:
    text = f"rows that left their key and have not arrived at another: {moved['rows']:,} ({size_text(moved['bytes'])})"
    if moved["oldest_age_ms"] is not None:
        text += f"; the oldest left {moved['oldest_age_ms'] / 1000:,.0f} s ago"
    return text + (f"; {moved['dropped']:,} more are not kept" if moved["dropped"] else "")


def _source_text(source: dict[str, Any]) -> str:
    if source["type"] == "kafka":
        topics = source["topic_pattern"] or source["topics"]
        names = topics if isinstance(topics, str) else ", ".join(topics)
        servers = source["bootstrap_servers"]
        at = servers if isinstance(servers, str) else ", ".join(servers)
        return f"Kafka at {at} · {names} · start: {source['start']} · until: {source['until']}"
    return f"folder {source['path']} · until: {source['until']}"


def _position_text(table: dict[str, Any], details: bool) -> str:
    topics = table["next_offsets"]
    partitions = sum(map(len, topics.values()))
    if partitions > _PARTITIONS_SHOWN and not details:
        where = "from `start`" if table["position_from"] == "start" else "its own position"
        topics_text = f"{len(topics)} topics" if len(topics) > 1 else next(iter(topics))
        return f"{where}: {topics_text}, {partitions:,} partitions (--details)"
    lines = [
        f"{topic} {' '.join(f'{partition}: {offset:,}' for partition, offset in ends.items())}"
        for topic, ends in table["next_offsets"].items()
    ]
    if table["position_from"] == "start":
        lines += ["from `start`"] * bool(lines)
    return "\n".join(lines or ["the first record"])
