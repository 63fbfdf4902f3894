"""The run that has begun and not ended yet, as a file in the warehouse. After a kill the next run reports its failure.

    <warehouse>/<pipeline>.lineage    {"run_id", "namespace", "name"}

All functions block.
"""

from __future__ import annotations

from urllib.parse import quote

import msgspec

from tidelake.storage.fileio.base import FileIO


class UnfinishedRun(msgspec.Struct, frozen=True):
    """A run, and its job."""

    run_id: str
    namespace: str
    name: str


class UnfinishedRunFile:
    """The file of one pipeline."""

    def __init__(self, io: FileIO, warehouse: str, pipeline: str) -> None:
        self._io = io
        self.path = f"{warehouse.rstrip('/')}/{quote(pipeline, safe='')}.lineage"

    def begin(self, run: UnfinishedRun) -> UnfinishedRun | None:
        """Store a run, and return the one before it if it has not ended. Raises OSError and others."""
        before = self._read()
        self._io.write(self.path, msgspec.json.encode(run))
        return before if before is not None and before.run_id != run.run_id else None

    def end(self, run: UnfinishedRun) -> None:
        """Remove a run. One that began later, in another process, stays."""
        before = self._read()
        if before is not None and before.run_id == run.run_id:
            self._io.delete(self.path)

    def _read(self) -> UnfinishedRun | None:
        try:
            return msgspec.json.decode(self._io.read(self.path), type=UnfinishedRun)
        except (FileNotFoundError, msgspec.MsgspecError):
            return None
