"""Checks a sequence of snapshots: each state must follow from the previous one, and readers must see the same state.

The state is kept in memory and updated with deltas. A base list is read completely only at the start of a sequence, or
if it may differ from the previous state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence

from tidelake.errors import CommitConflict, TidelakeError
from tidelake.storage.commit.conflicts import check_bucket_counts, check_levels
from tidelake.storage.commit.manifests.manifest_entry import Identity, ManifestEntry, merge_entries
from tidelake.storage.commit.manifests.manifest_file_meta import ManifestFileMeta
from tidelake.storage.commit.manifests.snapshot_files import base_list, delta_list
from tidelake.storage.files.bucket_directory import partition_directory
from tidelake.storage.maintenance.verify.data_file_check import DataFileCheck
from tidelake.storage.maintenance.verify.finding import REPORT, Finding
from tidelake.storage.maintenance.verify.manifest_check import ManifestCheck
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.format import FileKind
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import DataType


class SnapshotChain:
    """Checks the snapshots of one branch, oldest first.

    rows: rows of the current state.
    """

    def __init__(self, context: TableContext, manifests: ManifestCheck, files: DataFileCheck) -> None:
        self._context = context
        self._manifests = manifests
        self._files = files
        self._checks_levels = context.schema.has_primary_key and not context.options.pk_clustering_override
        self._last: Snapshot | None = None
        self._metas: Sequence[ManifestFileMeta] = ()
        self._live: dict[BucketId, dict[Identity, ManifestEntry]] = {}
        self.rows = 0

    def step(self, snapshot: Snapshot, where: str) -> Iterator[Finding]:
        """Yield the problems of one snapshot, by itself and as the successor of the last one."""
        base = self._manifests.metas(base_list(snapshot), where)
        delta = self._manifests.metas(delta_list(snapshot), where)
        entries = None if delta is None else self._manifests.entries(delta, where)
        if base is None or delta is None or entries is None:
            self._last = None
            return
        follows = self._last is not None and self._last.id + 1 == snapshot.id
        if follows:
            yield from self._check_base(base, where)
        elif not (yield from self._begin(base, where)):
            return
        before = self.rows
        contradictions = list(self._apply(entries, where))
        yield from contradictions
        if not contradictions and _net(entries) is None:
            what = "its delta deletes a file and adds it again, which readers of changes can't follow"
            yield Finding("delta-contradicts", where, what, REPORT)
        yield from self._check_counts(snapshot, self.rows - before, where)
        touched = {entry.bucket_id for entry in entries} if follows else set(self._live)
        added = [entry for entry in entries if entry.kind is FileKind.ADD] if follows else self._entries()
        yield from self._files.check(self._context, added, where)
        yield from self._check_buckets(touched, where)
        self._last, self._metas = snapshot, [*base, *delta]

    # ------------------------------------------------------------ the state

    def _entries(self) -> list[ManifestEntry]:
        return [entry for files in self._live.values() for entry in files.values()]

    def _begin(self, base: Sequence[ManifestFileMeta], where: str) -> Generator[Finding, None, bool]:
        """Start with the state of a base list. Returns whether the state is known now."""
        self._last, self._live, self.rows = None, {}, 0
        entries = self._manifests.entries(base, where)
        if entries is None:
            return False
        yield from self._apply(entries, where)
        return True

    def _apply(self, entries: Iterable[ManifestEntry], where: str) -> Iterator[Finding]:
        for entry in entries:
            files = self._live.setdefault(entry.bucket_id, {})
            is_live = entry.identity in files
            if entry.kind is FileKind.ADD:
                if is_live:
                    what = f"data file {entry.file.file_name}, level {entry.file.level}, is added a second time"
                    yield Finding("file-added-twice", where, what, REPORT)
                    continue
                files[entry.identity] = entry
                self.rows += entry.file.row_count
            elif is_live:
                self.rows -= files.pop(entry.identity).file.row_count
            else:
                what = f"data file {entry.file.file_name}, level {entry.file.level}, is deleted and was not live"
                yield Finding("delete-without-file", where, what, REPORT)

    def _check_base(self, base: Sequence[ManifestFileMeta], where: str) -> Iterator[Finding]:
        """Check that the base list has the state of the previous snapshot, perhaps in other manifests."""
        removed = self._manifests.entries(_without(self._metas, base), where)
        added = self._manifests.entries(_without(base, self._metas), where)
        if removed is None or added is None:
            return
        net = _net(removed)
        if net is not None and net == _net(added):
            return
        entries = self._manifests.entries(base, where)  # the ADD of a DELETE may be in another manifest
        if entries is None:
            return
        merged, expected = _net(entries), {identity for files in self._live.values() for identity in files}
        if merged is None or {identity for identity, kind in merged.items() if kind is FileKind.ADD} != expected:
            what = "its base manifest list differs from the state after the snapshot before it"
            if merged is None:
                what += ", and contradicts itself: readers fail"
            elif lost := expected - merged.keys():
                what += f"; {len(lost)} files are lost, {next(iter(lost))[3]} among them"
            yield Finding("base-differs", where, what, REPORT)
            yield from self._begin(base, where)

    # ------------------------------------------------------------ counts, levels

    def _check_counts(self, snapshot: Snapshot, delta_rows: int, where: str) -> Iterator[Finding]:
        wrong = []
        if snapshot.total_record_count != self.rows:
            wrong.append(f"totalRecordCount {snapshot.total_record_count}, its files hold {self.rows} rows")
        if snapshot.delta_record_count != delta_rows:
            wrong.append(f"deltaRecordCount {snapshot.delta_record_count}, its delta makes {delta_rows:+}")
        if wrong:
            yield Finding("record-count", where, "; ".join(wrong), REPORT)

    def _check_buckets(self, touched: Iterable[BucketId], where: str) -> Iterator[Finding]:
        touched = set(touched)
        entries = [entry for bucket in touched for entry in self._live.get(bucket, {}).values()]
        try:
            check_bucket_counts(entries, self._name_partition)
            if self._checks_levels:
                check_levels(entries, self._key_types_of(entries), self._name_partition)
        except CommitConflict as conflict:
            yield Finding("levels", where, str(conflict).partition(". ")[0], REPORT)
        except (TidelakeError, ValueError) as error:
            yield Finding("levels", where, f"the keys of its files can't be compared: {error}", REPORT)

    def _key_types_of(self, entries: Sequence[ManifestEntry]) -> list[DataType]:
        """Return the types of the files' keys, which may have become wider since."""
        schema_id = max((entry.file.schema_id for entry in entries), default=self._context.schema.id)
        return [field.type for field in self._context.with_keys_of(schema_id).schema.key_fields]

    def _name_partition(self, partition: bytes) -> str:
        return partition_directory(self._context, partition) or self._context.name


def _without(metas: Sequence[ManifestFileMeta], others: Iterable[ManifestFileMeta]) -> list[ManifestFileMeta]:
    """Return manifests that the others lack. A name that occurs twice here must also occur twice there."""
    left = Counter(meta.file_name for meta in others)
    missing = []
    for meta in metas:
        if left[meta.file_name]:
            left[meta.file_name] -= 1
        else:
            missing.append(meta)
    return missing


def _net(entries: Sequence[ManifestEntry]) -> dict[Identity, FileKind] | None:
    """Return the merged entries; None if they contradict each other."""
    try:
        return {identity: entry.kind for identity, entry in merge_entries(entries).items()}
    except ValueError:
        return None
