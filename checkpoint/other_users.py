"""Positions of a table's other commit users. This pipeline takes them into account.

A pipeline finds its own position by its commit user. Another pipeline, the same pipeline under a new name, or a Spark
query has another commit user, but the records that it read are in the table, too. So the pipeline also checks the
positions of others: it does not read their records a second time unless an operator decides so. Only the commit users
in `tables[].shared_with` are ignored: they write records that this pipeline doesn't read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from tidelake.checkpoint.epoch import EPOCH_PROPERTY
from tidelake.checkpoint.offsets import (
    POSITION_PROPERTY,
    SourceIdentity,
    SourcePosition,
    TopicPartition,
    identity_changes,
    position_from_text,
)
from tidelake.checkpoint.position_problems import PositionProblem, ProblemKind, first_few
from tidelake.checkpoint.table_state import SnapshotSummary


def newest_of_each_user(
    snapshots: Iterable[SnapshotSummary], commit_user: str, shared_with: Collection[str]
) -> list[SnapshotSummary]:
    """Return the newest snapshot with a position of each other commit user.

    snapshots: newest first.
    """
    newest: dict[str, SnapshotSummary] = {}
    for snapshot in snapshots:
        is_other = snapshot.commit_user != commit_user and snapshot.commit_user not in shared_with
        if is_other and POSITION_PROPERTY in snapshot.properties:
            newest.setdefault(snapshot.commit_user, snapshot)
    return list(newest.values())


def overlaps_with_other_users(
    table: str,
    ends: Mapping[TopicPartition, int],
    newest_of_others: Sequence[SnapshotSummary],
    taken: Collection[TopicPartition],
    identity: SourceIdentity,
) -> list[PositionProblem]:
    """Return a problem for each commit user that has read partitions of this pipeline further than the pipeline.

    ends: the pipeline's next offsets; partitions that it never read are absent.
    newest_of_others: see `TableState`.
    taken: the partitions that the pipeline reads.
    identity: the identity of the pipeline's source.

    Raises CorruptFile for a position that can't be read, UnsupportedFeature for one of a newer release.
    """
    problems = []
    for snapshot in newest_of_others:
        position = position_from_text(snapshot.properties[POSITION_PROPERTY], snapshot.path)
        changes = identity_changes(position.identity, identity)
        known = {} if changes else ends
        further = {p: end for p, end in position.ends.items() if p in taken and end > known.get(p, 0)}
        if further:
            what = first_few(
                f"{p} up to {end}, this pipeline up to {ends.get(p, 0)}" for p, end in sorted(further.items())
            )
            text = (
                f"{committer(snapshot)} also writes to the table: according to its snapshot {snapshot.id}, it has "
                f"read {what}. Those records would be duplicated"
            )
            if changes:
                text += f" (or other records in its place: {'; '.join(changes)})"
            reached = None if changes else further
            problems.append(PositionProblem(table, ProblemKind.ANOTHER_COMMIT_USER, text, frozenset(further), reached))
    return problems


def committer(snapshot: SnapshotSummary) -> str:
    """Return a description of the writer of a snapshot with a position, for messages."""
    kind = "pipeline" if EPOCH_PROPERTY in snapshot.properties else "a Spark query, commit user"
    return f"{kind} {snapshot.commit_user!r}"


def table_position(snapshots: Iterable[SnapshotSummary]) -> SourcePosition:
    """Return how far a table has read each partition: the furthest offset of all its commit users.

    snapshots: newest first; only as many as needed are read. A snapshot of a Spark query holds the position of the
        whole table. A snapshot of a pipeline holds only the pipeline's own position
    """
    position = SourcePosition()
    seen: set[str] = set()
    for snapshot in snapshots:
        text = snapshot.properties.get(POSITION_PROPERTY)
        if text is None or snapshot.commit_user in seen:
            continue
        found = position_from_text(text, snapshot.path)
        position = _furthest(position, found) if seen else found
        seen.add(snapshot.commit_user)
        if EPOCH_PROPERTY not in snapshot.properties:
            break
    return position


def _furthest(newer: SourcePosition, older: SourcePosition) -> SourcePosition:
    further = {p: r for p, r in older.ranges.items() if p not in newer.ranges or r.end > newer.ranges[p].end}
    ids = {**older.identity.topic_ids, **newer.identity.topic_ids}
    cluster = newer.identity.cluster_id if newer.identity.cluster_id is not None else older.identity.cluster_id
    return replace(newer, identity=SourceIdentity(cluster, ids), ranges={**newer.ranges, **further})
