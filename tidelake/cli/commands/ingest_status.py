"""`tidelake ingest status`: a running pipeline's status from its endpoint, and quarantined tables of the warehouse."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tidelake.cli.arguments import Commands, add_config, command
from tidelake.cli.exits import ExitCode
from tidelake.cli.formatting import age_text, size_text
from tidelake.cli.output import CommandOutput
from tidelake.errors import BadInput, TidelakeError
from tidelake.storage.base import env

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from tidelake.ingest.settings import Config

_LIMIT_S: Final = 10
_REFRESH_INTERVAL_S: Final = 2.0
_ANY_ADDRESS: Final = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}


def add_status(verbs: Commands) -> None:
    summary = "show the status of a running pipeline; exit code 1 if it is unhealthy"
    parser = command(verbs, "status", status, summary, example="tidelake ingest status shop.yaml --watch")
    add_config(parser)
    parser.add_argument("--url", help="URL of its endpoint; default: from `metrics`, on this machine")
    parser.add_argument("--watch", action="store_true", help="repeat every 2 s, until Ctrl-C")


class PipelineUnreachable(TidelakeError):
    """No pipeline answers at the endpoint. It may not be running, or have no endpoint."""


def status(
    out: CommandOutput, *, config: str, settings: Sequence[str], url: str | None = None, watch: bool = False
) -> ExitCode:
    """Show a pipeline's status.

    Returns exit code 1 if the pipeline is not ready or does not answer, or a table is in quarantine.

    watch: repeat until Ctrl-C.
    """
    from tidelake.cli.rendering.quarantine import quarantined_tables
    from tidelake.ingest.config.config import load_config

    loaded = load_config(Path(config), settings)
    address = url or _address(loaded)
    while True:
        running, reason = _fetch_status_or_reason(address)
        quarantined = quarantined_tables(loaded)
        if out.is_json:
            members = {"pipeline": loaded.pipeline, "tables": [table.name for table in loaded.named_tables]}
            out.lines([{**members, "quarantine": quarantined, "running": running}])
        else:
            if watch and out.console.is_terminal:
                out.console.clear()
            _print_status(out, loaded.pipeline, running, reason, quarantined)
        if not watch:
            failed = [table for table in quarantined if table["state"] != "paused"]
            is_healthy = not failed and (address is None or (running is not None and running["ready"]))
            return ExitCode.DONE if is_healthy else ExitCode.FAILED
        env.sleep(_REFRESH_INTERVAL_S)


def _fetch_status_or_reason(address: str | None) -> tuple[dict[str, Any] | None, str]:
    """Return the pipeline's status, or the reason why it does not answer."""
    if address is None:
        reason = "the configuration has no `metrics.port`, so a running pipeline can't be asked"
        return None, f"{reason}; pass the address of its endpoint with --url"
    try:
        return _fetch_status(address), ""
    except PipelineUnreachable as error:
        return None, str(error)


def _address(config: Config) -> str | None:
    """Return the endpoint's address; None if the configuration has no port."""
    metrics = config.metrics
    return f"http://{_ANY_ADDRESS.get(metrics.host, metrics.host)}:{metrics.port}" if metrics.port else None


def _fetch_status(address: str) -> dict[str, Any]:
    import urllib.error
    import urllib.request

    url = f"{address.rstrip('/')}/status"
    if not url.startswith(("http://", "https://")):
        raise BadInput(f"--url {address}: not an http address. Example: http://host:9404")
    try:
        with urllib.request.urlopen(url, timeout=_LIMIT_S) as answer:
            found = json.load(answer)
    except (OSError, ValueError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise PipelineUnreachable(
            f"no answer at {url}: {reason}. Check that the pipeline runs on this machine with this `metrics.port`. If "
            "it runs elsewhere, pass --url"
        ) from error
    if not isinstance(found, dict) or "pipeline" not in found or "tables" not in found:
        raise PipelineUnreachable(
            f"the answer at {url} is not from a pipeline of Tidelake. Pass its address with --url"
        )
    return found


# ---------------------------------------------------------------- for people


def _print_status(
    out: CommandOutput,
    pipeline: str,
    running: dict[str, Any] | None,
    reason: str,
    quarantined: Sequence[dict[str, Any]],
) -> None:
    from tidelake.cli.rendering.quarantine import print_quarantine

    if running is None:
        out.note(reason)
        if not quarantined:
            out.note(f"{pipeline}: no table is in quarantine")
    else:
        out.console.print(_rendered(running))
    print_quarantine(out, quarantined)


def _rendered(found: dict[str, Any]) -> RenderableType:
    from rich import box
    from rich.console import Group
    from rich.table import Table as Grid
    from rich.text import Text

    head = Text.assemble(
        (found["pipeline"], "bold"),
        "  ",
        ("ready", "green") if found["ready"] else ("not ready", "bold red"),
        f"  {found['state'].lower().replace('_', ' ')} for {age_text(found['now_ms'] - found['started_at_ms'])}",
    )
    reasons = [Text(f"  {one['reason']}", "red") for one in found["reasons"]]
    grid = Grid(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    grid.add_column("table", overflow="fold")
    for title in ("freshness", "rows", "snapshot", "commit", "files", "size", "sorted runs"):
        grid.add_column(title, justify="right")
    for table in found["tables"]:
        grid.add_row(*_table_cells(table))
    kept = found.get("freshness")
    promised = [] if kept is None else [Text(_freshness_text(kept, found["checkpoint"]["interval_ms"]))]
    return Group(head, *reasons, _totals(found), *promised, Text(), grid)


def _freshness_text(kept: dict[str, Any], interval_ms: int) -> str:
    """Return what was promised and reached, what binds and why, and what an hour costs."""
    reached = "unknown" if kept["reached_ms"] is None else f"{kept['reached_ms'] / 1000:,.1f} s"
    binds = "nothing binds" if kept["binds"] == "nothing" else f"{kept['binds']} binds"
    parts = [
        f"freshness {reached} of {kept['target_ms'] / 1000:g} s for {kept['table']}",
        f"a checkpoint every {interval_ms:,} ms",
        f"{binds}: {kept['reason']}",
    ]
    if (hour := kept["hour"]) is not None:
        price = f" ({hour['price']:.4f} {hour['currency']})" if hour["price"] else ""
        size = size_text(round(hour["nbytes"]))
        parts.append(f"an hour costs {hour['puts'] + hour['gets']:,.0f} requests{price}, {size}")
    return " · ".join(parts)


def _totals(found: dict[str, Any]) -> Text:
    from rich.text import Text

    recent = found["checkpoint"]["recent"]
    parts = [
        _lag_text(found),
        f"{found['records']:,} records ({size_text(found['bytes'])})",
        f"checkpoints: {found['checkpoint']['count']:,}"
        + (f", the last took {recent[-1]['took_ms']:,} ms" if recent else ""),
        f"buffers {size_text(found['write_buffer']['bytes'])}",
        f"compactions {found['compactions']['running']} running, {found['compactions']['waiting']} waiting",
        f"dead letters {sum(found['dead_letters'].values()):,}",
    ]
    return Text(" · ".join(parts))


def _lag_text(found: dict[str, Any]) -> str:
    if found["lag"] is None:
        return "lag unknown: the source does not answer"
    return f"lag {found['lag']:,}" + (f" ({age_text(found['lag_ms'])})" if found["lag"] else "")


def _table_cells(table: dict[str, Any]) -> list[Text]:
    from rich.text import Text

    def known(value: Any, text: str) -> str:
        return "–" if value is None else text

    name = Text(table["name"])
    if table["held_back"]:
        name.append("\nheld back", "red")  # the reason is printed above
    if (rows := table.get("bootstrap_rows")) is not None:
        name.append(f"\nbootstrapping {rows:,} rows", "yellow")
    cells = [
        known(table["freshness_ms"], age_text(table["freshness_ms"] or 0)),
        ("≤ " if table.get("rows_are_exact") is False else "") + f"{table['rows']:,}",
        known(table["snapshot_id"], f"#{table['snapshot_id']}"),
        known(table["commit_ms"], f"{table['commit_ms']} ms"),
        known(table["files"], f"{table['files']}"),
        known(table["file_bytes"], size_text(table["file_bytes"] or 0)),
        known(table["sorted_runs_max"], f"{table['sorted_runs_max']}"),
    ]
    return [name, *map(Text, cells)]
