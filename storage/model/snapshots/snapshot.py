"""Snapshots: one JSON file for each, with consecutive ids, and two hint files in the same directory.

Source: Java `Snapshot.java`, `utils/SnapshotManager.java`, `utils/HintFileUtils.java`.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from tidelake.errors import CorruptFile
from tidelake.storage.base import env
from tidelake.storage.base.pretty_json import pretty_json
from tidelake.storage.fileio.base import FileIO
from tidelake.storage.fileio.disk_space import is_disk_full
from tidelake.storage.fileio.late_hints import settle_hints, write_hint_later
from tidelake.storage.fileio.requests import is_remote, run_both
from tidelake.storage.model.format import BATCH_COMMIT_IDENTIFIER, SNAPSHOT_VERSION, CommitKind
from tidelake.storage.model.paths import TablePaths, parse_snapshot_id

FIRST_SNAPSHOT_ID: Final = 1


@dataclass(frozen=True)
class Snapshot:
    """One committed state of a table.

    The state consists of the base manifest list, followed by the delta list. The changelog list is not part of it.

    total_record_count: rows of all live files, unmerged.
    delta_record_count: rows of added files minus rows of removed files.
    time_ms: epoch milliseconds.
    watermark: epoch milliseconds.
    Optional fields are None if the JSON lacks the member.
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
        """Whether its identifier numbers the commits of its user. All one-off commits have the same identifier."""
        return self.commit_identifier != BATCH_COMMIT_IDENTIFIER

    def to_members(self) -> dict[str, Any]:
        """Return the JSON members in Java's order, without members that are None and without empty properties."""
        members = {name: getattr(self, attribute) for name, attribute in _MEMBERS.items()}
        members["properties"] = dict(self.properties) or None
        return {name: value for name, value in members.items() if value is not None}

    def to_json(self) -> str:
        return pretty_json(self.to_members())

    @classmethod
    def from_json(cls, data: bytes, path: str) -> Snapshot:
        """Ignore unknown members. Raises CorruptFile with the position of invalid JSON."""
        return cls.from_members(parse_json_object(data, path, "a snapshot"), path)

    def named(self, snapshot_id: int, path: str) -> Snapshot:
        """Return the snapshot. Raises CorruptFile if its id differs from its file name, as after a copy."""
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
        except KeyError as e:
            raise CorruptFile(path, "the JSON of a snapshot", f"JSON without the member {e}") from None
        except (TypeError, ValueError, AttributeError) as e:
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
    """Parse a JSON object. Raises CorruptFile with the path and byte position.

    what: describes the content, as "a snapshot".
    """
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


_PARSED_MAX: Final = 3  # a commit reads the newest snapshot, the one it was built on, and its own
_SIDE_BY_SIDE_S_MAX: Final = 0.2  # two requests that went out together; no snapshot expires so soon
_LISTINGS_MAX: Final = 5  # the newest snapshot of each was gone when it was read


class SnapshotStore:
    """The snapshots of one branch of a table. Every call reads the files; only parsed contents are cached.

    Ids are consecutive: expiry deletes the smallest first, rollback the largest. `get` raises FileNotFoundError for a
    missing snapshot, and CorruptFile for an unreadable one.
    """

    def __init__(self, io: FileIO, paths: TablePaths) -> None:
        self._io = io
        self._paths = paths
        self._parsed: deque[tuple[bytes, Snapshot]] = deque(maxlen=_PARSED_MAX)
        self._last_latest: int | None = None  # the result of the last `latest`, if the files are far away

    def get(self, snapshot_id: int) -> Snapshot:
        path = self._paths.snapshot(snapshot_id)
        data = self._io.read(path)
        known = next((snapshot for same, snapshot in list(self._parsed) if same == data), None)
        if known is None:
            known = Snapshot.from_json(data, path)
            self._parsed.append((data, known))
        return known.named(snapshot_id, path)

    def find(self, snapshot_id: int) -> Snapshot | None:
        """Return None for a missing snapshot."""
        try:
            return self.get(snapshot_id)
        except FileNotFoundError:
            return None

    def exists(self, snapshot_id: int) -> bool:
        return self._io.exists(self._paths.snapshot(snapshot_id))

    def latest_id(self) -> int | None:
        """Return None for a table without snapshots.

        The hint is used if its snapshot exists and the next one does not. Otherwise the directory is listed.
        """
        hint = self._latest_hint()
        if hint is not None and not self.exists(hint + 1) and self.exists(hint):
            return hint
        return self._listed_latest_id()

    def latest(self) -> Snapshot | None:
        """Return the newest snapshot, or None for a table without snapshots.

        In an object store the last result is a hint, too: whether it is still the newest is asked together with the
        hint file, in one round trip.
        """
        if not is_remote(self._paths.latest_hint):
            return self._if_latest(self._latest_hint()) or self._listed_latest()
        last = self._last_latest
        if last is None:
            hint, found = self._latest_hint(), None
        else:
            hint, found = run_both(self._paths.location, self._latest_hint, partial(self._if_latest, last))
            if hint is not None and hint > last:
                found = None
        if found is None and hint != last:
            found = self._if_latest(hint)
        if found is None:
            found = self._listed_latest()
        self._last_latest = None if found is None else found.id
        return found

    def _if_latest(self, snapshot_id: int | None) -> Snapshot | None:
        """Return this snapshot, if it exists and the next one does not."""
        if snapshot_id is None:
            return None
        if not is_remote(self._paths.latest_hint):
            return None if self.exists(snapshot_id + 1) else self.find(snapshot_id)
        next_exists, this = partial(self.exists, snapshot_id + 1), partial(self.find, snapshot_id)
        asked_s = env.monotonic_s()
        has_next, found = run_both(self._paths.location, next_exists, this)
        if not has_next and env.monotonic_s() - asked_s > _SIDE_BY_SIDE_S_MAX:
            # A process that slept may have read this one before, and asked for the next one after both had expired.
            found = self.find(snapshot_id)
        return None if has_next else found

    def _listed_latest(self) -> Snapshot | None:
        """List the directory. Then ask for single files, because a listing may be outdated."""
        for _ in range(_LISTINGS_MAX):
            latest_id = max(self.ids(), default=FIRST_SNAPSHOT_ID - 1)
            if latest_id >= FIRST_SNAPSHOT_ID and (found := self._if_latest(latest_id)) is not None:
                return found
            while self.exists(latest_id + 1):
                latest_id += 1
            if latest_id < FIRST_SNAPSHOT_ID:
                return None
            if (found := self.find(latest_id)) is not None:
                return found
            # It was the newest one when it was listed, and has expired or was rolled back since.
        return self.get(latest_id)

    def latest_since(self, known: Snapshot | None) -> Snapshot | None:
        """Do the same as `latest`. If the newest snapshot is still `known`, this waits only once for a store.

        known: a snapshot that was the newest one; None if none is known.
        """
        if known is None:
            return self.latest()
        return known if self._if_latest(known.id) == known else self.latest()

    def _listed_latest_id(self) -> int | None:
        """List the directory, then check single files, because a listing may be outdated."""
        latest_id = max(self.ids(), default=FIRST_SNAPSHOT_ID - 1)
        while self.exists(latest_id + 1):
            latest_id += 1
        return latest_id if latest_id >= FIRST_SNAPSHOT_ID else None

    def earliest_id(self) -> int | None:
        """Return None for a table without snapshots.

        The hint is used if the snapshot that it names exists, even if older files exist: expiry first moves the hint,
        and older snapshots may have lost files already.
        """
        hint = self.earliest_hint()
        if hint is not None and self.exists(hint):
            return hint
        return min(self.ids(), default=None)

    def earliest_hint(self) -> int | None:
        """Return the hint as it is stored, even if the snapshot that it names does not exist."""
        return self._hint(self._paths.earliest_hint)

    def earliest(self) -> Snapshot | None:
        return next(iter(self.range(self.earliest_id(), self.latest_id())), None)

    def ids(self) -> list[int]:
        """List the directory. Returns the ids of all existing snapshots in ascending order."""
        entries = self._io.list_directory(self._paths.snapshot_directory)
        return sorted(found for entry in entries if (found := parse_snapshot_id(entry.name)) is not None)

    def all(self) -> list[Snapshot]:
        """Return all snapshots, oldest first."""
        return [snapshot for snapshot_id in self.ids() if (snapshot := self.find(snapshot_id)) is not None]

    def range(self, first: int | None, last: int | None) -> Iterator[Snapshot]:
        """Yield snapshots first to last, both included, oldest first, without those that expired in the meantime."""
        if first is None or last is None:
            return
        for snapshot_id in range(first, last + 1):
            snapshot = self.find(snapshot_id)
            if snapshot is not None:
                yield snapshot

    def backwards_from(self, snapshot: Snapshot) -> Iterator[Snapshot]:
        """Yield this snapshot, its predecessor and so on, to the oldest existing one."""
        current: Snapshot | None = snapshot
        while current is not None:
            yield current
            current = self.find(current.id - 1) if current.id > FIRST_SNAPSHOT_ID else None

    def as_of(self, time_ms: int) -> Snapshot | None:
        """Return the newest snapshot of this time or earlier, by binary search; None if all are later."""
        low, high = self.earliest_id(), self.latest_id()
        found = None
        while low is not None and high is not None and low <= high:
            middle = (low + high) // 2
            snapshot = self.find(middle)
            if snapshot is None or snapshot.time_ms <= time_ms:  # None: it expired during the search
                found = snapshot or found
                low = middle + 1
            else:
                high = middle - 1
        return found

    # ------------------------------------------------------------ writing

    def publish(self, snapshot: Snapshot) -> bool:
        """Create the snapshot's file. Returns False if the id is taken.

        After any error except UnsupportedFeature the outcome is unknown.
        """
        data = snapshot.to_json().encode()
        self._parsed.append((data, snapshot))  # a committer reads its own snapshot several times
        return self._io.create_if_absent(self._paths.snapshot(snapshot.id), data)

    def hint_latest(self, snapshot_id: int) -> None:
        """Write a hint for readers. Ignores failures: with an outdated hint, readers list the directory."""
        settle_hints(self._paths.latest_hint)
        with suppress(Exception):
            self._io.write(self._paths.latest_hint, str(snapshot_id).encode(), durable=False)

    def hint_committed(self, snapshot_id: int) -> None:
        """Do the same after a commit. In an object store, the hint is written while the caller continues."""
        if is_remote(self._paths.latest_hint):
            write_hint_later(self._io, self._paths.latest_hint, snapshot_id)
        else:
            self.hint_latest(snapshot_id)

    def settle_hint(self) -> None:
        """Wait until no hint of a commit of this process is being written."""
        settle_hints(self._paths.latest_hint)

    def hint_earliest(self, snapshot_id: int) -> bool:
        """Write the hint durably, because expiry then deletes the snapshots below it. Without the hint, a reader that
        starts with the earliest snapshot would list the directory and find one that is partly deleted.

        Returns whether the hint `LATEST` was deleted (`write_durable_hint`). Readers then list the directory until the
        next `hint_latest`.
        """
        return write_durable_hint(self._io, self._paths.earliest_hint, snapshot_id, instead_of=self._paths.latest_hint)

    def delete_snapshot_file(self, snapshot_id: int) -> None:
        """Delete a file that is surely not part of the table's history."""
        self._io.delete(self._paths.snapshot(snapshot_id))

    def _latest_hint(self) -> int | None:
        self.settle_hint()  # otherwise a read after a commit of this process would list the directory
        return self._hint(self._paths.latest_hint)

    def _hint(self, path: str) -> int | None:
        return read_hint(self._io, path)


def read_hint(io: FileIO, path: str) -> int | None:
    """Return None for a missing, torn or non-positive hint: some stores overwrite hints in place."""
    try:
        hint = int(io.read(path))
    except (OSError, ValueError):
        return None
    return hint if hint >= FIRST_SNAPSHOT_ID else None


def write_durable_hint(io: FileIO, path: str, number: int, *, instead_of: str) -> bool:
    """Write a hint. If the disk is full, it deletes another hint first: expiry needs this hint before it frees space.

    instead_of: the other hint. Readers that don't find it list the directory.
    Returns whether the other hint was deleted.
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
