"""The results of a job's tasks: files that are durable and not in a snapshot yet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tidelake.compaction.jobs.planner import CompactTask
from tidelake.storage.base.errors import CorruptFile
from tidelake.storage.commit.commit_message import CommitMessage
from tidelake.storage.write.compactor import CompactResult

TaskRunner: TypeAlias = Callable[[Sequence[CompactTask]], Sequence[CompactResult | CorruptFile]]
"""Returns for each task, in their order, its result or the file that it could not read. Raises any other error."""


@dataclass(frozen=True, slots=True)
class TaskResult:
    """The result of one compaction task."""

    task: CompactTask
    result: CompactResult

    @property
    def message(self) -> CommitMessage:
        key, result = self.task.key, self.result
        return CommitMessage(
            key.partition,
            key.bucket,
            self.task.total_buckets,
            compact_before=result.before,
            compact_after=result.after,
            compact_changelog=result.changelog,
            compact_reason=str(result.reason),
            compact_tombstones=result.tombstones,
            known_files=result.known_files,
            compact_new_index_files=result.new_index_files,
            compact_deleted_index_files=result.deleted_index_files,
        )
