"""Checks the index files of a snapshot: deletion vectors, and the hashes of dynamic buckets. Each file is read once.

A deletion vector must be readable, have the row count in the manifest, and mark only existing rows.

The hashes of a bucket must be as many as the manifest says, and none may also be a hash of another bucket of the
partition: its key would be in two buckets, or will be, and the rows would never be merged.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tidelake.errors import TidelakeError
from tidelake.storage.commit.manifests.index_manifest import IndexEntry
from tidelake.storage.files.bucket_directory import partition_directory
from tidelake.storage.files.index_file import IndexFileMeta
from tidelake.storage.maintenance.verify.finding import REPORT, RESTORE, Finding
from tidelake.storage.model.deletion_vectors.vector_file import DeletionFile, read_vector
from tidelake.storage.model.format import HASH_INDEX
from tidelake.storage.model.table import TableContext
from tidelake.storage.write.assigners.hash_index_file import read_hash_file


class VectorCheck:
    def __init__(self) -> None:
        self._checked: set[str] = set()

    def check(
        self, context: TableContext, file: IndexFileMeta, path: str, rows: Mapping[str, int], where: str
    ) -> Iterator[Finding]:
        """Check the vectors of an index file that exists.

        rows: rows of each known data file, by its name.
        """
        if path in self._checked:
            return
        self._checked.add(path)
        for vector in file.vectors:
            of = f"the deletion vector of data file {vector.data_file} in {path}"
            try:
                positions = read_vector(context.io, DeletionFile(path, vector))
            except (TidelakeError, OSError, ValueError) as error:
                yield Finding("deletion-vector", where, f"{of} can't be read: {error}", RESTORE)
                continue
            count = rows.get(vector.data_file)
            if count is not None and len(positions) and int(positions[-1]) >= count:
                what = f"{of} marks row {positions[-1]}, and the file has {count} rows"
                yield Finding("deletion-vector", where, what, REPORT)


_REWRITE = "Two jobs may have written the partition at once: overwrite it with its own rows, and let one job write it"


def check_hash_index(context: TableContext, entries: Sequence[IndexEntry], where: str) -> Iterator[Finding]:
    """entries: of one index manifest. Their files exist and have the right size."""
    found: defaultdict[bytes, dict[int, NDArray[np.int32]]] = defaultdict(dict)
    for entry in entries:
        if entry.file.index_type != HASH_INDEX:
            continue
        label = f"index file {entry.file.file_name} of bucket {entry.bucket}"
        try:
            hashes = read_hash_file(context, entry.partition, entry.bucket, entry.file)
        except (TidelakeError, OSError) as error:
            yield Finding("hash-index", where, f"{label} can't be read: {error}", RESTORE)
            continue
        if len(hashes) != entry.file.row_count:
            expected = entry.file.row_count
            what = f"{label} holds {len(hashes)} hashes, but its manifest says {expected}"
            yield Finding("hash-index", where, what, REPORT)
        found[entry.partition][entry.bucket] = hashes
    for partition, buckets in found.items():
        yield from _shared_hashes(partition_directory(context, partition), buckets, where)


def _shared_hashes(directory: str, buckets: dict[int, NDArray[np.int32]], where: str) -> Iterator[Finding]:
    """Return one finding for each partition, with the first buckets that share a hash."""
    numbers = list(buckets)
    hashes = np.concatenate([np.unique(buckets[number]) for number in numbers])
    bucket_of = np.repeat(numbers, [len(np.unique(buckets[number])) for number in numbers])
    order = np.argsort(hashes, kind="stable")
    repeated = np.flatnonzero(np.diff(hashes[order]) == 0)
    if len(repeated):
        first, second = (int(bucket_of[order[repeated[0] + step]]) for step in (0, 1))
        what = (
            f"{len(repeated)} hashes of keys are in the index of two buckets of {directory or 'the table'}, as of "
            f"buckets {first} and {second}"
        )
        yield Finding("hash-index", where, what, _REWRITE)
