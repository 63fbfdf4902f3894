"""Inspects a whole table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tidelake.errors import BadInput
from tidelake.storage.base.clock import epoch_ms
from tidelake.storage.commit.expire.retained_states import all_branches
from tidelake.storage.commit.iceberg.metadata_files import iceberg_files
from tidelake.storage.maintenance.verify.branch_check import BranchCheck, HistoryCheck
from tidelake.storage.maintenance.verify.data_file_check import DataFileCheck
from tidelake.storage.maintenance.verify.file_listing import FileListing
from tidelake.storage.maintenance.verify.finding import Finding, Severity
from tidelake.storage.maintenance.verify.manifest_check import ManifestCheck
from tidelake.storage.maintenance.verify.orphan_files import Orphans, orphan_candidates, orphans_among
from tidelake.storage.maintenance.verify.row_check import check_rows
from tidelake.storage.model.table import TableContext

ORPHAN_AGE_MS: Final = 24 * 3_600_000


@dataclass(frozen=True, slots=True)
class Report:
    """What was inspected, and what was found.

    data_files: number of files that any snapshot, tag or changelog names.
    data_bytes: their total size.
    rows: their rows as in manifests, unmerged.
    orphans: None if unknown, because only a part was inspected or metadata can't be read.
    """

    findings: Sequence[Finding]
    snapshots: int
    tags: int
    branches: int
    data_files: int
    data_bytes: int
    rows: int
    orphans: Orphans | None

    @property
    def problems(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.severity is Severity.PROBLEM]


def verify(context: TableContext, *, deep: bool = False, check_history: HistoryCheck | None = None) -> list[Finding]:
    """Return the problems of a table with all its branches and tags; empty for a sound table. See `inspect`."""
    return inspect(context, deep=deep, check_history=check_history).problems


def inspect(
    context: TableContext,
    *,
    snapshot_id: int | None = None,
    deep: bool = False,
    check_history: HistoryCheck | None = None,
    orphans_older_than_ms: int = ORPHAN_AGE_MS,
    now_ms: int | None = None,
) -> Report:
    """Inspect a table. Changes nothing; other writers, readers and expiry may continue at the same time.

    snapshot_id: inspect only this snapshot, of this branch.
    deep: also read every row of every file.
    check_history: returns more findings about the snapshots of each branch (main included), oldest first. It is passed
        in by callers that know the meaning of their properties.
    orphans_older_than_ms: younger files may belong to an unfinished commit.
    Raises BadInput for a snapshot that does not exist.
    """
    context = context.uncached()
    listing = FileListing(context.io)
    manifests, files = ManifestCheck(context, listing), DataFileCheck(listing)
    names: set[str] = set()
    if snapshot_id is not None:
        if not context.snapshots.exists(snapshot_id):
            raise BadInput(f"{context.name} has no snapshot {snapshot_id}; `tidelake table snapshots` lists them")
        line = BranchCheck(context, listing, manifests, files, names)
        line.check_one(snapshot_id)
        findings: list[Finding] = [*line.findings, *(check_rows(files.files.values()) if deep else ())]
        return _report(findings, files, snapshots=1)

    branches = all_branches(context.io, context.paths)
    unnamed = orphan_candidates(context, set(branches), listing)
    findings, snapshots, tags = [], 0, 0
    for branch in branches:
        try:
            on_branch = context if branch == context.branch else context.of_branch(branch)
        except BadInput:  # it has no schema, or not all of them
            if branch in all_branches(context.io, context.paths):  # otherwise it was deleted meanwhile
                findings.append(_incomplete(branch))
            continue
        line = BranchCheck(on_branch, listing, manifests, files, names)
        count = line.check_all(check_history)
        snapshots, tags = snapshots + count.snapshots, tags + count.tags
        findings += line.findings
    findings += manifests.format_findings(context.options.manifest_format)
    if deep:
        findings += check_rows(files.files.values())
    orphans = None
    named = names | manifests.names | files.names
    of_iceberg = iceberg_files(context, named.__contains__)
    if of_iceberg.problem is not None:
        findings.append(_damaged_iceberg_metadata(*of_iceberg.problem))
    if manifests.is_complete:
        now = epoch_ms() if now_ms is None else now_ms
        unnamed += of_iceberg.unnamed
        orphans = orphans_among(unnamed, named, now - orphans_older_than_ms)
    return _report(findings, files, snapshots=snapshots, tags=tags, branches=len(branches) - 1, orphans=orphans)


def _incomplete(branch: str) -> Finding:
    return Finding(
        "branch-incomplete",
        f"branch {branch}",
        "it can't be read: it is being created, or its creation was interrupted",
        "If nothing creates it, delete it (`tidelake table branch delete NAME BRANCH`) and create it again",
        Severity.NOTE,
    )


def _damaged_iceberg_metadata(path: str, what: str) -> Finding:
    return Finding(
        "iceberg-metadata",
        path,
        f"{what}: Iceberg readers can't read the table. Its own metadata is not concerned",
        "Make it again: tidelake table iceberg NAME",
    )


def _report(
    findings: Sequence[Finding],
    files: DataFileCheck,
    *,
    snapshots: int,
    tags: int = 0,
    branches: int = 0,
    orphans: Orphans | None = None,
) -> Report:
    entries = [file.entry.file for file in files.files.values()]
    return Report(
        tuple(findings),
        snapshots,
        tags,
        branches,
        len(entries),
        sum(file.file_size for file in entries),
        sum(file.row_count for file in entries),
        orphans,
    )
