"""Several writers, jobs and changes from outside on one table give what a dictionary gives.

Two writers have one commit user, another one has its own, and one is write-only. Between their commits, and between
their writes and their commits, the table is compacted, truncated, overwritten, rescaled and altered; rows are deleted
and updated, partitions are dropped; partitions and snapshots expire. After each step the table has the rows of the
model, and its changelog adds up to them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count, product
from pathlib import Path
from typing import Any, Final, TypeAlias
from uuid import uuid4

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tidelake
from tests.support.java_oracle import JavaOracle
from tests.support.levels import examples, is_of_the_day
from tidelake.catalog import Catalog
from tidelake.errors import HistoryExpired
from tidelake.storage.base.clock import epoch_ms
from tidelake.storage.catalog.filesystem import FileSystemCatalog
from tidelake.storage.commit.expire.expire_now import expire_now
from tidelake.storage.commit.expire.retention import Retention
from tidelake.storage.fileio.memory import MemoryFileIO
from tidelake.storage.maintenance.partition_expiry import expire_partitions
from tidelake.storage.maintenance.verify import verify
from tidelake.storage.model.format import CommitKind
from tidelake.storage.model.options.maintenance_options import PartitionExpirationStrategy

Key: TypeAlias = tuple[str, int]
Values: TypeAlias = tuple[int | None, int | None]
Row: TypeAlias = tuple[str, int, int | None, int | None]

SCHEMA: Final = pa.schema(
    [
        pa.field("p", pa.string(), nullable=False),
        pa.field("k", pa.int64(), nullable=False),
        pa.field("n", pa.int64()),
        pa.field("s", pa.int64()),
    ]
)
PARTITIONS: Final = ("2020-05-01", "2099-05-01")  # the first one has expired
KEYS: Final = 6
DAY_MS: Final = 86_400_000


def newest(old: Values | None, new: Values) -> Values:
    return new


def greatest(old: Values | None, new: Values) -> Values:
    return new if old is None or (new[1] or 0) > (old[1] or 0) else old


def summed(old: Values | None, new: Values) -> Values:
    if old is None:
        return new
    terms = [n for n in (old[0], new[0]) if n is not None]
    return (sum(terms) if terms else None, max(old[1] or 0, new[1] or 0))


def first(old: Values | None, new: Values) -> Values:
    return new if old is None else old


def not_null(old: Values | None, new: Values) -> Values:
    before = old or (None, None)
    return (before[0] if new[0] is None else new[0], before[1] if new[1] is None else new[1])


@dataclass(frozen=True)
class Setting:
    """A kind of table.

    merge: a naive model of its merge engine.
    takes_deletes: whether a delete by a condition removes rows.
    """

    options: Mapping[str, str]
    merge: Callable[[Values | None, Values], Values]
    takes_deletes: bool = False

    @property
    def is_looked_up(self) -> bool:
        """Whether readers see rows only after a compaction."""
        has_vectors = self.options.get("deletion-vectors.enabled") == "true"
        return has_vectors or self.merge is first or self.is_postponed

    @property
    def is_postponed(self) -> bool:
        return self.options.get("bucket") == "-2"

    @property
    def producer(self) -> str:
        return self.options.get("changelog-producer", "none")

    @property
    def has_changelog(self) -> bool:
        """Whether its changes are those of rows, not what was written."""
        return self.producer in ("lookup", "full-compaction")

    def fold(self, copy: dict[Key, Values], change: dict[str, Any]) -> None:
        """Apply a change to a follower's copy."""
        key, values = (change["p"], change["k"]), (change["n"], change["s"])
        if change["_VALUE_KIND"] in (1, 3):
            copy.pop(key, None)
        else:
            copy[key] = values if self.has_changelog else self.merge(copy.get(key), values)


_ENGINES: Final = {
    "deduplicate": Setting({}, newest, takes_deletes=True),
    "sequence field": Setting({"sequence.field": "s"}, greatest),
    "sums": Setting(
        {
            "merge-engine": "aggregation",
            "fields.n.aggregate-function": "sum",
            "fields.s.aggregate-function": "max",
        },
        summed,
    ),
    "partial-update": Setting({"merge-engine": "partial-update"}, not_null),
    "first-row": Setting({"merge-engine": "first-row"}, first),
}
_PRODUCERS: Final = ("none", "input", "lookup", "full-compaction")
_BUCKETS: Final = {
    "fixed": {"bucket": "1"},
    "dynamic": {"bucket": "-1", "dynamic-bucket.target-row-num": "3"},
    "postponed": {"bucket": "-2"},
}


def _refused(engine: str, producer: str, vectors: bool) -> bool:
    """Whether no such table can be created. Java refuses it, too."""
    return (engine == "first-row" and (vectors or producer in ("input", "full-compaction"))) or (
        vectors and producer == "full-compaction"
    )


COMBINATIONS: Final = list(product(_ENGINES, _PRODUCERS, _BUCKETS, (False, True)))
SETTINGS: Final = {
    f"{engine}, {producer}, {buckets}{', deletion vectors' if vectors else ''}": Setting(
        {
            **_ENGINES[engine].options,
            **_BUCKETS[buckets],
            "changelog-producer": producer,
            "deletion-vectors.enabled": str(vectors).lower(),
        },
        _ENGINES[engine].merge,
        _ENGINES[engine].takes_deletes,
    )
    for engine, producer, buckets, vectors in COMBINATIONS
    if not _refused(engine, producer, vectors)
} | {
    f"{engine}, force-lookup": Setting({**of.options, "force-lookup": "true"}, of.merge, of.takes_deletes)
    for engine, of in _ENGINES.items()
    if engine != "first-row"
}
WRITERS: Final = {"one": "user", "same user": "user", "other": "other", "write-only": "write-only"}


@dataclass
class History:
    """A table, its writers, and the model of its rows."""

    setting: Setting
    catalog: Catalog
    rows: dict[Key, Values] = field(default_factory=dict)
    waiting: dict[str, list[Row]] = field(default_factory=dict)  # written, not committed
    writers: dict[str, tidelake.Writer] = field(default_factory=dict)
    folded: dict[Key, Values] = field(default_factory=dict)
    followed_to: int = 0
    has_level_0: bool = False
    numbers: Any = field(default_factory=lambda: count(1))
    columns: int = 0

    @property
    def table(self) -> tidelake.Table:
        return self.catalog.table("db.t")

    # ------------------------------------------------------------ steps

    def write(self, name: str, rows: list[Row]) -> None:
        self.waiting.setdefault(name, []).extend(rows)
        try:
            self._writer(name).write(_arrow(rows))
        except tidelake.BadInput as error:
            if "load it again" not in str(error):
                raise
            self._open_again(name)

    def commit(self, name: str) -> None:
        try:
            self._writer(name).commit(next(self.numbers))
        except tidelake.CommitConflict as error:
            # snapshots after the one that the writer is based on may have expired
            if "the table again" not in str(error) and not isinstance(error, HistoryExpired):
                raise
            self._open_again(name)
            self._writer(name).commit(next(self.numbers))
        rows = self.waiting.pop(name, [])
        self._merge(rows)
        self.has_level_0 |= bool(rows) and (name == "write-only" or self.setting.is_postponed)

    def compact(self, full: bool) -> None:
        self.table.compact(full=full and not self.setting.is_postponed)
        self.has_level_0 = False

    def truncate(self, partition: str | None) -> None:
        if partition is None:
            self.table.truncate(commit_user="user", identifier=next(self.numbers))
        else:
            self.table.truncate(partition={"p": partition})
        self._replaced(None if partition is None else {partition}, [])

    def overwrite(self, rows: list[Row]) -> None:
        with self.table.writer(overwrite=True) as writer:
            writer.write(_arrow(rows))
            writer.commit()
        self._replaced({row[0] for row in rows}, rows)

    def delete(self, up_to: int) -> None:
        if self.setting.takes_deletes:
            self._change_rows(
                lambda number: self.table.delete(tidelake.col("k") <= up_to, commit_user="user", identifier=number)
            )
            self.rows = {key: values for key, values in self.rows.items() if key[1] > up_to}

    def update(self, up_to: int, n: int) -> None:
        if self.setting.takes_deletes:
            where = tidelake.col("k") <= up_to
            self._change_rows(lambda number: self.table.update(where, {"n": n}, commit_user="user", identifier=number))
            self.rows = {key: (n, v[1]) if key[1] <= up_to else v for key, v in self.rows.items()}

    def rescale(self, buckets: int) -> None:
        if self.setting.options.get("bucket") == "-1":
            return
        try:
            self.catalog.rescale_table("db.t", buckets)
            return
        except tidelake.BadInput as error:
            if "for a compaction" not in str(error) and "for the compaction" not in str(error):
                raise
        self.compact(full=self.setting.producer == "full-compaction")
        self.check()
        self.catalog.rescale_table("db.t", buckets)

    def expire_partitions(self, by_value: bool) -> None:
        """Drop the partition of the past, or all partitions, since none was written in the last day of `now`."""
        strategy = PartitionExpirationStrategy.VALUES_TIME if by_value else PartitionExpirationStrategy.UPDATE_TIME
        now = datetime.now() + timedelta(days=2)
        expire_partitions(self.table.context, older_than_ms=DAY_MS, strategy=strategy, now=now)
        self._replaced(set(PARTITIONS[:1] if by_value else PARTITIONS), [])

    def expire_snapshots(self, retained: int) -> None:
        """Expire all but the newest snapshots. Followers have read them; writers may be based on them."""
        self._follow()
        retention = Retention(retained, retained, DAY_MS, 1_000)
        expire_now(self.table.context, retention=retention, now_ms=lambda: epoch_ms() + 2 * DAY_MS)

    def add_column(self) -> None:
        self.columns += 1
        self.catalog.alter_table("db.t", [tidelake.AddColumn(f"x{self.columns}", "INT")])

    # ------------------------------------------------------------ checks

    def check(self) -> None:
        self._follow()
        if self.table.snapshots():
            assert self._first_read() == (self.rows if self.setting.producer == "none" else self.folded)
        if self.setting.producer == "input" and not (self.setting.is_postponed and self.has_level_0):
            assert self.folded == self.rows
        if self.has_level_0 and self.setting.is_looked_up:
            return  # rows of a write-only writer wait for a compaction
        assert _by_key(self.table.scan(columns=SCHEMA.names).to_arrow()) == self.rows
        waits = self.has_level_0 or self.setting.producer == "full-compaction"
        if self.setting.has_changelog and not waits:
            assert self.folded == self.rows

    def end(self) -> None:
        for name in list(self.waiting):
            self.commit(name)
            self.check()
        self.compact(full=True)
        self.check()
        if self.setting.has_changelog:
            assert self.folded == self.rows
        assert verify(self.table.context) == []

    def close(self) -> None:
        for writer in self.writers.values():
            writer.close()

    # ------------------------------------------------------------ helpers

    def _change_rows(self, change: Callable[[int], object]) -> None:
        try:
            change(next(self.numbers))
        except tidelake.BadInput as error:
            if not self.setting.is_postponed or "rows wait for their buckets" not in str(error):
                raise
            self.compact(full=False)
            change(next(self.numbers))
        self.has_level_0 |= self.setting.is_postponed

    def _writer(self, name: str) -> tidelake.Writer:
        if name not in self.writers:
            options = {"write-only": "true"} if name == "write-only" else {}
            table = tidelake.Table(self.table.context.with_options(options))
            self.writers[name] = table.writer(commit_user=WRITERS[name])
        return self.writers[name]

    def _open_again(self, name: str) -> None:
        """Do what the error says."""
        self.writers.pop(name).close()
        if rows := self.waiting.get(name):
            self._writer(name).write(_arrow(rows))

    def _merge(self, rows: list[Row]) -> None:
        for p, k, *values in rows:
            self.rows[p, k] = self.setting.merge(self.rows.get((p, k)), (values[0], values[1]))

    def _replaced(self, partitions: set[str] | None, rows: list[Row]) -> None:
        """Replace rows in the model, and in the copy of a follower: an overwrite has no changelog."""
        self._follow()
        for of in (self.rows, self.folded):
            for key in [key for key in of if partitions is None or key[0] in partitions]:
                del of[key]
        self._merge(rows)
        self.folded.update({key: values for key, values in self.rows.items() if key[0] in (partitions or ())})

    def _follow(self) -> None:
        if self.setting.producer == "none":
            return
        for snapshot in self.table.snapshots():
            if snapshot.id <= self.followed_to or snapshot.commit_kind is CommitKind.OVERWRITE:
                continue
            for batch in self.table.changes(start=snapshot.id, end=snapshot.id):
                for row in batch.rows.to_pylist():
                    self.setting.fold(self.folded, row)
        self.followed_to = max((snapshot.id for snapshot in self.table.snapshots()), default=0)

    def _first_read(self) -> dict[Key, Values]:
        """What a follower has that starts now, also rows that wait for a compaction."""
        copy: dict[Key, Values] = {}
        for change in self.table.follow(start="latest-full", end=self.table.snapshots()[-1].id):
            for row in change.rows.to_pylist():
                self.setting.fold(copy, row)
        return copy


def _arrow(rows: list[Row]) -> pa.Table:
    return pa.table(
        [pa.array(column, f.type) for column, f in zip(zip(*rows, strict=True), SCHEMA, strict=True)], SCHEMA
    )


def _by_key(rows: pa.Table) -> dict[Key, Values]:
    found = {(row["p"], row["k"]): (row["n"], row["s"]) for row in rows.to_pylist()}
    assert len(found) == rows.num_rows, f"a key has two rows: {rows.to_pylist()}"
    return found


def steps() -> st.SearchStrategy[list[tuple[Any, ...]]]:
    value = st.one_of(st.none(), st.integers(0, 99))
    row = st.tuples(st.sampled_from(PARTITIONS), st.integers(0, KEYS), value, st.integers(1, 99))
    rows = st.lists(row, min_size=1, max_size=8)
    names = st.sampled_from(list(WRITERS))
    return st.lists(
        st.one_of(
            st.tuples(st.just("write"), names, rows),
            st.tuples(st.just("commit"), names),
            st.tuples(st.just("both"), names, rows),
            st.tuples(st.just("both"), names, rows),
            st.tuples(st.just("both"), names, rows),
            st.tuples(st.just("compact"), st.booleans()),
            st.tuples(st.just("truncate"), st.sampled_from([None, PARTITIONS[0]])),
            st.tuples(st.just("overwrite"), rows),
            st.tuples(st.just("delete"), st.integers(0, KEYS)),
            st.tuples(st.just("update"), st.integers(0, KEYS), st.integers(0, 99)),
            st.tuples(st.just("rescale"), st.integers(1, 3)),
            st.tuples(st.just("expire_partitions"), st.booleans()),
            st.tuples(st.just("expire_snapshots"), st.integers(1, 2)),
            st.tuples(st.just("add_column")),
        ),
        min_size=4,
        max_size=14,
    )


def unique_order(history: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Makes the sequence of each row unique: which of two equal ones wins is not promised."""
    numbers = count()
    return [
        tuple(
            [(*row[:3], row[3] * 1000 + next(numbers)) for row in part] if isinstance(part, list) else part
            for part in s
        )
        for s in history
    ]


@contextmanager
def new_table(setting: Setting, catalog: Catalog) -> Iterator[History]:
    catalog.create_database("db")
    catalog.create_table(
        "db.t",
        SCHEMA,
        primary_key=["p", "k"],
        partition_by=["p"],
        options={"bucket": "1", "num-sorted-run.compaction-trigger": "3", **setting.options},
    )
    history = History(setting, catalog)
    try:
        yield history
    finally:
        history.close()


def played(history: History, drawn: list[tuple[Any, ...]]) -> Iterator[None]:
    """Do the steps; yields after each."""
    for kind, *arguments in unique_order(drawn):
        if kind == "both":
            history.write(*arguments)
            history.commit(arguments[0])
        else:
            getattr(history, kind)(*arguments)
        history.check()
        yield
    history.end()
    yield


each_setting = pytest.mark.parametrize(
    "setting", [pytest.param(setting, id=name) for name, setting in SETTINGS.items()]
)


@pytest.mark.parametrize(("engine", "producer", "buckets", "vectors"), COMBINATIONS)
def test_a_combination_is_tested_or_refused(engine: str, producer: str, buckets: str, vectors: bool) -> None:
    if _refused(engine, producer, vectors):
        options = {"changelog-producer": producer, "deletion-vectors.enabled": str(vectors).lower()}
        setting = Setting({**_ENGINES[engine].options, **_BUCKETS[buckets], **options}, newest)
        catalog = Catalog(FileSystemCatalog(MemoryFileIO(), f"memory://{uuid4()}"))
        with pytest.raises((tidelake.BadInput, tidelake.UnsupportedFeature)), new_table(setting, catalog):
            pass


@pytest.mark.exhaustive(kept=3)
@each_setting
def test_several_writers_and_changes_from_outside_give_what_a_dictionary_gives(setting: Setting) -> None:
    @settings(max_examples=examples(24), deadline=None, suppress_health_check=list(HealthCheck))
    @given(steps())
    def run(drawn: list[tuple[Any, ...]]) -> None:
        with new_table(setting, Catalog(FileSystemCatalog(MemoryFileIO(), f"memory://{uuid4()}"))) as history:
            for _ in played(history, drawn):
                pass

    run()


@pytest.mark.parametrize(
    "setting",
    [
        pytest.param(setting, id=name, marks=[] if is_of_the_day(number, 5) else [pytest.mark.long])
        for number, (name, setting) in enumerate(SETTINGS.items())
    ],
)
def test_java_reads_these_rows_after_each_step(setting: Setting, java_oracle: JavaOracle, tmp_path: Path) -> None:
    @settings(max_examples=examples(10), deadline=None, suppress_health_check=list(HealthCheck))
    @given(steps())
    def run(drawn: list[tuple[Any, ...]]) -> None:
        warehouse = tmp_path / uuid4().hex
        with new_table(setting, tidelake.open_catalog(str(warehouse))) as history:
            for _ in played(history, drawn):
                if history.table.snapshots():
                    javas = {(r["p"], r["k"]): (r["n"], r["s"]) for r in java_oracle.read(warehouse, "db.t")}
                    assert javas == _by_key(history.table.scan().to_arrow())

    run()
