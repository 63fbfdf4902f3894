"""Prints the result of `tidelake table scan --explain`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict

from tidelake.cli.formatting import printable
from tidelake.cli.output import CommandOutput
from tidelake.storage.read.explain import ExplainedFile


def print_explained_scan(
    out: CommandOutput, files: Sequence[ExplainedFile], snapshot_id: int | None, estimated_rows: int | None = None
) -> None:
    """Print the files that a scan reads.

    files: all files of the snapshot
    estimated_rows: rows of the result, estimated from the last `table analyze`
    """
    if out.is_json:
        head = {"snapshot": snapshot_id, "estimatedRows": estimated_rows}
        out.document({**head, "files": [_members(file) for file in files]})
        return
    if snapshot_id is None:
        out.note("the table has no snapshot yet: nothing was committed")
        return
    read = [file for file in files if file.left_out is None]
    counts = Counter(file.left_out for file in files if file.left_out is not None)
    why = "".join(f", {count} skipped by {reason}" for reason, count in sorted(counts.items()))
    rows, read_rows = (sum(file.row_count for file in group) for group in (files, read))
    _line(out, f"snapshot {snapshot_id}: {len(files)} files with {rows:,} rows")
    _line(out, f"{len(read)} are read, with {read_rows:,} rows{why}")
    if estimated_rows is not None:
        _line(out, f"about {estimated_rows:,} rows in the result, estimated from `table analyze`")
    place = None
    for file in files:
        if place != (file.partition, file.bucket):
            place = (file.partition, file.bucket)
            _line(out, f"{file.partition + '/' if file.partition else ''}bucket-{file.bucket}")
        deleted = f", {file.deleted_rows:,} deleted" if file.deleted_rows else ""
        mark = "*" if file.left_out is None else " "
        _line(out, f"{mark} {file.file_name} (level {file.level}, {file.row_count:,} rows{deleted}): {file.reason}")


def _members(file: ExplainedFile) -> dict[str, object]:
    found = asdict(file)
    names = {
        "partition": "partition",
        "bucket": "bucket",
        "file_name": "file",
        "level": "level",
        "row_count": "rows",
        "deleted_rows": "deletedRows",
        "index_rows": "indexRows",
        "is_merged": "merged",
        "left_out": "leftOutBy",
    }
    return {**{to: found[name] for name, to in names.items()}, "read": file.left_out is None, "reason": file.reason}


def _line(out: CommandOutput, text: str) -> None:
    out.console.print(printable(text, may_break=True), soft_wrap=True)
