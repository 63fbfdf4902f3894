"""Index files of deletion vectors: a version byte, then the vectors one after another.

The index manifest records the data file and the position of each vector.

Source: Java `deletionvectors/DeletionFileWriter.java`, `DeletionVectorsIndexFile.java`,
`table/source/DeletionFile.java`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidelake.errors import CorruptFile
from tidelake.storage.fileio.base import FileIO
from tidelake.storage.model.deletion_vectors.vector_bytes import (
    metadata_length,
    size_of_stored,
    stored_bytes,
    vector_from_bytes,
    vector_to_bytes,
)
from tidelake.storage.model.format import DELETION_VECTORS_VERSION


@dataclass(frozen=True, slots=True)
class DeletionVectorMeta:
    """The position of a data file's vector in an index file.

    cardinality: the number of deleted rows; None in old index manifests.
    """

    data_file: str
    offset: int
    length: int
    cardinality: int | None = None


@dataclass(frozen=True, slots=True)
class DeletionFile:
    """The deletion vector of one data file, as part of a split. Pickles.

    path: of the index file.
    """

    path: str
    vector: DeletionVectorMeta


def read_vector(io: FileIO, deletion: DeletionFile) -> NDArray[np.int64]:
    """Return the positions of the data file's deleted rows, ascending. Raises CorruptFile."""
    return _positions(read_stored(io, deletion), deletion)


def read_stored(io: FileIO, deletion: DeletionFile) -> bytes:
    """Return the bytes of a vector in the file, from its size to its CRC. Raises CorruptFile."""
    path, vector = deletion.path, deletion.vector
    try:
        source = io.open_input(path)
    except FileNotFoundError:
        raise CorruptFile(path, "an index file that a snapshot references", "no file") from None
    with source:
        version = source.read_at(1, 0)
        if version != bytes([DELETION_VECTORS_VERSION]):
            raise CorruptFile(
                path, f"deletion vectors of version {DELETION_VECTORS_VERSION}", version.hex() or "an empty file", 0
            )
        data: bytes = source.read_at(stored_bytes(vector.length), vector.offset)
    return data[: size_of_stored(data)]


def _positions(data: bytes, deletion: DeletionFile) -> NDArray[np.int64]:
    path, vector = deletion.path, deletion.vector
    positions = vector_from_bytes(data, vector.length, path, vector.offset)
    if vector.cardinality not in (None, len(positions)):
        raise CorruptFile(path, f"{vector.cardinality} deleted rows", f"{len(positions)}", vector.offset)
    return positions


@dataclass(frozen=True, slots=True)
class StoredVector:
    """The bytes of a vector, to be written.

    meta_length: its length in the index manifest.
    """

    data: bytes
    meta_length: int
    cardinality: int | None

    @classmethod
    def of(cls, positions: NDArray[np.int64], *, bitmap64: bool) -> StoredVector:
        """Encode positions.

        positions (n,): distinct.

        Raises ValueError for a position that the form can't hold.
        """
        data = vector_to_bytes(positions, bitmap64=bitmap64)
        return cls(data, metadata_length(len(data), bitmap64=bitmap64), len(positions))

    @classmethod
    def copied(cls, io: FileIO, deletion: DeletionFile) -> StoredVector:
        """Return a vector of another index file unchanged, in either form. Raises CorruptFile."""
        data = read_stored(io, deletion)
        _positions(data, deletion)  # a damaged vector must not be copied
        return cls(data, deletion.vector.length, deletion.vector.cardinality)


class IndexFileBuilder:
    """Builds one index file in memory, vector by vector."""

    def __init__(self) -> None:
        self._parts = [bytes([DELETION_VECTORS_VERSION])]
        self._metas: list[DeletionVectorMeta] = []
        self.size_bytes = 1

    def add(self, data_file: str, vector: StoredVector) -> None:
        self._metas.append(DeletionVectorMeta(data_file, self.size_bytes, vector.meta_length, vector.cardinality))
        self._parts.append(vector.data)
        self.size_bytes += len(vector.data)

    def finish(self) -> tuple[bytes, tuple[DeletionVectorMeta, ...]]:
        """Return the file, and the position of each vector in it."""
        return b"".join(self._parts), tuple(self._metas)
