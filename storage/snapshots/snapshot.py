"""Snapshots: one JSON file each, in a directory with consecutive ids and two hints.

Source: Java `Snapshot.java`, `utils/SnapshotManager.java`, `utils/HintFileUtils.java`.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from storage.errors import CorruptFile
from storage.fileio.base import FileIO
from storage.fileio.disk_space import is_disk_full
from storage.format import BATCH_COMMIT_IDENTIFIER, SNAPSHOT_VERSION, CommitKind
from storage.paths import TablePaths, parse_snapshot_id
from storage.pretty_json import pretty_json

FIRST_SNAPSHOT_ID: Final = 1


@dataclass(frozen=True)
class Snapshot:
    """One committed state of a table.

    The state is what the base manifest list says, followed by the delta list; the changelog list is no part of it.

    total_record_count: rows of all live files, unmerged.
    delta_record_count: rows added minus rows of files removed.
    time_ms, watermark: epoch milliseconds. None is the JSON's absent member.
    """

    id: int
    schema_id: int
    base_manifest_list: str
    delta_manifest_list: str
    commit_user: str
    commit_identifier: int
    commit_kind: CommitKind
    time_ms: int
    total_record_count: int
    delta_record_count: int
    base_manifest_list_size: int | None = None
    delta_manifest_list_size: int | None = None
    changelog_manifest_list: str | None = None
    changelog_manifest_list_size: int | None = None
    index_manifest: str | None = None
    changelog_record_count: int | None = None
    watermark: int | None = None
    statistics: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    next_row_id: int | None = None
    operation: str | None = None
    uuid: str | None = None
    writer_version: str | None = None
    version: int = SNAPSHOT_VERSION

    @property
    def is_numbered(self) -> bool:
        """Whether its identifier counts the commits of its user; those of one-off commits are all the same."""
        return self.commit_identifier != BATCH_COMMIT_IDENTIFIER

    def to_members(self) -> dict[str, Any]:
        """In Java's order; what is None, and properties that are none, are left out."""
        members = {name: getattr(self, attribute) for name, attribute in _MEMBERS.items()}
        members["properties"] = dict(self.properties) or None
        return {name: value for name, value in members.items() if value is not None}

    def to_json(self) -> str:
        return pretty_json(self.to_members())

    @classmethod
    def from_json(cls, data: bytes, path: str) -> Snapshot:
        """Unknown members are passed over. Raises CorruptFile, with the place where the JSON breaks."""
        return cls.from_members(parse_json_object(data, path, "a snapshot"), path)

    def named(self, snapshot_id: int, path: str) -> Snapshot:
        """The snapshot itself. Raises CorruptFile if its id is not that of its file name: the file was copied there."""
        if self.id != snapshot_id:
            raise CorruptFile(path, f"snapshot {snapshot_id}", f"snapshot {self.id} (`id` in it)")
        return self

    @classmethod
    def from_members(cls, members: Mapping[str, Any], path: str) -> Snapshot:
        try:
            version = int(members["version"])
            if version > SNAPSHOT_VERSION:
                raise CorruptFile(path, f"a snapshot of version {SNAPSHOT_VERSION} or older", f"version {version}")
            texts = {name: str(members[name]) for name in _TEXTS if members.get(name) is not None}
            numbers = {name: int(members[name]) for name in _NUMBERS if members.get(name) is not None}
            properties = {str(k): str(v) for k, v in (members.get("properties") or {}).items()}
            values: dict[str, Any] = {_MEMBERS[name]: value for name, value in (texts | numbers).items()}
            return cls(**values, commit_kind=CommitKind(members["commitKind"]), properties=properties)
        except (KeyError, TypeError, ValueError, AttributeError) as e:
            raise CorruptFile(path, "the JSON of a snapshot", f"{type(e).__name__}: {e}") from None


_MEMBERS: Final[Mapping[str, str]] = {  # member of the JSON -> attribute, in the order Java writes them
    "version": "version",
    "uuid": "uuid",
    "id": "id",
    "schemaId": "schema_id",
    "baseManifestList": "base_manifest_list",
    "baseManifestListSize": "base_manifest_list_size",
    "deltaManifestList": "delta_manifest_list",
    "deltaManifestListSize": "delta_manifest_list_size",
    "changelogManifestList": "changelog_manifest_list",
    "changelogManifestListSize": "changelog_manifest_list_size",
    "indexManifest": "index_manifest",
    "commitUser": "commit_user",
    "writerVersion": "writer_version",
    "commitIdentifier": "commit_identifier",
    "commitKind": "commit_kind",
    "timeMillis": "time_ms",
    "totalRecordCount": "total_record_count",
    "deltaRecordCount": "delta_record_count",
    "changelogRecordCount": "changelog_record_count",
    "watermark": "watermark",
    "statistics": "statistics",
    "properties": "properties",
    "nextRowId": "next_row_id",
    "operation": "operation",
}
_TEXTS: Final = (
    "uuid",
    "baseManifestList",
    "deltaManifestList",
    "changelogManifestList",
    "indexManifest",
    "commitUser",
    "writerVersion",
    "statistics",
    "operation",
)
_NUMBERS: Final = tuple(name for name in _MEMBERS if name not in (*_TEXTS, "commitKind", "properties"))


def parse_json_object(data: bytes, path: str, what: str) -> dict[str, Any]:
    """what: "a snapshot". Raises CorruptFile naming path and byte."""
    expected = f"the JSON of {what}"
    try:
        text = data.decode()
        members = json.loads(text)
    except UnicodeDecodeError as e:
        raise CorruptFile(path, expected, "bytes that are not UTF-8", e.start) from None
    except json.JSONDecodeError as e:
        raise CorruptFile(path, expected, e.msg, len(text[: e.pos].encode())) from None
    if not isinstance(members, dict):
        raise CorruptFile(path, expected, f"a JSON {type(members).__name__}")
    return members


_PARSED_MAX: Final = 3  # a commit looks at the newest snapshot, at the one it built on, and at its own


class SnapshotStore:
    """The snapshots of one branch of a table. Every call looks at the files; only what the same bytes say is kept.

    Ids are consecutive: expiry takes the smallest first, rollback the largest. `get` raises FileNotFoundError for one
    that is not there, and CorruptFile for one that can't be read.
    """

    def __init__(self, io: FileIO, paths: TablePaths) -> None:
        self._io = io
        self._paths = paths
        self._parsed: deque[tuple[bytes, Snapshot]] = deque(maxlen=_PARSED_MAX)

    def get(self, snapshot_id: int) -> Snapshot:
        path = self._paths.snapshot(snapshot_id)
        data = self._io.read(path)
        known = next((snapshot for same, snapshot in list(self._parsed) if same == data), None)
        if known is None:
            known = Snapshot.from_json(data, path)
            self._parsed.append((data, known))
        return known.named(snapshot_id, path)

    def find(self, snapshot_id: int) -> Snapshot | None:
        """None for one that is not there."""
        try:
            return self.get(snapshot_id)
        except FileNotFoundError:
            return None

    def exists(self, snapshot_id: int) -> bool:
        return self._io.exists(self._paths.snapshot(snapshot_id))

    def latest_id(self) -> int | None:
        """None for a table without snapshots.

        The hint is right when what it names is there and nothing follows; else the directory is listed.
        """
        hint = self._hint(self._paths.latest_hint)
        if hint is not None and not self.exists(hint + 1) and self.exists(hint):
            return hint
        return self._listed_latest_id()

    def latest(self) -> Snapshot | None:
        hint = self._hint(self._paths.latest_hint)
        if hint is not None and not self.exists(hint + 1) and (found := self.find(hint)) is not None:
            return found
        latest_id = self._listed_latest_id()
        return None if latest_id is None else self.get(latest_id)

    def _listed_latest_id(self) -> int | None:
        """A listing may lag behind what single files show, so it does not decide alone."""
        latest_id = max(self.ids(), default=FIRST_SNAPSHOT_ID - 1)
        while self.exists(latest_id + 1):
            latest_id += 1
        return latest_id if latest_id >= FIRST_SNAPSHOT_ID else None

    def earliest_id(self) -> int | None:
        """None for a table without snapshots.

        A hint that names one that is there is believed, whatever is below: expiry moves it first, and what is below
        may have lost files already.
        """
        hint = self.earliest_hint()
        if hint is not None and self.exists(hint):
            return hint
        return min(self.ids(), default=None)

    def earliest_hint(self) -> int | None:
        """As it stands, whether what it names is there or not."""
        return self._hint(self._paths.earliest_hint)

    def earliest(self) -> Snapshot | None:
        return next(iter(self.range(self.earliest_id(), self.latest_id())), None)

    def ids(self) -> list[int]:
        """All that are there, ascending, by listing the directory."""
        entries = self._io.list_directory(self._paths.snapshot_directory)
        return sorted(found for entry in entries if (found := parse_snapshot_id(entry.name)) is not None)

    def all(self) -> list[Snapshot]:
        """Oldest first."""
        return [snapshot for snapshot_id in self.ids() if (snapshot := self.find(snapshot_id)) is not None]

    def range(self, first: int | None, last: int | None) -> Iterator[Snapshot]:
        """Snapshots first to last, both included, oldest first; those that expired meanwhile are passed over."""
        if first is None or last is None:
            return
        for snapshot_id in range(first, last + 1):
            snapshot = self.find(snapshot_id)
            if snapshot is not None:
                yield snapshot

    def back_from(self, snapshot: Snapshot) -> Iterator[Snapshot]:
        """This one, its predecessor and so on, down to the oldest that is there."""
        current: Snapshot | None = snapshot
        while current is not None:
            yield current
            current = self.find(current.id - 1) if current.id > FIRST_SNAPSHOT_ID else None

    def as_of(self, time_ms: int) -> Snapshot | None:
        """The newest one committed at this time or before; None when all are younger. Binary search."""
        low, high = self.earliest_id(), self.latest_id()
        found = None
        while low is not None and high is not None and low <= high:
            middle = (low + high) // 2
            snapshot = self.find(middle)
            if snapshot is None or snapshot.time_ms <= time_ms:  # None: it expired while we searched
                found = snapshot or found
                low = middle + 1
            else:
                high = middle - 1
        return found

    # ------------------------------------------------------------ writing

    def publish(self, snapshot: Snapshot) -> bool:
        """Create its file, unless the id is taken: then False.

        Any error but UnsupportedFeature leaves the outcome unknown.
        """
        data = snapshot.to_json().encode()
        self._parsed.append((data, snapshot))  # a committer reads what it published again and again
        return self._io.create_if_absent(self._paths.snapshot(snapshot.id), data)

    def hint_latest(self, snapshot_id: int) -> None:
        """A hint for readers. That it failed is no error: a stale hint makes them list the directory."""
        with suppress(Exception):
            self._io.write(self._paths.latest_hint, str(snapshot_id).encode(), durable=False)

    def hint_earliest(self, snapshot_id: int) -> bool:
        """For readers that begin with the earliest. Durable, as expiry deletes the snapshots below next: a reader
        without the hint would list the directory and find one that is half deleted.

        Returns whether the hint `LATEST` had to go (`write_durable_hint`). Readers then list the directory until the
        next `hint_latest`.
        """
        return write_durable_hint(self._io, self._paths.earliest_hint, snapshot_id, instead_of=self._paths.latest_hint)

    def withdraw(self, snapshot_id: int) -> None:
        """Delete a file that is surely not part of the table's history."""
        self._io.delete(self._paths.snapshot(snapshot_id))

    def _hint(self, path: str) -> int | None:
        return read_hint(self._io, path)


def read_hint(io: FileIO, path: str) -> int | None:
    """None for a hint that is missing, torn or not positive: hints are written over in place on some stores."""
    try:
        hint = int(io.read(path))
    except (OSError, ValueError):
        return None
    return hint if hint >= FIRST_SNAPSHOT_ID else None


def write_durable_hint(io: FileIO, path: str, number: int, *, instead_of: str) -> bool:
    """Expiry frees a full disk, and writes this first. Without room it deletes another hint and takes its place.

    instead_of: that hint. Readers that don't find it list the directory.
    Returns whether it was deleted.
    """
    data = str(number).encode()
    try:
        io.write(path, data)
    except OSError as error:
        if not is_disk_full(error):
            raise
        io.delete(instead_of)
        io.write(path, data)
        return True
    return False
