"""Rows that had to leave memory before they are merged: Arrow IPC files in a scratch directory.

Nothing here outlives the process that wrote it, so nothing is fsynced; the operating system's page cache is the first
place these bytes go anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from types import TracebackType

import pyarrow as pa

from storage.merge.spill_folder import FOLDERS


class SpillFile:
    """One segment: batches in key order. Deleted by `delete`, or after the process's death as `spill_folder`
    describes.
    """

    def __init__(
        self,
        directory: str | None,
        schema: pa.Schema,
        batches: Iterable[pa.RecordBatch],
        *,
        compression: str | None = "lz4",
    ) -> None:
        """directory: where to put it; None is the system's place for temporary files. A full disk raises OSError.

        batches: what a merge will hold of this segment at a time.
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
    """Large rows of one merge that wait for their turn while others are decoded or encoded. What is still parked at the
    end of its `with` block is deleted.

    directory: None is the system's place for temporary files. A full disk raises OSError.
    """

    def __init__(self, directory: str | None) -> None:
        self._directory = directory
        self._files: set[SpillFile] = set()

    def park(self, rows: pa.RecordBatch) -> Callable[[], pa.RecordBatch]:
        """Returns what brings the rows back, once."""
        file = SpillFile(self._directory, rows.schema, [rows], compression=None)  # lz4 would copy them
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
