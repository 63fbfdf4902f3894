"""`tidelake table show`: prints a summary of a table on one page."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidelake.checkpoint.offsets import POSITION_PROPERTY, position_from_text
from tidelake.cli.formatting import offsets_by_topic, partition_text, printable, size_text, utc_text
from tidelake.cli.rendering.grids import plain_grid
from tidelake.cli.rendering.lsm_view import lsm_trees, print_lsm_trees, space_amplification
from tidelake.compaction.compaction_history import CompactionHistory
from tidelake.errors import TidelakeError
from tidelake.storage.commit.manifests.manifest_entry import ManifestEntry
from tidelake.storage.commit.manifests.snapshot_files import live_entries
from tidelake.storage.merge.sequence_groups import late_rows_note
from tidelake.storage.model.binary_row import decode_rows
from tidelake.storage.model.bucketing import Bucketing, BucketMode
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types.json_values import json_rows
from tidelake.table import Table

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as Grid

_BUCKETS_SHOWN_MAX = 20
_PARTITIONS_SHOWN_MAX = 8  # of a source topic
_SNAPSHOTS_READ = 30  # for compactions: each costs two or three small reads
_COMPACTIONS_SHOWN = 5

TableSummary = dict[str, Any]


def summarize_table(table: Table) -> TableSummary:
    """Return a table's summary as plain values, for `--json` and for `print_table_summary`."""
    context = table.context
    schema = context.schema
    store = context.snapshots
    latest = store.latest()
    entries = [] if latest is None else live_entries(context, latest)
    partitions = _partition_values(context, {entry.partition for entry in entries})
    trees = lsm_trees(context, entries, partitions)
    history = CompactionHistory.of(context, latest, _SNAPSHOTS_READ)
    return {
        "name": context.name,
        "branch": context.branch,
        "location": context.location,
        "comment": schema.comment,
        "schema_id": schema.id,
        "columns": [
            {"id": f.id, "name": f.name, "type": str(f.type), "description": f.description} for f in schema.fields
        ],
        "primary_key": list(schema.primary_keys),
        "partition_by": list(schema.partition_keys),
        "buckets": _buckets(context),
        "options": dict(sorted(context.options.items())),
        "late_rows": late_rows_note(schema, context.options) if schema.has_primary_key else None,
        "snapshot": None if latest is None else _snapshot(latest),
        "earliest_snapshot": store.earliest_id(),
        "tags": {name: snapshot.id for name, snapshot in table.tags().items()},
        "files": _files(entries, partitions),
        "trees": trees,
        "space_amplification": space_amplification(trees),
        "history": {
            "snapshots": history.snapshots,
            "write_amplification": history.write_amplification,
            "compactions": [asdict(one) for one in history.compactions],
            "commits": history.commits,
            "data_puts": history.data_puts,
            "metadata_puts": history.metadata_puts,
        },
    }


def _buckets(context: TableContext) -> TableSummary:
    bucketing = Bucketing.of(context.schema, context.options)
    return {
        "mode": bucketing.mode.name.lower(),
        "count": bucketing.num_buckets if bucketing.mode is BucketMode.FIXED else None,
        "key": list(bucketing.key_columns),
    }


def _snapshot(snapshot: Snapshot) -> TableSummary:
    text = snapshot.properties.get(POSITION_PROPERTY)
    return {
        "id": snapshot.id,
        "time_ms": snapshot.time_ms,
        "kind": snapshot.commit_kind.value,
        "commit_user": snapshot.commit_user,
        "commit_identifier": snapshot.commit_identifier,
        "rows_in_files": snapshot.total_record_count,
        "rows_added": snapshot.delta_record_count,
        "watermark": snapshot.watermark,
        "next_offsets": None if text is None else _next_offsets(text),
    }


def _next_offsets(text: str) -> dict[str, dict[int, int]] | None:
    """Return topic -> partition -> next offset; None for a position that only a newer release can read."""
    try:
        position = position_from_text(text, "the newest snapshot")
    except TidelakeError:
        return None
    return offsets_by_topic(position.ends)


def _files(entries: Sequence[ManifestEntry], partitions: Mapping[bytes, TableSummary]) -> list[TableSummary]:
    """Return one entry per partition, bucket and level, in this order."""
    groups: dict[tuple[bytes, int, int], list[ManifestEntry]] = defaultdict(list)
    for entry in entries:
        groups[entry.partition, entry.bucket, entry.file.level].append(entry)
    return [
        {
            "partition": partitions[partition],
            "bucket": bucket,
            "level": level,
            "files": len(of_level),
            "rows": sum(entry.file.row_count for entry in of_level),
            "bytes": sum(entry.file.file_size for entry in of_level),
        }
        for (partition, bucket, level), of_level in sorted(groups.items(), key=lambda item: item[0])
    ]


def _partition_values(context: TableContext, partitions: Iterable[bytes]) -> Mapping[bytes, TableSummary]:
    rows = sorted(partitions)
    fields = context.schema.partition_fields
    if not fields:
        return {row: {} for row in rows}
    table = pa.table(decode_rows(rows, [field.type for field in fields]), names=[field.name for field in fields])
    return dict(zip(rows, json_rows(table), strict=True))


# ---------------------------------------------------------------- for people


def print_table_summary(console: Console, summary: TableSummary, *, all_buckets: bool) -> None:
    from rich.text import Text

    branch = "" if summary["branch"] == "main" else f" (branch {summary['branch']})"
    console.print(Text(printable(summary["name"] + branch), style="bold"))
    console.print(Text(printable(summary["location"]), style="dim"), soft_wrap=True)
    if summary["comment"]:
        console.print(Text(printable(summary["comment"], may_break=True)))
    console.print()
    console.print(_column_grid(summary))
    console.print()
    console.print(_fact_grid(summary))
    if summary["files"]:
        console.print()
        console.print(_file_grid(summary["files"], all_buckets=all_buckets))
        console.print()
        print_lsm_trees(console, summary["trees"], show_all=all_buckets)
        _print_history(console, summary["history"], summary["space_amplification"])


def _column_grid(summary: TableSummary) -> Grid:
    from rich.text import Text

    partition_by, bucket_key = summary["partition_by"], summary["buckets"]["key"]
    usual_bucket_key = [name for name in summary["primary_key"] if name not in partition_by]
    roles = {
        "primary key": summary["primary_key"],
        "partition": partition_by,
        "bucket key": bucket_key if bucket_key != usual_bucket_key else [],
    }
    has_descriptions = any(column["description"] for column in summary["columns"])
    grid = plain_grid("column", "type", "", *(["description"] if has_descriptions else []))
    for column in summary["columns"]:
        own_roles = ", ".join(role for role, names in roles.items() if column["name"] in names)
        cells = [Text(printable(column["name"])), Text(printable(column["type"])), Text(own_roles, style="cyan")]
        description = Text(printable(column["description"] or "", may_break=True), style="dim")
        grid.add_row(*cells, *([description] if has_descriptions else []))
    return grid


def _fact_grid(summary: TableSummary) -> Grid:
    from rich.table import Table as Grid
    from rich.text import Text

    grid = Grid.grid(padding=(0, 3, 0, 0))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    facts: list[tuple[str, str]] = [("keys", _keys(summary)), ("schema", f"version {summary['schema_id']}")]
    facts += [("options" if not n else "", f"{k} = {v}") for n, (k, v) in enumerate(summary["options"].items())]
    facts += [("late rows", summary["late_rows"])] if summary["late_rows"] else []
    facts += _snapshot_facts(summary)
    for name, fact in facts:
        grid.add_row(name, Text(printable(fact)))
    return grid


def _print_history(console: Console, history: TableSummary, space: float | None) -> None:
    """Print recent compactions, newest first, with write and space amplification."""
    from rich.text import Text

    compactions, write = history["compactions"], history["write_amplification"]
    looked_at = f"the last {history['snapshots']:,} snapshots" if history["snapshots"] > 1 else "the one snapshot"
    many = f"{len(compactions) or 'no'} compaction{'' if len(compactions) == 1 else 's'}"
    costs = [f"{many} in {looked_at}"]
    costs += [] if write is None else [f"write amplification {write:.2f}"]
    costs += [] if space is None else [f"space amplification {space:.2f}"]
    console.print(Text(" · ".join(costs)))
    if commits := history["commits"]:
        data, metadata = (history[name] / commits for name in ("data_puts", "metadata_puts"))
        console.print(Text(f"files put for each commit: {data:.1f} of data, {metadata:.1f} of metadata"))
    if not compactions:
        return
    grid = plain_grid("snapshot", "committed (UTC)", "buckets", "files", "size", "why")
    for column in grid.columns[:-1]:
        column.no_wrap = True
    for column in (grid.columns[0], *grid.columns[2:5]):
        column.justify = "right"
    for one in compactions[:_COMPACTIONS_SHOWN]:
        cells = (
            str(one["snapshot_id"]),
            utc_text(one["time_ms"]),
            f"{one['buckets']:,}",
            f"{one['files_before']:,} → {one['files_after']:,}",
            f"{size_text(one['bytes_before'])} → {size_text(one['bytes_after'])}",
            one["reason"] or "unknown",
        )
        grid.add_row(*(Text(printable(cell)) for cell in cells))
    console.print(grid)


def _keys(summary: TableSummary) -> str:
    buckets = summary["buckets"]
    key = ", ".join(summary["primary_key"])
    parts = [f"primary key {key}" if key else "no primary key: rows are only added"]
    if summary["partition_by"]:
        parts.append(f"partitioned by {', '.join(summary['partition_by'])}")
    if buckets["count"] is not None:
        plural = "" if buckets["count"] == 1 else "s"
        parts.append(f"{buckets['count']} bucket{plural} by {', '.join(buckets['key'])}")
    else:
        parts.append(f"buckets: {buckets['mode'].replace('_', ' ')}")
    return " · ".join(parts)


def _snapshot_facts(summary: TableSummary) -> list[tuple[str, str]]:
    snapshot = summary["snapshot"]
    if snapshot is None:
        return [("snapshot", "none yet: nothing was committed")]
    facts = [
        ("snapshot", f"{snapshot['id']} · {snapshot['kind']} · {utc_text(snapshot['time_ms'])} UTC"),
        ("", f"by {snapshot['commit_user']}"),
        (
            "",
            f"{snapshot['rows_in_files']:,} rows in files before merging, {snapshot['rows_added']:+,} by this snapshot",
        ),
    ]
    if summary["earliest_snapshot"] not in (None, snapshot["id"]):
        facts.append(("", f"oldest snapshot: {summary['earliest_snapshot']}"))
    for n, (topic, ends) in enumerate((snapshot["next_offsets"] or {}).items()):
        shown = [f"{partition}: {end:,}" for partition, end in list(ends.items())[:_PARTITIONS_SHOWN_MAX]]
        more = f" and {len(ends) - len(shown)} more" if len(ends) > len(shown) else ""
        facts.append(("next offsets" if not n else "", f"{topic} {'  '.join(shown)}{more}"))
    tags = ", ".join(f"{name} ({snapshot_id})" for name, snapshot_id in summary["tags"].items())
    return [*facts, ("tags", tags)] if tags else facts


def _file_grid(files: Sequence[TableSummary], *, all_buckets: bool) -> Grid:
    """Return one line per bucket with one column per level: the largest buckets, sorted by partition."""
    buckets: dict[tuple[str, int], list[TableSummary]] = defaultdict(list)
    for group in files:
        buckets[partition_text(group["partition"]), group["bucket"]].append(group)
    names = list(buckets)
    largest = sorted(names, key=lambda name: -sum(group["bytes"] for group in buckets[name]))
    shown = set(names if all_buckets else largest[:_BUCKETS_SHOWN_MAX])
    levels = sorted({group["level"] for group in files})
    has_partitions = any(group["partition"] for group in files)
    grid = plain_grid(
        *(["partition"] if has_partitions else []), "bucket", *(f"L{n} files" for n in levels), "rows", "size"
    )
    for column in grid.columns[has_partitions:]:
        column.justify = "right"
    for name in names:
        if name in shown:
            grid.add_row(*([name[0]] if has_partitions else []), str(name[1]), *_bucket_cells(buckets[name], levels))
    if len(names) > len(shown):
        grid.add_row(*([""] if has_partitions else []), f"+ {len(names) - len(shown)}", *[""] * (len(levels) + 2))
    if len(names) > 1:
        grid.add_section()
        grid.add_row(*([""] if has_partitions else []), "all", *_bucket_cells(files, levels), style="bold")
    return grid


def _bucket_cells(groups: Sequence[TableSummary], levels: Sequence[int]) -> list[str]:
    counts = [sum(group["files"] for group in groups if group["level"] == level) for level in levels]
    rows = sum(group["rows"] for group in groups)
    return [*(str(count or "") for count in counts), f"{rows:,}", size_text(sum(group["bytes"] for group in groups))]
