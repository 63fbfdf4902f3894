"""`tidelake ingest pause`, `resume` and `release`: one table of a running pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tidelake.cli.arguments import Commands, add_config, command
from tidelake.cli.output import CommandOutput
from tidelake.errors import BadInput

if TYPE_CHECKING:
    from tidelake.ingest.settings import Config
    from tidelake.storage.fileio.base import FileIO


def add_requests(verbs: Commands) -> None:
    pausing = command(
        verbs,
        "pause",
        pause,
        "stop writing one table of a pipeline; the others continue",
        "Its records wait in the quarantine, as those of a table that fails, also after a restart, until `resume`. A\n"
        "running pipeline takes this within 5 s, otherwise the next start does.",
        example="tidelake ingest pause shop.yaml shop.orders",
    )
    resuming = command(
        verbs,
        "resume",
        resume,
        "continue a paused table, with the records that waited",
        example="tidelake ingest resume shop.yaml shop.orders",
    )
    releasing = command(
        verbs,
        "release",
        release,
        "retry a table in quarantine now, instead of after its wait",
        example="tidelake ingest release shop.yaml shop.orders",
    )
    for parser in (pausing, resuming, releasing):
        add_config(parser)
        parser.add_argument("table", metavar="TABLE", help="database.table")


def pause(out: CommandOutput, *, config: str, settings: Sequence[str], table: str) -> None:
    """Ask the pipeline to pause the table."""
    from tidelake.ingest.quarantine import table_requests

    io, loaded = _opened(config, settings, table)
    is_new = table_requests.pause(io, loaded.quarantine_location, table)
    _say(out, table, "is paused" if is_new else "was paused already")


def resume(out: CommandOutput, *, config: str, settings: Sequence[str], table: str) -> None:
    """Ask the pipeline to continue with the table."""
    from tidelake.ingest.quarantine import table_requests

    io, loaded = _opened(config, settings, table)
    was_paused = table_requests.resume(io, loaded.quarantine_location, table)
    if any(entry.name == table and entry.paused for entry in loaded.tables):
        raise BadInput(f"{table} stays paused, because the configuration says so: remove `paused: true`")
    _say(out, table, "is resumed" if was_paused else "was not paused")


def release(out: CommandOutput, *, config: str, settings: Sequence[str], table: str) -> None:
    """Ask the pipeline to retry the table now."""
    from tidelake.ingest.quarantine import table_requests

    io, loaded = _opened(config, settings, table)
    table_requests.release(io, loaded.quarantine_location, table)
    _say(out, table, "is retried at once if it is in quarantine")


def _opened(config: str, settings: Sequence[str], table: str) -> tuple[FileIO, Config]:
    """Return the files of the quarantine, and the configuration.

    Raises BadInput for a table that the pipeline doesn't write, and for a pipeline without quarantine.
    """
    from tidelake.ingest.config.config import load_config
    from tidelake.ingest.config.lower_case import lower_case_for_catalog
    from tidelake.ingest.tables.existing_tables import candidates_of
    from tidelake.ingest.tables.table_templates import TableTemplates
    from tidelake.storage.fileio import open_file_io
    from tidelake.storage.model.messages import did_you_mean

    loaded = lower_case_for_catalog(load_config(Path(config), settings))
    names = [entry.name for entry in loaded.named_tables]
    if table not in names and not candidates_of(TableTemplates(loaded.tables), table, None):
        raise BadInput(f"{loaded.pipeline} has no table {table}{did_you_mean(table, names)}")
    if not loaded.has_quarantine:
        raise BadInput(
            f"{loaded.pipeline} has no quarantine, where the records of {table} would wait: it has one table, masks "
            "columns, or sets `quarantine.enabled: false`. Stop the pipeline instead"
        )
    return open_file_io(loaded.quarantine_location, loaded.warehouse_options), loaded


def _say(out: CommandOutput, table: str, what: str) -> None:
    if out.is_json:
        out.document({"table": table, "state": what})
    else:
        out.note(f"{table} {what}")
