"""Spills rows from memory before they are merged, to Arrow IPC files in a temporary directory.

The files are only used by the process that wrote them, so they are not fsynced. They may stay in the page cache of the
operating system.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from types import TracebackType

import pyarrow as pa

from tidelake.storage.merge.spill_folder import FOLDERS


class SpillFile:
    """A file with batches in key order.

    `delete` deletes it. If the process dies before that, another process deletes it, see `spill_folder`.
    """

    def __init__(
        self,
        directory: str | None,
        schema: pa.Schema,
        batches: Iterable[pa.RecordBatch],
        *,
        compression: str | None = "lz4",
    ) -> None:
        """Write the batches. A full disk raises OSError.

        directory: where to create the file; None means the system's temporary directory.
        batches: the batches as a merge will read them, one at a time.
        """
        self.path = FOLDERS.new_file(directory)
        try:
            options = pa.ipc.IpcWriteOptions(compression=compression)
            with self.path.open("xb") as file, pa.ipc.new_stream(file, schema, options=options) as stream:
                for batch in batches:
                    stream.write_batch(batch)
        except BaseException:
            self.delete()
            raise

    def read(self) -> Iterator[pa.RecordBatch]:
        with pa.OSFile(str(self.path)) as file, pa.ipc.open_stream(file) as stream:
            yield from stream

    def delete(self) -> None:
        FOLDERS.remove_file(self.path)


class ParkedRows:
    """Large rows of one merge that wait on disk while others are decoded or encoded.

    Rows that are still parked at the end of the `with` block are deleted.

    directory: where to store the rows; None means the system's temporary directory. A full disk raises OSError.
    """

    def __init__(self, directory: str | None) -> None:
        self._directory = directory
        self._files: set[SpillFile] = set()

    def park(self, rows: pa.RecordBatch) -> Callable[[], pa.RecordBatch]:
        """Write the rows to disk. Returns a function that reads them back; it can be called once."""
        file = SpillFile(self._directory, rows.schema, [rows], compression=None)  # lz4 would copy the rows
        self._files.add(file)

        def load() -> pa.RecordBatch:
            (loaded,) = file.read()
            file.delete()
            self._files.remove(file)
            return loaded

        return load

    def __enter__(self) -> ParkedRows:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in self._files:
            file.delete()
        self._files.clear()
