"""Compacts a table of any bucket mode."""

from __future__ import annotations

from dataclasses import replace

from tidelake.compaction.cancellation import CancellationToken
from tidelake.compaction.jobs.compact_job import compact_table
from tidelake.compaction.jobs.request import CompactionRequest
from tidelake.compaction.postpone_compaction import compact_postponed
from tidelake.compaction.report import CompactionReport
from tidelake.errors import UnsupportedFeature
from tidelake.storage.model.bucketing import BucketMode, bucket_mode
from tidelake.storage.model.table import TableContext


def compact(
    context: TableContext, request: CompactionRequest | None = None, *, cancellation: CancellationToken | None = None
) -> CompactionReport:
    """Compact a table. See `compact_table`, and `compact_postponed` for rows in the postpone bucket."""
    request = request or CompactionRequest()
    if bucket_mode(context.schema, context.options) is not BucketMode.POSTPONE:
        return compact_table(context, request, cancellation=cancellation)
    if request != CompactionRequest():
        raise UnsupportedFeature(
            f"{context.name}: option bucket = -2 (postpone)",
            "a compaction moves all waiting rows into buckets, without conditions and sorting",
            "Compact it without other arguments; buckets are compacted when rows are moved into them",
        )
    postponed = compact_postponed(context, cancellation)
    if postponed.is_cancelled:
        return postponed
    # One-off commits write to level 0 of buckets that no writer compacts. Each has its partition's number of buckets.
    compacted = compact_table(context.with_options({"bucket": "1"}), request, cancellation=cancellation)
    return replace(
        compacted,
        buckets=(*postponed.buckets, *compacted.buckets),
        snapshot_ids=(*postponed.snapshot_ids, *compacted.snapshot_ids),
    )
