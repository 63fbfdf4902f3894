"""The tables of a pipeline that are in quarantine, as JSON members and for people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from tidelake.cli.formatting import size_text
from tidelake.cli.output import CommandOutput
from tidelake.ingest.config.lower_case import lower_case_for_catalog
from tidelake.ingest.quarantine.record_log import read_notices
from tidelake.ingest.settings import Config
from tidelake.ingest.tables.existing_tables import candidates_of
from tidelake.ingest.tables.table_templates import TableTemplates
from tidelake.storage.base.clock import epoch_ms
from tidelake.storage.fileio import open_file_io


def quarantined_tables(config: Config) -> list[dict[str, Any]]:
    """Return the tables in quarantine, with their waiting records. Tables that no entry names any more are left out."""
    location = config.quarantine_location
    notices = read_notices(open_file_io(location, config.warehouse_options), location)
    config = lower_case_for_catalog(config)
    templates, named = TableTemplates(config.tables), {table.name for table in config.named_tables}
    return [
        {**asdict(notice), "since_ms_ago": max(0, epoch_ms() - notice.since_ms)}
        for notice in notices
        if notice.table in named or candidates_of(templates, notice.table, notice.sources or None)
    ]


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
