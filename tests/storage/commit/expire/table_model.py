"""A table's random history, and the naive model of the files of each snapshot and tag."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import count
from random import Random

from tests.storage.model.snapshots.tables import FakeTime, committer, data_file, latest, make_table, snapshots
from tidelake.storage.commit.commit_increment import CommitIncrement, CompactResult
from tidelake.storage.commit.commit_message import CommitBase, CommitMessage, Committable
from tidelake.storage.commit.expire.retention import Retention
from tidelake.storage.fileio.base import FileIO
from tidelake.storage.files.data_file import EMPTY_ROW, DataFileMeta
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.snapshots.consumers import Consumer
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.snapshots.tags import TagStore
from tidelake.storage.model.table import TableContext

NOON = datetime(2026, 5, 1, 12)
FILE_BYTES = 100
BUCKETS = 2
EVERYTHING_GOES = Retention(num_min=1, num_max=1, time_ms=0, limit=1000)

Files = dict[tuple[int, str], DataFileMeta]  # by bucket and name


@dataclass
class TableLife:
    """states, changelogs: of each snapshot that has not expired, as far as the model knows. tags, consumers: by name.

    Data files are made of nothing; that they are there, and of their size, is what matters.
    """

    table: TableContext
    dice: Random
    time: FakeTime = field(default_factory=FakeTime)
    states: dict[int, Files] = field(default_factory=dict)
    changelogs: dict[int, set[str]] = field(default_factory=dict)
    times_ms: dict[int, int] = field(default_factory=dict)
    tags: dict[str, tuple[int, Files]] = field(default_factory=dict)
    consumers: dict[str, int] = field(default_factory=dict)
    gone: dict[int, Files] = field(default_factory=dict)
    _numbers: count[int] = field(default_factory=lambda: count(1))

    @property
    def live(self) -> Files:
        return self.states[max(self.states)] if self.states else {}

    # ------------------------------------------------------------ what may happen

    def step(self) -> None:
        actions: list[Callable[[], None]] = [self.append] * 4 + [self.compact, self.upgrade] * 2
        actions += [self.overwrite, self.truncate, self.tag, self.consume, self.bring_back]
        self.dice.choice(actions)()

    def append(self) -> None:
        """Some level-0 files, in one of two commits with a changelog."""
        bucket = self.dice.randrange(BUCKETS)
        new = [self._new_file("data", bucket) for _ in range(self.dice.randint(1, 3))]
        changelog = [self._new_file("changelog", bucket)] if self.dice.random() < 0.5 else []
        message = CommitMessage(
            BucketId(EMPTY_ROW, bucket), CommitIncrement(new_files=tuple(new), changelog_files=tuple(changelog))
        )
        after = self.live | {(bucket, file.file_name): file for file in new}
        self._commit(message, after, {file.file_name for file in changelog})

    def compact(self) -> None:
        """Some files of a bucket become one."""
        bucket, files = self._some_files()
        if not files:
            return
        new = self._new_file("data", bucket, level=5)
        message = CommitMessage(
            BucketId(EMPTY_ROW, bucket), CommitIncrement(compacted=CompactResult(before=tuple(files), after=(new,)))
        )
        self._commit(message, self._without(bucket, files) | {(bucket, new.file_name): new})

    def upgrade(self) -> None:
        """A file moves to another level and keeps its name."""
        bucket, files = self._some_files()
        if not files:
            return
        old = files[0]
        new = replace(old, level=4 if old.level != 4 else 3)
        message = CommitMessage(
            BucketId(EMPTY_ROW, bucket), CommitIncrement(compacted=CompactResult(before=(old,), after=(new,)))
        )
        self._commit(message, self._without(bucket, [old]) | {(bucket, new.file_name): new})

    def overwrite(self) -> None:
        self.overwrite_bucket(self.dice.randrange(BUCKETS))

    def overwrite_bucket(self, bucket: int) -> None:
        """Removes all files of the table, and adds one file of this bucket."""
        new = self._new_file("data", bucket)
        message = CommitMessage(BucketId(EMPTY_ROW, bucket), CommitIncrement(new_files=(new,)))
        self._publish(lambda commit: commit.overwrite(Committable(next(self._numbers), [message])))
        self._note({(bucket, new.file_name): replace(new, level=5)})  # option overwrite-upgrade

    def truncate(self) -> None:
        self._publish(lambda commit: commit.truncate(next(self._numbers)))
        self._note({})

    def bring_back(self) -> None:
        """A rollback as a new snapshot: files that were deleted are named again, while something still keeps them."""
        target = self.dice.choice([*self.states.values(), *(files for _, files in self.tags.values())] or [{}])
        live = self.live
        messages = []
        for bucket in range(BUCKETS):
            new = [f for (b, n), f in target.items() if b == bucket and live.get((b, n)) != f]
            old = [f for (b, n), f in live.items() if b == bucket and target.get((b, n)) != f]
            if old:
                base = max(self.states)
                messages.append(
                    CommitMessage(
                        BucketId(EMPTY_ROW, bucket),
                        CommitIncrement(new_files=tuple(new), deleted_files=tuple(old)),
                        CommitBase(snapshot_id=base),
                    )
                )
            elif new:
                return  # would be an APPEND; a rollback always says OVERWRITE
        if messages:
            self._publish(lambda commit: commit.commit(Committable(next(self._numbers), messages)))
            self._note(dict(target))

    def restore(self, bucket: int, files: list[DataFileMeta]) -> None:
        """These files instead of all that the bucket has now."""
        old = [file for (b, _), file in self.live.items() if b == bucket]
        message = CommitMessage(
            BucketId(EMPTY_ROW, bucket), CommitIncrement(new_files=tuple(files), deleted_files=tuple(old))
        )
        self._commit(message, self._without(bucket, old) | {(bucket, file.file_name): file for file in files})

    def tag(self) -> None:
        if not self.states:
            return
        snapshot_id = self.dice.choice(sorted(self.states))
        name = f"t{next(self._numbers)}"
        snapshot = next(s for s in self._snapshots() if s.id == snapshot_id)
        TagStore(self.table.io, self.table.paths).create(name, snapshot, now=NOON)
        self.tags[name] = snapshot_id, self.states[snapshot_id]

    def consume(self) -> None:
        """Creates, advances or deletes a consumer."""
        name = self.dice.choice(["a", "b"])
        if name in self.consumers and self.dice.random() < 0.7:
            self.table.io.delete(self.table.paths.consumer(name))
            del self.consumers[name]
        elif self.states:
            self.consumers[name] = self.dice.choice([*sorted(self.states), max(self.states) + 1])
            Consumer(self.table.io, self.table.paths, name).write(self.consumers[name])

    # ------------------------------------------------------------ what expiry must do

    def expected_to_go(self, retention: Retention, pins: tuple[int, ...] = ()) -> list[int]:
        """Straight from the words of the options."""
        ids = sorted(self.states)
        going: list[int] = []
        for snapshot_id in ids:
            newest_stay = snapshot_id > ids[-1] - max(retention.num_min, 1)
            too_many = snapshot_id <= ids[-1] - retention.num_max
            followed_ms = self.times_ms.get(snapshot_id + 1, 2**62)
            too_young = followed_ms >= self.time.now_ms - retention.time_ms
            needed = any(snapshot_id >= n for n in (*pins, *self.consumers.values()))
            if newest_stay or needed or (too_young and not too_many) or len(going) == retention.limit:
                break
            going.append(snapshot_id)
        return going

    def expired(self, ids: list[int]) -> None:
        for snapshot_id in ids:
            self.gone[snapshot_id] = self.states.pop(snapshot_id)
            self.changelogs.pop(snapshot_id, None)

    def files_that_must_be_there(self) -> set[str]:
        states = [*self.states.values(), *(files for _, files in self.tags.values())]
        return {name for files in states for _, name in files}.union(*self.changelogs.values())

    def files_that_are_there(self) -> set[str]:
        root = self.table.location
        return {
            status.name
            for bucket in range(BUCKETS)
            for status in self.table.io.list_directory(f"{root}/bucket-{bucket}")
        }

    # ------------------------------------------------------------ small things

    def _new_file(self, kind: str, bucket: int, level: int = 0) -> DataFileMeta:
        number = next(self._numbers)
        file = data_file(f"{kind}-{number}.parquet", level=level, keys=(number, number), file_size=FILE_BYTES)
        self.table.io.write(f"{self.table.location}/bucket-{bucket}/{file.file_name}", bytes(FILE_BYTES))
        return file

    def _some_files(self) -> tuple[int, list[DataFileMeta]]:
        bucket = self.dice.randrange(BUCKETS)
        files = [file for (b, _), file in sorted(self.live.items()) if b == bucket]
        return bucket, self.dice.sample(files, min(len(files), self.dice.randint(1, 3)))

    def _without(self, bucket: int, files: list[DataFileMeta]) -> Files:
        names = {(bucket, file.file_name) for file in files}
        return {key: file for key, file in self.live.items() if key not in names}

    def _commit(self, message: CommitMessage, after: Files, changelog: set[str] | None = None) -> None:
        message = replace(message, base=CommitBase(max(self.states, default=None)))
        self._publish(lambda commit: commit.commit(Committable(next(self._numbers), [message])))
        self._note(after, changelog)

    def _publish(self, commit: Callable[..., int | None]) -> None:
        self.time.now_ms += self.dice.choice([1_000, 60_000, 600_000])
        before = max(self.states, default=0)
        kinds = commit(committer(self.table, time=self.time))
        assert kinds is not None
        for snapshot in self._snapshots():  # a compaction is preceded by an empty snapshot of what was written
            if before < snapshot.id < kinds:
                self.states[snapshot.id] = dict(self.live)
                self.times_ms[snapshot.id] = snapshot.time_ms

    def _note(self, after: Files, changelog: set[str] | None = None) -> None:
        newest = latest(self.table)
        self.states[newest.id] = after
        self.times_ms[newest.id] = newest.time_ms
        if changelog:
            self.changelogs[newest.id] = changelog

    def _snapshots(self) -> list[Snapshot]:
        return snapshots(self.table)


def new_life(io: FileIO, location: str, seed: int, options: dict[str, str] | None = None) -> TableLife:
    table = make_table(io, location, primary_key=True, options={"manifest.merge-min-count": "3", **(options or {})})
    return TableLife(table, Random(seed))
