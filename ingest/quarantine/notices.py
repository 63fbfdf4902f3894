"""The notice of a quarantined table: a small file next to its records, which is shown even if no pipeline runs."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Final

from tidelake.ingest.quarantine.record_log import directory_of, tables_with_directory
from tidelake.storage.base.errors import CorruptFile
from tidelake.storage.fileio.base import FileIO

_NAME: Final = "notice.json"
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class QuarantineNotice:
    """The notice of a quarantined table.

    state: `failed`, or `catching up`.
    since_ms: time of its first failure, epoch milliseconds.
    reason: its last error, with the remedy.
    attempts: number of failed attempts.
    records: number of records kept for it at the last update.
    nbytes: bytes of these records.
    """

    table: str
    state: str
    since_ms: int
    reason: str
    attempts: int = 0
    records: int = 0
    nbytes: int = 0


def write_notice(io: FileIO, location: str, notice: QuarantineNotice) -> None:
    """Write the notice. Blocks."""
    members = {"version": _VERSION, **asdict(notice)}
    path = f"{directory_of(location, notice.table)}/{_NAME}"
    io.write(path, json.dumps(members, ensure_ascii=False, indent=2).encode())


def read_notice(io: FileIO, location: str, table: str) -> QuarantineNotice | None:
    """Return the notice of a table; None if it has none. Blocks. Raises CorruptFile for an invalid notice."""
    path = f"{directory_of(location, table)}/{_NAME}"
    try:
        members = json.loads(io.read(path))
        return QuarantineNotice(**{name: members[name] for name in QuarantineNotice.__dataclass_fields__})
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptFile(path, "why a table is in quarantine", str(error)) from error


def read_notices(io: FileIO, location: str) -> list[QuarantineNotice]:
    """Return the notices of all quarantined tables, in the order of their names. Blocks."""
    found = [read_notice(io, location, table) for table in tables_with_directory(io, location)]
    return [notice for notice in found if notice is not None]
