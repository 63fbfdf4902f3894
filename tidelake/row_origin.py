"""The origin of a row's versions: the snapshots that added them, and the source offsets of these snapshots."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tidelake.checkpoint.offsets import POSITION_PROPERTY, position_from_text
from tidelake.storage.maintenance.verify.row_history import RowHistory, Version
from tidelake.storage.model.format import CommitKind
from tidelake.storage.model.options import MergeEngine
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types.json_values import json_rows


def source_ranges(snapshot: Snapshot | None) -> dict[str, tuple[int, int]]:
    """Return the offsets [start, end) of the records in a pipeline's snapshot, by `topic-partition`.

    Partitions without new records are left out. Empty for a snapshot of another commit user.
    """
    text = snapshot.properties.get(POSITION_PROPERTY) if snapshot is not None else None
    if snapshot is None or text is None:
        return {}
    ranges = position_from_text(text, f"snapshot {snapshot.id}").ranges
    return {f"{of.topic}-{of.partition}": (start, end) for of, (start, end) in ranges.items() if start != end}


def writer_of(version: Version) -> str:
    """Return a short description of a version's writer."""
    snapshot = version.snapshot
    if snapshot is None:
        return "a snapshot that expired"
    if snapshot.commit_kind is CommitKind.COMPACT:
        return f"compaction of {len(version.made_from)} files" if version.made_from else "compaction"
    return f"{snapshot.commit_kind.value.lower()} of {snapshot.commit_user}"


def merge_description(context: TableContext, history: RowHistory) -> str:
    """Return the name of the merge that produces the row of a read."""
    live = history.live
    if not live:
        return "no file of the snapshot holds the key"
    engine = context.options.merge_engine
    if len(live) == 1:
        (only,) = live
        return f"no merge: one row, of level {only.level}, made by {writer_of(only)}"
    if engine is MergeEngine.DEDUPLICATE and not context.options.sequence_fields:
        newest = max(live, key=lambda version: version.sequence_number or 0)
        return f"{engine} of {len(live)} rows: the newest wins, sequence number {newest.sequence_number}"
    if engine is MergeEngine.FIRST_ROW:
        first = min(live, key=lambda version: version.sequence_number or 0)
        return f"{engine} of {len(live)} rows: the first wins, sequence number {first.sequence_number}"
    order = ", ".join(context.options.sequence_fields)
    return f"{engine} of {len(live)} rows" + (f", ordered by {order}" if order else ", in the order of their numbers")


def members_of_version(version: Version) -> dict[str, Any]:
    """Return a version as JSON members."""
    snapshot = version.snapshot
    return {
        "snapshot": None if snapshot is None else snapshot.id,
        "commitKind": None if snapshot is None else snapshot.commit_kind.value,
        "commitUser": None if snapshot is None else snapshot.commit_user,
        "madeBy": writer_of(version),
        "madeFrom": list(version.made_from),
        "file": version.file_name,
        "bucket": version.bucket,
        "level": version.level,
        "kind": version.kind.symbol,
        "sequence": version.sequence_number,
        "source": {name: list(ends) for name, ends in source_ranges(snapshot).items()},
        "live": version.is_live,
        "row": plain_row(version.row),
    }


def plain_row(row: pa.RecordBatch) -> dict[str, Any]:
    """Return a batch of one row as JSON members."""
    (plain,) = json_rows(row)
    return plain
