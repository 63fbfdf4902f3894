"""The live files of a table from one look at it to the next: a commit adds some manifests to those there were, and only
these are merged in, however many files there are.

Which manifests were merged says what was found: none ever changes, and no two have one name. Where others stand in
their place (small ones were joined, a snapshot was rolled back), all are merged again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from storage.manifests.manifest_entry import Identity, ManifestEntry, merge_entries
from storage.manifests.manifest_file_meta import ManifestFileMeta
from storage.manifests.manifest_store import ManifestStore, bytes_of_entries

_NAME: Final = "live files"  # no manifest is called so
_SAMPLE: Final = 1_000  # entries whose size tells that of all


@dataclass(slots=True)
class MergedManifests:
    """What remains of the entries of manifests, in their order. names: of these. size_bytes: in memory, about."""

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


def merged_and_kept(manifests: ManifestStore, metas: Sequence[ManifestFileMeta]) -> list[ManifestEntry]:
    """As `merge_entries` of all entries of these manifests. Raises ValueError as it does, and CorruptFile.

    What was found is kept with the manifests, as far as there is room. Thread-safe: a second thread merges for itself.
    """
    found = manifests.take_kept(_NAME)
    known = found if isinstance(found, MergedManifests) and found.is_beginning_of(metas) else MergedManifests()
    for meta in metas[len(known.names) :]:
        known.add(meta.file_name, manifests.read(meta))
    live = list(known.entries.values())
    manifests.keep(_NAME, known, known.size_bytes)
    return live
