"""Positions in the files of a folder of change logs: plans of batches and tasks. Does not need Spark.

A position in a plain file is a number of bytes, after a complete line. A compressed file is read as a whole: its
position is 0, or its size.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, TypeAlias

from tidelake.errors import BadInput
from tidelake.ingest.sources.change_log_file import MAX_RECORD_BYTES, SUFFIXES
from tidelake.ingest.sources.change_log_record import is_complete
from tidelake.storage.fileio.access import Access, access

TASK_BYTES: Final = 16 << 20  # bytes of a file that a task parses together
_PLAIN: Final = ".jsonl"
_SEARCH_BYTES: Final = 1 << 16

Places: TypeAlias = Mapping[str, int]
"""The position in each file, by its name."""


@dataclass(frozen=True, slots=True)
class FilePart:
    """Complete lines of one file: bytes from `start` up to `end`. For a compressed file, all of its bytes."""

    name: str
    start: int
    end: int

    @property
    def is_compressed(self) -> bool:
        return not self.name.endswith(_PLAIN)


@dataclass(frozen=True, slots=True)
class FolderBatchLimits:
    """The limits of a batch; None: no limit. A batch has at least one part of a file."""

    files_max: int | None = None
    bytes_max: int | None = None


def sizes_of(folder: Path) -> dict[str, int]:
    """Return the sizes of the files in the order of reading, by their names.

    Raises BadInput if the folder doesn't exist.
    """
    if not folder.is_dir():
        raise BadInput(f"{folder} is not a folder. Set `path` to the folder with the change logs")
    found = {}
    with access(Access.READ, str(folder)), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(SUFFIXES) and entry.is_file():
                with suppress(FileNotFoundError):  # deleted meanwhile, which is allowed for a file that was read
                    found[entry.name] = entry.stat().st_size
    return dict(sorted(found.items()))


def next_positions(folder: Path, places: Places, sizes: Mapping[str, int], limits: FolderBatchLimits) -> dict[str, int]:
    """Return the positions at which the next batch ends; `places` if there is nothing new. Deleted files are left out.

    Raises BadInput for a file that shrank, and for a compressed one that grew after it was read.
    """
    _check_only_appended(folder, places, sizes)
    ends = {name: at for name, at in places.items() if name in sizes}
    files, nbytes = 0, 0
    for name, size in sizes.items():
        start = ends.get(name, 0)
        if size == start:
            continue
        if files and (files >= (limits.files_max or files + 1) or nbytes >= (limits.bytes_max or nbytes + 1)):
            break
        room = None if limits.bytes_max is None else max(1, limits.bytes_max - nbytes)
        end = size if not name.endswith(_PLAIN) else _line_end(folder / name, start, size, room)
        if end > start:
            ends[name] = end
            files, nbytes = files + 1, nbytes + end - start
    return dict(sorted(ends.items())) if files else dict(places)


def parts_between(folder: Path, starts: Places, ends: Places) -> list[FilePart]:
    """Return the parts in the order of reading, none much larger than TASK_BYTES if it can be cut.

    Raises BadInput for a deleted file.
    """
    found: list[FilePart] = []
    for name, end in sorted(ends.items()):
        start = starts.get(name, 0)
        if start < end:
            found += _split_part(folder, FilePart(name, start, end))
    return found


def tasks(parts: Sequence[FilePart]) -> list[list[FilePart]]:
    """Return the parts of each task, in order: neighbours are combined while they are small together."""
    packed: list[list[FilePart]] = []
    size = 0
    for part in parts:
        if packed and size + part.end - part.start <= TASK_BYTES:
            packed[-1].append(part)
            size += part.end - part.start
        else:
            packed.append([part])
            size = part.end - part.start
    return packed


def deleted_file_error(folder: Path, name: str) -> BadInput:
    return BadInput(f"{folder / name} was deleted, but a planned batch needs it. Restore it, or start a new query")


def cut_line(folder: Path, places: Places, sizes: Mapping[str, int]) -> BadInput | None:
    """Return the error for a folder that must be read to its end if its last line is incomplete; otherwise None."""
    for name, size in sizes.items():
        if name.endswith(_PLAIN) and size > places.get(name, 0):
            return BadInput(f"{folder / name}: the last line is incomplete. Complete it")
    return None


def _check_only_appended(folder: Path, places: Places, sizes: Mapping[str, int]) -> None:
    for name, at in places.items():
        size = sizes.get(name, at)
        if size < at:
            raise BadInput(
                f"{folder / name} shrank from {at} to {size} bytes: a change log must only grow. Write it again under "
                "a new name"
            )
        if size > at > 0 and not name.endswith(_PLAIN):
            raise BadInput(
                f"{folder / name} grew from {at} to {size} bytes after it was read: on Spark a compressed file is "
                "read only once. Write new records into a new file"
            )


def _line_end(path: Path, start: int, size: int, room: int | None) -> int:
    """Return the end of the last complete line that begins below `start + room`; `start` if no line is complete."""
    with path.open("rb") as file:
        if room is not None and start + room < size:
            end = _next_line_start(file, start + room - 1, size)
            if end is not None:
                return end
        end = _last_line_end(file, start, size)
        rest = size - end
        if 0 < rest <= MAX_RECORD_BYTES:
            file.seek(end)
            tail = file.read(rest)
            if tail.strip() and is_complete(tail):
                return size
        return end


def _next_line_start(file: BinaryIO, at: int, size: int) -> int | None:
    """Return the position after the first line end from `at` on; None if there is none."""
    while at < size:
        file.seek(at)
        found = (piece := file.read(min(_SEARCH_BYTES, size - at))).find(b"\n")
        if found >= 0:
            return at + found + 1
        at += max(1, len(piece))
    return None


def _last_line_end(file: BinaryIO, start: int, size: int) -> int:
    """Return the position after the last line end between the two; `start` if there is none."""
    end = size
    while end > start:
        begin = max(start, end - _SEARCH_BYTES)
        file.seek(begin)
        found = file.read(end - begin).rfind(b"\n")
        if found >= 0:
            return begin + int(found) + 1
        end = begin
    return start


def _split_part(folder: Path, part: FilePart) -> Iterator[FilePart]:
    if part.is_compressed or part.end - part.start <= TASK_BYTES:
        yield part
        return
    try:
        with (folder / part.name).open("rb") as file:
            start = part.start
            while start < part.end:
                end = _next_line_start(file, start + TASK_BYTES - 1, part.end) or part.end
                yield FilePart(part.name, start, end)
                start = end
    except FileNotFoundError:
        raise deleted_file_error(folder, part.name) from None
