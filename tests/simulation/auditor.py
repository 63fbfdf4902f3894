"""Knows what every table must hold, and looks at each snapshot the moment it appears.

The truth comes from the database's changes up to the recorded position, and from what each writer said it would commit,
merged in the order of the snapshots by a naive model of the table's merge engine.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

from tests.simulation.log import TOPIC, TRUNCATES, WIDTHS, Change, Log, table_of
from tests.simulation.scheduler import Process, Scheduler
from tests.simulation.store import ObjectStore, StoreClient
from tidelake.checkpoint.epoch import EPOCH_PROPERTY
from tidelake.checkpoint.offsets import POSITION_PROPERTY, SourcePosition, TopicPartition, position_from_text
from tidelake.errors import TidelakeError
from tidelake.storage.catalog.filesystem import FileSystemCatalog
from tidelake.storage.commit.manifests.index_manifest import read_index_manifest
from tidelake.storage.commit.manifests.manifest_store import ManifestStore
from tidelake.storage.commit.manifests.snapshot_files import (
    changelog_entries,
    changelog_list,
    live_entries,
    table_manifests,
)
from tidelake.storage.maintenance.verify import verify
from tidelake.storage.model.format import CommitKind
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext
from tidelake.table import Table

T = TypeVar("T")

DEAD_LETTERS: Final = "ops.failed"
_BRANCH_SNAPSHOT: Final = re.compile(r"branch/branch-([^/]+)/snapshot/snapshot-(\d+)")
REPLAY_USER: Final = "shop.replay"
Values: TypeAlias = tuple[Any, Any]  # note, n
Rows: TypeAlias = dict[int, Values]
Place: TypeAlias = tuple[str, TopicPartition, int]  # the topic's id, and an offset
Merge: TypeAlias = Callable[[Values | None, Values], Values]


class Finding(AssertionError):
    """What is not as it must be."""


def newest(old: Values | None, new: Values) -> Values:
    return new


def first(old: Values | None, new: Values) -> Values:
    return new if old is None else old


def not_null(old: Values | None, new: Values) -> Values:
    note, n = old or (None, None)
    return (note if new[0] is None else new[0], n if new[1] is None else new[1])


def summed(old: Values | None, new: Values) -> Values:
    if old is None:
        return new
    notes, terms = ([x for x in pair if x is not None] for pair in zip(old, new, strict=True))
    return (max(notes) if notes else None, sum(terms) if terms else None)


@dataclass
class AuditedTable:
    """A table, its truth, and what was found in each snapshot.

    has_log_rows: it has the rows of the database's log. engine: the model of its merge engine. planned: by commit user
    and identifier, what a writer will commit: rows, and keys to delete (None instead of values). maybe: keys whose
    newest change is a dead letter that a later run may have decoded, as a column is wider: what their rows may be.
    branches: each with its own truth; files are shared.
    """

    name: str
    options: Mapping[str, str]
    merge: Merge = newest
    has_log_rows: bool = False
    planned: dict[tuple[str, int], list[tuple[int, Values | None]]] = field(default_factory=dict)
    committed: dict[tuple[str, int], int] = field(default_factory=dict)  # to the snapshot
    written: Rows = field(default_factory=dict)
    from_log: Rows = field(default_factory=dict)
    topic_id: str = ""
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    epoch: int = 0
    folded: Rows = field(default_factory=dict)
    is_fold_complete: bool = True
    rows_at: dict[int, Rows | None] = field(default_factory=dict)
    fold_at: dict[int, Rows] = field(default_factory=dict)
    maybe: dict[int, list[Values | None]] = field(default_factory=dict)
    replayed: dict[Place, None] = field(default_factory=dict)  # dead letters whose rows a replay has committed
    replays: set[int] = field(default_factory=set)  # the identifiers of replays that committed
    truncated_at: set[int] = field(default_factory=set)  # snapshots whose changelog does not say that all rows are gone
    last_id: int = 0
    names_at: dict[int, frozenset[str]] = field(default_factory=dict)  # the files of the state
    change_names_at: dict[int, frozenset[str]] = field(default_factory=dict)  # the changelog's: a tag keeps none
    earliest: int = 1
    tags: dict[str, int] = field(default_factory=dict)
    branches: dict[str, AuditedTable] = field(default_factory=dict)
    location: str = ""  # of the snapshots of a branch, below the table's: branch/branch-NAME/
    is_rewritten: bool = False  # a fast-forward replaces its snapshots
    is_settled: bool = True  # False: a branch that is being created or deleted
    written_at: dict[int, Rows] = field(default_factory=dict)
    mentioned_at: dict[int, frozenset[str]] = field(default_factory=dict)  # by manifests
    committed_names: set[str] = field(default_factory=set)  # the files of all states and changelogs
    audits: int = 0

    @property
    def truth(self) -> Rows:
        return {**self.from_log, **self.written}

    def is_forgotten(self, user: str, identifier: int) -> bool:
        """Whether the commit's snapshot has expired: a process that starts now can't know of it."""
        number = self.committed.get((user, identifier))
        return number is not None and number < self.earliest

    @property
    def needs_compaction(self) -> bool:
        """Whether readers see rows only after a compaction."""
        return "deletion-vectors.enabled" in self.options or self.options.get("merge-engine") == "first-row"

    @property
    def producer(self) -> str:
        return self.options.get("changelog-producer", "none")


class Auditor:
    """See the module. `pending` are snapshots that nobody looked at yet."""

    def __init__(self, scheduler: Scheduler, store: ObjectStore, warehouse: str, log: Log) -> None:
        self._scheduler = scheduler
        self._store = store
        self._log = log
        self._warehouse = warehouse
        self.process = Process("auditor")
        self._catalog = FileSystemCatalog(StoreClient(store, self.process, is_quiet=True), warehouse)
        self.tables: dict[str, AuditedTable] = {}
        self._pending: list[tuple[AuditedTable, int]] = []
        store.on_written = self._written
        store.on_deleted = self._deleted
        store.on_late = self._written_late
        self.finding: Finding | None = None
        self.is_replayed = False  # by the last replay, when nothing was written any more

    def add(self, table: AuditedTable) -> None:
        self.tables[table.name] = table

    def context(self, name: str) -> TableContext:
        return self._catalog.load(name)

    def run(self, work: Callable[[], object]) -> None:
        """Run work in the auditor's process, while nothing else happens. For the hub."""
        self._scheduler.run_exclusively(self.process, work)

    # ------------------------------------------------------------ events of the store

    def _table_of(self, path: str) -> tuple[AuditedTable, str] | None:
        rest = path.removeprefix(self._warehouse + "/")
        database, _, rest = rest.partition(".db/")
        table, _, rest = rest.partition("/")
        found = self.tables.get(f"{database}.{table}")
        return None if found is None else (found, rest)

    def _written(self, path: str, is_new: bool) -> None:
        found = self._table_of(path)
        if found is None:
            return
        table, rest = self._branch_of(*found)
        if table.is_rewritten and rest.startswith("snapshot/"):
            return
        if rest.startswith("snapshot/snapshot-") and is_new:
            number = int(rest.removeprefix("snapshot/snapshot-"))
            # A put that acts late may come back after its id has expired. Nobody reads below EARLIEST.
            if number >= table.earliest:
                self._pending.append((table, number))
        elif rest == "snapshot/EARLIEST":
            table.earliest = max(table.earliest, int(self._store.objects[path].data))
        elif rest.startswith("tag/tag-"):
            number = int(json.loads(self._store.objects[path].data)["id"])
            if self._is_kept(table, number):
                table.tags[rest] = number
        elif (match := _BRANCH_SNAPSHOT.fullmatch(rest)) is not None and is_new:  # the first of a new branch
            name, number = match[1], int(match[2])
            if number in table.names_at:
                table.branches[name] = _branched(table, name, number)

    def _branch_of(self, table: AuditedTable, rest: str) -> tuple[AuditedTable, str]:
        """Return the branch to which a file belongs, and the path below it. Files of rows belong to the table."""
        for branch in table.branches.values():
            if rest.startswith(branch.location):
                return branch, rest.removeprefix(branch.location)
        return table, rest

    def _is_kept(self, table: AuditedTable, number: int) -> bool:
        return number >= table.earliest or number in table.tags.values()

    def _written_late(self, path: str) -> None:
        """Do what an operator must do if a put without an answer acts when the snapshot has expired: remove the file.

        Nobody reads a snapshot below EARLIEST, but `verify` reports it. A tag that keeps nothing also stops the search
        for orphans.
        """
        found = self._table_of(path)
        if found is None:
            return
        table, rest = self._branch_of(*found)
        if rest.startswith(("snapshot/snapshot-", "tag/tag-")):
            number = int(json.loads(self._store.objects[path].data)["id"])
            if number < table.earliest and rest not in table.tags:
                self._store.remove(path, "operator")

    def _deleted(self, path: str, by: str) -> None:
        found = self._table_of(path)
        if found is None:
            return
        main = found[0]
        table, rest = self._branch_of(*found)
        if rest.startswith("tag/tag-"):
            table.tags.pop(rest, None)
        elif rest.startswith("snapshot/snapshot-"):
            number = int(rest.removeprefix("snapshot/snapshot-"))
            if not table.is_settled:
                self._forget_branch(main, table)
                return
            if table.is_rewritten:
                return
            if number >= table.earliest:
                self._fail(table, number, f"{by} deleted the snapshot, and EARLIEST says {table.earliest}")
            table.change_names_at.pop(number, None)
            if number not in table.tags.values():
                table.names_at.pop(number, None)
        else:
            self._check_unneeded(main, rest, by)
            for branch in main.branches.values():
                self._check_unneeded(branch, rest, by)

    def fast_forwarded(self, table: AuditedTable, name: str, unfinished: Mapping[str, int]) -> None:
        """Take over that the table equals a branch now. unfinished: by user, the commit that a writer will repeat."""
        branch = table.branches[name]
        first = min(branch.names_at)
        for which in ("rows_at", "fold_at", "names_at", "change_names_at", "mentioned_at", "written_at"):
            kept = {number: one for number, one in getattr(table, which).items() if number < first}
            setattr(table, which, kept | getattr(branch, which))
        table.written, table.folded, table.last_id = dict(branch.written), dict(branch.folded), branch.last_id
        before = {which: number for which, number in table.committed.items() if number < first}
        table.committed = before | branch.committed
        table.planned = {
            (user, identifier): rows
            for (user, identifier), rows in (table.planned | branch.planned).items()
            if (user, identifier) in table.committed or unfinished.get(user) == identifier
        }
        table.committed_names |= branch.committed_names
        hint = self._store.objects.get(f"{self._warehouse}/{table.name.replace('.', '.db/')}/snapshot/EARLIEST")
        table.earliest = first if hint is None else int(hint.data)
        table.is_rewritten = False

    def _forget_branch(self, main: AuditedTable, branch: AuditedTable) -> None:
        main.committed_names |= branch.committed_names
        main.branches = {name: one for name, one in main.branches.items() if one is not branch}

    def _check_unneeded(self, table: AuditedTable, rest: str, by: str) -> None:
        name = rest.rpartition("/")[2]
        tagged = set(table.tags.values())
        for number, names in table.names_at.items():
            if name in names and (number >= table.earliest or number in tagged):
                self._fail(table, number, f"{by} deleted {rest}, which this snapshot needs")
        for number, names in table.change_names_at.items():
            if name in names and number >= table.earliest:
                self._fail(table, number, f"{by} deleted {rest}, which its changelog needs")

    def _fail(self, table: AuditedTable, number: int, what: str) -> None:
        if self.finding is None:
            self.finding = Finding(f"{table.name}, snapshot {number}: {what}")

    def look(self) -> None:
        """Audit the snapshots that appeared. For the hub."""
        while self._pending and self.finding is None:
            table, number = self._pending.pop(0)
            try:
                self.run(partial(self._audit, table, number))
            except Finding as finding:
                self.finding = finding
            except (TidelakeError, OSError) as error:
                self.finding = Finding(f"{table.name}, snapshot {number} can't be read: {error!r}")

    # ------------------------------------------------------------ one snapshot

    def _audit(self, table: AuditedTable, number: int) -> None:
        table.audits += 1
        if number != table.last_id + 1:
            self._fail(table, number, f"it follows snapshot {table.last_id}")
        table.last_id = number
        context = self.context(table.name)
        snapshot = context.snapshots.get(number)
        self._take_over(table, context, snapshot)
        files = live_entries(context, snapshot)
        table.names_at[number], table.change_names_at[number] = self._names(context, snapshot)
        manifests = context.shared(ManifestStore)
        entries = (entry for part in manifests.read_all(table_manifests(manifests, snapshot)) for entry in part)
        named = {name for entry in entries for name in (entry.file.file_name, *entry.file.extra_files)}
        table.mentioned_at[number] = table.names_at[number] | table.change_names_at[number] | named
        table.committed_names |= table.names_at[number] | table.change_names_at[number]
        has_level_0 = any(entry.file.level == 0 for entry in files)
        found: Rows | None = None
        if not (has_level_0 and table.needs_compaction):
            read = Table(context).scan(columns=["id", "note", "n"], snapshot=number).to_arrow().to_pylist()
            found = {row["id"]: (row["note"], row["n"]) for row in read}
            if len(found) != len(read):
                self._fail(table, number, f"a key has two rows: {sorted(row['id'] for row in read)}")
            self._settle(table, found)
            self._compare(table, number, "its rows", found, table.truth)
        table.rows_at[number] = found
        table.written_at[number] = dict(table.written)
        self._fold(table, context, snapshot, has_level_0)

    def _take_over(self, table: AuditedTable, context: TableContext, snapshot: Snapshot) -> None:
        """Learn what the snapshot must have brought."""
        user, identifier, number = snapshot.commit_user, snapshot.commit_identifier, snapshot.id
        if (text := snapshot.properties.get(EPOCH_PROPERTY)) is not None:
            epoch = int(json.loads(text)["number"])
            if epoch < table.epoch:
                self._fail(table, number, f"of epoch {epoch}, after one of epoch {table.epoch}")
            table.epoch = epoch
        if (position := snapshot.properties.get(POSITION_PROPERTY)) is not None:
            self._follow(table, context, snapshot, position_from_text(position, table.name))
        if user == REPLAY_USER and snapshot.commit_kind is CommitKind.APPEND:
            if identifier in table.replays:
                self._fail(table, number, f"the replay {identifier} committed twice")
            table.replays.add(identifier)
            self._replay(table, identifier)
        if snapshot.commit_kind is CommitKind.APPEND and (user, identifier) in table.planned:
            if (user, identifier) in table.committed:
                self._fail(table, number, f"{user} committed {identifier} twice")
            table.committed[user, identifier] = number
            for key, values in table.planned[user, identifier]:
                if values is None:
                    table.written.pop(key, None)
                else:
                    table.written[key] = table.merge(table.written.get(key), values)

    def _follow(self, table: AuditedTable, context: TableContext, snapshot: Snapshot, position: SourcePosition) -> None:
        """Apply what the position has read since the one before."""
        topic_id = position.identity.topic_ids[TOPIC]
        is_accepted = position.accepted is not None and snapshot.commit_kind is not CommitKind.COMPACT
        if topic_id != table.topic_id:
            if table.topic_id and not is_accepted:
                self._fail(table, snapshot.id, f"it reads {topic_id} after {table.topic_id}, and nobody accepted that")
            table.topic_id, table.ends = topic_id, {}
        for name, (start, end) in position.ranges.items():
            partition = self._log.topics[topic_id][name]
            reached = table.ends.get(name, start if start <= partition.first else 0)
            # A compaction has the position of the commit before it.
            is_next = start == reached or (snapshot.commit_kind is CommitKind.COMPACT and start <= reached)
            if is_accepted:
                reached = start
            elif not is_next or end < reached:
                self._fail(table, snapshot.id, f"{name} from {start} to {end}, after {reached}")
            dead = self._dead_letters(name, reached, end) if partition.too_large else {}
            for offset, change in enumerate(partition.changes[reached:end], reached):
                if change is None or table_of(change) != table.name:
                    continue
                is_dead = offset in dead and (topic_id, name, offset) not in table.replayed
                if change in TRUNCATES.values():
                    table.from_log.clear()
                    table.maybe.clear()
                    table.truncated_at.add(snapshot.id)
                elif not is_dead:
                    table.maybe.pop(change[0], None)
                    _set(table.from_log, change[0], _values(change))
                elif offset not in partition.too_large:
                    self._fail(table, snapshot.id, f"{name}:{offset} can be decoded, and is a dead letter")
                elif _can_hold(context, partition.too_large[offset][1]):
                    # Too narrow when the dead letter was written: who wrote it may not be who committed.
                    before = table.maybe.get(change[0], [table.from_log.get(change[0])])
                    table.maybe[change[0]] = [*before, _values(change)]
            table.ends[name] = end

    def _dead_letters(self, partition: TopicPartition, start: int, end: int) -> dict[int, int | None]:
        """Return the offsets of dead letters of these records, each with its replay."""
        if not self._catalog.table_exists(DEAD_LETTERS):
            return {}
        wanted = ["partition", "offset", "replay_id"]
        rows = Table(self._catalog.load(DEAD_LETTERS)).scan(columns=wanted).to_arrow().to_pylist()
        ours = [row for row in rows if row["partition"] == partition.partition and start <= row["offset"] < end]
        return {row["offset"]: row["replay_id"] for row in ours}

    def _replay(self, table: AuditedTable, replay_id: int) -> None:
        """Take the rows of a replay, except those of keys with newer rows."""
        for name, partition in self._log.topics[table.topic_id or self._log.topic_id].items():
            dead = self._dead_letters(name, 0, len(partition.records))
            chosen = [offset for offset, replay in sorted(dead.items()) if replay == replay_id]
            for offset in chosen:
                change, _ = partition.too_large[offset]
                if table_of(change) != table.name:
                    continue
                reached = table.ends.get(name, 0)
                later = {
                    at
                    for at, other in enumerate(partition.changes)
                    if at > offset and other is not None and (other[0] == change[0] or _truncates(other, table.name))
                }
                replayed = {at for at in later if (table.topic_id, name, at) in table.replayed}
                if not any(at in replayed or (at < reached and at not in dead) for at in later):
                    table.maybe.pop(change[0], None)
                    _set(table.from_log, change[0], _values(change))
                table.replayed[table.topic_id, name, offset] = None

    def _settle(self, table: AuditedTable, found: Rows) -> None:
        """Learn which of the dead letters were decoded by a later run."""
        for key, values in table.maybe.items():
            if found.get(key) in values:
                _set(table.from_log, key, found.get(key))
        table.maybe.clear()

    def _names(self, context: TableContext, snapshot: Snapshot) -> tuple[frozenset[str], frozenset[str]]:
        """Return the names of the files that the snapshot needs, and of those that its changelog needs."""
        store = context.shared(ManifestStore)
        names = {snapshot.base_manifest_list, snapshot.delta_manifest_list}
        names |= {meta.file_name for meta in table_manifests(store, snapshot)}
        for entry in live_entries(context, snapshot):
            names |= {entry.file.file_name, *entry.file.extra_files}
        changes = {entry.file.file_name for entry in changelog_entries(context, snapshot)}
        if (listed := changelog_list(snapshot)) is not None:
            changes |= {listed.name, *(meta.file_name for meta in store.read_list(listed))}
        if snapshot.index_manifest is not None:
            names.add(snapshot.index_manifest)
            names |= {entry.file.file_name for entry in read_index_manifest(context, snapshot.index_manifest)}
        return frozenset(names), frozenset(changes)

    def _fold(self, table: AuditedTable, context: TableContext, snapshot: Snapshot, has_level_0: bool) -> None:
        """Apply the snapshot's changelog to the copy, and compare the copy with the table."""
        if table.producer == "none":
            return
        number, copy = snapshot.id, table.folded
        if number in table.truncated_at:
            copy.clear()
        for batch in Table(context).changes(start=number, end=number):
            for row in batch.rows.to_pylist():
                key, values = row["id"], (row["note"], row["n"])
                problem = apply_change(copy, row["_VALUE_KIND"], key, values, is_exact=table.producer != "input")
                if problem:
                    self._fail(table, number, f"its changelog: {problem}")
        table.fold_at[number] = dict(copy)
        is_complete = table.producer == "input" or (
            not has_level_0 if table.producer == "lookup" else _is_fully_compacted(context, snapshot)
        )
        if is_complete:
            self._settle(table, copy)
            self._compare(table, number, "the sum of its changelog", copy, table.truth)

    def _compare(self, table: AuditedTable, number: int, what: str, found: Rows, truth: Rows) -> None:
        if found != truth:
            keys = sorted(key for key in {*found, *truth} if found.get(key) != truth.get(key))
            some = "; ".join(f"{key}: {_shown(found.get(key))} instead of {_shown(truth.get(key))}" for key in keys[:4])
            self._fail(table, number, f"{what} differ in {len(keys)} of {len(truth)} rows: {some}")

    # ------------------------------------------------------------ the end

    def check_leftovers(self, table: AuditedTable) -> None:
        """Check that each process that met no fault committed its files, or removed them."""
        committed = table.committed_names.union(*(branch.committed_names for branch in table.branches.values()))
        for rest, by in self._files(table):
            if rest.rpartition("/")[2] not in committed and by not in self._store.disturbed:
                raise Finding(f"{table.name}: {by} met no fault, and left {rest}, which no snapshot has")

    def check_dead_letters(self, ends: Mapping[TopicPartition, int], topic_id: str) -> None:
        """Check that each record that nobody can decode, and that the position is past, was kept once."""
        name = DEAD_LETTERS
        found: list[tuple[int, int]] = []
        if self._catalog.table_exists(name):
            rows = Table(self._catalog.load(name)).scan(columns=["partition", "offset"]).to_arrow().to_pylist()
            found = sorted((row["partition"], row["offset"]) for row in rows)
        partitions = self._log.topics[topic_id].items()
        # Of those that retention deleted it is unknown whether they were read before.
        expected = {
            (one.partition, at) for one, log in partitions for at in log.poisoned if log.first <= at < ends.get(one, 0)
        }
        if missing := expected - set(found):
            raise Finding(f"{name}: records {sorted(missing)} are neither in a table nor here")
        self._check_replayed(ends, topic_id)
        if len(self._log.topics) == 1 and len(set(found)) != len(found):
            raise Finding(f"{name}: records are here twice: {found}")

    def _check_replayed(self, ends: Mapping[TopicPartition, int], topic_id: str) -> None:
        """Check that the last replay has left only what nobody can decode, or what it may not decide."""
        if not self.is_replayed or not self._catalog.table_exists(DEAD_LETTERS):
            return
        rows = Table(self._catalog.load(DEAD_LETTERS)).scan(columns=["partition", "offset", "replayed_at"])
        for row in rows.to_arrow().to_pylist():
            name = TopicPartition(TOPIC, row["partition"])
            partition = self._log.topics[topic_id][name]
            is_decidable = row["offset"] in partition.too_large
            if is_decidable and row["offset"] + 1 < partition.first:
                continue  # retention may have deleted newer rows of its key
            if (row["replayed_at"] is None) == is_decidable:
                what = "was not replayed" if is_decidable else "was replayed, and nobody can decode it"
                raise Finding(f"{DEAD_LETTERS}: the record {row['partition']}:{row['offset']} {what}")

    def check_nothing_unreferenced(self, table: AuditedTable) -> None:
        """Check a table whose orphans were removed: only what a snapshot, a tag or a branch names is there."""
        named = set[str]()
        for one in (table, *table.branches.values()):
            # Also what an expiry that was killed left: the next one continues with it.
            prefix = f"{self._warehouse}/{table.name.replace('.', '.db/')}/{one.location}snapshot/snapshot-"
            kept = {number for number in one.mentioned_at if f"{prefix}{number}" in self._store.objects}
            named = named.union(*(one.mentioned_at[number] for number in kept | set(one.tags.values())))
        for rest, by in self._files(table):
            if rest.rpartition("/")[2] not in named:
                raise Finding(f"{table.name}: {rest} of {by} is left, although nothing names it")

    def _files(self, table: AuditedTable) -> list[tuple[str, str]]:
        """Return the files of rows, changes, indexes and manifests, each with the process that wrote it."""
        found = [(path, self._table_of(path), one.by) for path, one in self._store.objects.items()]
        ours = [(of[1], by) for path, of, by in found if of is not None and of[0] is table]
        return [(rest, by) for rest, by in ours if rest.startswith(("bucket-", "manifest/", "index/"))]

    def check_end(self, table: AuditedTable) -> None:
        """Check a table that nobody writes any more."""
        context = self.context(table.name)
        problems = verify(context, deep=True)
        if problems:
            raise Finding(f"{table.name}: verify says {[str(problem) for problem in problems[:3]]}")
        if table.has_log_rows and not self._log.is_read(table.name, table.topic_id, table.ends):
            raise Finding(f"{table.name}: it ends at {table.ends}, the log at {self._log.ends}")
        for one in (table, *table.branches.values()):
            if missing := one.planned.keys() - one.committed.keys():
                raise Finding(f"{one.name}: {sorted(missing)[:3]} were never committed")


def _shown(values: Values | None) -> str:
    """Return values as text, without most of a long note."""
    return str(values if values is None else (values[0] and values[0][:20], values[1]))


def _values(change: Change) -> Values | None:
    row = change[1]
    return None if row is None else (row["note"], row["n"])


def _set(rows: Rows, key: int, values: Values | None) -> None:
    if values is None:
        rows.pop(key, None)
    else:
        rows[key] = values


def _truncates(change: Change, table: str) -> bool:
    return change in TRUNCATES.values() and table_of(change) == table


def width_of(context: TableContext) -> str:
    """Return the type of the table's number."""
    (field_,) = [one for one in context.schema.fields if one.name == "n"]
    return str(field_.type).partition(" ")[0]


def _can_hold(context: TableContext, width: str) -> bool:
    return WIDTHS.index(width) <= WIDTHS.index(width_of(context))


def _only(number: int, found: Mapping[int, T]) -> dict[int, T]:
    return {one: found[one] for one in found if one == number}


def _branched(table: AuditedTable, branch: str, number: int) -> AuditedTable:
    """Return a new branch that begins with a snapshot of the table."""
    return AuditedTable(
        f"{table.name}$branch_{branch}",
        table.options,
        table.merge,
        planned={
            which: rows for which, rows in table.planned.items() if table.committed.get(which, number + 1) <= number
        },
        committed={which: at for which, at in table.committed.items() if at <= number},
        written=dict(table.written_at[number]),
        folded=dict(table.fold_at.get(number, {})),
        rows_at=_only(number, table.rows_at),
        fold_at=_only(number, table.fold_at),
        last_id=number,
        names_at=_only(number, table.names_at),
        change_names_at=_only(number, table.change_names_at),
        earliest=number,
        mentioned_at=_only(number, table.mentioned_at),
        location=f"branch/branch-{branch}/",
        is_settled=False,
        written_at=_only(number, table.written_at),
    )


def apply_change(copy: Rows, kind: int, key: int, values: Values, *, is_exact: bool) -> str | None:
    """Apply a row of a changelog to a copy of the table. Returns what is wrong with it; None if nothing is.

    is_exact: the row must say what the copy has.
    """
    old = copy.get(key)
    if kind in (0, 2):
        if is_exact and kind == 0 and old is not None:
            return f"+I of {key}, which exists"
        if is_exact and kind == 2 and old is not None:
            return f"+U of {key} without its -U"
        copy[key] = values
        return None
    if is_exact and old != values:
        return f"{'-U' if kind == 1 else '-D'} of {key} says {values}, and it was {old}"
    copy.pop(key, None)
    return None


def _is_fully_compacted(context: TableContext, snapshot: Snapshot) -> bool:
    top: Final = context.options.num_levels - 1
    return all(entry.file.level == top for entry in live_entries(context, snapshot))
