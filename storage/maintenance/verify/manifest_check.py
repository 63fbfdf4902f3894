"""Checks that manifests and manifest lists exist, are complete, and match the metadata that names them.

Each file is read once, and reported once, even if several snapshots name it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidelake.errors import TidelakeError
from tidelake.storage.commit.manifests.manifest_entry import ManifestEntry
from tidelake.storage.commit.manifests.manifest_file_meta import ManifestFileMeta
from tidelake.storage.commit.manifests.manifest_store import ListFile, ManifestStore
from tidelake.storage.maintenance.verify.file_listing import FileListing
from tidelake.storage.maintenance.verify.finding import REPORT, RESTORE, Finding
from tidelake.storage.model.format import FileKind
from tidelake.storage.model.metadata_cache import MetadataCache
from tidelake.storage.model.table import TableContext

_KEPT_BYTES: Final = 160 << 20  # about 100,000 entries


class ManifestCheck:
    """Reads and checks manifests.

    findings: the findings so far.
    names: names of all requested metadata files below `manifest/`.
    is_complete: False after a file could not be read: what else the table names is then unknown.

    The methods return None for what can't be read.
    """

    def __init__(self, context: TableContext, listing: FileListing) -> None:
        self._store = context.with_cache(MetadataCache(_KEPT_BYTES)).shared(ManifestStore)
        self._paths = context.paths
        self._listing = listing
        self._checked: set[ManifestFileMeta] = set()
        self._unread: set[str] = set()
        self.findings: list[Finding] = []
        self.names: set[str] = set()
        self.is_complete = True

    def metas(self, file: ListFile, where: str) -> Sequence[ManifestFileMeta] | None:
        """Return the manifests of a list."""
        is_new = file.name not in self.names
        self.names.add(file.name)
        try:
            metas = self._store.read_list(file)
        except (TidelakeError, OSError) as error:
            self._unreadable(file.name, where, error)
            return None
        if is_new and file.size is not None:
            self._check_size(file.name, file.size, where)
        return metas

    def entries(self, metas: Sequence[ManifestFileMeta], where: str) -> list[ManifestEntry] | None:
        """Return the entries of consecutive manifests, in order; None if one of them can't be read."""
        read = [self._entries(meta, where) for meta in metas]
        if any(entries is None for entries in read):
            return None
        return [entry for entries in read for entry in entries or ()]

    def format_findings(self, option: str) -> list[Finding]:
        """Return findings for files read so far whose format differs from option `manifest.format`."""
        return [
            Finding(
                "manifest-format",
                path,
                f"it is {found}, and option manifest.format says {option}: Java Paimon reads it as that, and fails",
                "With Java Paimon or Spark, which allow it, set the option to the format of most manifests; this "
                "reader opens all formats",
            )
            for found, path in self._store.formats.items()
            if found is not None and found != option.lower()
        ]

    def take_findings(self) -> list[Finding]:
        """Return and remove the findings since the last call."""
        taken, self.findings = self.findings, []
        return taken

    def _entries(self, meta: ManifestFileMeta, where: str) -> Sequence[ManifestEntry] | None:
        self.names.add(meta.file_name)
        try:
            entries = self._store.read(meta)
        except (TidelakeError, OSError) as error:
            self._unreadable(meta.file_name, where, error)
            return None
        if meta not in self._checked:
            self._checked.add(meta)
            self._check_size(meta.file_name, meta.file_size, where)
            self._check_counts(meta, entries, where)
        return entries

    def _unreadable(self, name: str, where: str, error: Exception) -> None:
        self.is_complete = False
        if name not in self._unread:
            self._unread.add(name)
            what = f"manifest/{name}, which it names, can't be read: {error}"
            self.findings.append(Finding("manifest-unreadable", where, what, RESTORE))

    def _check_size(self, name: str, size: int, where: str) -> None:
        found = self._listing.size_bytes(self._paths.manifest(name))
        if found is not None and found != size:
            what = f"manifest/{name} has {found} bytes, and is named with {size}"
            self.findings.append(Finding("manifest-size", where, what, REPORT))

    def _check_counts(self, meta: ManifestFileMeta, entries: Sequence[ManifestEntry], where: str) -> None:
        added = sum(entry.kind is FileKind.ADD for entry in entries)
        counts, recorded = (added, len(entries) - added), (meta.num_added_files, meta.num_deleted_files)
        if counts != recorded:
            what = f"manifest/{meta.file_name} adds {counts[0]} and deletes {counts[1]} files, its list says {recorded}"
            self.findings.append(Finding("manifest-counts", where, what, REPORT))
        for kind, low, high, numbers in (
            ("bucket", meta.min_bucket, meta.max_bucket, [entry.bucket for entry in entries]),
            ("level", meta.min_level, meta.max_level, [entry.file.level for entry in entries]),
        ):
            if numbers and low is not None and high is not None and not (low <= min(numbers) <= max(numbers) <= high):
                what = (
                    f"manifest/{meta.file_name} has {kind}s {min(numbers)} to {max(numbers)}, its list says {low} to "
                    f"{high}: readers would skip files"
                )
                self.findings.append(Finding("manifest-bounds", where, what, REPORT))
