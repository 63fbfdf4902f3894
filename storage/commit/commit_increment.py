"""What a bucket hands over at a commit: the files that were written to it, and the result of its compactions.

All new files are durable; no snapshot names them yet.

Source: Java `compact/CompactResult.java`, `io/DataIncrement.java`, `io/CompactIncrement.java`,
`mergetree/MergeTreeWriter.updateCompactResult`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import TypeVar

from tidelake.storage.base.pickled_values import pickles_as_values
from tidelake.storage.files.data_file import DataFileMeta
from tidelake.storage.files.index_file import IndexFileMeta

_File = TypeVar("_File", DataFileMeta, IndexFileMeta)


@pickles_as_values
@dataclass(frozen=True, slots=True)
class CompactResult:
    """The result of one compaction, or of several that follow one another.

    before: files that were read, or moved to another level
    after: files that replace them. An upgraded file is in both, with two levels and one name.
    changelog: files with the changes that the compaction found
    reason: why the compaction was picked, for people
    tombstones, known_files: see `tidelake.storage.commit.tombstones`
    new_index_files: deletion vectors of the bucket
    deleted_index_files: index files that these replace
    relied_on: the `place` of each file above level 0 that the bucket had, where the compaction looked up older rows;
        None: it looked up none, so it only relies on the files of `before`
    """

    before: tuple[DataFileMeta, ...] = ()
    after: tuple[DataFileMeta, ...] = ()
    changelog: tuple[DataFileMeta, ...] = ()
    reason: str = ""
    tombstones: tuple[DataFileMeta, ...] = ()
    known_files: frozenset[str] = frozenset()
    new_index_files: tuple[IndexFileMeta, ...] = ()
    deleted_index_files: tuple[IndexFileMeta, ...] = ()
    relied_on: frozenset[tuple[int, str]] | None = None

    @property
    def is_empty(self) -> bool:
        return not (self.before or self.after or self.changelog)

    @property
    def new_files(self) -> list[DataFileMeta]:
        """Files that the compaction wrote: data, changelog and tombstones. An upgraded file is none of them."""
        kept = {file.file_name for file in self.before}
        return [*(file for file in self.after if file.file_name not in kept), *self.changelog, *self.tombstones]

    def followed_by(self, then: CompactResult) -> tuple[CompactResult, CompactResult]:
        """Merge this result with that of the bucket's next compaction. Both are unpublished.

        Returns the merged result, and a result that names what is no longer needed (`new_files`, `new_index_files`):
        files that this compaction wrote and the next one read or replaced.

        An upgraded file has one name on several levels. It is kept as long as any part of the table names it.
        """
        consumed = {file.place for file in then.before} & {file.place for file in self.after}
        after = (*(file for file in self.after if file.place not in consumed), *then.after)
        before = (*self.before, *(file for file in then.before if file.place not in consumed))
        kept = {file.file_name for file in (*before, *after)}
        unneeded = [f for f in self.after if f.place in consumed and f.file_name not in kept]
        reasons = dict.fromkeys(reason for reason in (*self.reason.split(", "), then.reason) if reason)
        merged = CompactResult(
            before,
            after,
            self.changelog + then.changelog,
            ", ".join(reasons),
            self.tombstones + then.tombstones,
            self.known_files | then.known_files,
            (*_without(self.new_index_files, then.deleted_index_files), *then.new_index_files),
            (*self.deleted_index_files, *_without(then.deleted_index_files, self.new_index_files)),
            then.relied_on if self.is_empty else self.relied_on,
        )
        replaced = [file for file in self.new_index_files if file in then.deleted_index_files]
        return merged, CompactResult(after=tuple(unneeded), new_index_files=tuple(replaced))


@pickles_as_values
@dataclass(frozen=True, slots=True)
class CommitIncrement:
    """A bucket's new and compacted files since its last increment.

    new_files: files that were written
    deleted_files: files that they replace, by name
    changelog_files: the changelog of the written files
    new_index_files: files of the bucket's index that were written
    deleted_index_files: index files that these replace
    compacted: becomes a second snapshot
    """

    new_files: tuple[DataFileMeta, ...] = ()
    deleted_files: tuple[DataFileMeta, ...] = ()
    changelog_files: tuple[DataFileMeta, ...] = ()
    new_index_files: tuple[IndexFileMeta, ...] = ()
    deleted_index_files: tuple[IndexFileMeta, ...] = ()
    compacted: CompactResult = field(default_factory=CompactResult)

    @property
    def is_empty(self) -> bool:
        """Whether a bucket writer has nothing to commit. It writes no index files without data files."""
        return not (self.new_files or self.changelog_files) and self.compacted.is_empty

    @property
    def written_files(self) -> list[DataFileMeta]:
        """Data and changelog files that exist only for this increment, including those of its compaction."""
        return [*self.new_files, *self.changelog_files, *self.compacted.new_files]

    @property
    def written_index_files(self) -> list[IndexFileMeta]:
        return [*self.new_index_files, *self.compacted.new_index_files]

    @property
    def known_files(self) -> frozenset[str]:
        """The files known to compactions that dropped deletes, and new files that are committed with them."""
        known = self.compacted.known_files
        return known.union(file.file_name for file in self.new_files) if self.compacted.tombstones else known

    def without_compaction(self) -> CommitIncrement:
        """Return only the written files."""
        return replace(self, compacted=CompactResult())

    def only_compaction(self) -> CommitIncrement:
        """Return the increment without the written files; the files that they replace are still named."""
        return replace(self, new_files=(), changelog_files=(), new_index_files=())

    def without_files(self, names: Collection[str]) -> CommitIncrement:
        """Return the increment without written files of these names."""

        def others(files: Iterable[_File]) -> tuple[_File, ...]:
            return tuple(file for file in files if file.file_name not in names)

        return replace(
            self,
            new_files=others(self.new_files),
            changelog_files=others(self.changelog_files),
            new_index_files=others(self.new_index_files),
            compacted=replace(
                self.compacted,
                after=others(self.compacted.after),
                changelog=others(self.compacted.changelog),
                tombstones=others(self.compacted.tombstones),
                new_index_files=others(self.compacted.new_index_files),
            ),
        )

    def with_compacted_as_new_files(self) -> tuple[CommitIncrement, CompactResult]:
        """Return the increment with compacted files as new files, and a result that names what it doesn't need."""
        done = self.compacted
        consumed = {file.place for file in done.before}
        files = (*(file for file in self.new_files if file.place not in consumed), *done.after)
        kept = {file.file_name for file in files}
        unneeded = tuple(file for file in done.before if file.file_name not in kept)
        return replace(self, new_files=files, compacted=CompactResult()), CompactResult(
            after=unneeded, changelog=done.changelog, tombstones=done.tombstones
        )

    def with_new_as_compacted_files(self, reason: str) -> CommitIncrement:
        """Return the increment with its new files as compacted files, for rows that an earlier commit brought.

        reason: unless the compaction has one
        """
        done = self.compacted
        consumed = {file.place for file in done.before}
        own = {file.place for file in self.new_files}
        return replace(
            self,
            new_files=(),
            changelog_files=(),
            compacted=replace(
                done,
                before=tuple(file for file in done.before if file.place not in own),
                after=(*(file for file in self.new_files if file.place not in consumed), *done.after),
                changelog=(*self.changelog_files, *done.changelog),
                reason=done.reason or reason,
                known_files=self.known_files,
            ),
        )


def _without(files: Iterable[IndexFileMeta], others: Collection[IndexFileMeta]) -> list[IndexFileMeta]:
    return [file for file in files if file not in others]
