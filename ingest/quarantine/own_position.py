"""Where a quarantined table goes on: its snapshots say so, and the log of its records begins there or before."""

from __future__ import annotations

from dataclasses import dataclass

from checkpoint.offsets import OffsetRange, SourcePosition
from checkpoint.table_state import SnapshotSummary
from ingest.quarantine.record_log import RecordLog


@dataclass(frozen=True, slots=True)
class JoinedLog:
    """position: of the table, its partitions that began with the log included; records from there on are in the log.
    read_from: where the source is read on for the table: the end of the log.
    """

    position: SourcePosition
    read_from: SourcePosition


def join_log(log: RecordLog, position: SourcePosition, newest: SnapshotSummary | None) -> JoinedLog | None:
    """None where records between the two would be missing.

    position: of the table, as its next snapshot without records would have it: it begins where the newest one ended.
    newest: that snapshot; None for none.

    Where the log begins after the position, there was no record for the table in between: that was known when the log
    began, and holds as long as the table has had no snapshot since.
    """
    base = (None, None) if newest is None else (newest.id, newest.manifest_list)
    is_as_it_was = base == (log.base_id, log.base_manifest_list)
    ends = position.ends
    if not is_as_it_was and any(ends.get(p, start) < start for p, start in log.starts.items()):
        return None
    if newest is None and not is_as_it_was:
        return None  # another table of the name
    joined = position.with_partitions(log.starts).extended_to(log.starts)
    read = {p: max(end, log.durable_ends.get(p, end)) for p, end in joined.ends.items()}
    ranges = {p: OffsetRange(end, end) for p, end in read.items()}
    identity = log.identity if log.identity.topic_ids or log.identity.cluster_id else position.identity
    return JoinedLog(joined, SourcePosition(identity, ranges))
