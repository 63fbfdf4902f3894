"""The index of dynamic buckets: as many hashes as manifests say, and none in the index of two buckets of a partition.

A hash in two buckets is a key in two buckets, or will be: its rows are never merged then.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from storage.errors import TidelakeError
from storage.files.bucket_directory import partition_directory
from storage.format import HASH_INDEX
from storage.manifests.index_manifest import IndexEntry
from storage.table import TableContext
from storage.verify.finding import REPORT, RESTORE, Finding
from storage.write.assigners.hash_index_file import read_hash_file

_REWRITE = "Two jobs may have written the partition at once: overwrite it with its own rows, and let one job write it"


def check_hash_index(context: TableContext, entries: Sequence[IndexEntry], where: str) -> Iterator[Finding]:
    """entries: of one index manifest, whose files are there and as long as it says."""
    found: defaultdict[bytes, dict[int, NDArray[np.int32]]] = defaultdict(dict)
    for entry in entries:
        if entry.file.index_type != HASH_INDEX:
            continue
        of = f"index file {entry.file.file_name} of bucket {entry.bucket}"
        try:
            hashes = read_hash_file(context, entry.partition, entry.bucket, entry.file)
        except (TidelakeError, OSError) as error:
            yield Finding("hash-index", where, f"{of} can't be read: {error}", RESTORE)
            continue
        if len(hashes) != entry.file.row_count:
            said = entry.file.row_count
            yield Finding("hash-index", where, f"{of} holds {len(hashes)} hashes, its manifest says {said}", REPORT)
        found[entry.partition][entry.bucket] = hashes
    for partition, buckets in found.items():
        yield from _shared_hashes(partition_directory(context, partition), buckets, where)


def _shared_hashes(directory: str, buckets: dict[int, NDArray[np.int32]], where: str) -> Iterator[Finding]:
    """One finding a partition, with the first buckets that share a hash."""
    numbers = list(buckets)
    hashes = np.concatenate([np.unique(buckets[number]) for number in numbers])
    of = np.repeat(numbers, [len(np.unique(buckets[number])) for number in numbers])
    order = np.argsort(hashes, kind="stable")
    again = np.flatnonzero(np.diff(hashes[order]) == 0)
    if len(again):
        first, second = (int(of[order[again[0] + step]]) for step in (0, 1))
        what = (
            f"{len(again)} hashes of keys are in the index of two buckets of {directory or 'the table'}, as of buckets "
            f"{first} and {second}"
        )
        yield Finding("hash-index", where, what, _REWRITE)
