"""`tidelake dead-letters …`: the dead letters of a pipeline, in a table."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidelake.cli.arguments import Commands, add_config, add_dry_run, command, positive
from tidelake.cli.output import CommandOutput
from tidelake.errors import BadInput

if TYPE_CHECKING:
    from tidelake.ingest.replay.replay import ReplayReport
    from tidelake.ingest.settings import Config

_PAYLOAD = ("key", "value", "headers")
_LISTED_COLUMNS = (
    "topic",
    "partition",
    "offset",
    "timestamp",
    "error_code",
    "message",
    "replay_outcome",
    "replayed_at",
)
_TIMES = ("timestamp", "failed_at", "replayed_at")
_VALUE_SHOWN = 4_000  # characters shown to people


def add_dead_letters(verbs: Commands) -> None:
    listing = command(
        verbs,
        "list",
        list_,
        "list dead letters with their errors",
        example="tidelake dead-letters list shop.yaml --where \"topic = 'shop.orders'\" --limit 20",
    )
    showing = command(
        verbs,
        "show",
        show,
        "list them with key, value and headers",
        example="tidelake dead-letters show shop.yaml --limit 1",
    )
    replaying = command(
        verbs,
        "replay",
        replay,
        "decode them again and write their rows",
        "Rows are written exactly once. A row that changed since keeps its newer values. Stop the pipeline first.",
        example="tidelake dead-letters replay shop.yaml --dry-run",
    )
    for parser in (listing, showing, replaying):
        add_config(parser)
        parser.add_argument("--where", metavar="CONDITION", help="only these, e.g. \"error_code = 'BAD_RECORD'\"")
    for parser in (listing, showing):
        parser.add_argument("--limit", type=positive, metavar="N", help="at most this many")
    add_dry_run(replaying, "only print what would be done")


def list_(
    out: CommandOutput, *, config: str, settings: Sequence[str], where: str | None = None, limit: int | None = None
) -> None:
    """List dead letters without key, value and headers."""
    from tidelake.ingest.config.config import load_config
    from tidelake.ingest.dead_letter_table import COLUMNS

    columns = tuple(name for name in COLUMNS.names if name not in _PAYLOAD)
    found = _read(load_config(Path(config), settings), where, columns)
    shown = found if limit is None else found[:limit]
    if out.is_json:
        out.lines(map(_members, shown))
        return
    from rich.text import Text

    from tidelake.cli.rendering.grids import plain_grid

    titles = ("topic", "partition", "offset", "time", "code", "message", "replay")
    grid = plain_grid(*titles, right=("partition", "offset"))
    for letter in shown:
        *place, time, code, message, outcome, replayed_at = (letter[name] for name in _LISTED_COLUMNS)
        replay = "" if outcome is None else f"{outcome} {_time_text(replayed_at)}"
        grid.add_row(*(Text(str(cell)) for cell in (*place, _time_text(time), code, message, replay)))
    out.console.print(grid)
    waiting = sum(letter["replayed_at"] is None for letter in found)
    letters = "dead letter" if len(found) == 1 else "dead letters"
    out.note(f"{len(found):,} {letters}, {waiting:,} of them not replayed")


def show(
    out: CommandOutput, *, config: str, settings: Sequence[str], where: str | None = None, limit: int | None = None
) -> None:
    """Show dead letters with key, value and headers."""
    from tidelake.ingest.config.config import load_config
    from tidelake.ingest.dead_letter_table import COLUMNS

    found = _read(load_config(Path(config), settings), where, tuple(COLUMNS.names))
    for letter in found if limit is None else found[:limit]:
        members = _members(letter)
        if out.is_json:
            out.lines([members])
            continue
        from rich.text import Text

        for name, value in members.items():
            if value is not None:
                text = str(value)
                cut = f"… ({len(text):,} characters)" if len(text) > _VALUE_SHOWN else ""
                out.console.print(Text(f"{name:>14}  {text[:_VALUE_SHOWN]}{cut}"))
        out.console.print()


def replay(
    out: CommandOutput,
    *,
    config: str,
    settings: Sequence[str],
    where: str | None = None,
    dry_run: bool = False,
) -> None:
    """Decode dead letters with the current configuration; see docs/dead-letters.md."""
    import asyncio

    from tidelake.ingest.config.config import load_config
    from tidelake.ingest.replay.replay import DeadLetterReplay
    from tidelake.storage.read.condition_text import parse_condition

    condition = None if where is None else parse_condition(where)
    work = DeadLetterReplay(load_config(Path(config), settings))
    reports = asyncio.run(work.run(condition, is_dry=dry_run))
    if out.is_json:
        out.document({"dry_run": dry_run, "replays": [asdict(report) for report in reports]})
        return
    if not reports:
        out.note("there are no dead letters to replay")
    for report in reports:
        _print_report(out, report, dry_run)


def _print_report(out: CommandOutput, report: ReplayReport, dry_run: bool) -> None:
    verb = "would be" if dry_run else "were"
    parts = [
        f"{number:,} {verb if dry_run or number != 1 else 'was'} {outcome}"
        for outcome, number in sorted(report.outcomes.items())
    ]
    out.note("; ".join(parts) or f"none {verb} replayed")
    for table, rows in sorted(report.rows.items()):
        out.note(f"  {table}: {rows:,} {'row' if rows == 1 else 'rows'}")
    for letter in report.remaining:
        out.note(
            f"  not replayed: {letter['topic']}-{letter['partition']} offset {letter['offset']}: {letter['reason']}"
        )


def _read(config: Config, where: str | None, columns: tuple[str, ...]) -> list[dict[str, Any]]:
    from tidelake.ingest.dead_letter_table import DeadLetterTable, values_of
    from tidelake.storage.catalog.opening import open_catalog
    from tidelake.storage.read.condition_text import parse_condition

    if config.dead_letters_table is None:
        raise BadInput(
            f"the dead letters of {config.pipeline} are files in {config.dead_letters}. Set "
            "`errors.dead_letters: {table: database.table}` to keep new ones in a table, which this command reads"
        )
    catalog = open_catalog(config.warehouse, config.warehouse_options)
    condition = None if where is None else parse_condition(where)
    return values_of(DeadLetterTable(catalog, config.dead_letters_table, config.pipeline).read(condition, columns))


def _members(letter: dict[str, Any]) -> dict[str, Any]:
    """Return a dead letter as JSON members. Bytes that are not UTF-8 are base64."""
    members: dict[str, Any] = {}
    for name, value in letter.items():
        if name == "headers":
            members[name] = [
                {"name": header["name"], **_text_or_base64("value", header["value"])} for header in value or ()
            ]
        elif name in _PAYLOAD:
            members.update(_text_or_base64(name, value))
        else:
            members[name] = _time_text(value) if name in _TIMES and value is not None else value
    return members


def _text_or_base64(name: str, data: bytes | None) -> dict[str, str | None]:
    try:
        return {name: None if data is None else data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data or b"").decode()}


def _time_text(time_ms: int | None) -> str:
    """Return a time as text, or the number if no calendar has that year."""
    if time_ms is None:
        return ""
    try:
        time = datetime.fromtimestamp(time_ms // 1000, UTC).replace(microsecond=time_ms % 1000 * 1000)
    except (OverflowError, ValueError, OSError):
        return f"{time_ms} ms"
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
