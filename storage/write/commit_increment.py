"""The files that a bucket hands over at a commit: written files, and the result of compactions.

Source: Java `utils/CommitIncrement.java`, `mergetree/MergeTreeWriter.updateCompactResult`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tidelake.storage.files.data_file import DataFileMeta
from tidelake.storage.write.compactor import CompactResult


@dataclass(frozen=True, slots=True)
class CommitIncrement:
    """A bucket's new and compacted files since its last increment. They are durable; no snapshot names them yet.

    compacted: the result of several compactions, merged into one.
    """

    new_files: tuple[DataFileMeta, ...] = ()
    changelog_files: tuple[DataFileMeta, ...] = ()
    compacted: CompactResult = field(default_factory=CompactResult)

    @property
    def known_files(self) -> frozenset[str]:
        """The files known to compactions that dropped deletes, and new files that are committed with them."""
        known = self.compacted.known_files
        return known.union(file.file_name for file in self.new_files) if self.compacted.tombstones else known

    @property
    def is_empty(self) -> bool:
        return not (self.new_files or self.changelog_files) and self.compacted.is_empty


def merge_compact_results(done: CompactResult, then: CompactResult) -> tuple[CompactResult, CompactResult]:
    """Merges the unpublished results of two consecutive compactions of a bucket into one result.

    Returns it together with a result that names what is no longer needed (`new_files`, `new_index_files`): files that
    the first compaction wrote and the second one read or replaced.

    An upgraded file has one name on several levels. It is kept as long as any part of the table names it.
    """
    consumed = {file.place for file in then.before} & {file.place for file in done.after}
    after = (*(file for file in done.after if file.place not in consumed), *then.after)
    before = (*done.before, *(file for file in then.before if file.place not in consumed))
    kept = {file.file_name for file in (*before, *after)}
    unneeded = [f for f in done.after if f.place in consumed and f.file_name not in kept]
    reasons = dict.fromkeys(reason for reason in (*done.reason.split(", "), then.reason) if reason)
    merged = CompactResult(
        before,
        after,
        done.changelog + then.changelog,
        ", ".join(reasons),
        done.tombstones + then.tombstones,
        done.known_files | then.known_files,
        (*(file for file in done.new_index_files if file not in then.deleted_index_files), *then.new_index_files),
        (
            *done.deleted_index_files,
            *(file for file in then.deleted_index_files if file not in done.new_index_files),
        ),
    )
    replaced = [file for file in done.new_index_files if file in then.deleted_index_files]
    return merged, CompactResult(after=tuple(unneeded), new_index_files=tuple(replaced))


def with_compacted_as_new_files(increment: CommitIncrement) -> tuple[CommitIncrement, CompactResult]:
    """Returns the increment with compacted files as new files and no compaction, and the files that it doesn't need."""
    done = increment.compacted
    consumed = {file.place for file in done.before}
    files = (*(file for file in increment.new_files if file.place not in consumed), *done.after)
    kept = {file.file_name for file in files}
    unneeded = tuple(file for file in done.before if file.file_name not in kept)
    return replace(increment, new_files=files, compacted=CompactResult()), CompactResult(
        after=unneeded, changelog=done.changelog, tombstones=done.tombstones
    )
