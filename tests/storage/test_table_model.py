"""A table and a dict go through the same history: a reader always sees exactly the last commit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar, Final, TypeAlias
from uuid import uuid4

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

import tidelake
from tests.support.levels import examples
from tidelake import Predicate, col
from tidelake.errors import BadInput
from tidelake.storage.catalog.filesystem import FileSystemCatalog
from tidelake.storage.commit.commit_message import Committable
from tidelake.storage.commit.table_commit import TableCommit
from tidelake.storage.fileio.memory import MemoryFileIO
from tidelake.storage.model.format import KIND_COLUMN, RowKind
from tidelake.storage.write.memory_budget import MemoryBudget
from tidelake.storage.write.table_writer import TableWriter

NAME: Final = "db.t"
USER: Final = "etl"
SCHEMA: Final = pa.schema(
    [
        pa.field("p", pa.string(), nullable=False),
        pa.field("k", pa.int32(), nullable=False),
        pa.field("v", pa.float64()),
        pa.field("s", pa.string()),
    ]
)
Row: TypeAlias = tuple[Any, ...]  # p, k, v, s
Condition: TypeAlias = tuple[Predicate, Callable[[Row], bool]]  # ours, and the same in Python

TEXTS: Final = ("", "a", "ab", "ü", "a text that is longer than sixteen characters", None)


def drawn_changes(seed: int, count: int) -> list[tuple[RowKind, Row]]:
    """By dice of our own: lists that Hypothesis draws are too short to make files overlap."""
    dice = Random(seed)
    numbers = (0.0, -0.0, 1.5, float("nan"), float("inf"), None)
    return [
        (
            dice.choice([RowKind.INSERT, RowKind.UPDATE_AFTER, *RowKind]),
            (dice.choice(["", "a", "ü/="]), dice.randrange(13), dice.choice(numbers), dice.choice(TEXTS)),
        )
        for _ in range(count)
    ]


CHANGES: Final = st.builds(drawn_changes, st.integers(0, 2**32), st.sampled_from([1, 5, 30]))


def conditions() -> st.SearchStrategy[Condition]:
    """A filter on key, partition or value, or two of them combined."""
    simple: st.SearchStrategy[Condition] = st.one_of(
        st.integers(-1, 13).map(lambda n: (col("k") >= n, lambda row: row[1] >= n)),
        st.integers(-1, 13).map(lambda n: (col("k") == n, lambda row: row[1] == n)),
        st.sampled_from(["", "a"]).map(lambda p: (col("p") != p, lambda row: row[0] != p)),
        st.sampled_from([0.0, 1.5]).map(lambda v: (col("v") <= v, lambda row: row[2] is not None and row[2] <= v)),
        st.just((col("s").is_null(), lambda row: row[3] is None)),
        st.sampled_from(["", "ab"]).map(lambda s: (col("s") == s, lambda row: row[3] == s)),
    )
    both = st.tuples(simple, simple)
    return st.one_of(
        simple,
        both.map(lambda two: (two[0][0] & two[1][0], lambda row: two[0][1](row) and two[1][1](row))),  # type: ignore[operator]
        both.map(lambda two: (two[0][0] | two[1][0], lambda row: two[0][1](row) or two[1][1](row))),  # type: ignore[operator]
    )


@dataclass(frozen=True)
class Variant:
    """budget_bytes: what the writer may hold in memory; 1 makes it write down every batch at once."""

    options: Mapping[str, str]
    budget_bytes: int = 2**20


class TableMachine(RuleBasedStateMachine):
    """What primary-key and append tables have in common. Below: what a reader must see."""

    variants: ClassVar[Sequence[Variant]]
    primary_key: ClassVar[Sequence[str]] = ()
    partition_by: ClassVar[Sequence[str]] = ()

    @initialize(data=st.data())
    def create(self, data: st.DataObject) -> None:
        variant = data.draw(st.sampled_from(self.variants))
        warehouse = f"memory://{uuid4().hex}/lake"
        catalog = tidelake.open_catalog(warehouse)
        catalog.create_database("db")
        self.table = catalog.create_table(
            NAME, SCHEMA, primary_key=self.primary_key, partition_by=self.partition_by, options=variant.options
        )
        self.context = FileSystemCatalog(MemoryFileIO(), warehouse).load(NAME)
        self.memory = MemoryBudget(variant.budget_bytes)
        self.identifier = 0
        self.committed: list[Row] = []
        self.at_snapshot: dict[int, list[Row]] = {}
        self.abandoned: list[TableWriter] = []
        self.reopen()

    # ------------------------------------------------------------ what a model says

    def after(self, rows: list[Row], changes: Iterable[tuple[RowKind, Row]]) -> list[Row]:
        raise NotImplementedError

    # ------------------------------------------------------------ writing

    def reopen(self) -> None:
        self.writer = TableWriter(self.context, memory=self.memory)
        self.commit = TableCommit(self.context, USER)
        self.pending: list[tuple[RowKind, Row]] = []

    def put(self, writer: TableWriter, changes: Sequence[tuple[RowKind, Row]]) -> None:
        rows = [dict(zip(SCHEMA.names, row, strict=True)) | {KIND_COLUMN: int(kind)} for kind, row in changes]
        table = pa.Table.from_pylist(rows, SCHEMA.append(pa.field(KIND_COLUMN, pa.int8(), nullable=False)))
        for batch in table.to_batches(max_chunksize=8):  # several, so that a small budget writes down several times
            writer.write(batch)

    @rule(changes=CHANGES)
    def write(self, changes: list[tuple[RowKind, Row]]) -> None:
        changes = [(kind if self.primary_key else RowKind.INSERT, row) for kind, row in changes]
        self.put(self.writer, changes)
        self.pending += changes

    @rule(changes=CHANGES)
    def write_and_publish(self, changes: list[tuple[RowKind, Row]]) -> None:
        self.write(changes)
        self.publish()

    @rule()
    def publish(self) -> None:
        self.identifier += 1
        snapshot_id = self.commit.commit(Committable(self.identifier, self.writer.prepare_commit()))
        assert snapshot_id is not None
        self.writer.committed(snapshot_id)
        self.committed, self.pending = self.after(self.committed, self.pending), []
        self.at_snapshot[snapshot_id] = self.committed
        self.reads_everything()

    @precondition(lambda self: self.identifier > 0)
    @rule(changes=CHANGES, reopened=st.booleans())
    def replay(self, changes: list[tuple[RowKind, Row]], reopened: bool) -> None:
        """The newest identifier again, with whatever rows: it is done already."""
        writer = TableWriter(self.context, memory=self.memory)
        self.put(writer, [(RowKind.INSERT, row) for _, row in changes])
        commit = TableCommit(self.context, USER) if reopened else self.commit
        messages = writer.prepare_commit()
        assert commit.commit(Committable(self.identifier, messages)) is None
        with pytest.raises(BadInput, match="identifier"):
            commit.commit(Committable(self.identifier - 1, messages))
        self.reads_everything()

    @rule()
    def close(self) -> None:
        self.writer.abort()
        self.reopen()

    @rule(flushed=st.booleans())
    def crash(self, flushed: bool) -> None:
        """The process dies without cleanup. flushed: after the files were written, before they were committed."""
        if flushed:
            self.writer.prepare_commit()
        self.memory = MemoryBudget(self.memory.limit_bytes)
        self.abandoned.append(self.writer)
        self.reopen()
        self.reads_everything()

    # ------------------------------------------------------------ reading

    @rule(columns=st.permutations(SCHEMA.names), count=st.integers(1, 4), condition=st.none() | conditions())
    def reads_some(self, columns: list[str], count: int, condition: Condition | None) -> None:
        chosen = columns[:count]
        ours, pythons = condition or (None, lambda row: True)
        found = self.table.scan(columns=chosen, filter=ours).to_arrow()
        assert found.schema.names == chosen
        places = [SCHEMA.names.index(name) for name in chosen]
        expected = [tuple(row[place] for place in places) for row in self.committed if pythons(row)]
        assert seen(found) == reported(expected)

    @precondition(lambda self: self.at_snapshot)
    @rule(data=st.data())
    def reads_the_past(self, data: st.DataObject) -> None:
        snapshot_id = data.draw(st.sampled_from(sorted(self.at_snapshot)))
        assert seen(self.table.scan(snapshot=snapshot_id).to_arrow()) == reported(self.at_snapshot[snapshot_id])

    @precondition(lambda self: self.at_snapshot)
    @rule()
    def folds_all_changes(self) -> None:
        folded: list[Row] = []
        for batch in self.table.changes(start=1):
            rows = batch.rows.to_pylist()
            folded = self.after(folded, [(RowKind(row.pop(KIND_COLUMN)), tuple(row.values())) for row in rows])
        assert reported(folded) == reported(self.committed)

    def reads_everything(self) -> None:
        assert seen(self.table.scan().to_arrow()) == reported(self.committed)

    def teardown(self) -> None:
        for writer in (*getattr(self, "abandoned", ()), *([self.writer] if hasattr(self, "writer") else ())):
            writer.abort()  # for the scratch files


def seen(rows: pa.Table) -> list[str]:
    return reported(tuple(row.values()) for row in rows.to_pylist())


def reported(rows: Iterable[Row]) -> list[str]:
    """In an order of their own; NaN equals NaN, and 0.0 is not -0.0."""
    return sorted(map(repr, rows))


# ---------------------------------------------------------------- the two kinds of tables


def tiny(**options: str) -> Variant:
    return Variant({"target-file-row-num": "5", **options}, budget_bytes=1)


class PrimaryKeyTable(TableMachine):
    primary_key = ("p", "k")
    variants = (
        Variant({"bucket": "1"}),
        Variant({"bucket": "3", "changelog-producer": "input"}),
        tiny(bucket="1"),
        tiny(**{"bucket": "2", "file.format": "avro"}),
        tiny(**{"bucket": "1", "changelog-producer": "input", "file.format": "orc"}),
        Variant({"bucket": "2", "data-file.thin-mode": "true", "write-buffer-spillable": "false"}, budget_bytes=2_000),
        Variant({"bucket": "1", "manifest.merge-min-count": "2", "metadata.stats-mode": "none"}, budget_bytes=2_000),
    )

    def after(self, rows: list[Row], changes: Iterable[tuple[RowKind, Row]]) -> list[Row]:
        by_key = {row[:2]: row for row in rows}
        for kind, row in changes:
            if kind.is_retract:
                by_key.pop(row[:2], None)
            else:
                by_key[row[:2]] = row
        return list(by_key.values())


class PartedPrimaryKeyTable(PrimaryKeyTable):
    partition_by = ("p",)


class AppendTable(TableMachine):
    variants = (
        Variant({"bucket": "-1"}),
        tiny(bucket="-1"),
        Variant({"bucket": "2", "bucket-key": "s", "file.format": "avro"}),
        tiny(**{"bucket": "3", "bucket-key": "k,v"}),
    )

    def after(self, rows: list[Row], changes: Iterable[tuple[RowKind, Row]]) -> list[Row]:
        return [*rows, *(row for _, row in changes)]


class PartedAppendTable(AppendTable):
    partition_by = ("p",)


MACHINES: Final = [PrimaryKeyTable, PartedPrimaryKeyTable, AppendTable, PartedAppendTable]
_PATIENT: Final = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
# A failure is shown as it was found: to make it small takes minutes, which the long run has.
_SHORT: Final = settings(
    _PATIENT, max_examples=examples(20), stateful_step_count=25, phases=[Phase.reuse, Phase.generate]
)
_LONG: Final = settings(_PATIENT, max_examples=200, stateful_step_count=60)


@pytest.mark.sampled
@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.__name__)
def test_a_table_equals_its_model_after_each_commit(machine: type[TableMachine]) -> None:
    run_state_machine_as_test(machine, settings=_SHORT)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.__name__)
def test_a_table_equals_its_model_for_thousands_of_steps(machine: type[TableMachine]) -> None:
    run_state_machine_as_test(machine, settings=_LONG)
