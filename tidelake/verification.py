"""Inspects a table with all that any package knows of it: its files, and the chain of each pipeline's positions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from checkpoint.offsets import SourcePosition, chain_breaks
from checkpoint.position_text import POSITION_PROPERTY, position_from_text
from storage.errors import TidelakeError
from storage.snapshots.snapshot import Snapshot
from storage.verify import Finding, Report, Severity, inspect
from storage.verify.inspection import ORPHAN_AGE_MS
from tidelake.table import Table

_REMEDY: Final = "Compare the table with its source there; rows are missing or double unless the source says why"


def inspect_table(
    table: Table,
    *,
    snapshot_id: int | None = None,
    deep: bool = False,
    orphans_older_than_ms: int = ORPHAN_AGE_MS,
) -> Report:
    """See `storage.verify.inspect`."""
    return inspect(
        table.context,
        snapshot_id=snapshot_id,
        deep=deep,
        check_history=chain_findings,
        orphans_older_than_ms=orphans_older_than_ms,
    )


def chain_findings(snapshots: Sequence[Snapshot]) -> Iterator[Finding]:
    """Where the position of a pipeline's snapshot does not begin at the end of the one before. snapshots: oldest first.

    Breaks that a person accepted (`--accept-gap` and the like) are notes.
    """
    numbered = sorted((s for s in snapshots if POSITION_PROPERTY in s.properties), key=lambda s: (s.commit_user, s.id))
    for user, own in groupby(numbered, key=lambda s: s.commit_user):
        history: list[tuple[int, SourcePosition]] = []
        for snapshot in own:
            try:
                text = snapshot.properties[POSITION_PROPERTY]
                history.append((snapshot.commit_identifier, position_from_text(text, f"snapshot {snapshot.id}")))
            except TidelakeError as error:
                yield Finding("position", f"snapshot {snapshot.id}", f"its position can't be read: {error}", _REMEDY)
        for found in chain_breaks(history):
            where = f"pipeline {user}, checkpoints {found.before} to {found.after}"
            if found.accepted is None:
                yield Finding("position-chain", where, found.reason, _REMEDY)
            else:
                what = f"{found.reason}; accepted with {found.accepted.way}"
                yield Finding("position-chain", where, what, "Nothing: a person decided so", Severity.NOTE)
