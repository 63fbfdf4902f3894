"""Recovers the position of a pipeline in a table after a start. The pipeline's own snapshots decide it.

The consumer file and the progress file can only make recovery refuse that position. Group offsets at the source only
serve monitoring. A position that can't be proven is refused, never guessed.

    newest own snapshot     consumer file, progress file        result
    exists                  name it, an older one or none       the position of that snapshot
    exists                  name a newer one                    refused: the newer snapshot was rolled back
    none                    name none                           the pipeline is new to the table; the progress file may
                                                                say how far the source has no records for it
    none, all expired       the progress file has the last one  the position of the progress file
                            as an idle table's
    none, all expired       otherwise                           refused: what was read afterwards is unknown
    none, not expired       name one                            refused: the snapshots were rolled back
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from tidelake.checkpoint.epoch import epoch_of
from tidelake.checkpoint.idle_progress import IdleProgress, ProgressEntry
from tidelake.checkpoint.offsets import (
    POSITION_PROPERTY,
    SourcePosition,
    TopicPartition,
    chain_breaks,
    identity_changes,
    position_from_text,
)
from tidelake.checkpoint.position_problems import PositionProblem, ProblemKind
from tidelake.checkpoint.routing import Routing, routing_of, takes_topic
from tidelake.checkpoint.table_state import SnapshotSummary, TableState
from tidelake.errors import CorruptFile


@dataclass(frozen=True, slots=True)
class RecoveredTable:
    """The position of one table, and whether it is proven.

    position: where to continue, as an empty snapshot would record it now. It starts where the newest own snapshot
        ended, and ends at the progress file's offsets for the table. It is empty if the pipeline is new to the table,
        and if nothing is proven.
    problems: the reasons against this position. If there are none, the position is proven.
    is_fresh: the pipeline never committed to the table.
    identifier: at least as large as any identifier that the pipeline used in the table.
    epoch: at least as large as any epoch that the pipeline used in the table.
    lost: how far the pipeline had read when the missing snapshot was written. None: unknown.
    """

    position: SourcePosition
    problems: Sequence[PositionProblem] = ()
    is_fresh: bool = False
    identifier: int = 0
    epoch: int = 0
    lost: SourcePosition | None = None


def recover_table(
    table: str, table_state: TableState, progress: IdleProgress, routing: Routing | None
) -> RecoveredTable:
    """Recover the position of one table from its snapshots, before it is compared with the source.

    routing: the configured routing. None: the routing is not compared.

    Raises CorruptFile for an own snapshot whose epoch or routing can't be read, UnsupportedFeature for data of a newer
    release.
    """
    entry = progress.entry(table, table_state)
    seen = entry or progress.active_entry(table, table_state)
    if not table_state.own:
        return _without_snapshot(table, table_state, progress, routing)
    newest = table_state.own[0]
    epoch = epoch_of(newest.properties, newest.path).number
    removed = _removed(newest, table_state, seen)
    if removed is not None:
        return _rolled_back(table, removed, newest, epoch, progress, entry)
    try:
        position = position_of(newest)
    except CorruptFile as error:
        return _no_position(table, newest, epoch, f"a source position that can't be read: {error.found}")
    if position is None:
        return _no_position(table, newest, epoch, "no source position: another program committed under this name")
    problems = _chain_break_problems(table, table_state.own) + _routing_problems(
        table, routing_of(newest.properties, newest.path), routing
    )
    read: Mapping[TopicPartition, int] = {}
    is_current = entry is not None and entry.is_current_for(newest.id, newest.manifest_list)
    if is_current and not identity_changes(position.identity, progress.reached.identity):
        read = _of_table(progress.reached, routing).ends
    return RecoveredTable(
        position.advanced_to(read).with_partitions(read), problems, identifier=newest.identifier, epoch=epoch
    )


def _rolled_back(
    table: str, removed: int, newest: SnapshotSummary, epoch: int, progress: IdleProgress, entry: ProgressEntry | None
) -> RecoveredTable:
    text = (
        f"snapshot {removed} of this pipeline no longer exists, and its newest one is now {newest.id}: the table was "
        "rolled back. Decide whether the rows that were removed should be written again"
    )
    left = _history([newest])
    return RecoveredTable(
        left[0][1].advanced_to({}) if left else SourcePosition(),
        [PositionProblem(table, ProblemKind.ROLLED_BACK, text)],
        identifier=max(newest.identifier, progress.identifier),
        epoch=max(epoch, progress.epoch),
        lost=progress.reached if entry is not None and entry.snapshot_id == removed else None,
    )


def _no_position(table: str, newest: SnapshotSummary, epoch: int, carries: str) -> RecoveredTable:
    text = f"{newest.path}, the newest snapshot of this commit user, has {carries}"
    problems = [PositionProblem(table, ProblemKind.NO_POSITION, text)]
    return RecoveredTable(SourcePosition(), problems, identifier=newest.identifier, epoch=epoch)


def _without_snapshot(
    table: str, table_state: TableState, progress: IdleProgress, routing: Routing | None
) -> RecoveredTable:
    entry, active = progress.entry(table, table_state), progress.active_entry(table, table_state)
    known = _known_ids(table_state, entry or active)
    # The entry was marked active before the first snapshot. Once snapshots have expired, it is unknown whether that one
    # was published.
    may_have_expired = active is not None and table_state.earliest_id is not None and table_state.earliest_id > 1
    if not known and not may_have_expired:
        is_known = entry is not None and entry.routing == routing
        position = _of_table(progress.reached, routing) if is_known else SourcePosition()
        return RecoveredTable(position, is_fresh=True, identifier=progress.identifier, epoch=progress.epoch)
    last = max(known, default=0)
    is_expired = table_state.earliest_id is not None and table_state.earliest_id > last
    if is_expired and entry is not None and entry.snapshot_id == last:
        position = _of_table(progress.reached, routing)
        problems = _routing_problems(table, entry.routing, routing)
        return RecoveredTable(position, problems, identifier=progress.identifier, epoch=progress.epoch)
    if is_expired:
        kind = ProblemKind.EXPIRED
        text = (
            f"this pipeline has committed to the table, {_last_known(last)}, but none of its snapshots is left: the "
            f"table's oldest snapshot is {table_state.earliest_id}. The snapshots with the position have expired"
        )
    else:
        kind = ProblemKind.ROLLED_BACK
        available = f"the newest one is {table_state.latest_id}" if table_state.latest_id else "the table has none"
        text = (
            f"snapshot {last} and all others of this pipeline no longer exist ({available}): the table was rolled "
            "back. Decide whether the rows that were removed should be written again"
        )
    identifier = max(progress.identifier, table_state.latest_id or 0)  # the newest is unknown; this is large enough
    lost = progress.reached if entry is not None and entry.snapshot_id == last else None
    problems = [PositionProblem(table, kind, text)]
    return RecoveredTable(SourcePosition(), problems, identifier=identifier, epoch=progress.epoch, lost=lost)


def _last_known(snapshot_id: int) -> str:
    return f"last known snapshot {snapshot_id}" if snapshot_id else "or was about to when it last ran"


def _known_ids(table_state: TableState, seen: ProgressEntry | None) -> list[int]:
    """Return the ids of own snapshots that the consumer file and the progress file name.

    seen: the progress file's entry, idle or active.
    """
    ids = (table_state.consumer_snapshot_id, None if seen is None else seen.snapshot_id)
    return [id_ for id_ in ids if id_ is not None]


def _removed(newest: SnapshotSummary, table_state: TableState, seen: ProgressEntry | None) -> int | None:
    """Return the newest own snapshot that was removed although it can't have expired, as an older one still exists."""
    rolled_back = [id_ for id_ in _known_ids(table_state, seen) if id_ > newest.id]
    if seen is not None and seen.snapshot_id == newest.id and seen.manifest_list != newest.manifest_list:
        rolled_back.append(newest.id)  # another snapshot has its id now
    return max(rolled_back, default=None)


def _history(own: Sequence[SnapshotSummary]) -> list[tuple[int, SourcePosition]]:
    """Return the identifiers and positions, oldest first, for `chain_breaks`. Unreadable positions are left out.

    own: newest first.
    """
    history = []
    for snapshot in reversed(own):
        with suppress(CorruptFile):
            if (position := position_of(snapshot)) is not None:
                history.append((snapshot.identifier, position))
    return history


def _chain_break_problems(table: str, own: Sequence[SnapshotSummary]) -> list[PositionProblem]:
    positions = _history(own)
    unaccepted = [
        f"between checkpoints {b.before} and {b.after}: {b.reason}" for b in chain_breaks(positions) if not b.accepted
    ]
    if not unaccepted:
        return []
    text = f"the positions of this pipeline's snapshots are not contiguous, {'; '.join(unaccepted[:3])}"
    return [PositionProblem(table, ProblemKind.CHAIN_BREAK, text)]


def _routing_problems(table: str, before: Routing | None, routing: Routing | None) -> list[PositionProblem]:
    changes = routing.changes_from(before) if routing is not None and before is not None else []
    if not changes:
        return []
    text = (
        f"{'; '.join(changes)}. Records that were already read were selected by the earlier settings, and are not "
        "read again"
    )
    return [PositionProblem(table, ProblemKind.ROUTING, text)]


def _of_table(reached: SourcePosition, routing: Routing | None) -> SourcePosition:
    """Return how far the source was read, only of the topics that the table reads."""
    ranges = {p: r for p, r in reached.ranges.items() if routing is None or takes_topic(routing.topics, p.topic)}
    return replace(reached, ranges=ranges)


def position_of(snapshot: SnapshotSummary) -> SourcePosition | None:
    """Return the position of a snapshot; None if it has none. Raises CorruptFile if the position can't be read."""
    text = snapshot.properties.get(POSITION_PROPERTY)
    return None if text is None else position_from_text(text, snapshot.path)


def last_before_chain_break(own: Sequence[SnapshotSummary]) -> SnapshotSummary | None:
    """Return the newest own snapshot before all chain breaks that were not accepted; None without such a break.

    own: newest first.
    """
    first = next((b.before for b in chain_breaks(_history(own)) if not b.accepted), None)
    return next((s for s in own if s.identifier == first), None)


def resume_offsets(positions: Iterable[SourcePosition]) -> dict[TopicPartition, int]:
    """Return where to start reading the source: for each partition the smallest end of all tables that know it.

    A table with a larger end drops the records below its own end.
    """
    smallest: dict[TopicPartition, int] = {}
    for position in {id(one): one for one in positions}.values():  # many tables share one
        for partition, end in position.ends.items():
            smallest[partition] = min(end, smallest.get(partition, end))
    return smallest
