"""Stores the chunks that a task received: in memory as far as they fit, the rest in a file that the task deletes."""

from __future__ import annotations

import os
import tempfile
from collections import defaultdict
from collections.abc import Mapping
from types import TracebackType
from typing import IO, Final, Self

import pyarrow as pa

from tidelake.errors import TidelakeError
from tidelake.ingest.spark.shuffling.shuffle import from_ipc

_BUFFER_BYTES_MAX: Final = 16 << 20
_LOCAL_FOLDERS: Final = ("SPARK_LOCAL_DIRS", "LOCAL_DIRS")  # standalone and Kubernetes; YARN


class ChunkStore:
    """The chunks of a task. Not thread-safe. Close it after its batches are no longer used: they refer to its file."""

    def __init__(self, held_bytes_max: int = _BUFFER_BYTES_MAX) -> None:
        self._held_bytes_max = held_bytes_max
        self._held: list[tuple[int, int, pa.Buffer]] = []
        self._held_bytes = 0
        self._file: IO[bytes] | None = None
        self._places: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)  # in the file: (start, size)
        self._map: pa.MemoryMappedFile | None = None

    def add(self, table_number: int, shuffle_partition: int, chunk: pa.Buffer) -> None:
        self._held.append((table_number, shuffle_partition, chunk))
        self._held_bytes += chunk.size
        if self._held_bytes > self._held_bytes_max:
            self._spill()

    def chunks(self) -> Mapping[int, Mapping[int, list[pa.RecordBatch]]]:
        """Return the chunks: table number to shuffle partition to chunks. Afterwards no chunk may be added."""
        found: dict[int, dict[int, list[pa.RecordBatch]]] = defaultdict(lambda: defaultdict(list))
        if self._file is not None:
            self._file.flush()
            self._map = pa.memory_map(self._file.name)
            for (table, shuffle_partition), places in self._places.items():
                for start, size in places:
                    self._map.seek(start)
                    found[table][shuffle_partition].append(from_ipc(self._map.read_buffer(size)))
        for table, shuffle_partition, chunk in self._held:
            found[table][shuffle_partition].append(from_ipc(chunk))
        return found

    def _spill(self) -> None:
        if self._file is None:
            self._file = tempfile.NamedTemporaryFile(prefix="tidelake-shuffle-", dir=local_folder())  # noqa: SIM115
        try:
            for table, shuffle_partition, chunk in self._held:
                self._places[table, shuffle_partition].append((self._file.tell(), chunk.size))
                self._file.write(chunk)
                self._file.write(bytes(-chunk.size % 64))  # Arrow reads aligned buffers faster
        except OSError as error:
            raise TidelakeError(
                f"rows of a batch can't be written to {self._file.name} while a Spark task sorts them: {error}. Free "
                "space there, or set spark.local.dir to a larger disk"
            ) from error
        self._held, self._held_bytes = [], 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held = []
        if self._map is not None:
            self._map.close()
        if self._file is not None:
            self._file.close()


def local_folder() -> str | None:
    """Return the folder of Spark's spill files; None: the system's folder for temporary files."""
    named = next((os.environ[name] for name in _LOCAL_FOLDERS if os.environ.get(name)), "")
    folder = named.split(",")[0]
    return folder if folder and os.path.isdir(folder) else None
