"""Reads partitions that a branch lacks from another branch: options `scan.fallback-branch`, `scan.primary-branch`.

With a fallback branch, partitions that have files in the opened branch are read there, and all others in the fallback
branch. With a primary branch it is the other way round. Each partition is read from one branch, whatever else the
condition says. This applies only to reads of a table state. Changes, writes, deletes and maintenance use the branch
that was opened.

Source: Java `table/FallbackReadFileStoreTable.java`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

import pyarrow as pa

from tidelake.errors import BadInput, UnsupportedFeature
from tidelake.storage.commit.manifests.manifest_entry import ManifestEntry
from tidelake.storage.commit.manifests.snapshot_files import live_entries
from tidelake.storage.files.bucket_directory import partition_directory
from tidelake.storage.model.format import DEFAULT_BRANCH
from tidelake.storage.model.snapshots.branches import FALLBACK_BRANCH, PRIMARY_BRANCH, branch_names
from tidelake.storage.model.snapshots.snapshot import FIRST_SNAPSHOT_ID, Snapshot
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import same_ignoring_nullability
from tidelake.storage.read.expired_snapshots import raise_if_snapshot_expired
from tidelake.storage.read.predicate import Predicate
from tidelake.storage.read.scan import TableScan
from tidelake.storage.read.snapshot_reader import SnapshotReader
from tidelake.storage.read.split import Split
from tidelake.storage.read.time_travel import time_in_ms

_BRANCH_OPTIONS: Final = (FALLBACK_BRANCH, PRIMARY_BRANCH, "branch", "bucket")  # Java: rewriteOtherOptions


@dataclass(frozen=True, slots=True)
class FallbackBranch:
    """The other branch that a read takes partitions from.

    context: its schema is used for the read
    snapshot: None if the branch has no snapshot
    has_priority: its partitions have priority over those of the opened branch
    """

    context: TableContext
    snapshot: Snapshot | None
    has_priority: bool


def named_branch(context: TableContext) -> tuple[str, str] | None:
    """Return (option, branch) if the options name a second branch. Raises BadInput if they name two of them."""
    given = [
        (key, name) for key in (FALLBACK_BRANCH, PRIMARY_BRANCH) if (name := (context.options.get(key) or "").strip())
    ]
    if len(given) > 1:
        raise BadInput(f"{context.name}: options {FALLBACK_BRANCH} and {PRIMARY_BRANCH} are both set; unset one")
    return given[0] if given and given[0][1] != context.branch else None


def fallback_branch(
    context: TableContext,
    found: Snapshot | None,
    *,
    snapshot_id: int | None = None,
    tag: str | None = None,
    as_of: datetime | int | None = None,
    files_since_ms: int | None = None,
) -> FallbackBranch | None:
    """Return the branch from which a read takes missing partitions; None if the options name none.

    The read of the other branch uses the same tag or time. For a snapshot id, it uses the state at the time of that
    snapshot, or the branch's first snapshot if there is no earlier one.

    found: the snapshot of the opened branch. The other parameters say how the caller chose it.

    Raises BadInput if the branches don't fit together, and UnsupportedFeature if such a read can't use two branches.
    """
    named = named_branch(context)
    if named is None:
        return None
    option, name = named
    if files_since_ms is not None:
        raise _unsupported_error(context, option, "a read of files by their time")
    other = _opened(context, option, name)
    snapshot = _state(other, found, snapshot_id, tag, as_of)
    if snapshot is not None and (snapshot_id, tag, as_of) != (None, None, None):
        other = other.with_schema(other.schemas.get(snapshot.schema_id))
    _check_alike(context, other, option)
    return FallbackBranch(other, snapshot, option == PRIMARY_BRANCH)


def refuse_fallback_branch(context: TableContext, what: str) -> None:
    """Reject a read that can use one branch only, if the options name a second branch.

    what: describes the read for the error message

    Raises UnsupportedFeature.
    """
    named = named_branch(context)
    if named is not None:
        raise _unsupported_error(context, named[0], what)


def _unsupported_error(context: TableContext, option: str, what: str) -> UnsupportedFeature:
    return UnsupportedFeature(
        f"{context.name}: option {option} = {context.options[option]}",
        f"{what} is possible only for a single branch",
        f"Open the table with {option} set to an empty string, and the other branch by its name",
    )


def _opened(context: TableContext, option: str, name: str) -> TableContext:
    if name not in (DEFAULT_BRANCH, *branch_names(context.io, context.paths)):
        raise BadInput(
            f"{context.name}: option {option} = {name}, but this branch does not exist; create it, or unset the option"
        )
    other = context.of_branch(name)
    return replace(other, options=context.options.rebase(other.schema.options, without=_BRANCH_OPTIONS))


def _state(
    other: TableContext,
    found: Snapshot | None,
    snapshot_id: int | None,
    tag: str | None,
    as_of: datetime | int | None,
) -> Snapshot | None:
    store = other.snapshots
    if tag is not None:
        tags = other.tags
        if tag not in tags.names():
            raise BadInput(
                f"{other.name}: branch {other.branch!r}, from which partitions are read, has no tag {tag!r}; create "
                "the tag there, too"
            )
        return tags.get(tag)
    if as_of is not None:
        return store.as_of(time_in_ms(as_of))
    if snapshot_id is None or found is None:
        return store.latest()
    return store.as_of(found.time_ms) or store.find(FIRST_SNAPSHOT_ID)


def _check_alike(context: TableContext, other: TableContext, option: str) -> None:
    own, fallback = context.schema, other.schema
    alike = own.names == fallback.names and own.partition_keys == fallback.partition_keys
    if not alike or not all(
        same_ignoring_nullability(a.type, b.type) for a, b in zip(own.fields, fallback.fields, strict=True)
    ):
        shown = [", ".join(f"{f.name} {f.type}" for f in schema.fields) for schema in (own, fallback)]
        raise BadInput(
            f"{context.name}: option {option} = {other.branch}, whose columns differ: {shown[1]} instead of "
            f"{shown[0]}; alter one of the branches, or unset the option"
        )


# ---------------------------------------------------------------- reading both


@dataclass(frozen=True, slots=True)
class BranchRead:
    """The part of a read that one branch provides."""

    scan: TableScan
    snapshot: Snapshot | None
    of_fallback_branch: bool = False

    def splits(self) -> list[Split]:
        found = self.scan.plan(self.snapshot)
        return [replace(split, of_fallback_branch=True) for split in found] if self.of_fallback_branch else found


def branch_reads(
    scan_of: Callable[[TableContext], TableScan],
    context: TableContext,
    snapshot: Snapshot | None,
    other: FallbackBranch | None,
) -> list[BranchRead]:
    """Return one read for each branch, in the order of priority.

    scan_of: makes the scan of a branch
    """
    own = BranchRead(scan_of(context), snapshot)
    if other is None:
        return [own]
    others = BranchRead(scan_of(other.context), other.snapshot, of_fallback_branch=True)
    first, second = (others, own) if other.has_priority else (own, others)
    first_partitions, keep = _partitions(first), second.scan.keep_entry

    def is_missing(entry: ManifestEntry) -> bool:
        return entry.partition not in first_partitions and (keep is None or keep(entry))

    return [first, replace(second, scan=replace(second.scan, keep_entry=is_missing))]


def _partitions(part: BranchRead) -> frozenset[bytes]:
    """Return the partitions that have files, even if no row of these files is visible."""
    if part.snapshot is None:
        return frozenset()
    context = part.scan.context
    with raise_if_snapshot_expired(context, part.snapshot.id):
        return frozenset(entry.partition for entry in live_entries(context, part.snapshot))


def read_of_other_branch(
    context: TableContext, snapshot: Snapshot | None, predicate: Predicate | None
) -> BranchRead | None:
    """Return what a read of the newest state takes from another branch; None if the options name none.

    snapshot: the newest one of the opened branch
    """
    other = fallback_branch(context, snapshot)
    parts = branch_reads(lambda of_branch: TableScan(of_branch, predicate), context, snapshot, other)
    return next((part for part in parts if part.of_fallback_branch), None)


def refuse_change_of_other_branch(
    context: TableContext,
    snapshot: Snapshot | None,
    predicate: Predicate,
    is_changed: Callable[[pa.RecordBatch], bool],
) -> None:
    """Reject a change of rows that a read takes from another branch. A change is written to the opened branch.

    snapshot: the newest one of the opened branch
    predicate: a condition of the rows that may change
    is_changed: whether one of these rows changes

    Raises UnsupportedFeature.
    """
    part = read_of_other_branch(context, snapshot, predicate)
    if part is None:
        return
    reader = SnapshotReader(part.scan.context, tuple(context.schema.names), predicate)
    for split in part.splits():
        if any(map(is_changed, reader.read([split]))):
            raise change_of_other_branch(context, part, split.partition)


def change_of_other_branch(context: TableContext, part: BranchRead, partition: bytes) -> UnsupportedFeature:
    """Return the error for a change of rows in this partition of another branch."""
    option, branch = named_branch(context) or (FALLBACK_BRANCH, part.scan.context.branch)
    where = partition_directory(context, partition) or "a table without partitions"
    name = context.name.partition("$")[0] + (f"$branch_{branch}" if branch != DEFAULT_BRANCH else "")
    return UnsupportedFeature(
        f"{context.name}: a change of rows in {where}, which is read from branch {branch} ({option})",
        "a change is written to the opened branch, and would hide all other rows of the partition",
        f"Change the rows in {name}, or exclude them in the condition",
    )


def rows_of_branch_reads(parts: list[BranchRead], columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    for part in parts:
        yield from SnapshotReader(part.scan.context, columns, part.scan.predicate).read(part.splits())
