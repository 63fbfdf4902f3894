"""Changelogs that outlive their snapshots: `changelog/changelog-N` has the content of snapshot-N.

Source: Java `utils/ChangelogManager.java`, `Changelog.java`.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelake.storage.fileio.base import FileIO
from tidelake.storage.model.paths import TablePaths, parse_changelog_id
from tidelake.storage.model.snapshots.snapshot import Snapshot, read_hint, write_durable_hint


class ChangelogStore:
    def __init__(self, io: FileIO, paths: TablePaths) -> None:
        self._io = io
        self._paths = paths

    def ids(self) -> list[int]:
        """Lists the directory. Returns the ids in ascending order."""
        entries = self._io.list_directory(self._paths.changelog_directory)
        return sorted(found for entry in entries if (found := parse_changelog_id(entry.name)) is not None)

    def earliest_id(self) -> int | None:
        """Returns None without changelogs. As for snapshots, a hint is used if the changelog that it names exists."""
        ids = self.ids()
        hint = self.earliest_hint() if ids else None
        return hint if hint in ids else min(ids, default=None)

    def earliest_hint(self) -> int | None:
        """Returns the hint as it is stored, even if the changelog that it names does not exist."""
        return read_hint(self._io, self._paths.changelog_earliest_hint)

    def find(self, changelog_id: int) -> Snapshot | None:
        """Returns None for a missing changelog. Raises CorruptFile."""
        path = self._paths.changelog(changelog_id)
        try:
            return Snapshot.from_json(self._io.read(path), path).named(changelog_id, path)
        except FileNotFoundError:
            return None

    def keep(self, snapshots: Sequence[Snapshot]) -> None:
        """Writes changelogs for snapshots that will be deleted, oldest first. Existing changelogs are no error."""
        for snapshot in snapshots:
            self._io.write(self._paths.changelog(snapshot.id), snapshot.to_json().encode())
        if snapshots:
            self._io.write(self._paths.changelog_latest_hint, str(snapshots[-1].id).encode(), durable=False)

    def delete(self, changelog_id: int) -> None:
        self._io.delete(self._paths.changelog(changelog_id))

    def hint_earliest(self, changelog_id: int) -> None:
        """Writes the hint durably, as for snapshots."""
        latest_hint = self._paths.changelog_latest_hint
        write_durable_hint(self._io, self._paths.changelog_earliest_hint, changelog_id, instead_of=latest_hint)
