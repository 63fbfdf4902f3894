"""Removes files of a table that nothing names: of crashes, lost commits, rollbacks, deleted branches.

A file goes when it is old enough, and when two looks at all branches, one after the other, found nobody who names it.
One look is not enough: a fast-forward copies snapshots from a branch that was not looked at yet to one that was, and
the branch may be deleted before its turn. What a commit under way has written is young.

Source: Java `operation/OrphanFilesClean.java`, which looks once.
"""

from __future__ import annotations

from dataclasses import dataclass

from storage.errors import BadInput, CorruptFile
from storage.table import TableContext
from storage.verify.inspection import ORPHAN_AGE_MS, inspect
from storage.verify.orphan_files import Orphans


@dataclass(frozen=True, slots=True)
class OrphanCleaning:
    """paths, size_bytes: of what went, or would go. young: files that nothing names, and that are too young."""

    paths: tuple[str, ...]
    size_bytes: int
    young: int


def clean_orphans(
    context: TableContext, *, older_than_ms: int = ORPHAN_AGE_MS, dry_run: bool = False, now_ms: int | None = None
) -> OrphanCleaning:
    """older_than_ms: a commit under way must not take longer.

    Raises CorruptFile when metadata can't be read: nobody knows then what is named, and nothing goes.
    """
    if older_than_ms < 0:
        raise BadInput(f"orphans older than {older_than_ms} ms: the age is 0 or more")
    first = _look(context, older_than_ms, now_ms)
    if not first.paths:
        return OrphanCleaning((), 0, first.young)
    second = _look(context, older_than_ms, now_ms)
    both = set(first.paths) & set(second.paths)
    paths = tuple(path for path in first.paths if path in both)
    if not dry_run:
        context.io.delete_all(paths)
    return OrphanCleaning(paths, min(first.size_bytes, second.size_bytes), second.young)


def _look(context: TableContext, older_than_ms: int, now_ms: int | None) -> Orphans:
    report = inspect(context, orphans_older_than_ms=older_than_ms, now_ms=now_ms)
    if report.orphans is None:
        why = str(report.findings[0]) if report.findings else "metadata that can't be read"
        raise CorruptFile(context.location, "metadata of all snapshots, tags and branches, to know what is named", why)
    return report.orphans
