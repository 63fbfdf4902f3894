"""The versions of a row, as JSON members and for people."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from tidelake.cli.formatting import cut_text, value_text
from tidelake.cli.output import CommandOutput
from tidelake.row_origin import members_of_version, merge_description, plain_row, source_ranges, writer_of
from tidelake.storage.maintenance.verify.row_history import RowHistory
from tidelake.table import Table

_VALUE_CELLS: Final = 80


def history_members(table: Table, history: RowHistory) -> dict[str, Any]:
    return {
        "key": plain_row(history.key),
        "snapshot": history.snapshot.id,
        "visible": None if history.visible is None else plain_row(history.visible),
        "merge": merge_description(table.context, history),
        "versions": [members_of_version(version) for version in history.versions],
        "changes": [
            {"snapshot": change.snapshot.id, "kind": change.kind.symbol, "row": plain_row(change.row)}
            for change in history.changes
        ],
    }


def print_history(out: CommandOutput, table: Table, history: RowHistory) -> None:
    out.text(f"{row_text(history.key)} of {table.name} at snapshot {history.snapshot.id}:")
    out.text(f"  {row_text(history.visible)}" if history.visible is not None else "  no row")
    out.text(f"  {merge_description(table.context, history)}")
    if history.versions:
        out.text("versions in files, oldest first; *: merged by a read of this snapshot")
    for version in history.versions:
        at = "?" if version.snapshot is None else str(version.snapshot.id)
        mark = "*" if version.is_live else " "
        out.text(
            f"{mark} #{at} {version.kind.symbol} {row_text(version.row)}\n"
            f"     sequence {version.sequence_number}, level {version.level}, bucket {version.bucket}, "
            f"{version.file_name}, by {writer_of(version)}",
        )
        for source, (start, end) in source_ranges(version.snapshot).items():
            out.text(f"     source {source}: offsets {start} to {end - 1}")
    out.text("changelog, oldest first" if history.changes else "the changelog has no change of this key")
    for change in history.changes:
        out.text(f"  #{change.snapshot.id} {change.kind.symbol} {row_text(change.row)}")


def row_text(row: pa.RecordBatch | None) -> str:
    """Return a row as text. Long values are cut; `--json` prints them whole."""
    if row is None:
        return "no row"
    return " ".join(f"{name}={cut_text(value_text(value), _VALUE_CELLS)}" for name, value in plain_row(row).items())
