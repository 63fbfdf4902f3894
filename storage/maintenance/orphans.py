"""Removes orphan files of a table, which no state names: from crashes, lost commits, rollbacks and deleted branches.

A file is removed if it is old enough, and if two passes over all branches, one after the other, found no reference to
it. One pass is not enough: a fast-forward copies snapshots from a branch that the pass has not read yet to one that it
has read, and the branch may be deleted before the pass reads it. Files of a running commit are young.

Steps:
1. List the files of the table.
2. Collect all references, twice.
3. List the directories that hold unreferenced files again, for paths and times.

The metadata for Iceberg readers has files of its own, which other metadata names.

Memory holds one hash of 8 bytes for each file name.

Source: Java `operation/OrphanFilesClean.java`, which makes one pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tidelake.errors import BadInput, CorruptFile
from tidelake.storage.base.clock import epoch_ms
from tidelake.storage.commit.expire.deletion_plan import delete_empty_directories
from tidelake.storage.commit.expire.retained_states import all_branches
from tidelake.storage.commit.iceberg.metadata_files import iceberg_files
from tidelake.storage.commit.manifests.file_names import Hashes, hashes_of
from tidelake.storage.fileio.base import FileStatus
from tidelake.storage.maintenance.referenced_files import ReferencedFiles
from tidelake.storage.maintenance.verify.file_listing import FileListing
from tidelake.storage.maintenance.verify.inspection import ORPHAN_AGE_MS
from tidelake.storage.maintenance.verify.orphan_files import bucket_directories, temporary_files
from tidelake.storage.model.table import TableContext


@dataclass(frozen=True, slots=True)
class OrphanCleaning:
    """The result of removing orphans.

    paths: files that were removed, or would be removed by a dry run.
    size_bytes: their size in total.
    young: the number of orphan files that are too young to be removed.
    """

    paths: tuple[str, ...]
    size_bytes: int
    young: int


def clean_orphans(
    context: TableContext, *, older_than_ms: int = ORPHAN_AGE_MS, dry_run: bool = False, now_ms: int | None = None
) -> OrphanCleaning:
    """Remove the orphan files of all branches.

    older_than_ms: the minimum age of a removed file. A running commit must not take longer than this.

    Raises CorruptFile if metadata can't be read: the references are then unknown, and nothing is deleted.
    """
    if older_than_ms < 0:
        raise BadInput(f"orphans older than {older_than_ms} ms: the age is 0 or more")
    before_ms = (epoch_ms() if now_ms is None else now_ms) - older_than_ms
    candidates = {
        directory: hashes for directory in _directories(context) if len(hashes := _names_in(context, directory))
    }
    temporary = list(_temporary(context))
    named = ReferencedFiles(context)
    for _ in range(2):
        try:
            referenced = named.referenced_hashes()
        except CorruptFile as error:
            required = "metadata of all snapshots, tags and branches, to know what is named"
            raise CorruptFile(context.location, required, str(error)) from error
        candidates = _unreferenced(candidates, referenced)
    found = [*temporary, *_of_iceberg_metadata(context, referenced)]
    for directory, unnamed in candidates.items():
        statuses = [status for status in context.io.list_directory(directory) if not status.is_directory]
        is_left = np.isin(hashes_of(status.name for status in statuses), unnamed)
        found += [(f"{directory}/{s.name}", s) for s, left in zip(statuses, is_left, strict=True) if left]
    old = sorted((path, status.size_bytes) for path, status in found if status.modified_ms < before_ms)
    paths = tuple(path for path, _ in old)
    if not dry_run:
        context.io.delete_all(paths)
        delete_empty_directories(context, (p for p in paths if p.rpartition("/")[0] in candidates and "/bucket-" in p))
    return OrphanCleaning(paths, sum(size for _, size in old), len(found) - len(old))


def _directories(context: TableContext) -> Iterator[str]:
    """Return the directories in which each file must be referenced."""
    paths = context.paths
    yield from (paths.manifest_directory, paths.index_directory, paths.statistics_directory)
    yield from bucket_directories(paths.data_root, len(context.schema.partition_keys), FileListing(context.io))


def _of_iceberg_metadata(context: TableContext, referenced: Hashes) -> tuple[tuple[str, FileStatus], ...]:
    """Return files of the Iceberg metadata that nothing names; none if not all of it can be read."""

    def is_referenced(name: str) -> bool:
        return bool(_is_contained(hashes_of([name]), referenced)[0])

    return iceberg_files(context, is_referenced).unnamed


def _names_in(context: TableContext, directory: str) -> Hashes:
    return hashes_of(status.name for status in context.io.list_directory(directory) if not status.is_directory)


def _unreferenced(found: dict[str, Hashes], named: Hashes) -> dict[str, Hashes]:
    """Return the names that are not among named, by directory."""
    rest = {directory: hashes[~_is_contained(hashes, named)] for directory, hashes in found.items()}
    return {directory: hashes for directory, hashes in rest.items() if len(hashes)}


def _is_contained(hashes: Hashes, named: Hashes) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return whether each hash is among named.

    named: sorted.
    """
    if not len(named):
        return np.zeros(len(hashes), np.bool_)
    places = np.minimum(np.searchsorted(named, hashes), len(named) - 1)
    found: np.ndarray[tuple[int], np.dtype[np.bool_]] = named[places] == hashes
    return found


def _temporary(context: TableContext) -> Iterator[tuple[str, FileStatus]]:
    """Return temporary files next to the snapshots of all branches."""
    listing = FileListing(context.io)
    for branch in all_branches(context.io, context.paths):
        yield from temporary_files(context.paths.for_branch(branch), listing)
