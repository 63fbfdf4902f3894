"""Sorted rows that had to leave memory before they are merged: Arrow IPC files in a scratch directory.

Nothing here outlives the process that wrote it, so nothing is fsynced; the operating system's page cache is the first
place these bytes go anyway.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa


class SpillFile:
    """One segment: batches in key order. Deleted by `delete`, at the latest with the process's directory."""

    def __init__(self, directory: str | None, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
        """directory: where to put it; None is the system's place for temporary files. A full disk raises OSError.

        batches: what a merge will hold of this segment at a time.
        """
        with tempfile.NamedTemporaryFile(
            prefix="tidelake-spill-", suffix=".arrow", dir=directory, delete=False
        ) as file:
            self.path = Path(file.name)
            try:
                options = pa.ipc.IpcWriteOptions(compression="lz4")
                with pa.ipc.new_stream(file, schema, options=options) as stream:
                    for batch in batches:
                        stream.write_batch(batch)
            except BaseException:
                self.delete()
                raise

    def read(self) -> Iterator[pa.RecordBatch]:
        with pa.OSFile(str(self.path)) as file, pa.ipc.open_stream(file) as stream:
            yield from stream

    def delete(self) -> None:
        self.path.unlink(missing_ok=True)
