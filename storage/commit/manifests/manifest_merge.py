"""Limits the number of manifests, so that the cost of commits and plans does not grow with the number of commits.

Every commit adds small manifests. They are merged in two ways. Readers see no difference, so both are always allowed.

- Full: if manifests that are small or contain deletes reach `manifest.full-compaction-threshold-size` together, they
  are rewritten with only live files. Large manifests are kept, unless their partitions had deletes.
- Minor: if the list ends with `manifest.merge-min-count` small manifests, these are merged. A file's ADD and DELETE
  cancel each other if both are in them.

Java's minor merge includes all manifests after the last large one. So the cost of every 30th commit grows with the
number of files (up to `manifest.target-file-size`, 8 MiB). This one includes an older manifest only if it has at
most as many entries as all newer ones together. So an entry is rewritten once each time their number doubles.

Source: Java `operation/ManifestFileMerger.java`, `ManifestFileLegacyMerger.java`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tidelake.storage.commit.manifests.manifest_entry import ManifestEntry
from tidelake.storage.commit.manifests.manifest_file_meta import ManifestFileMeta
from tidelake.storage.commit.manifests.manifest_store import ManifestStore
from tidelake.storage.commit.manifests.partition_stats import may_hold
from tidelake.storage.commit.manifests.snapshot_files import merged
from tidelake.storage.model.format import FileKind
from tidelake.storage.model.options import TableOptions

_FEW_ENTRIES: Final = 100  # a manifest with at most this many entries is mostly header: it is always merged
_FORCED_MERGE_FACTOR: Final = 4  # at this multiple of merge-min-count, all small manifests at the end are merged


@dataclass(frozen=True, slots=True)
class MergeLimits:
    target_bytes: int
    full_bytes: int
    min_count: int

    @classmethod
    def of(cls, options: TableOptions) -> MergeLimits:
        return cls(
            options.manifest_target_file_size_bytes,
            options.manifest_full_compaction_size_bytes,
            options.manifest_merge_min_count,
        )

    def must_change(self, meta: ManifestFileMeta) -> bool:
        """Return whether a full merge rewrites this manifest."""
        return meta.num_deleted_files > 0 or meta.file_size < self.target_bytes


def merge_manifests(
    manifests: ManifestStore, metas: Sequence[ManifestFileMeta], limits: MergeLimits, where: str
) -> list[ManifestFileMeta]:
    """Return manifests with the same content as `metas`, usually fewer.

    where: describes the table for error messages.
    """
    if sum(meta.file_size for meta in metas if limits.must_change(meta)) >= limits.full_bytes:
        rewritten = _merge_fully(manifests, metas, limits)
        if rewritten is not None:
            return rewritten
    start = first_to_merge(metas, limits)
    if start == len(metas):
        return list(metas)
    return [*metas[:start], *manifests.write(merged(manifests, metas[start:], where))]


def first_to_merge(metas: Sequence[ManifestFileMeta], limits: MergeLimits) -> int:
    """Return the position of the first manifest to merge, up to the end; `len(metas)` if no merge is worthwhile."""
    end = len(metas)
    start, entries, size = end, 0, 0
    while start > 0 and size < limits.target_bytes and metas[start - 1].file_size < limits.target_bytes:
        older = metas[start - 1]
        if start < end and older.num_entries > max(entries, _FEW_ENTRIES):
            break
        start, entries, size = start - 1, entries + older.num_entries, size + older.file_size
    enough = max(limits.min_count, 2)
    if end - start >= enough:
        return start
    small = next((i for i in range(end, 0, -1) if metas[i - 1].file_size >= limits.target_bytes), 0)
    return small if end - small >= _FORCED_MERGE_FACTOR * enough else end


def _merge_fully(
    manifests: ManifestStore, metas: Sequence[ManifestFileMeta], limits: MergeLimits
) -> list[ManifestFileMeta] | None:
    """Return None if at most one manifest would have to be rewritten."""
    deleted: dict[object, bytes] = {
        entry.identity: entry.partition
        for meta in metas
        if meta.num_deleted_files > 0
        for entry in manifests.read(meta)
        if entry.kind is FileKind.DELETE
    }
    concerned = may_hold(metas, set(deleted.values()), manifests.partition_types)
    kept = [m for m, is_concerned in zip(metas, concerned, strict=True) if not (limits.must_change(m) or is_concerned)]
    others = [m for m, is_concerned in zip(metas, concerned, strict=True) if limits.must_change(m) or is_concerned]
    if len(others) <= 1:
        return None
    live: list[ManifestEntry] = []
    for meta in others:
        entries = manifests.read(meta)
        remaining = [e for e in entries if e.kind is FileKind.ADD and e.identity not in deleted]
        if len(remaining) == len(entries) and not limits.must_change(meta):
            kept.append(meta)
        else:
            live += remaining
    return [*kept, *manifests.write(live)]
