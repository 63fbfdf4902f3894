"""The state of the sources that a refresh has read. It is stored in the snapshot with the rows, so that both agree."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Final, Self

from tidelake.storage.commit.manifests.snapshot_files import live_entries
from tidelake.storage.files.data_file import DataFileMeta, is_fully_compacted
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.format import POSTPONE_BUCKET, CommitKind
from tidelake.storage.model.options import ChangelogProducer
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext

REFRESH_USER: Final = "tidelake-refresh"  # commit user of all refreshes; numbered, so that two concurrent ones conflict
REFRESH_PROPERTY: Final = "tidelake.refresh"


@dataclass(frozen=True, slots=True)
class QueriedState:
    """One table at one snapshot.

    manifest_list: distinguishes the snapshot from another one with this id, after a rollback or in a new table
    is_settled: replaying the table's changelogs up to this snapshot gives the rows that readers see
    """

    snapshot_id: int
    manifest_list: str
    schema_id: int
    is_settled: bool

    @classmethod
    def of(cls, context: TableContext, snapshot: Snapshot) -> Self:
        return cls(snapshot.id, snapshot.delta_manifest_list, context.schema.id, _is_settled(context, snapshot))

    def matches_snapshot(self, snapshot: Snapshot | None) -> bool:
        return snapshot is not None and snapshot.delta_manifest_list == self.manifest_list


def _is_settled(context: TableContext, snapshot: Snapshot) -> bool:
    producer = context.options.changelog_producer
    if not context.schema.has_primary_key:
        return False
    if producer not in (ChangelogProducer.LOOKUP, ChangelogProducer.FULL_COMPACTION):
        return False
    buckets = defaultdict[BucketId, list[DataFileMeta]](list)
    for entry in live_entries(context, snapshot, keep_entry=lambda entry: entry.bucket != POSTPONE_BUCKET):
        buckets[entry.bucket_id].append(entry.file)
    if producer is ChangelogProducer.LOOKUP:
        return all(file.level > 0 for files in buckets.values() for file in files)
    return all(is_fully_compacted(files, context.options.num_levels) for files in buckets.values())


@dataclass(frozen=True, slots=True)
class RefreshState:
    """The state from which the newest refresh of a table was made.

    query: a digest of the definition.
    base: the table's newest snapshot before the refresh, 0 for none.
    sources: by their full names.
    """

    query: str
    base: int
    sources: Mapping[str, QueriedState]

    @staticmethod
    def digest(query: str) -> str:
        return sha256(query.encode()).hexdigest()[:16]

    def to_properties(self) -> dict[str, str]:
        sources = {name: asdict(state) for name, state in self.sources.items()}
        members = {"query": self.query, "base": self.base, "sources": sources}
        return {REFRESH_PROPERTY: json.dumps(members, separators=(",", ":"))}

    @classmethod
    def of(cls, snapshot: Snapshot) -> Self | None:
        """Return the state recorded in a snapshot; None if it records none."""
        try:
            members = json.loads(snapshot.properties.get(REFRESH_PROPERTY, ""))
            sources = {name: QueriedState(**state) for name, state in members["sources"].items()}
            return cls(members["query"], int(members["base"]), sources)
        except (KeyError, TypeError, ValueError, AttributeError):
            return None


@dataclass(frozen=True, slots=True)
class LastRefresh:
    """The last refresh of a table.

    state: None if the table's rows can't be proven to come from it; `reason` says why
    number: of its commit; 0 for none
    time_ms: of its snapshot
    """

    number: int
    state: RefreshState | None
    reason: str = ""
    time_ms: int | None = None


def last_refresh(context: TableContext, latest: Snapshot | None) -> LastRefresh:
    """Return the last refresh up to this snapshot. Compactions after it are allowed, as they change no rows."""
    if latest is None:
        return LastRefresh(0, None, "it is the first refresh")
    other: Snapshot | None = None
    newest: Snapshot | None = None
    base = 0
    for snapshot in context.snapshots.backwards_from(latest):
        if newest is not None and (snapshot.id <= base or other is not None):
            break
        if snapshot.commit_kind is CommitKind.COMPACT:
            continue
        if snapshot.commit_user != REFRESH_USER:
            other = snapshot
        elif newest is None:
            newest, state = snapshot, RefreshState.of(snapshot)
            base = snapshot.id if state is None else state.base
    if newest is None:
        return LastRefresh(0, None, "no snapshot of a refresh is left")
    state, reason = RefreshState.of(newest), ""
    if state is None:
        reason = "the last refresh recorded no position"
    elif other is not None:
        state, reason = None, f"{other.commit_user!r} changed rows of {context.name} in snapshot {other.id}"
    return LastRefresh(newest.commit_identifier, state, reason, newest.time_ms)
