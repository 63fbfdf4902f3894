"""Checks main or another branch: its snapshots, tags, and changelogs that outlived their snapshots.

As for expiry, `tidelake.storage.commit.expire.retained_states` says what the branch holds, and what is needed for that.
If a snapshot or tag is deleted during the check, its findings are dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, TypeAlias

from tidelake.errors import TidelakeError
from tidelake.storage.base.progress import tracked
from tidelake.storage.commit.expire.retained_states import RetainedStates, changelog_list, changes_list, retained_states
from tidelake.storage.commit.manifests.index_manifest import index_entry_path, read_index_manifest
from tidelake.storage.commit.manifests.manifest_entry import ManifestEntry
from tidelake.storage.commit.manifests.snapshot_files import base_list, delta_list
from tidelake.storage.maintenance.verify.data_file_check import DataFileCheck
from tidelake.storage.maintenance.verify.file_listing import FileListing
from tidelake.storage.maintenance.verify.finding import REPORT, RESTORE, ROLL_BACK, Finding, Severity
from tidelake.storage.maintenance.verify.index_check import VectorCheck, check_hash_index
from tidelake.storage.maintenance.verify.manifest_check import ManifestCheck
from tidelake.storage.maintenance.verify.snapshot_chain import SnapshotChain
from tidelake.storage.model.format import DEFAULT_BRANCH, CommitKind, FileKind
from tidelake.storage.model.options import ChangelogProducer
from tidelake.storage.model.snapshots.consumers import Consumer
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext
from tidelake.storage.read.time_ranges import unreadable_times

_WIDER_AGAIN: Final = (
    "Change the column back with `tidelake table alter`: TIMESTAMP(6) holds all years, and finer digits are cut when "
    "they are read. Java can read the rows as they are"
)
_EXPIRY_CONTINUES: Final = "The next expiry continues with them: `tidelake table expire`"

HistoryCheck: TypeAlias = Callable[[Sequence[Snapshot]], Iterable[Finding]]


@dataclass(frozen=True, slots=True)
class BranchCount:
    snapshots: int
    tags: int


class BranchCheck:
    """Checks one branch. Manifests and data files have separate checks.

    names: collects the names of index and statistics files that are referenced.
    """

    def __init__(
        self,
        context: TableContext,
        listing: FileListing,
        manifests: ManifestCheck,
        files: DataFileCheck,
        names: set[str],
    ) -> None:
        self._context = context
        self._listing = listing
        self._manifests = manifests
        self._files = files
        self._names = names
        self._vectors = VectorCheck()
        self._store = context.snapshots
        self._line = "" if context.branch == DEFAULT_BRANCH else f"branch {context.branch}, "
        self.findings: list[Finding] = []
        self.snapshots: list[Snapshot] = []

    def check_all(self, check_history: HistoryCheck | None) -> BranchCount:
        held = retained_states(self._context.io, self._context.paths)
        for before, after in pairwise(held.snapshots):
            if after != before + 1 and self._store.exists(before):
                what = f"snapshot {after} follows {before}: the snapshots in between are missing"
                self._add("snapshot-gap", f"{self._line}snapshots", what, ROLL_BACK)
        chain = SnapshotChain(self._context, self._manifests, self._files)
        first = held.snapshots[0] if held.snapshots else None
        count = len(held.snapshots)
        for snapshot_id in tracked("checking snapshots", held.snapshots, count, "snapshots"):
            self._check_snapshot(snapshot_id, chain, is_first=snapshot_id == first)
        self._add_files_of_changelogs(held)
        self._check_partly_expired(held.partially_expired)
        self.snapshots.sort(key=lambda snapshot: snapshot.id)
        if held.snapshots:
            self._check_hint()
        self.findings += _identifier_findings(self.snapshots, self._line)
        self.findings += _time_findings(self.snapshots, self._line)
        if self.snapshots and self._manifests.is_complete:
            self._check_ranges_of_times(self.snapshots[-1])
        if check_history is not None:
            self.findings += check_history(self.snapshots)
        self._check_changelogs(held)
        self._check_consumers(held.consumers)
        self._check_tags(held.tags)
        return BranchCount(len(held.snapshots) + len(held.partially_expired), len(held.tags))

    def check_one(self, snapshot_id: int) -> None:
        """Check a single, existing snapshot."""
        self._check_snapshot(snapshot_id, SnapshotChain(self._context, self._manifests, self._files))

    # ------------------------------------------------------------ snapshots

    def _check_partly_expired(self, ids: Sequence[int]) -> None:
        """Check snapshots below the hint EARLIEST. Expiry moves the hint, then deletes their files, and them last.

        Their remaining files are referenced by them, so they are no orphans.
        """
        is_complete, found = self._manifests.is_complete, len(self.findings)
        for snapshot_id in ids:
            self._check_snapshot(snapshot_id, SnapshotChain(self._context, self._manifests, self._files))
        self._manifests.is_complete = is_complete
        if len(self.findings) > found:
            del self.findings[found:]
            what = f"{len(ids)} of them, {ids[0]} to {ids[-1]}, are partly expired: their files are deleted or will be"
            self.findings.append(
                Finding("half-expired", f"{self._line}snapshots", what, _EXPIRY_CONTINUES, Severity.NOTE)
            )

    def _check_snapshot(self, snapshot_id: int, chain: SnapshotChain, *, is_first: bool = False) -> None:
        where = f"{self._line}snapshot {snapshot_id}"
        try:
            snapshot = self._store.find(snapshot_id)
        except (TidelakeError, OSError) as error:
            self._manifests.is_complete = False
            self._add("snapshot-unreadable", where, f"its file can't be read: {error}", RESTORE)
            return
        if snapshot is None:
            return
        found = [*self._findings_of(snapshot, chain, where), *self._changelog_of(snapshot, where, is_first=is_first)]
        if found and not self._store.exists(snapshot_id):
            return  # it expired during the check
        self.findings += found
        self.snapshots.append(snapshot)

    def _findings_of(self, snapshot: Snapshot, chain: SnapshotChain, where: str) -> list[Finding]:
        """Check the table at a snapshot or tag. A tag keeps no changes: these expire with the snapshot."""
        found = [
            *chain.step(snapshot, where),
            *self._index(snapshot, where),
            *self._statistics(snapshot, where),
        ]
        try:
            self._context.schemas.get(snapshot.schema_id)
        except (TidelakeError, OSError) as error:
            found.append(Finding("schema-missing", where, f"its schema can't be read: {error}", RESTORE))
        return [*found, *self._manifests.take_findings()]

    def _changelog_of(self, snapshot: Snapshot, where: str, *, is_first: bool) -> list[Finding]:
        """Check the changelog. It may have expired only if the snapshot came to this branch from a tag."""
        is_complete = self._manifests.is_complete
        found = [*self._changelog(snapshot, where), *self._manifests.take_findings()]
        if not found or not is_first or not self._context.history.may_be_without_changelog(snapshot):
            return found
        self._manifests.is_complete = is_complete
        what = "its changelog is missing: it probably expired before the snapshot came here from a tag or a branch"
        remedy = f"Follow changes from snapshot {snapshot.id + 1} on; the table at it is whole"
        return [Finding("changelog-expired", where, what, remedy, Severity.NOTE)]

    def _changelog(self, snapshot: Snapshot, where: str) -> Iterator[Finding]:
        file = changelog_list(snapshot)
        if file is None:
            return
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
            paths = [index_entry_path(self._context, entry) for entry in entries]
        except (TidelakeError, OSError, ValueError) as error:
            self._manifests.is_complete = False
            yield Finding("manifest-unreadable", where, f"its index manifest can't be read: {error}", RESTORE)
            return
        valid = []
        for entry, path in zip(entries, paths, strict=True):
            self._names.add(entry.file.file_name)
            size = self._listing.size_bytes(path)
            if size is None or size != entry.file.file_size:
                recorded_size = entry.file.file_size
                what = "is missing" if size is None else f"has {size} bytes, but its manifest says {recorded_size}"
                yield Finding("index-file", where, f"index file {path} {what}", RESTORE)
            else:
                valid.append(entry)
                yield from self._vectors.check(self._context, entry.file, path, self._files.row_counts, where)
        yield from check_hash_index(self._context, valid, where)

    def _statistics(self, snapshot: Snapshot, where: str) -> Iterator[Finding]:
        if snapshot.statistics is None:
            return
        self._names.add(snapshot.statistics)
        if self._listing.size_bytes(self._context.paths.statistics(snapshot.statistics)) is None:
            yield Finding("statistics-missing", where, f"statistics {snapshot.statistics} are missing", RESTORE)

    def _check_hint(self) -> None:
        """Check LATEST. With an outdated hint, readers list the directory; Java believes one without a successor."""
        path = self._context.paths.latest_hint
        hint = self._hint(path)
        if hint is not None and not self._store.exists(hint + 1) and not self._store.exists(hint):
            what = f"it names snapshot {hint}, which does not exist, and some readers rely on it"
            self._add("hint", path, what, "Delete the file: it is created again by the next commit")

    def _hint(self, path: str) -> int | None:
        try:
            hint = int(self._context.io.read(path))
        except (OSError, ValueError):
            return None
        return hint if hint > 0 else None

    def _check_ranges_of_times(self, newest: Snapshot) -> None:
        """Check that scans with the table's newest schema can read the times of files that have an older one."""
        where = f"{self._line}snapshot {newest.id}"
        try:
            for what in unreadable_times(self._context, newest):
                self._add("times-unreadable", where, f"scans and compactions are refused: {what}", _WIDER_AGAIN)
        except (TidelakeError, OSError, ValueError):
            return  # other checks report what can't be read

    # ------------------------------------------------------------ tags, long-lived changelogs

    def _check_tags(self, names: Sequence[str]) -> None:
        tags = self._context.tags
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
            chain = SnapshotChain(self._context, self._manifests, self._files)
            found = self._findings_of(snapshot, chain, where)
            if self._context.io.exists(self._context.paths.tag(name)):
                self.findings += found

    def _check_changelogs(self, held: RetainedStates) -> None:
        for changelog_id in held.changelogs:
            self.findings += self._check_long_lived_changelog(changelog_id)
        is_complete, ids = self._manifests.is_complete, held.partially_expired_changelogs
        found = [finding for changelog_id in ids for finding in self._check_long_lived_changelog(changelog_id)]
        self._manifests.is_complete = is_complete
        if found:
            what = f"{len(ids)} of them, {ids[0]} to {ids[-1]}, are partly expired: their files are deleted or will be"
            self.findings.append(
                Finding("half-expired", f"{self._line}changelogs", what, _EXPIRY_CONTINUES, Severity.NOTE)
            )

    def _check_long_lived_changelog(self, changelog_id: int) -> list[Finding]:
        """Check a changelog that outlived its snapshot."""
        where = f"{self._line}changelog {changelog_id}"
        path = self._context.paths.changelog(changelog_id)
        try:
            changelog = Snapshot.from_json(self._context.io.read(path), path).named(changelog_id, path)
        except FileNotFoundError:
            return []
        except (TidelakeError, OSError) as error:
            self._manifests.is_complete = False
            return [Finding("changelog-unreadable", where, f"its file can't be read: {error}", RESTORE)]
        check = self._changelog if changelog_list(changelog) is not None else self._delta_as_changelog
        return [*check(changelog, where), *self._manifests.take_findings()]

    def _delta_as_changelog(self, changelog: Snapshot, where: str) -> Iterator[Finding]:
        """Check the files that a commit added: without a changelog producer, they are its changes.

        With a producer, a snapshot without changelog had no changes, and its manifest lists were deleted with it.
        """
        if self._context.options.changelog_producer is not ChangelogProducer.NONE:
            return
        base = self._manifests.metas(base_list(changelog), where)
        self._manifests.names |= {meta.file_name for meta in base or ()}
        entries = self._delta(changelog, where)
        if changes_list(changelog) is not None:
            added = [entry for entry in entries if entry.kind is FileKind.ADD]
            yield from self._files.check(self._context, added, where)

    def _delta(self, snapshot: Snapshot, where: str) -> Sequence[ManifestEntry]:
        """Count all files of a delta as referenced: files that it deleted are deleted with its changelog."""
        metas = self._manifests.metas(delta_list(snapshot), where)
        entries = self._manifests.entries(metas, where) if metas is not None else None
        self._names |= {name for e in entries or () for name in (e.file.file_name, *e.file.extra_files)}
        return entries or ()

    def _add_files_of_changelogs(self, held: RetainedStates) -> None:
        """Take references to files of changelogs. If deltas hold the changes and outlive their snapshots, a file is
        kept until the delta that deleted it expires. This includes the delta of the first existing snapshot.
        """
        options = self._context.options
        outlive = options.changelog_outlives_snapshots or bool(held.changelogs)
        if outlive and options.changelog_producer is ChangelogProducer.NONE and self.snapshots:
            self._delta(self.snapshots[0], f"{self._line}snapshot {self.snapshots[0].id}")
            self._manifests.take_findings()  # these were reported already

    def _check_consumers(self, names: Sequence[str]) -> None:
        for name in names:
            try:
                Consumer(self._context.io, self._context.paths, name).next_snapshot_id()
            except (TidelakeError, OSError) as error:
                what = f"its file can't be read, and until then no snapshot expires: {error}"
                remedy = "Delete the file, if its reader no longer exists or does not need the snapshots that it kept"
                where = f"{self._line}consumer {name}"  # only a note: rows are safe, and an active reader rewrites it
                self.findings.append(Finding("consumer-unreadable", where, what, remedy, Severity.NOTE))

    def _add(self, check: str, where: str, what: str, remedy: str) -> None:
        self.findings.append(Finding(check, where, what, remedy))


def _time_findings(snapshots: Sequence[Snapshot], line: str) -> Iterator[Finding]:
    """Report snapshots that are older than their predecessor. Clocks differ, so this is a note, not a problem."""
    falls = [(before, after) for before, after in pairwise(snapshots) if after.time_ms < before.time_ms]
    if falls:
        before, after = max(falls, key=lambda fall: fall[0].time_ms - fall[1].time_ms)
        others = f", and {len(falls) - 1} others before theirs" if len(falls) > 1 else ""
        what = f"it is dated {before.time_ms - after.time_ms} ms before the one it follows{others}"
        remedy = "Set the clocks of all writers: snapshots are chosen by time, and expire by it"
        yield Finding("time-order", f"{line}snapshot {after.id}", what, remedy, Severity.NOTE)


def _identifier_findings(snapshots: Sequence[Snapshot], line: str) -> Iterator[Finding]:
    """Report identifiers that don't rise for their commit user, or that were published twice."""
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
            what = f"{who} a second time (first in snapshot {before.id}): its rows may be duplicated"
            yield Finding("identifier-twice", where, what, ROLL_BACK)
