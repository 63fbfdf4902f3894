"""The deletion vectors of a table as Puffin files beside its Iceberg metadata.

An index file of the table has the same vectors, but it is no Puffin file, and not every Iceberg reader accepts it. So
each index file has a Puffin file, which is named after it and never changes. Vectors of 32 bits, which a table has from
before `deletion-vectors.bitmap64` was set, become vectors of 64 bits.

Java names its index file in the metadata, as if it were a Puffin file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidelake.errors import CorruptFile
from tidelake.storage.commit.manifests.index_manifest import IndexEntry, index_entry_path
from tidelake.storage.model.deletion_vectors.vector_bytes import (
    size_of_stored,
    stored_bytes,
    vector_from_bytes,
    vector_to_bytes,
)
from tidelake.storage.model.format import DELETION_VECTOR_64_MAGIC
from tidelake.storage.model.iceberg.puffin import PuffinVector, places_in, puffin_file
from tidelake.storage.model.table import TableContext

_PLACE_BYTES: Final = 300  # measured size in memory
_MAGIC_64: Final = DELETION_VECTOR_64_MAGIC.to_bytes(4, "little")


class VectorFiles:
    """The Puffin files of one table."""

    def __init__(self, context: TableContext, directory: str) -> None:
        self._context = context
        self._io = context.io
        self._cache = context.metadata_cache
        self._directory = directory

    def path(self, entry: IndexEntry) -> str:
        return f"{self._directory}/{entry.file.file_name}.puffin"

    def places(self, entry: IndexEntry, bucket_directory: str) -> tuple[Sequence[PuffinVector], int]:
        """Return the places of the vectors of an index file in its Puffin file, and the size of that in bytes.

        The file is written if it does not exist. Raises CorruptFile.
        """
        path = self.path(entry)
        known = self._cache.get(path)
        if known is None:
            try:
                data = self._io.read(path)
                places = places_in(data, path)
            except (FileNotFoundError, CorruptFile):  # a file that a power cut left is written again
                data, places = puffin_file(self._vectors(entry, bucket_directory))
                self._io.write(path, data, durable=False)
            known = (places, len(data))
            self._cache.put(path, known, _PLACE_BYTES * len(places))
        return known[0], known[1]

    def _vectors(self, entry: IndexEntry, bucket_directory: str) -> list[tuple[str, int, bytes]]:
        source = index_entry_path(self._context, entry)
        try:
            data = self._io.read(source)
        except FileNotFoundError:
            raise CorruptFile(source, "an index file that a snapshot references", "no file") from None
        found = []
        for vector in entry.file.vectors:
            stored = data[vector.offset : vector.offset + stored_bytes(vector.length)]
            stored = stored[: size_of_stored(stored)]
            positions = vector_from_bytes(stored, vector.length, source, vector.offset)
            is_64 = stored[4:8] == _MAGIC_64
            found.append(
                (
                    f"{bucket_directory}/{vector.data_file}",
                    len(positions),
                    stored if is_64 else vector_to_bytes(positions, bitmap64=True),
                )
            )
        return found
