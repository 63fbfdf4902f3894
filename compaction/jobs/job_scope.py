"""The files that a one-off job compacts while others write. Without this limit it might never end."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from tidelake.storage.commit.manifests.manifest_entry import ManifestEntry
from tidelake.storage.files.data_file import DataFileMeta
from tidelake.storage.model.bucket_id import BucketId


class JobScope:
    """At first all files.

    After `narrow`: the buckets that were due, with their files at that time and the compacted ones.

    Rows that arrive later are ignored, so the older files are compacted as if the job had been faster. If another
    process compacts a bucket, the job leaves that bucket to it: without its files the levels would be wrong.
    """

    def __init__(self) -> None:
        self._names: dict[BucketId, set[str] | None] | None = None  # None for a bucket: all its files

    def filter(self, live: Sequence[ManifestEntry]) -> Sequence[ManifestEntry]:
        if self._names is None:
            return live
        for entry in live:
            names = self._names.get(_key(entry))
            if names is not None and entry.file.level > 0 and entry.file.file_name not in names:
                del self._names[_key(entry)]
        return [entry for entry in live if self._is_in_scope(entry)]

    def narrow(self, entries: Iterable[ManifestEntry], due: Collection[BucketId]) -> None:
        names: dict[BucketId, set[str] | None] = {key: set() for key in due}
        for entry in entries:
            if (known := names.get(_key(entry))) is not None:
                known.add(entry.file.file_name)
        self._names = names

    def add(self, key: BucketId, files: Iterable[DataFileMeta]) -> None:
        """Add the files made in the bucket."""
        names = None if self._names is None else self._names.get(key)
        if names is not None:
            names |= {file.file_name for file in files}

    def refresh(self, key: BucketId) -> None:
        """Take all files of the bucket in the next plan, as its compaction lost to a conflict."""
        if self._names is not None:
            self._names[key] = None

    def _is_in_scope(self, entry: ManifestEntry) -> bool:
        assert self._names is not None
        key = _key(entry)
        if key not in self._names:
            return False
        names = self._names[key]
        return names is None or entry.file.file_name in names


def _key(entry: ManifestEntry) -> BucketId:
    return entry.bucket_id
