"""The file with a pipeline's progress: one small file in its warehouse."""

from __future__ import annotations

from urllib.parse import quote

from tidelake.checkpoint.idle_progress import IdleProgress
from tidelake.storage.base.errors import TidelakeError
from tidelake.storage.base.logs import get_logger
from tidelake.storage.fileio.base import FileIO

_log = get_logger(__name__)


def progress_path(warehouse: str, pipeline: str) -> str:
    return f"{warehouse.rstrip('/')}/{quote(pipeline, safe='')}.progress"


class ProgressFile:
    """The progress file of a pipeline. Methods block.

    path: see `progress_path`.
    """

    def __init__(self, io: FileIO, path: str) -> None:
        self._io = io
        self._path = path

    def read(self) -> IdleProgress:
        """Return the progress. It is empty if the file is missing or invalid; then some records are read again."""
        try:
            return IdleProgress.from_text(self._io.read(self._path), self._path)
        except FileNotFoundError:
            return IdleProgress()
        except TidelakeError as error:
            _log.warning("the progress file is ignored; idle tables are read from their last row", error=str(error))
            return IdleProgress()

    def write(self, progress: IdleProgress) -> None:
        """Replace the file atomically and durably."""
        self._io.write(self._path, progress.to_text().encode())
