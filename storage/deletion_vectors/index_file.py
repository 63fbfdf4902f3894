"""Index files of deletion vectors: a version byte, then vector after vector. The index manifest says which data file
each belongs to, and where it lies.

Source: Java `deletionvectors/DeletionFileWriter.java`, `DeletionVectorsIndexFile.java`,
`table/source/DeletionFile.java`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from storage.deletion_vectors.vector_bytes import metadata_length, stored_bytes, vector_from_bytes, vector_to_bytes
from storage.errors import CorruptFile
from storage.fileio.base import FileIO
from storage.format import DELETION_VECTORS_VERSION


@dataclass(frozen=True, slots=True)
class VectorMeta:
    """Where the vector of a data file lies in an index file. cardinality: deleted rows; None in old index manifests."""

    data_file: str
    offset: int
    length: int
    cardinality: int | None = None


@dataclass(frozen=True, slots=True)
class DeletionFile:
    """The deletion vector of one data file, as a split carries it. Pickles. path: of the index file."""

    path: str
    vector: VectorMeta


def read_vector(io: FileIO, deletion: DeletionFile) -> NDArray[np.int64]:
    """Positions of the data file's deleted rows, ascending. Raises CorruptFile."""
    path, vector = deletion.path, deletion.vector
    try:
        source = io.open_input(path)
    except FileNotFoundError:
        raise CorruptFile(path, "an index file that a snapshot refers to", "no file") from None
    with source:
        version = source.read_at(1, 0)
        if version != bytes([DELETION_VECTORS_VERSION]):
            raise CorruptFile(
                path, f"deletion vectors of version {DELETION_VECTORS_VERSION}", version.hex() or "an empty file", 0
            )
        data = source.read_at(stored_bytes(vector.length), vector.offset)
    positions = vector_from_bytes(data, vector.length, path, vector.offset)
    if vector.cardinality not in (None, len(positions)):
        raise CorruptFile(path, f"{vector.cardinality} deleted rows", f"{len(positions)}", vector.offset)
    return positions


def index_file_bytes(vectors: Mapping[str, NDArray[np.int64]], *, bitmap64: bool) -> tuple[bytes, Sequence[VectorMeta]]:
    """An index file of these vectors (data file to distinct positions), and where each lies in it."""
    parts, metas, offset = [bytes([DELETION_VECTORS_VERSION])], [], 1
    for data_file, positions in vectors.items():
        data = vector_to_bytes(positions, bitmap64=bitmap64)
        length = metadata_length(len(data), bitmap64=bitmap64)
        metas.append(VectorMeta(data_file, offset, length, len(positions)))
        parts.append(data)
        offset += len(data)
    return b"".join(parts), metas
