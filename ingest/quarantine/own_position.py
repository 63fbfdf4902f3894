"""Where a quarantined table continues: its snapshots have the position, and its log has the records from there on."""

from __future__ import annotations

from dataclasses import dataclass

from tidelake.checkpoint.offsets import OffsetRange, SourcePosition
from tidelake.checkpoint.table_state import SnapshotSummary
from tidelake.ingest.quarantine.record_log import RecordLog


@dataclass(frozen=True, slots=True)
class JoinedLog:
    """A table's position, joined with the log of its kept records.

    position: the position of the table, including partitions that began with the log. The log has the records from
        there on.
    read_from: where reading of the source continues for the table: the end of the log.
    """

    position: SourcePosition
    read_from: SourcePosition


def join_log(log: RecordLog, position: SourcePosition, newest: SnapshotSummary | None) -> JoinedLog | None:
    """Join a log with a position. Returns None if records between the two would be missing.

    position: the position that the table's next snapshot without records would have: it starts where the newest
        snapshot ended.
    newest: that snapshot; None if the table has none.

    If the log begins after the position, no record in between belonged to the table. This was known when the log began,
    and stays true while the table gets no snapshot. It says nothing about a log whose first segment is missing.
    """
    base = (None, None) if newest is None else (newest.id, newest.manifest_list)
    is_unchanged = log.has_its_beginning and base == (log.base_id, log.base_manifest_list)
    ends = position.ends
    if not is_unchanged and any(ends.get(p, start) < start for p, start in log.starts.items()):
        return None
    if newest is None and not is_unchanged:
        return None  # another table with the same name
    joined = position.with_partitions(log.starts).extended_to(log.starts)
    read = {p: max(end, log.durable_ends.get(p, end)) for p, end in joined.ends.items()}
    ranges = {p: OffsetRange(end, end) for p, end in read.items()}
    identity = log.identity if log.identity.topic_ids or log.identity.cluster_id else position.identity
    return JoinedLog(joined, SourcePosition(identity, ranges))
