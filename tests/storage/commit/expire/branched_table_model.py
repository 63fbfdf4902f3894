"""A table's random history on several branches, and the naive model of the rows and files of each state.

Tags, branches and rollbacks are laid out as Java does, in the order in which it writes and deletes files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from random import Random

from tests.storage.commit.expire.table_model import BUCKETS, FILE_BYTES, NOON
from tests.storage.model.snapshots.tables import FakeTime, committer, data_file, make_table
from tidelake.storage.commit.commit_increment import CommitIncrement, CompactResult
from tidelake.storage.commit.commit_message import CommitBase, CommitMessage, Committable
from tidelake.storage.commit.expire.changelog_expiry import ChangelogExpiry
from tidelake.storage.commit.expire.retention import Retention
from tidelake.storage.commit.expire.snapshot_expiry import SnapshotExpiry
from tidelake.storage.commit.manifests.snapshot_files import changelog_entries, delta_entries, live_entries
from tidelake.storage.fileio.base import FileIO
from tidelake.storage.files.data_file import EMPTY_ROW, DataFileMeta
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.format import DEFAULT_BRANCH, CommitKind, FileKind
from tidelake.storage.model.options import ChangelogProducer
from tidelake.storage.model.snapshots.change_history import ChangelogStore
from tidelake.storage.model.snapshots.snapshot import Snapshot, SnapshotStore
from tidelake.storage.model.snapshots.tags import TagStore
from tidelake.storage.model.table import TableContext

Files = dict[tuple[int, str], DataFileMeta]  # by bucket and name


@dataclass
class State:
    """files: live files. changes: names of the files with its changes; None if these may have expired."""

    snapshot: Snapshot
    files: Files
    changes: frozenset[str] | None


@dataclass
class Line:
    """One branch: what must be readable of it."""

    table: TableContext
    states: dict[int, State] = field(default_factory=dict)
    tags: dict[str, State] = field(default_factory=dict)
    changelogs: dict[int, State] = field(default_factory=dict)
    expiry: SnapshotExpiry | None = None
    changelog_expiry: ChangelogExpiry | None = None

    @property
    def store(self) -> SnapshotStore:
        return self.table.snapshots

    @property
    def newest(self) -> State | None:
        return self.states[max(self.states)] if self.states else None

    @property
    def live(self) -> Files:
        return self.newest.files if self.newest is not None else {}


class BranchedLife:
    """Data files are made of nothing; that they are there is what matters. is_tame: nothing that leaves orphans."""

    def __init__(self, io: FileIO, location: str, seed: int, options: Mapping[str, str], *, is_tame: bool) -> None:
        options = {"manifest.merge-min-count": "3", **options}
        table = make_table(io, location, primary_key=True, options=options)
        self.io = io
        self.dice = Random(seed)
        self.time = FakeTime()
        self.lines = {DEFAULT_BRANCH: Line(table)}
        self.is_tame = is_tame
        self._numbers = count(1)
        self.done: list[str] = []

    @property
    def main(self) -> Line:
        return self.lines[DEFAULT_BRANCH]

    # ------------------------------------------------------------ what may happen

    def step(self) -> None:
        line = self.dice.choice(list(self.lines.values()))
        actions: list[Callable[[Line], None]] = [*[self.append] * 4, *[self.compact, self.upgrade, self.expire] * 2]
        actions += [self.overwrite, self.bring_back, self.tag, self.branch]
        if not self.is_tame:
            actions += [self.delete_tag, self.delete_branch, self.roll_back, self.roll_back_to_tag, self.fast_forward]
        action = self.dice.choice(actions)
        self.done.append(f"{line.table.branch}: {action.__name__}")
        action(line)

    def append(self, line: Line) -> None:
        bucket = self.dice.randrange(BUCKETS)
        new = [self._new_file("data", bucket) for _ in range(self.dice.randint(1, 3))]
        made = line.table.options.changelog_producer is not ChangelogProducer.NONE
        changelog = [self._new_file("changelog", bucket)] if made and self.dice.random() < 0.8 else []
        message = CommitMessage(
            BucketId(EMPTY_ROW, bucket), CommitIncrement(new_files=tuple(new), changelog_files=tuple(changelog))
        )
        after = line.live | {(bucket, file.file_name): file for file in new}
        self._commit(line, message, after, changelog if made else new)

    def compact(self, line: Line) -> None:
        bucket, files = self._some_files(line)
        if files:
            new = self._new_file("data", bucket, level=5)
            message = CommitMessage(
                BucketId(EMPTY_ROW, bucket), CommitIncrement(compacted=CompactResult(before=tuple(files), after=(new,)))
            )
            self._commit(line, message, _without(line.live, bucket, files) | {(bucket, new.file_name): new})

    def upgrade(self, line: Line) -> None:
        bucket, files = self._some_files(line)
        if files:
            new = replace(files[0], level=4 if files[0].level != 4 else 3)
            message = CommitMessage(
                BucketId(EMPTY_ROW, bucket), CommitIncrement(compacted=CompactResult(before=(files[0],), after=(new,)))
            )
            self._commit(line, message, _without(line.live, bucket, files[:1]) | {(bucket, new.file_name): new})

    def overwrite(self, line: Line) -> None:
        bucket = self.dice.randrange(BUCKETS)
        new = self._new_file("data", bucket)
        message = CommitMessage(BucketId(EMPTY_ROW, bucket), CommitIncrement(new_files=(new,)))
        self._publish(line, lambda commit: commit.overwrite(Committable(next(self._numbers), [message])))
        self._note(line, {(bucket, new.file_name): replace(new, level=5)}, ())

    def bring_back(self, line: Line) -> None:
        """A rollback as a new snapshot."""
        targets = [*line.states.values(), *line.tags.values()]
        target = self.dice.choice(targets).files if targets else {}
        live, messages = line.live, []
        for bucket in range(BUCKETS):
            new = [f for (b, n), f in target.items() if b == bucket and live.get((b, n)) != f]
            old = [f for (b, n), f in live.items() if b == bucket and target.get((b, n)) != f]
            if new and not old:
                return  # would be an APPEND; a rollback always says OVERWRITE
            if old:
                messages.append(
                    CommitMessage(
                        BucketId(EMPTY_ROW, bucket),
                        CommitIncrement(new_files=tuple(new), deleted_files=tuple(old)),
                        CommitBase(snapshot_id=max(line.states)),
                    )
                )
        if messages:
            self._publish(line, lambda commit: commit.commit(Committable(next(self._numbers), messages)))
            self._note(line, dict(target), ())

    def tag(self, line: Line) -> None:
        if line.states:
            state = line.states[self.dice.choice(sorted(line.states))]
            name = f"t{next(self._numbers)}"
            TagStore(self.io, line.table.paths).create(name, state.snapshot, now=NOON)
            line.tags[name] = state

    def delete_tag(self, line: Line) -> None:
        if line.tags:
            name = self.dice.choice(sorted(line.tags))
            self.io.delete(line.table.paths.tag(name))
            del line.tags[name]

    def branch(self, line: Line) -> None:
        """Empty, from a tag, or from a snapshot; of main, as in Java."""
        if len(self.lines) > 3:
            return
        name = f"b{next(self._numbers)}"
        paths = self.main.table.paths.for_branch(name)
        self.io.write(paths.schema(0), self.io.read(self.main.table.paths.schema(0)))
        new = Line(TableContext.open(self.io, self.main.table.location, "db.t", branch=name))
        origins: list[tuple[str | None, State]] = [*self.main.tags.items()]
        origins += [(None, state) for state in self.main.states.values()]
        if origins and self.dice.random() < 0.8:
            tag, state = self.dice.choice(origins)
            held = self.main.states.get(state.snapshot.id) or self.main.changelogs.get(state.snapshot.id)
            changes = held.changes if held is not None and held.snapshot == state.snapshot else None
            text = state.snapshot.to_json().encode()
            self.io.write(paths.snapshot(state.snapshot.id), text)
            new.states[state.snapshot.id] = State(state.snapshot, state.files, changes)
            if tag is not None:
                self.io.write(paths.tag(tag), text)
                new.tags[tag] = state
        self.lines[name] = new

    def delete_branch(self, line: Line) -> None:
        if line is not self.main:
            self.io.delete_directory(line.table.paths.branch_root(line.table.branch))
            del self.lines[line.table.branch]

    def roll_back(self, line: Line) -> None:
        if line.states:
            self._cut(line, self.dice.choice(sorted(line.states)))

    def roll_back_to_tag(self, line: Line) -> None:
        if not line.tags:
            return
        state = line.tags[self.dice.choice(sorted(line.tags))]
        snapshot_id = state.snapshot.id
        self._cut(line, snapshot_id)
        line.expiry = line.changelog_expiry = None  # jobs must be restarted after a rollback
        if snapshot_id not in line.states:
            kept = line.changelogs.get(snapshot_id)
            line.states[snapshot_id] = State(state.snapshot, state.files, kept.changes if kept else None)
            self.io.write(line.table.paths.snapshot(snapshot_id), state.snapshot.to_json().encode())
            self.io.write(line.table.paths.earliest_hint, str(snapshot_id).encode())
            self.io.write(line.table.paths.latest_hint, str(snapshot_id).encode())

    def fast_forward(self, line: Line) -> None:
        """Main becomes what the branch is; where that is a history without a gap."""
        main = self.main
        if line is main or not line.states:
            return
        first = min(line.states)
        below = [i for i in main.states if i < first]
        if below and (max(below) != first - 1 or main.states.get(first) != line.states[first]):
            return
        self.io.delete(main.table.paths.latest_hint)
        for i in [i for i in main.store.ids() if i >= first]:
            self.io.delete(main.table.paths.snapshot(i))
            main.states.pop(i, None)
        for name in [name for name, tag in main.tags.items() if tag.snapshot.id >= first]:
            self.io.delete(main.table.paths.tag(name))
            del main.tags[name]
        for i, state in line.states.items():
            self.io.write(main.table.paths.snapshot(i), state.snapshot.to_json().encode())
            main.states[i] = state
        for name, tag in line.tags.items():
            self.io.write(main.table.paths.tag(name), tag.snapshot.to_json().encode())
            main.tags[name] = tag
        hint = main.store.earliest_hint()
        if hint in main.states:
            main.states = {i: state for i, state in main.states.items() if i >= hint}
        main.changelogs = {i: state for i, state in main.changelogs.items() if i < min(main.states)}
        main.expiry = main.changelog_expiry = None

    def expire(self, line: Line) -> None:
        least = self.dice.randint(1, 4)
        snapshots = Retention(least, least + self.dice.choice([0, 3]), 0, self.dice.randint(1, 6))
        more = self.dice.randint(1, 4)
        self.expire_to(line, snapshots, Retention(least, least + more, 0, self.dice.randint(1, 6)))

    def expire_to(self, line: Line, snapshots: Retention, changelogs: Retention) -> None:
        """By the same object as last time, which remembers, or by a new one."""
        if line.expiry is None or line.changelog_expiry is None or self.dice.random() < 0.5:
            line.expiry = SnapshotExpiry(line.table, now_ms=lambda: self.time.now_ms)
            line.changelog_expiry = ChangelogExpiry(line.table, now_ms=lambda: self.time.now_ms)
        line.expiry._retention, line.changelog_expiry._retention = snapshots, changelogs
        before = dict(line.states)
        line.expiry.run()
        latest = line.store.latest_id()
        if latest is not None and line.expiry.keeps_changelogs():
            line.changelogs |= {i: state for i, state in before.items() if i not in line.store.ids()}
            line.changelog_expiry.run(latest)
        there, changelogs_there = line.store.ids(), ChangelogStore(self.io, line.table.paths).ids()
        line.states = {i: state for i, state in before.items() if i in there}
        line.changelogs = {i: state for i, state in line.changelogs.items() if i in changelogs_there}
        assert len(line.states) >= min(len(before), snapshots.num_min)

    # ------------------------------------------------------------ what must hold

    def check(self) -> None:
        """Every state that is held, on every branch, is read to the end."""
        there = self.files_that_are_there()
        for branch, line in self.lines.items():
            assert [i for i in line.store.ids() if i in line.states] == sorted(line.states), branch
            for state in (*line.states.values(), *line.tags.values()):
                found = {entry.file.file_name for entry in live_entries(line.table, state.snapshot)}
                assert found == {name for _, name in state.files}, (branch, state.snapshot.id)
                assert found <= there, (branch, state.snapshot.id)
            for state in (*line.states.values(), *line.changelogs.values()):
                if state.changes is not None:
                    assert self._changes(line, state.snapshot) == state.changes, (branch, state.snapshot.id)
                    assert state.changes <= there, (branch, state.snapshot.id)

    def files_that_are_there(self) -> set[str]:
        root = self.main.table.location
        buckets = (self.io.list_directory(f"{root}/bucket-{bucket}") for bucket in range(BUCKETS))
        return {status.name for statuses in buckets for status in statuses}

    def _changes(self, line: Line, snapshot: Snapshot) -> set[str]:
        if line.table.options.changelog_producer is not ChangelogProducer.NONE:
            entries = changelog_entries(line.table, snapshot)
        else:
            entries = delta_entries(line.table, snapshot) if snapshot.commit_kind is CommitKind.APPEND else []
        return {entry.file.file_name for entry in entries if entry.kind is FileKind.ADD}

    # ------------------------------------------------------------ small things

    def _cut(self, line: Line, last: int) -> None:
        paths = line.table.paths
        self.io.write(paths.latest_hint, str(last).encode())
        for i in reversed([i for i in line.store.ids() if i > last]):
            self.io.delete(paths.snapshot(i))
        for i in [i for i in ChangelogStore(self.io, paths).ids() if i > last]:
            self.io.delete(paths.changelog(i))
        for name in [name for name, tag in line.tags.items() if tag.snapshot.id > last]:
            self.io.delete(paths.tag(name))
            del line.tags[name]
        line.states = {i: state for i, state in line.states.items() if i <= last}
        line.changelogs = {i: state for i, state in line.changelogs.items() if i <= last}

    def _new_file(self, kind: str, bucket: int, level: int = 0) -> DataFileMeta:
        number = next(self._numbers)
        made_ms = self.time.now_ms
        name = f"{kind}-{number}.parquet"
        file = data_file(name, level=level, keys=(number, number), file_size=FILE_BYTES, creation_time_ms=made_ms)
        self.io.write(f"{self.main.table.location}/bucket-{bucket}/{name}", bytes(FILE_BYTES))
        return file

    def _some_files(self, line: Line) -> tuple[int, list[DataFileMeta]]:
        bucket = self.dice.randrange(BUCKETS)
        files = [file for (b, _), file in sorted(line.live.items()) if b == bucket]
        return bucket, self.dice.sample(files, min(len(files), self.dice.randint(1, 3)))

    def _commit(self, line: Line, message: CommitMessage, after: Files, changes: Sequence[DataFileMeta] = ()) -> None:
        message = replace(message, base=CommitBase(max(line.states, default=None)))
        self._publish(line, lambda commit: commit.commit(Committable(next(self._numbers), [message])))
        self._note(line, after, changes)

    def _publish(self, line: Line, commit: Callable[..., int | None]) -> None:
        self.time.now_ms += self.dice.choice([1_000, 3_600_000, 40 * 3_600_000])
        before, live = max(line.states, default=0), line.live
        last = commit(committer(line.table, f"user-{next(self._numbers)}", time=self.time))
        assert last is not None
        for i in range(before + 1, last):  # a compaction is preceded by an empty snapshot of what was written
            line.states[i] = State(line.store.get(i), live, frozenset())

    def _note(self, line: Line, after: Files, changes: Sequence[DataFileMeta]) -> None:
        newest = line.store.latest()
        assert newest is not None
        line.states[newest.id] = State(newest, after, frozenset(file.file_name for file in changes))


def _without(live: Files, bucket: int, files: Sequence[DataFileMeta]) -> Files:
    names = {(bucket, file.file_name) for file in files}
    return {key: file for key, file in live.items() if key not in names}
