"""Bugs that are planted in the product, to show that the simulation sees their kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

import pyarrow.compute as pc
import pytest

from tidelake import table
from tidelake.checkpoint.fence import EpochFence
from tidelake.checkpoint.offsets import OffsetRange, SourcePosition
from tidelake.compaction.merge_tree import changelog_merge, lookup_merge, merge_tree
from tidelake.ingest.dead_letter_table import TableDeadLetters
from tidelake.ingest.replay.later_changes import LaterChanges
from tidelake.ingest.replay.replay import DeadLetterReplay
from tidelake.storage.commit import conflict_check
from tidelake.storage.commit.conflict_check import ConflictCheck
from tidelake.storage.commit.expire import file_references, retained_states, snapshot_expiry
from tidelake.storage.commit.expire.deletion_plan import DeletionPlanner
from tidelake.storage.commit.expire.file_references import References
from tidelake.storage.commit.publisher import Publisher
from tidelake.storage.fileio.retrying import RetryingFileIO
from tidelake.storage.files import reader
from tidelake.storage.maintenance import branch_changes, referenced_files
from tidelake.storage.maintenance.orphans import OrphanCleaning, clean_orphans
from tidelake.storage.model.format import KIND_COLUMN, RowKind
from tidelake.storage.model.snapshots.snapshot import SnapshotStore
from tidelake.storage.model.table import TableContext
from tidelake.storage.read import scan as table_scan
from tidelake.storage.read.changes.position import ChangePosition
from tidelake.storage.write.table_writer import TableWriter

Plant: TypeAlias = Callable[[pytest.MonkeyPatch], None]


def _no_fence(patches: pytest.MonkeyPatch) -> None:
    patches.setattr(EpochFence, "__call__", lambda self, snapshots: None)


def _unchecked_compaction(patches: pytest.MonkeyPatch) -> None:
    patches.setattr(conflict_check, "check_relied_on", lambda *_: None)
    patches.setattr(conflict_check, "check_vectors", lambda *_: None)
    patches.setattr(conflict_check, "check_no_conflict", lambda kind, live, entries, *_, **__: [*live, *entries])


def _unchecked_order(patches: pytest.MonkeyPatch) -> None:
    patches.setattr(ConflictCheck, "_check_since_base", lambda *_: None)


def _shifted_position(by: int) -> Plant:
    def plant(patches: pytest.MonkeyPatch) -> None:
        right = SourcePosition.advanced_to

        def advanced(self: SourcePosition, reached: Mapping[Any, int]) -> SourcePosition:
            position = right(self, reached)
            for partition, (start, end) in position.ranges.items():
                if end > start + 1:
                    position.ranges[partition] = OffsetRange(start, end + by)  # type: ignore[index]
            return position

        patches.setattr(SourcePosition, "advanced_to", advanced)

    return plant


def _swallowed_unknown_outcome(patches: pytest.MonkeyPatch) -> None:
    right = RetryingFileIO.create_if_absent

    def create(self: RetryingFileIO, path: str, data: bytes) -> bool:
        try:
            return right(self, path, data)
        except OSError:
            return True

    patches.setattr(RetryingFileIO, "create_if_absent", create)


def _unknown_outcome_is_failure(patches: pytest.MonkeyPatch) -> None:
    def find(self: Publisher, unknown: list[Any]) -> None:
        for prepared in list(unknown):
            self._discard(prepared, unknown)

    patches.setattr(Publisher, "_find_published", find)


def _check_then_write(patches: pytest.MonkeyPatch) -> None:
    def create(self: RetryingFileIO, path: str, data: bytes) -> bool:
        if self.exists(path):
            return False
        self.write(path, data)
        return True

    patches.setattr(RetryingFileIO, "create_if_absent", create)


def _without_kind(kind: RowKind) -> Plant:
    def plant(patches: pytest.MonkeyPatch) -> None:
        for module in (lookup_merge, changelog_merge):
            for name in ("row_changes", "changes_among"):
                right = getattr(module, name)

                def changes(*arguments: Any, right: Any = right, **named: Any) -> Any:
                    rows = right(*arguments, **named)
                    return rows.filter(pc.not_equal(rows.column(KIND_COLUMN), int(kind)))

                patches.setattr(module, name, changes)

    return plant


def _deletes_dropped_early(patches: pytest.MonkeyPatch) -> None:
    patches.setattr(merge_tree, "can_drop_deletes", lambda *_, **__: True)


def _expiry_forgets_consumers(patches: pytest.MonkeyPatch) -> None:
    patches.setattr(snapshot_expiry, "first_needed", lambda *_, **__: None)


def _expiry_forgets_tags(patches: pytest.MonkeyPatch) -> None:
    patches.setattr(References, "_referenced_by_own_tags", lambda *_: set())


def _expiry_forgets_branches(patches: pytest.MonkeyPatch) -> None:
    patches.setattr(References, "_files_of_other_branches", lambda *_: [])


def _expiry_deletes_moved_files(patches: pytest.MonkeyPatch) -> None:
    patches.setattr(DeletionPlanner, "_retain", lambda *_: None)


def _expiry_without_hint(patches: pytest.MonkeyPatch) -> None:
    patches.setattr(SnapshotStore, "hint_earliest", lambda *_: True)


def _replay_not_recognised(patches: pytest.MonkeyPatch) -> None:
    patches.setattr(Publisher, "_find_already_committed", lambda *_: None)


def _last_row_lost(patches: pytest.MonkeyPatch) -> None:
    right = TableWriter.write

    def write(self: TableWriter, rows: Any) -> None:
        right(self, rows.slice(0, rows.num_rows - 1) if rows.num_rows > 11 else rows)

    patches.setattr(TableWriter, "write", write)


def _vectors_not_read(patches: pytest.MonkeyPatch) -> None:
    patches.setattr(table_scan, "deletion_files", lambda *_: {})


def _follower_repeats(patches: pytest.MonkeyPatch) -> None:
    right = ChangePosition.parse

    def parse(*arguments: Any) -> ChangePosition:
        position = right(*arguments)
        return ChangePosition(max(1, position.next_snapshot_id - 1))

    patches.setattr(ChangePosition, "parse", staticmethod(parse))


def _orphans_without_age(patches: pytest.MonkeyPatch) -> None:
    def clean(context: TableContext, *, older_than_ms: int, dry_run: bool) -> OrphanCleaning:
        return clean_orphans(context, older_than_ms=0, dry_run=dry_run)

    patches.setattr(table, "clean_orphans", clean)


def _dead_letters_dropped(patches: pytest.MonkeyPatch) -> None:
    def flush(self: TableDeadLetters) -> None:
        self._rows, self._waiting_bytes = [], 0

    patches.setattr(TableDeadLetters, "flush", flush)


def _dead_letters_of_others_unseen(patches: pytest.MonkeyPatch) -> None:
    patches.setattr(TableDeadLetters, "_check_others", lambda *_: None)


def _replay_over_newer_rows(patches: pytest.MonkeyPatch) -> None:
    patches.setattr(LaterChanges, "after", lambda *_: [])


def _replay_without_truncates(patches: pytest.MonkeyPatch) -> None:
    patches.setattr(LaterChanges, "is_truncated_after", lambda *_: False)


def _replay_unmarked(patches: pytest.MonkeyPatch) -> None:
    patches.setattr(DeadLetterReplay, "_mark", lambda *_: None)


def _replay_beside_the_pipeline(patches: pytest.MonkeyPatch) -> None:
    right = DeadLetterReplay._own_state

    def state(self: DeadLetterReplay, *arguments: Any) -> Any:
        found = right(self, *arguments)
        return type(found)(None, found.ends) if found.newest is None else _AlwaysEqual(found)

    patches.setattr(DeadLetterReplay, "_own_state", state)


class _AlwaysEqual:
    def __init__(self, state: Any) -> None:
        self.ends = state.ends

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


def _branch_forgets_main(patches: pytest.MonkeyPatch) -> None:
    right = retained_states.all_branches
    patches.setattr(file_references, "all_branches", lambda *a: [name for name in right(*a) if name != "main"])


def _orphans_of_main_only(patches: pytest.MonkeyPatch) -> None:
    patches.setattr(referenced_files, "all_branches", lambda *_: ["main"])


class _WithoutNewest(SnapshotStore):
    def latest_id(self) -> int | None:
        earliest, latest = self.earliest_id(), super().latest_id()
        return None if earliest is None or latest is None else max(earliest, latest - 1)


def _fast_forward_without_newest(patches: pytest.MonkeyPatch) -> None:
    patches.setattr(branch_changes, "SnapshotStore", _WithoutNewest)


def _values_wrap(patches: pytest.MonkeyPatch) -> None:
    patches.setattr(reader, "_check_whole", lambda *_: None)


PLANTED: Final[dict[str, Plant]] = {
    "no fence": _no_fence,
    "a compaction is not checked against the snapshot": _unchecked_compaction,
    "sequence numbers are not checked against other writers": _unchecked_order,
    "a position one ahead": _shifted_position(1),
    "a position one behind": _shifted_position(-1),
    "a swallowed unknown outcome": _swallowed_unknown_outcome,
    "an unknown outcome taken as a failure": _unknown_outcome_is_failure,
    "check, then write": _check_then_write,
    "a lost -U": _without_kind(RowKind.UPDATE_BEFORE),
    "a lost -D": _without_kind(RowKind.DELETE),
    "deletes dropped too early": _deletes_dropped_early,
    "expiry forgets consumers": _expiry_forgets_consumers,
    "expiry forgets tags": _expiry_forgets_tags,
    "expiry forgets branches": _expiry_forgets_branches,
    "expiry deletes files that moved to another level": _expiry_deletes_moved_files,
    "expiry without its hint": _expiry_without_hint,
    "a replay is not recognised": _replay_not_recognised,
    "the last row of a batch is lost": _last_row_lost,
    "deletion vectors are not read": _vectors_not_read,
    "a follower repeats a snapshot": _follower_repeats,
    "orphans are removed whatever their age": _orphans_without_age,
    "dead letters are dropped": _dead_letters_dropped,
    "dead letters that another process writes meanwhile are not looked at": _dead_letters_of_others_unseen,
    "a replay writes over newer rows": _replay_over_newer_rows,
    "a replay does not see truncates": _replay_without_truncates,
    "a replay does not mark its dead letters": _replay_unmarked,
    "a replay does not look at what the pipeline committed meanwhile": _replay_beside_the_pipeline,
    "values of a wider column wrap": _values_wrap,
    "an expiry on a branch forgets main": _branch_forgets_main,
    "orphans: other branches are forgotten": _orphans_of_main_only,
    "a fast-forward forgets the newest snapshot": _fast_forward_without_newest,
}


# No seed has seen them yet, of the few that were tried.
NOT_YET_SEEN: Final = frozenset({"expiry forgets consumers", "values of a wider column wrap"})


@contextmanager
def planted(name: str | None) -> Iterator[None]:
    """Plant a bug; None plants nothing."""
    with pytest.MonkeyPatch.context() as patches:
        if name is not None:
            PLANTED[name](patches)
        yield
