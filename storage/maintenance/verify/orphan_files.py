"""Finds files of the table that nothing names: left by crashes, lost commits or dropped branches.

Source: Java `operation/OrphanFilesClean.java`.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass
from typing import Final

from tidelake.storage.fileio.base import FileStatus
from tidelake.storage.maintenance.verify.file_listing import FileListing
from tidelake.storage.model.format import EARLIEST_HINT, LATEST_HINT
from tidelake.storage.model.paths import TablePaths, parse_bucket, parse_changelog_id, parse_snapshot_id
from tidelake.storage.model.table import TableContext

_HINTS: Final = (EARLIEST_HINT, LATEST_HINT)


@dataclass(frozen=True, slots=True)
class Orphans:
    """Files that nothing names.

    paths: old enough files; only an orphan cleaner deletes them.
    size_bytes: their total size.
    young: number of younger files, which may belong to an unfinished commit.
    """

    paths: tuple[str, ...]
    size_bytes: int
    young: int


def orphan_candidates(context: TableContext, branches: Set[str], listing: FileListing) -> list[tuple[str, FileStatus]]:
    """Return the existing files that must be referenced, with their paths.

    Call it before metadata is read. Then a file that is committed in the meantime is found to be referenced.
    """
    paths = context.paths
    directories = [paths.manifest_directory, paths.index_directory, paths.statistics_directory]
    directories += bucket_directories(paths.data_root, len(context.schema.partition_keys), listing)
    found = [(f"{directory}/{status.name}", status) for directory in directories for status in listing.files(directory)]
    for branch in branches:
        found += temporary_files(paths.for_branch(branch), listing)
    return found


def orphans_among(files: list[tuple[str, FileStatus]], named: Set[str], modified_before_ms: int) -> Orphans:
    """Return the files that are not referenced.

    named: file names that something refers to.
    """
    unnamed = [(path, status) for path, status in files if status.name not in named]
    old = [(path, status) for path, status in unnamed if status.modified_ms < modified_before_ms]
    size = sum(status.size_bytes for _, status in old)
    return Orphans(tuple(sorted(path for path, _ in old)), size, len(unnamed) - len(old))


def bucket_directories(directory: str, partition_levels: int, listing: FileListing) -> Iterator[str]:
    for name in listing.directories(directory):
        if partition_levels and "=" in name:
            yield from bucket_directories(f"{directory}/{name}", partition_levels - 1, listing)
        elif not partition_levels and parse_bucket(name) is not None:
            yield f"{directory}/{name}"


def temporary_files(paths: TablePaths, listing: FileListing) -> Iterator[tuple[str, FileStatus]]:
    """Yield files in the snapshot directories that are not snapshots. Commits that crashed left them."""
    for directory, parse in (
        (paths.snapshot_directory, parse_snapshot_id),
        (paths.changelog_directory, parse_changelog_id),
    ):
        for status in listing.files(directory):
            if parse(status.name) is None and status.name not in _HINTS:
                yield f"{directory}/{status.name}", status
