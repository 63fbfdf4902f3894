"""Keeps the live files of a table from one read to the next. A commit adds some manifests; only their entries are
merged into the known live files, so the cost does not depend on the number of files.

The names of the merged manifests identify the result: manifests never change, and their names are unique. If known
manifests were replaced (small ones were merged, a snapshot was rolled back), all are merged again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from tidelake.storage.commit.manifests.manifest_entry import Identity, ManifestEntry, merge_entries
from tidelake.storage.commit.manifests.manifest_file_meta import ManifestFileMeta
from tidelake.storage.commit.manifests.manifest_store import ManifestStore, bytes_of_entries

_NAME: Final = "live files"  # a key that no manifest has as its name
_SAMPLE: Final = 1_000  # number of entries from which the size of all is estimated


@dataclass(slots=True)
class MergedManifests:
    """The merged entries of some manifests, in their order.

    names: the names of these manifests.
    size_bytes: approximate size in memory.
    """

    names: list[str] = field(default_factory=list)
    entries: dict[Identity, ManifestEntry] = field(default_factory=dict)
    size_bytes: int = 0

    def is_beginning_of(self, metas: Sequence[ManifestFileMeta]) -> bool:
        return self.names == [meta.file_name for meta in metas[: len(self.names)]]

    def add(self, name: str, entries: Sequence[ManifestEntry]) -> None:
        merge_entries(entries, self.entries)
        self.names.append(name)
        sample = list(islice(self.entries.values(), _SAMPLE))
        self.size_bytes = bytes_of_entries(sample) * len(self.entries) // max(1, len(sample))


def merge_with_cache(manifests: ManifestStore, metas: Sequence[ManifestFileMeta]) -> list[ManifestEntry]:
    """Return the result of `merge_entries` for all entries of these manifests. Raises its ValueError, and CorruptFile.

    The result is kept in the metadata cache if it has room. Thread-safe: a second thread merges separately.
    """
    found = manifests.pop_cached(_NAME)
    known = found if isinstance(found, MergedManifests) and found.is_beginning_of(metas) else MergedManifests()
    added = metas[len(known.names) :]
    for meta, entries in zip(added, manifests.read_all(added), strict=True):
        known.add(meta.file_name, entries)
    live = list(known.entries.values())
    manifests.keep(_NAME, known, known.size_bytes)
    return live
