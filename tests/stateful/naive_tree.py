"""The expected rows of every data file of a table, computed row by row from its input.

The model is told of every flush and every compaction, merges the same rows by the naive engines of `tests.support`, and
looks into the files that were made. So each step of a tree's life is checked, not only what readers see in the end.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Final, TypeAlias

from tests.stateful.compaction_steps import CompactionSteps, Merge
from tests.support.merge_engines import COLUMNS, KIND, Engine
from tests.support.row_aggregation import aggregate_row_by_row, aggregate_without_shortcut
from tests.support.row_merge import Record, merge_row_by_row, merge_without_shortcut
from tidelake.storage.commit.manifests.manifest_entry import ManifestEntry
from tidelake.storage.commit.manifests.snapshot_files import delta_entries, live_entries
from tidelake.storage.files.bucket_directory import partition_directory
from tidelake.storage.files.data_file import DataFileMeta
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.format import KIND_COLUMN, SEQUENCE_COLUMN, CommitKind, FileKind, FileSource, RowKind
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext
from tidelake.storage.write.bucket_files import BucketFiles

Key: TypeAlias = tuple[str, int]  # partition, k
Place: TypeAlias = tuple[str, int]  # partition, bucket
Content: TypeAlias = dict[Key, Record]

TYPES: Final = {"p": "STRING", **{name: sql for name, (sql, _) in COLUMNS.items()}}


def key_of(record: Record) -> Key:
    return record.row["p"], record.row["k"]


def place_of(context: TableContext, key: BucketId) -> Place:
    return partition_directory(context, key.partition), key.bucket


@dataclass(frozen=True)
class NaiveMerge:
    """shortcut: whether a record that is alone comes out as it is."""

    engine: Engine
    shortcut: bool = True

    def __call__(self, records: Iterable[Record]) -> Content:
        """One record a key, deletes included. records: in any order."""
        merged = {}
        for key, versions in groupby(self.in_order(records), key_of):
            record = self._one(list(versions))
            if record is not None:
                merged[key] = record
        return merged

    def in_order(self, records: Iterable[Record]) -> list[Record]:
        return sorted(records, key=lambda record: (key_of(record), self._order(record)))

    def _one(self, records: Sequence[Record]) -> Record | None:
        options = self.engine.options
        if self.engine.name == "aggregation":
            aggregate = aggregate_row_by_row if self.shortcut else aggregate_without_shortcut
            return aggregate(options, TYPES, ("p", "k"), records)
        merge = merge_row_by_row if self.shortcut else merge_without_shortcut
        return merge(self.engine.name, options, list(TYPES), "k", records)

    def _order(self, record: Record) -> list[Any]:
        """Nulls come first, whichever way the table sorts."""
        options = self.engine.options
        names = [name for name in options.get("sequence.field", "").split(",") if name]
        sign = -1 if options.get("sequence.field.sort-order") == "descending" else 1
        values = [record.row[name] for name in names]
        return [*((0, 0) if value is None else (1, sign * int(value)) for value in values), record.sequence]


@dataclass
class NaiveTree:
    """files: what is in every file that was ever made, by name. live: name -> level, as of the newest snapshot.

    looks_up: whether a row that leaves level 0 takes the rows above it into account, so that readers need only the
    lowest level of a key. Sequence numbers are the model's own: they count rows as they arrive, for ever.
    """

    context: TableContext
    engine: Engine
    looks_up: bool = False
    files: dict[str, Content] = field(default_factory=dict)
    live: dict[Place, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))
    pending: dict[Place, list[Record]] = field(default_factory=lambda: defaultdict(list))
    last_snapshot: int = 0
    _arrived: int = 0

    def __post_init__(self) -> None:
        self.merge = NaiveMerge(self.engine)
        self.merge_all = NaiveMerge(self.engine, shortcut=False)

    # ------------------------------------------------------------ what happens

    def write(self, rows: Iterable[Mapping[str, Any]], buckets: int) -> list[Record]:
        """Rows in a writer's buffer. Returns those that the table takes."""
        taken = []
        for row in rows:
            record = Record(RowKind(row[KIND]).symbol, self._arrived, {name: row[name] for name in TYPES})
            self._arrived += 1
            if not self._is_dropped(record):
                taken.append(record)
                directory = f"p={row['p'].replace('/', '%2F')}" if self.context.schema.partition_keys else ""
                self.pending[directory, row["k"] % buckets].append(record)
        return taken

    def flushed(self, key: BucketId, files: Sequence[DataFileMeta]) -> None:
        """A flush writes one run, or several where a retract would be lost if it were merged without older rows."""
        pending = self.pending.pop(place_of(self.context, key), [])
        runs = self._flushed_runs(key, files)
        if len(runs) <= 1:
            expected = self.merge(pending)
            _check_same(self._contents(key, files), expected, f"a flush to {_names(files)}")
            self._keep(key, files, expected)
            return
        assert not self.engine.is_associative, f"{len(runs)} runs of one flush, though merging first loses nothing"
        contents = [self._contents(key, run) for run in runs]
        expected_runs: list[Content] = [{} for _ in runs]
        for of, versions in groupby(self.merge.in_order(pending), key_of):
            places = [place for place, content in enumerate(contents) if of in content]
            found = [contents[place].pop(of) for place in places]
            divided = self._divided(list(versions), found)
            assert divided is not None, f"a flush to {_names(files)} has {found} for {of}"
            for place, record in zip(places, divided, strict=True):
                expected_runs[place][of] = record
        assert not any(contents), "a flush wrote keys that it was not given"
        for run, expected in zip(runs, expected_runs, strict=True):
            self._keep(key, run, expected)

    def _flushed_runs(self, key: BucketId, files: Sequence[DataFileMeta]) -> list[list[DataFileMeta]]:
        """Files of one run follow each other in key order, and share no key."""
        runs: list[list[DataFileMeta]] = []
        newest: Key | None = None
        for file in files:
            keys = self._content(key, file).keys()
            if newest is None or min(keys) <= newest:
                runs.append([])
            runs[-1].append(file)
            newest = max(keys)
        return runs

    def _divided(self, versions: Sequence[Record], found: Sequence[Record]) -> list[Record] | None:
        """Divide the versions of a key into consecutive parts that merge to these records; None if they can't."""
        if len(found) == 1:
            (merged,) = self.merge(versions).values()
            return [merged] if _plain(merged) == _plain(found[0]) else None
        for count in range(1, len(versions)):
            (merged,) = self.merge(versions[:count]).values()
            if _plain(merged) == _plain(found[0]):
                rest = self._divided(versions[count:], found[1:])
                if rest is not None:
                    return [merged, *rest]
        return None

    def compacted(
        self,
        key: BucketId,
        before: Sequence[DataFileMeta],
        after: Sequence[DataFileMeta],
        others: Mapping[str, int],
    ) -> None:
        """others: levels, by name, of the other files in the compacted tree."""
        read, made = _names(before), _names(after)
        new = [file for file in after if file.file_name not in read]
        rewritten = {file.file_name: file.level for file in before if file.file_name not in made}
        above = {name: level for name, level in others.items() if after and level > after[0].level}
        kept_deletes = [file for file in new if _holds_dropped_deletes(file)]
        kept_deletes.sort(key=lambda file: file.max_sequence_number, reverse=True)
        written = self._runs([file for file in new if file not in kept_deletes])
        runs = [*written, *([file] for file in kept_deletes)]  # the newest first; each compaction kept its own deletes
        contents = [self._contents(key, run) for run in runs]
        deletes: Content = {}
        for content in reversed(contents[len(written) :]):
            deletes |= content
        assert all(record.retracts for record in deletes.values())
        found = self._seen([*contents[: len(written)], deletes])
        expected = self._compacted(rewritten, above, found)
        missing = [record for key, record in expected.items() if key not in found]
        for record in missing:
            assert self._may_go(record, others), f"lost in compaction: {record}"
        kept = {of: record for of, record in expected.items() if of in found}
        in_steps = self._in_steps(kept, found, contents, {**rewritten, **above})
        _check_same(_without(in_steps, found), _without(in_steps, kept), f"a compaction of {read}")
        newer: Counter[Key] = Counter()
        for run, content in zip(runs, contents, strict=True):
            reported = {of: replace(r, sequence=kept[of].sequence - newer[of]) for of, r in content.items()}
            self._keep(key, run, reported)
            newer.update(content.keys())

    @staticmethod
    def _runs(files: Iterable[DataFileMeta]) -> list[list[DataFileMeta]]:
        """Compactions that follow each other within one commit may write to different levels."""
        by_level = sorted(files, key=lambda file: file.level)
        return [list(run) for _, run in groupby(by_level, lambda file: file.level)]

    def _seen(self, runs: Sequence[Content]) -> Content:
        """What readers make of runs. The last of them are deletes that a compaction left out."""
        *rows, seen = runs
        for number, run in enumerate(reversed(rows)):
            knows_what_is_below = self.looks_up and number > 0
            seen = seen | run | ({} if knows_what_is_below else self._on_top(seen, run))
        return seen

    def _in_steps(
        self, expected: Content, found: Content, runs: Sequence[Content], files: Mapping[str, int]
    ) -> set[Key]:
        """Keys that hold another row than merging all at once gives, as compactions one after the other may."""
        if self.engine.is_associative:
            return set()
        steps = CompactionSteps([self._merged_in_one(self.merge), self._merged_in_one(self.merge_all)])
        keys = set()
        for of in expected.keys() & found.keys():
            if _plain(expected[of]) != _plain(found[of]):
                levels = [(level, self.files[name][of]) for name, level in files.items() if of in self.files[name]]
                versions = _newest_levels(levels) if self.looks_up else [record for _, record in levels]
                versions.sort(key=lambda record: record.sequence)
                if steps.explain([run[of] for run in reversed(runs) if of in run], versions):
                    keys.add(of)
        return keys

    @staticmethod
    def _merged_in_one(merge: NaiveMerge) -> Merge:
        return lambda records: next(iter(merge(records).values()), None)

    def _on_top(self, below: Content, above: Content) -> Content:
        both = [(below[of], replace(above[of], sequence=1)) for of in below.keys() & above.keys()]
        merged = self.merge(record for pair in both for record in pair)
        return {of: replace(record, sequence=0) for of, record in merged.items()}

    def look(self) -> None:
        """Takes in the snapshots that came since the last time."""
        store = self.context.snapshots
        snapshots = [s for s in store.all() if s.id > self.last_snapshot]
        for snapshot in snapshots:
            assert snapshot.id == self.last_snapshot + 1
            self._take_in(snapshot)
        if snapshots:
            live = [(place_of(self.context, e.bucket_id), e) for e in self._entries(snapshots[-1])]
            reported = {(place, e.file.file_name, e.file.level) for place, e in live}
            assert reported == {(place, *file) for place, files in self.live.items() for file in files.items()}
            assert len(reported) == len(live), "a file is there twice"

    def _compacted(self, files: Mapping[str, int], above: Mapping[str, int], found: Content) -> Content:
        """A single row that did not leave level 0 may stay as it is: files that did may have been rewritten apart."""
        of_level_0 = {key for name, level in files.items() if not level for key in self.files[name]}
        if not self.looks_up or not of_level_0:
            return self._merged(files, {})
        expected = self._merged(files, above, shortcut=False)
        stay = {key: record for key, record in self._merged(files, {}).items() if key not in of_level_0}
        expected |= {key: record for key, record in stay.items() if _plain(found.get(key)) == _plain(record)}
        return expected

    def _merged(self, files: Mapping[str, int], above: Mapping[str, int], *, shortcut: bool = True) -> Content:
        """The keys of some files. above: files to look their keys up in, where the table wants that.

        shortcut: whether a row that is the only one of its key comes out as it is.
        """
        if not self.looks_up:
            return self.merge(record for name in files for record in self.files[name].values())
        levels: dict[Key, list[tuple[int, Record]]] = defaultdict(list)
        for name, level in files.items():
            for key, record in self.files[name].items():
                levels[key].append((level, record))
        for name, level in above.items():
            for key in levels.keys() & self.files[name].keys():
                levels[key].append((level, self.files[name][key]))
        merged: Content = {}
        for of_key in levels.values():
            merge = self.merge if shortcut and len(of_key) == 1 else self.merge_all
            merged |= merge(_newest_levels(of_key))
        return merged

    # ------------------------------------------------------------ what readers see

    def rows(self) -> list[Mapping[str, Any]]:
        return [record.row for files in self.live.values() for record in self._visible(files)]

    def _visible(self, files: Mapping[str, int]) -> Iterable[Record]:
        if self.engine.name == "first-row":  # not merged: level 0 is hidden, and above it no key is twice
            return [record for name, level in files.items() if level for record in self.files[name].values()]
        return [record for record in self._merged(files, {}).values() if not record.retracts]

    @property
    def hides_rows(self) -> bool:
        """Whether something waits for a compaction before readers see it."""
        return self.engine.name == "first-row" and any(0 in files.values() for files in self.live.values())

    # ------------------------------------------------------------ files

    def _take_in(self, snapshot: Snapshot) -> None:
        by_bucket: dict[BucketId, list[ManifestEntry]] = defaultdict(list)
        for entry in delta_entries(self.context, snapshot):
            by_bucket[entry.bucket_id].append(entry)
        for key, entries in by_bucket.items():
            files = self.live[place_of(self.context, key)]
            gone = [e.file for e in entries if e.kind is FileKind.DELETE]
            come = [e.file for e in entries if e.kind is FileKind.ADD]
            for file in gone:
                assert files.pop(file.file_name) == file.level
            if any(file.file_name not in self.files for file in come):
                assert snapshot.commit_kind is CommitKind.COMPACT
                self.compacted(key, gone, come, files)
            for file in come:
                files[file.file_name] = file.level
                if file.level == self.context.options.num_levels - 1:
                    assert not any(r.retracts for r in self.files[file.file_name].values()), (
                        "a delete that hides nothing"
                    )
        self.last_snapshot = snapshot.id

    def _entries(self, snapshot: Snapshot) -> list[ManifestEntry]:
        return live_entries(self.context, snapshot)

    def _contents(self, key: BucketId, files: Iterable[DataFileMeta]) -> dict[Key, Record]:
        """Without sequence numbers."""
        found: dict[Key, Record] = {}
        for file in files:
            for of, record in self._content(key, file).items():
                assert of not in found, f"{of} is in two files of one run"
                found[of] = record
        return found

    def _content(self, key: BucketId, file: DataFileMeta) -> dict[Key, Record]:
        found = {}
        for batch in BucketFiles(self.context, key).read(file):
            for row in batch.to_pylist():
                del row[SEQUENCE_COLUMN]
                record = Record(RowKind(row.pop(KIND_COLUMN)).symbol, 0, row)
                found[key_of(record)] = record
        return found

    def _keep(self, key: BucketId, files: Iterable[DataFileMeta], content: Content) -> None:
        for file in files:
            self.files[file.file_name] = {of: content[of] for of in self._content(key, file)}

    def _is_dropped(self, record: Record) -> bool:
        options = self.engine.options
        if options.get("ignore-delete") == "true":
            return record.retracts
        return options.get("ignore-update-before") == "true" and record.kind == "-U"

    def _may_go(self, record: Record, others: Collection[str]) -> bool:
        """A delete with nothing older to hide; a row that is not the first of its key."""
        versions = [of[key_of(record)] for name in others if key_of(record) in (of := self.files[name])]
        is_oldest = not any(version.sequence < record.sequence for version in versions)
        return record.retracts if is_oldest else self.engine.name == "first-row"


def _newest_levels(records: Sequence[tuple[int, Record]]) -> list[Record]:
    """The rows of one key on level 0, and its row on the lowest level above, which includes all higher levels."""
    lowest = min((level for level, _ in records if level), default=0)
    return [record for level, record in records if level in (0, lowest)]


def _holds_dropped_deletes(file: DataFileMeta) -> bool:
    """See `tidelake.storage.commit.commit_changes`."""
    return file.level == 0 and file.file_source is FileSource.COMPACT


def _plain(record: Record | None) -> Record | None:
    """Files that are looked into give no sequence numbers."""
    return record and replace(record, sequence=0)


def _without(keys: Collection[Key], content: Content) -> Content:
    return {key: record for key, record in content.items() if key not in keys}


def _names(files: Iterable[DataFileMeta]) -> set[str]:
    return {file.file_name for file in files}


def _check_same(found: Mapping[Key, Record], expected: Content, where: str) -> None:
    """But for sequence numbers."""
    plain = {key: _plain(record) for key, record in expected.items()}
    for key in found.keys() | plain.keys():
        assert found.get(key) == plain.get(key), f"{where}: found {found.get(key)}, expected {plain.get(key)}"
