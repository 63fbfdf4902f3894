"""Returns the files of a table and their sizes. Each directory is listed once.

A table may change during the check. So a file that a listing lacks is requested by name before it counts as missing.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidelake.storage.fileio.base import FileIO, FileStatus


class FileListing:
    def __init__(self, io: FileIO) -> None:
        self._io = io
        self._directories: dict[str, dict[str, FileStatus]] = {}

    def files(self, directory: str) -> Iterator[FileStatus]:
        """Yield the files (not directories) directly below a directory."""
        return (status for status in self._entries(directory).values() if not status.is_directory)

    def directories(self, directory: str) -> list[str]:
        """Return the names of the directories directly below a directory, sorted."""
        return sorted(status.name for status in self._entries(directory).values() if status.is_directory)

    def size_bytes(self, path: str) -> int | None:
        """Return None for a missing file."""
        directory, _, name = path.rpartition("/")
        status = self._entries(directory).get(name)
        if status is not None:
            return status.size_bytes
        try:
            return self._io.size_bytes(path)
        except FileNotFoundError:
            return None

    def _entries(self, directory: str) -> dict[str, FileStatus]:
        known = self._directories.get(directory)
        if known is None:
            known = {status.name: status for status in self._io.list_directory(directory)}
            self._directories[directory] = known
        return known
