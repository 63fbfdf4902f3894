"""The verification of a table: whether its files are whole, and the positions of each pipeline form a chain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Final

from tidelake.checkpoint.epoch import EPOCH_PROPERTY, NO_EPOCH, epoch_of
from tidelake.checkpoint.offsets import (
    POSITION_PROPERTY,
    RecoveryDecision,
    SourcePosition,
    TopicPartition,
    chain_breaks,
    position_from_text,
)
from tidelake.checkpoint.position_problems import ProblemKind
from tidelake.checkpoint.routing import routing_of
from tidelake.errors import TidelakeError
from tidelake.storage.maintenance.verify import Finding, Report, Severity, inspect
from tidelake.storage.maintenance.verify.finding import REPORT
from tidelake.storage.maintenance.verify.inspection import ORPHAN_AGE_MS
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.table import Table

_REMEDY: Final = (
    "Compare the table with its source in this range: rows are missing or duplicate unless the source explains the "
    "difference"
)
_OTHER_WRITER_REMEDY: Final = (
    "Let no other writer commit under the pipeline's name: give it another commit user. Compare the table with its "
    "source in this range"
)


def inspect_table(
    table: Table,
    *,
    snapshot_id: int | None = None,
    deep: bool = False,
    orphans_older_than_ms: int = ORPHAN_AGE_MS,
) -> Report:
    """Inspect a table; see `tidelake.storage.maintenance.verify.inspect`."""
    return inspect(
        table.context,
        snapshot_id=snapshot_id,
        deep=deep,
        check_history=chain_findings,
        orphans_older_than_ms=orphans_older_than_ms,
    )


def chain_findings(snapshots: Sequence[Snapshot]) -> Iterator[Finding]:
    """Yield findings about pipelines' positions in snapshots: missing, invalid, or not joined to the previous one.

    Breaks that an operator accepted (such as `--accept-gap`) are notes.

    snapshots: oldest first
    """
    numbered = sorted((s for s in snapshots if s.is_numbered), key=lambda s: (s.commit_user, s.id))
    table_ends = _positions_before_snapshots(snapshots)
    for user, own in groupby(numbered, key=lambda s: s.commit_user):
        of_user = list(own)
        yield from _position_findings(user, of_user, table_ends)
        yield from _epoch_findings(user, of_user)


def _positions_before_snapshots(snapshots: Sequence[Snapshot]) -> dict[int, Mapping[TopicPartition, int]]:
    """Return how far the table had read each partition before each snapshot of a Spark query, by snapshot id.

    All commit users count. A query records the position of the whole table, so several queries may alternate without a
    gap. A pipeline records its own position. Positions that can't be read are reported elsewhere.
    """
    ends: dict[TopicPartition, int] = {}
    before: dict[int, Mapping[TopicPartition, int]] = {}
    for snapshot in sorted(snapshots, key=lambda s: s.id):
        try:
            position = _position(snapshot)
        except TidelakeError:
            continue
        if position is None:
            continue
        if EPOCH_PROPERTY not in snapshot.properties:
            before[snapshot.id] = dict(ends)
        ends |= {p: max(end, ends.get(p, 0)) for p, end in position.ends.items()}
    return before


def _position_findings(
    user: str, own: Sequence[Snapshot], table_ends: Mapping[int, Mapping[TopicPartition, int]]
) -> Iterator[Finding]:
    history: list[tuple[int, SourcePosition]] = []
    ends_of: dict[int, Mapping[TopicPartition, int]] = {}  # by identifier, from its first snapshot
    unproven: list[Finding] = []  # for the snapshots since the last position
    is_pipeline = False
    for snapshot in own:
        is_pipeline |= EPOCH_PROPERTY in snapshot.properties
        try:
            position = _position(snapshot)
        except TidelakeError as error:
            what = f"its position can't be read: {error}"
            unproven.append(Finding("position", _where(user, snapshot), what, _REMEDY))
            continue
        if position is None:
            if is_pipeline:  # other users need not record positions
                what = "it has no source position, but each snapshot of a pipeline must have one"
                unproven.append(Finding("position", _where(user, snapshot), what, _OTHER_WRITER_REMEDY))
            continue
        accepted = position.accepted
        if accepted is not None and ProblemKind.NO_POSITION.value in accepted.accepted_problems:
            unproven = [_with_decision(finding, accepted) for finding in unproven]
        yield from unproven
        unproven = []
        history.append((snapshot.commit_identifier, position))
        ends_of.setdefault(snapshot.commit_identifier, table_ends.get(snapshot.id, {}))
    yield from unproven
    for found in chain_breaks(history, ends_of):
        where = f"pipeline {user}, checkpoints {found.before} to {found.after}"
        finding = Finding("position-chain", where, found.reason, _REMEDY)
        yield finding if found.accepted is None else _with_decision(finding, found.accepted)


def _position(snapshot: Snapshot) -> SourcePosition | None:
    text = snapshot.properties.get(POSITION_PROPERTY)
    return None if text is None else position_from_text(text, f"snapshot {snapshot.id}")


def _with_decision(finding: Finding, accepted: RecoveryDecision) -> Finding:
    what = f"{finding.what}; accepted with {accepted.flag}"
    return replace(finding, what=what, remedy="None is needed: an operator accepted this", severity=Severity.NOTE)


def _epoch_findings(user: str, own: Sequence[Snapshot]) -> Iterator[Finding]:
    """Yield findings about epochs.

    Epochs only grow, and each belongs to one process: otherwise two committed at once.
    """
    last = NO_EPOCH
    for snapshot in own:
        where = _where(user, snapshot)
        try:
            epoch = epoch_of(snapshot.properties, f"snapshot {snapshot.id}")
            routing_of(snapshot.properties, f"snapshot {snapshot.id}")
        except TidelakeError as error:
            yield Finding("pipeline-unreadable", where, f"a start that continues from it fails: {error}", REPORT)
            continue
        # After a snapshot without an epoch, which the check of positions reports, a new start counts from 1 again.
        if 0 < epoch.number <= last.number and epoch != last:
            yield Finding("epoch-order", where, f"it has {epoch}, but an earlier snapshot has {last}", REPORT)
        last = epoch


def _where(user: str, snapshot: Snapshot) -> str:
    return f"snapshot {snapshot.id} of pipeline {user}"
