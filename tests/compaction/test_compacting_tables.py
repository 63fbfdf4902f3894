"""Tables that are compacted while they are written hold the same rows as a dict, in files that keep the invariants of
the tree.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidelake
from tests.compaction.invariants import check_tree
from tests.support.levels import examples
from tidelake.storage.files import writer as file_writer
from tidelake.storage.merge import sections
from tidelake.storage.model.format import KIND_COLUMN, RowKind
from tidelake.storage.write.memory_budget import MemoryBudget

SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.int64()), ("w", pa.string())])
ROWS_PER_FILE = 8  # so that runs have many files: of a size that is looked at after so many rows, and always enough

Row = tuple[int, int | None, str, RowKind]
State = dict[int, tuple[int | None, str]]


@dataclass(frozen=True)
class Engine:
    """apply: what a row does to the table, naively. takes_deletes: whether rows may be deletes. hides_level_0: rows
    are seen once they are compacted.
    """

    name: str
    options: dict[str, str]
    apply: Callable[[State, Row], None]
    takes_deletes: bool = False
    hides_level_0: bool = False


def newest_wins(state: State, row: Row) -> None:
    k, v, w, kind = row
    if kind is RowKind.DELETE:
        state.pop(k, None)
    else:
        state[k] = v, w


def first_wins(state: State, row: Row) -> None:
    state.setdefault(row[0], (row[1], row[2]))


def largest_v_wins(state: State, row: Row) -> None:
    k, v, w, _ = row
    known = state.get(k, (None, ""))[0]
    if k not in state or known is None or (v is not None and v >= known):
        state[k] = v, w


def sum_of_v(state: State, row: Row) -> None:
    k, v, w, _ = row
    before = state.get(k, (None, ""))[0]
    state[k] = v if before is None else before if v is None else before + v, w


def v_unless_null(state: State, row: Row) -> None:
    k, v, w, _ = row
    state[k] = v if v is not None else state.get(k, (None, ""))[0], w


SUM = {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum", "fields.w.aggregate-function": "last_value"}
ENGINES = (
    Engine("deduplicate", {}, newest_wins, takes_deletes=True),
    Engine("deduplicate, looked up", {"force-lookup": "true"}, newest_wins, takes_deletes=True),
    Engine("deduplicate by a sequence field", {"sequence.field": "v"}, largest_v_wins),
    Engine("by a sequence field, looked up", {"sequence.field": "v", "force-lookup": "true"}, largest_v_wins),
    Engine("first-row", {"merge-engine": "first-row"}, first_wins, hides_level_0=True),
    Engine("aggregation", SUM, sum_of_v),
    Engine("aggregation, looked up", {**SUM, "force-lookup": "true"}, sum_of_v),
    Engine("partial-update", {"merge-engine": "partial-update"}, v_unless_null),
    Engine("partial-update, looked up", {"merge-engine": "partial-update", "force-lookup": "true"}, v_unless_null),
)


@dataclass(frozen=True)
class Commit:
    """flushes: rows between two flushes of the write buffer. ending: what happens behind the commit."""

    flushes: list[list[tuple[int, int | None, bool]]]
    ending: str


keys = st.one_of(st.integers(0, 15), st.integers(0, 60))
rows = st.lists(st.tuples(keys, st.none() | st.integers(0, 9), st.booleans()), min_size=1, max_size=40)
endings = st.sampled_from(["", "", "", "reopen", "compact", "compact in full"])
commits = st.lists(st.builds(Commit, st.lists(rows, min_size=0, max_size=3), endings), min_size=1, max_size=14)
tree_options = st.fixed_dictionaries(
    {"num-sorted-run.compaction-trigger": st.sampled_from(["1", "2", "3", "5"])},
    optional={
        "num-levels": st.sampled_from(["3", "6"]),
        "compaction.max-size-amplification-percent": st.just("1000000"),
        "compaction.force-up-level-0": st.just("true"),
        "commit.force-compact": st.just("true"),
        "full-compaction.delta-commits": st.sampled_from(["1", "3"]),
        "compaction.optimization-interval": st.just("1 ms"),
        "compaction.small-file-ratio": st.sampled_from(["0", "0.7", "10000000"]),
        "data-file.thin-mode": st.just("true"),
        "file.format.per.level": st.just("0:avro"),
    },
)


class Played:
    """A table and its naive twin, under the same commits."""

    def __init__(self, warehouse: str, engine: Engine, options: dict[str, str]) -> None:
        self.catalog = tidelake.open_catalog(warehouse)
        self.catalog.create_database("db")
        base = {"bucket": "1", "target-file-size": "1 b", "write-buffer-spillable": "false"}
        self.catalog.create_table("db.t", SCHEMA, primary_key=["k"], options={**base, **engine.options, **options})
        self.engine = engine
        self.state: State = {}
        self.number = 0

    def play(self, played: list[Commit]) -> None:
        writer = self._writer()
        try:
            for identifier, commit in enumerate(played, 1):
                for flush in commit.flushes:
                    self._write(writer, flush)
                    self.memory.limit_bytes = 1  # the next write flushes this one
                writer.commit(identifier)
                if commit.ending == "reopen":
                    writer.close()
                    writer = self._writer()
                elif commit.ending:
                    self.catalog.table("db.t").compact(full=commit.ending == "compact in full")
                self.check()
        finally:
            writer.close()
        self.catalog.table("db.t").compact(full=True)
        self.check()

    def _writer(self) -> tidelake.Writer:
        self.memory = MemoryBudget(1 << 28)
        return self.catalog.table("db.t").writer(commit_user="u", memory=self.memory)

    def _write(self, writer: tidelake.Writer, flush: list[tuple[int, int | None, bool]]) -> None:
        written: list[Row] = []
        for k, v, is_delete in flush:
            self.number += 1
            kind = RowKind.DELETE if is_delete and self.engine.takes_deletes else RowKind.INSERT
            written.append((k, v, f"w{self.number}", kind))
            self.engine.apply(self.state, written[-1])
        columns = [pa.array(column, kind) for column, kind in zip(zip(*written, strict=True), TYPES, strict=True)]
        writer.write(pa.table(columns, names=[*SCHEMA.names, KIND_COLUMN]))

    def check(self) -> None:
        table = self.catalog.table("db.t")
        found = {row["k"]: (row["v"], row["w"]) for row in self._visible(table)}
        has_level_0 = any(file.level == 0 for tree in check_tree(table.context).values() for file in tree.files)
        if self.engine.hides_level_0 and has_level_0:  # a compaction lost its race; the next commit makes up for it
            assert found.items() <= self.state.items()
        else:
            assert found == self.state

    def _visible(self, table: tidelake.Table) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = table.scan().to_arrow().to_pylist()
        assert len({row["k"] for row in found}) == len(found)
        return found


TYPES = [*SCHEMA.types, pa.int8()]


def play(engine: Engine, options: dict[str, str], played: list[Commit], spills: bool) -> None:
    """spills: no run of a merge may be open in its file."""
    open_bytes = 0 if spills else sections.OPEN_MEMORY_BYTES
    with (
        tempfile.TemporaryDirectory() as warehouse,
        patch.object(file_writer, "_CHECK_ROWS", ROWS_PER_FILE),
        patch.object(sections, "OPEN_MEMORY_BYTES", open_bytes),
    ):
        Played(warehouse, engine, options).play(played)


@pytest.mark.exhaustive(kept=3)
@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
@settings(max_examples=examples(6), deadline=None)
@given(options=tree_options, played=commits, spills=st.booleans())
def test_rows_match_a_dict_and_files_keep_the_invariants(
    engine: Engine, options: dict[str, str], played: list[Commit], spills: bool
) -> None:
    play(engine, options, played, spills)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
@settings(max_examples=150, deadline=None)
@given(options=tree_options, played=commits, spills=st.booleans())
def test_rows_match_a_dict_and_files_keep_the_invariants_in_long_runs(
    engine: Engine, options: dict[str, str], played: list[Commit], spills: bool
) -> None:
    play(engine, options, played, spills)
