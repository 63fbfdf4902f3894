"""Tags: snapshots with a name, which never expire with other snapshots. Automatic tags are named after their period.

Source: Java `tag/Tag.java`, `utils/TagManager.java`, `tag/TagPeriodHandler.java`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Self

from tidelake.errors import BadInput, CorruptFile
from tidelake.storage.base.arguments import check_file_name
from tidelake.storage.base.pretty_json import Json, pretty_json
from tidelake.storage.fileio.base import FileIO
from tidelake.storage.model.options import TableOptions
from tidelake.storage.model.paths import TAG_PREFIX, TablePaths, parse_tag_name
from tidelake.storage.model.snapshots.snapshot import Snapshot, parse_json_object


@dataclass(frozen=True, slots=True)
class Tag:
    """A tag with its snapshot.

    created_at: wall clock of the creator, without a zone, in microseconds. Only set with a retention.
    retained: how long the tag is kept; None: until it is deleted.
    """

    name: str
    snapshot: Snapshot
    created_at: datetime | None = None
    retained: timedelta | None = None


class TagStore:
    """The tags of one branch of a table."""

    def __init__(self, io: FileIO, paths: TablePaths) -> None:
        self._io = io
        self._paths = paths

    def names(self) -> list[str]:
        """Return the names in alphabetical order."""
        entries = self._io.list_directory(self._paths.tag_directory)
        return sorted(name for e in entries if not e.is_directory and (name := parse_tag_name(e.name)) is not None)

    def tag(self, name: str) -> Tag:
        """Return a tag. Raises BadInput with the existing names if it does not exist."""
        check_file_name("tag", name, affix=TAG_PREFIX)
        path = self._paths.tag(name)
        try:
            data = self._io.read(path)
        except FileNotFoundError:
            available = ", ".join(self.names()) or "none"
            raise BadInput(f"{self._paths.location} has no tag {name!r}; its tags are: {available}") from None
        members = parse_json_object(data, path, "a tag")
        return Tag(name, Snapshot.from_members(members, path), _created_at(members, path), _retained(members, path))

    def get(self, name: str) -> Snapshot:
        """Return the snapshot of a tag. Raises BadInput if the tag does not exist."""
        return self.tag(name).snapshot

    def all(self) -> dict[str, Snapshot]:
        return {name: self.get(name) for name in self.names()}

    def create(self, name: str, snapshot: Snapshot, *, retained: timedelta | None = None, now: datetime) -> None:
        """Create a tag. Raises BadInput for a name that is taken or blank.

        The snapshot may expire just before its tag exists: check afterwards that it still exists.

        now: local wall clock.
        """
        if not name.strip() or "/" in name:
            raise BadInput(f"{name!r} can't be the name of a tag: it is blank or contains a slash")
        check_file_name("tag", name, affix=TAG_PREFIX)
        if not self._io.create_if_absent(self._paths.tag(name), _tag_bytes(snapshot, retained, now)):
            raise BadInput(f"{self._paths.location} already has a tag {name!r}; choose another name")

    def replace(self, name: str, snapshot: Snapshot, *, retained: timedelta | None = None, now: datetime) -> None:
        """Write an existing tag again. now: as in `create`."""
        self._io.write(self._paths.tag(name), _tag_bytes(snapshot, retained, now))


def tagged_snapshots(io: FileIO, paths: TablePaths) -> list[Snapshot]:
    """Return the snapshots of all tags of a branch, by id, without tags deleted meanwhile. Raises CorruptFile."""
    tags = TagStore(io, paths)
    found = []
    for name in tags.names():
        try:
            found.append(tags.get(name))
        except BadInput:
            continue
    return sorted(found, key=lambda snapshot: snapshot.id)


def _tag_bytes(snapshot: Snapshot, retained: timedelta | None, now: datetime) -> bytes:
    members: dict[str, Json] = dict(snapshot.to_members())
    if retained is not None:
        members |= {"tagCreateTime": _time_parts(now), "tagTimeRetained": retained.total_seconds()}
    return pretty_json(members).encode()


def _time_parts(time: datetime) -> list[int]:
    """Return [year, month, day, hour, minute, second, nanosecond], without zeros at the end; at least five parts."""
    parts = [time.year, time.month, time.day, time.hour, time.minute, time.second, time.microsecond * 1000]
    while len(parts) > 5 and not parts[-1]:
        parts.pop()
    return parts


def _created_at(members: Mapping[str, Any], path: str) -> datetime | None:
    parts = members.get("tagCreateTime")
    if parts is None:
        return None
    try:
        year, month, day, hour, minute, second, nanosecond = [*parts, 0, 0][:7]
        return datetime(year, month, day, hour, minute, second, nanosecond // 1000)
    except (TypeError, ValueError) as e:
        raise CorruptFile(path, "tagCreateTime as a list of 5 to 7 numbers", f"{parts!r}: {e}") from None


def _retained(members: Mapping[str, Any], path: str) -> timedelta | None:
    seconds = members.get("tagTimeRetained")
    try:
        return None if seconds is None else timedelta(seconds=float(seconds))
    except (TypeError, ValueError) as e:
        raise CorruptFile(path, "tagTimeRetained as a number of seconds", f"{seconds!r}: {e}") from None


_WITH_DASHES: Final = "with_dashes"
_DAY: Final = {_WITH_DASHES: "%Y-%m-%d"}
_HOUR: Final = {_WITH_DASHES: "%Y-%m-%d %H", "without_dashes": "%Y%m%d %H", "without_dashes_and_spaces": "%Y%m%d%H"}
_MINUTE: Final = "%Y%m%d%H%M"
_DAYS: Final = (_DAY[_WITH_DASHES], "%Y%m%d")
_EPOCH: Final = datetime(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class TagPeriod:
    """A period of automatic tags.

    length: length of a period. Periods are counted from the start of 1970, in the time zone of the tags.
    text_format: format of a tag name for `strftime`; it names the start of a period.
    """

    length: timedelta
    text_format: str

    @classmethod
    def of(cls, options: TableOptions) -> Self:
        match options.tag_period:
            case "duration":
                return cls(timedelta(milliseconds=options.tag_period_duration_ms or 0), _MINUTE)
            case "daily":
                return cls(timedelta(days=1), _DAY.get(options.tag_period_format, "%Y%m%d"))
            case "hourly":
                return cls(timedelta(hours=1), _HOUR[options.tag_period_format])
            case _:
                return cls(timedelta(hours=2), _HOUR[_WITH_DASHES])

    def time_of(self, name: str) -> datetime | None:
        """Return the start of the period; None for a name that no automatic tag can have."""
        text = name.partition(" ")[0] if self.text_format in _DAYS else name
        digits = re.sub(r"%Y", r"\\d{4}", re.sub(r"%[mdHM]", r"\\d{2}", self.text_format))
        if not re.fullmatch(digits, text):
            return None
        try:
            return datetime.strptime(text, self.text_format)
        except ValueError:
            return None

    def name_of(self, start: datetime) -> str:
        return start.strftime(self.text_format)

    def last_complete(self, time: datetime) -> datetime:
        """Return the start of the period before the one that contains `time`."""
        return _EPOCH + (time - _EPOCH) // self.length * self.length - self.length

    @property
    def example(self) -> str:
        """An example of a tag name."""
        return self.name_of(datetime(2026, 1, 31, 12))
