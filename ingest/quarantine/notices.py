"""The notice of a quarantined table, shown also while no pipeline runs: a small file next to its records."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Final

from ingest.quarantine.record_log import directory_of, tables_with_directory
from storage.errors import CorruptFile
from storage.fileio.base import FileIO

_NAME: Final = "notice.json"
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Notice:
    """state: `failed`, or `catching up`.
    since_ms: when it failed first, epoch milliseconds.
    reason: what it failed with last, the remedy included.
    attempts: how often it was tried to go on.
    records, nbytes: what was kept for it at the last change.
    """

    table: str
    state: str
    since_ms: int
    reason: str
    attempts: int = 0
    records: int = 0
    nbytes: int = 0


def write_notice(io: FileIO, location: str, notice: Notice) -> None:
    """Blocks."""
    members = {"version": _VERSION, **asdict(notice)}
    path = f"{directory_of(location, notice.table)}/{_NAME}"
    io.write(path, json.dumps(members, ensure_ascii=False, indent=2).encode())


def read_notice(io: FileIO, location: str, table: str) -> Notice | None:
    """None where there is none. Blocks. Raises CorruptFile for an invalid notice."""
    path = f"{directory_of(location, table)}/{_NAME}"
    try:
        members = json.loads(io.read(path))
        return Notice(**{name: members[name] for name in Notice.__dataclass_fields__})
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptFile(path, "why a table is in quarantine", str(error)) from error


def read_notices(io: FileIO, location: str) -> list[Notice]:
    """Of all tables in quarantine, by name. Blocks."""
    found = [read_notice(io, location, table) for table in tables_with_directory(io, location)]
    return [notice for notice in found if notice is not None]
