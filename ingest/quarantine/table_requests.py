"""What an operator asks of single tables of a running pipeline: files in a folder that the pipeline looks at.

    <location>.requests/paused-<table>      the table is paused until this file is deleted, also after a restart
    <location>.requests/release-<table>     its next retry is now; the pipeline deletes the file

All functions block.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote

from tidelake.storage.fileio.base import FileIO

_PAUSED: Final = "paused-"
_RELEASE: Final = "release-"


@dataclass(frozen=True, slots=True)
class TableRequests:
    """The requests that are there. paused: tables to be paused. released: tables to be retried now."""

    paused: frozenset[str] = frozenset()
    released: frozenset[str] = frozenset()


def read_requests(io: FileIO, location: str) -> TableRequests:
    """Return the requests. location: the folder of the quarantine."""
    names = [entry.name for entry in io.list_directory(_folder(location)) if not entry.is_directory]
    paused, released = (
        frozenset(unquote(name.removeprefix(kind)) for name in names if name.startswith(kind))
        for kind in (_PAUSED, _RELEASE)
    )
    return TableRequests(paused, released)


def pause(io: FileIO, location: str, table: str) -> bool:
    """Ask that the table is paused. Returns whether it was not asked before."""
    return io.create_if_absent(_path(location, _PAUSED, table), b"")


def resume(io: FileIO, location: str, table: str) -> bool:
    """Withdraw the request to pause the table. Returns whether there was one."""
    was_paused = table in read_requests(io, location).paused
    if was_paused:
        io.delete(_path(location, _PAUSED, table))
    return was_paused


def release(io: FileIO, location: str, table: str) -> None:
    """Ask that the table is retried now."""
    io.write(_path(location, _RELEASE, table), b"")


def forget_released(io: FileIO, location: str, tables: frozenset[str]) -> None:
    """Delete requests that were fulfilled."""
    for table in tables:
        with suppress(FileNotFoundError):
            io.delete(_path(location, _RELEASE, table))


def _folder(location: str) -> str:
    return f"{location}.requests"


def _path(location: str, kind: str, table: str) -> str:
    return f"{_folder(location)}/{kind}{quote(table, safe='')}"
