"""One line of snapshots, main or another branch: its snapshots, its tags, the changelogs that outlived snapshots.

A snapshot or tag that went while it was looked at takes its findings with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from storage.errors import TidelakeError
from storage.format import DEFAULT_BRANCH, CommitKind, FileKind
from storage.options import ChangelogProducer
from storage.paths import parse_changelog_id
from storage.snapshots.consumers import Consumer, consumer_names
from storage.snapshots.index_manifest import index_file_path, read_index_manifest
from storage.snapshots.live_files import base_list, delta_list
from storage.snapshots.manifest_entry import ManifestEntry
from storage.snapshots.manifest_store import ListFile
from storage.snapshots.snapshot import Snapshot, SnapshotStore
from storage.snapshots.tags import TagStore
from storage.table import TableContext
from storage.verify.data_files import DataFileCheck
from storage.verify.finding import REPORT, RESTORE, ROLL_BACK, Finding, Severity
from storage.verify.listing import Listing
from storage.verify.manifests import ManifestCheck
from storage.verify.states import StateWalk

HistoryCheck: TypeAlias = Callable[[Sequence[Snapshot]], Iterable[Finding]]


@dataclass(frozen=True, slots=True)
class LineCount:
    snapshots: int
    tags: int


class LineCheck:
    """names: of index and statistics files that were named. Manifests and data files have checks of their own."""

    def __init__(
        self, context: TableContext, listing: Listing, manifests: ManifestCheck, files: DataFileCheck, names: set[str]
    ) -> None:
        self._context = context
        self._listing = listing
        self._manifests = manifests
        self._files = files
        self._names = names
        self._store = SnapshotStore(context.io, context.paths)
        self._line = "" if context.branch == DEFAULT_BRANCH else f"branch {context.branch}, "
        self.findings: list[Finding] = []
        self.snapshots: list[Snapshot] = []

    def check_all(self, check_history: HistoryCheck | None) -> LineCount:
        ids = self._store.ids()
        earliest = self._hint(self._context.paths.earliest_hint) or 0
        for before, after in pairwise(ids):
            # Below the hint a commit may lie that came when its id had expired (`publisher`, step 5).
            if after != before + 1 and before >= earliest and self._store.exists(before):
                what = f"snapshot {after} follows {before}: what is between them is gone"
                self._add("snapshot-gap", f"{self._line}snapshots", what, ROLL_BACK)
        walk = StateWalk(self._context, self._manifests, self._files)
        for snapshot_id in ids:
            if snapshot_id >= earliest:
                self._check_snapshot(snapshot_id, walk)
        self._check_half_expired([snapshot_id for snapshot_id in ids if snapshot_id < earliest])
        self.snapshots.sort(key=lambda snapshot: snapshot.id)
        if ids:
            self._check_hint()
        self.findings += _identifier_findings(self.snapshots, self._line)
        self.findings += _time_findings(self.snapshots, self._line)
        if check_history is not None:
            self.findings += check_history(self.snapshots)
        self._check_changelogs()
        self._check_consumers()
        return LineCount(len(ids), self._check_tags())

    def check_one(self, snapshot_id: int) -> None:
        """A single snapshot, which is there, by itself."""
        self._check_snapshot(snapshot_id, StateWalk(self._context, self._manifests, self._files))

    # ------------------------------------------------------------ snapshots

    def _check_half_expired(self, ids: Sequence[int]) -> None:
        """Snapshots below the hint EARLIEST: expiry moves it before it deletes what they name, and themselves last.

        What is still there is named by them, and no orphan.
        """
        is_complete, found = self._manifests.is_complete, len(self.findings)
        for snapshot_id in ids:
            self._check_snapshot(snapshot_id, StateWalk(self._context, self._manifests, self._files))
        self._manifests.is_complete = is_complete
        if len(self.findings) > found:
            del self.findings[found:]
            what = f"{len(ids)} of them, {ids[0]} to {ids[-1]}, are half expired: what they name is gone or will be"
            remedy = "The next expiry goes on with them: `tidelake table expire`"
            self.findings.append(Finding("half-expired", f"{self._line}snapshots", what, remedy, Severity.NOTE))

    def _check_snapshot(self, snapshot_id: int, walk: StateWalk) -> None:
        where = f"{self._line}snapshot {snapshot_id}"
        try:
            snapshot = self._store.find(snapshot_id)
        except (TidelakeError, OSError) as error:
            self._manifests.is_complete = False
            self._add("snapshot-unreadable", where, f"its file can't be read: {error}", RESTORE)
            return
        if snapshot is None:
            return
        if snapshot.id != snapshot_id:
            self._add("snapshot-id", where, f"its file says that it is snapshot {snapshot.id}", REPORT)
        found = self._findings_of(snapshot, walk, where)
        if found and not self._store.exists(snapshot_id):
            return  # it expired meanwhile
        self.findings += found
        self.snapshots.append(snapshot)

    def _findings_of(self, snapshot: Snapshot, walk: StateWalk, where: str, *, is_tag: bool = False) -> list[Finding]:
        """A tag keeps the table, not the changes: those expire with the snapshot."""
        known = len(self._manifests.findings)
        found = [
            *walk.step(snapshot, where),
            *(() if is_tag else self._changelog(snapshot, where)),
            *self._index(snapshot, where),
            *self._statistics(snapshot, where),
        ]
        try:
            self._context.schemas.get(snapshot.schema_id)
        except (TidelakeError, OSError) as error:
            found.append(Finding("schema-missing", where, f"its schema can't be read: {error}", RESTORE))
        found += self._manifests.findings[known:]
        del self._manifests.findings[known:]
        return found

    def _changelog(self, snapshot: Snapshot, where: str) -> Iterator[Finding]:
        if snapshot.changelog_manifest_list is None:
            return
        file = ListFile(snapshot.changelog_manifest_list, snapshot.changelog_manifest_list_size)
        metas = self._manifests.metas(file, where)
        entries = None if metas is None else self._manifests.entries(metas, where)
        if entries is None:
            return
        yield from self._files.check(self._context, entries, where)
        rows = sum(entry.file.row_count for entry in entries)
        if rows != snapshot.changelog_record_count:
            what = f"changelogRecordCount {snapshot.changelog_record_count}, its changelog files hold {rows} rows"
            yield Finding("record-count", where, what, REPORT)

    def _index(self, snapshot: Snapshot, where: str) -> Iterator[Finding]:
        if snapshot.index_manifest is None or snapshot.index_manifest in self._names:
            return
        self._names.add(snapshot.index_manifest)
        try:
            entries = read_index_manifest(self._context, snapshot.index_manifest)
            paths = [index_file_path(self._context, entry) for entry in entries]
        except (TidelakeError, OSError, ValueError) as error:
            self._manifests.is_complete = False
            yield Finding("manifest-unreadable", where, f"its index manifest can't be read: {error}", RESTORE)
            return
        for entry, path in zip(entries, paths, strict=True):
            self._names.add(entry.file_name)
            size = self._listing.size_bytes(path)
            if size is None or size != entry.file_size:
                what = "is not there" if size is None else f"has {size} bytes, its manifest says {entry.file_size}"
                yield Finding("index-file", where, f"index file {path} {what}", RESTORE)

    def _statistics(self, snapshot: Snapshot, where: str) -> Iterator[Finding]:
        if snapshot.statistics is None:
            return
        self._names.add(snapshot.statistics)
        if self._listing.size_bytes(self._context.paths.statistics(snapshot.statistics)) is None:
            yield Finding("statistics-missing", where, f"statistics {snapshot.statistics} are not there", RESTORE)

    def _check_hint(self) -> None:
        """A lagging hint makes readers list the directory; one whose successor is absent is believed by Java."""
        path = self._context.paths.latest_hint
        hint = self._hint(path)
        if hint is not None and not self._store.exists(hint + 1) and not self._store.exists(hint):
            what = f"it names snapshot {hint}, which is not there, and some readers believe it"
            self._add("hint", path, what, "Delete the file: it is made anew by the next commit")

    def _hint(self, path: str) -> int | None:
        try:
            hint = int(self._context.io.read(path))
        except (OSError, ValueError):
            return None
        return hint if hint > 0 else None

    # ------------------------------------------------------------ tags, long-lived changelogs

    def _check_tags(self) -> int:
        tags = TagStore(self._context.io, self._context.paths)
        names = tags.names()
        checked = {snapshot.id: snapshot for snapshot in self.snapshots}
        for name in names:
            where = f"{self._line}tag {name}"
            try:
                snapshot = tags.get(name)
            except (TidelakeError, OSError) as error:
                if self._context.io.exists(self._context.paths.tag(name)):
                    self._manifests.is_complete = False
                    self._add("tag-unreadable", where, f"its file can't be read: {error}", RESTORE)
                continue
            if checked.get(snapshot.id) == snapshot:
                continue
            walk = StateWalk(self._context, self._manifests, self._files)
            found = self._findings_of(snapshot, walk, where, is_tag=True)
            if self._context.io.exists(self._context.paths.tag(name)):
                self.findings += found
        return len(names)

    def _check_changelogs(self) -> None:
        paths = self._context.paths
        entries = self._context.io.list_directory(paths.changelog_directory)
        for changelog_id in sorted(i for e in entries if (i := parse_changelog_id(e.name)) is not None):
            where = f"{self._line}changelog {changelog_id}"
            path = paths.changelog(changelog_id)
            try:
                changelog = Snapshot.from_json(self._context.io.read(path), path).named(changelog_id, path)
            except FileNotFoundError:
                continue
            except (TidelakeError, OSError) as error:
                self._manifests.is_complete = False
                self._add("changelog-unreadable", where, f"its file can't be read: {error}", RESTORE)
                continue
            if changelog.changelog_manifest_list is not None:
                self.findings += self._changelog(changelog, where)
            else:
                self.findings += self._delta_as_changelog(changelog, where)
            self.findings += self._manifests.findings
            self._manifests.findings.clear()

    def _check_consumers(self) -> None:
        for name in consumer_names(self._context.io, self._context.paths):
            try:
                Consumer(self._context.io, self._context.paths, name).next_snapshot_id()
            except (TidelakeError, OSError) as error:
                what = f"its file can't be read, and until then no snapshot expires: {error}"
                remedy = "Delete the file, if its reader has gone or can do without the snapshots that it kept"
                where = f"{self._line}consumer {name}"  # a note: rows are safe, and a reader that lives writes it anew
                self.findings.append(Finding("consumer-unreadable", where, what, remedy, Severity.NOTE))

    def _delta_as_changelog(self, changelog: Snapshot, where: str) -> Iterator[Finding]:
        """Without a changelog producer the files that a commit added are its changes. With one, a snapshot without
        changelog brought none, and its lists went with it.
        """
        if self._context.options.changelog_producer is not ChangelogProducer.NONE:
            return
        base = self._manifests.metas(base_list(changelog), where)
        self._manifests.names |= {meta.file_name for meta in base or ()}
        delta = self._manifests.metas(delta_list(changelog), where)
        entries: list[ManifestEntry] | None = None if delta is None else self._manifests.entries(delta, where)
        if entries is not None and changelog.commit_kind is CommitKind.APPEND:
            added = [entry for entry in entries if entry.kind is FileKind.ADD]
            yield from self._files.check(self._context, added, where)

    def _add(self, check: str, where: str, what: str, remedy: str) -> None:
        self.findings.append(Finding(check, where, what, remedy))


def _time_findings(snapshots: Sequence[Snapshot], line: str) -> Iterator[Finding]:
    """Clocks differ, so this is no problem by itself."""
    falls = [(before, after) for before, after in pairwise(snapshots) if after.time_ms < before.time_ms]
    if falls:
        before, after = max(falls, key=lambda fall: fall[0].time_ms - fall[1].time_ms)
        others = f", and {len(falls) - 1} others before theirs" if len(falls) > 1 else ""
        what = f"it is dated {before.time_ms - after.time_ms} ms before the one it follows{others}"
        remedy = "Set the clocks of all writers: snapshots are chosen by time, and expire by it"
        yield Finding("time-order", f"{line}snapshot {after.id}", what, remedy, Severity.NOTE)


def _identifier_findings(snapshots: Sequence[Snapshot], line: str) -> Iterator[Finding]:
    """Identifiers of a commit user only grow, and each is published once."""
    last: dict[str, Snapshot] = {}
    for snapshot in snapshots:
        if not snapshot.is_numbered:
            continue
        before = last.get(snapshot.commit_user)
        last[snapshot.commit_user] = snapshot
        if before is None or before.commit_identifier < snapshot.commit_identifier:
            continue
        where = f"{line}snapshot {snapshot.id}"
        who = f"{snapshot.commit_user!r} committed identifier {snapshot.commit_identifier}"
        if snapshot.commit_identifier < before.commit_identifier:
            what = f"{who} after {before.commit_identifier} (snapshot {before.id})"
            yield Finding("identifier-order", where, what, REPORT)
        elif snapshot.commit_kind is CommitKind.APPEND:
            what = f"{who} a second time (first in snapshot {before.id}): its rows may be there twice"
            yield Finding("identifier-twice", where, what, ROLL_BACK)
