"""After a fault in any call, the changelog still adds up to the table, whether compaction or writers made it, or
whether it is the input. Random histories of all engines: writers and jobs fail or die, and successors repeat what was
not committed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from random import Random
from typing import Final

import pyarrow as pa
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from tests.compaction.lakes import with_io
from tests.compaction.test_changelog_histories import ALLOWED, LAYOUTS, OFTEN_COMPACTED, new_table
from tests.crash.points import Points
from tests.crash.table_life import NO_WAIT
from tests.crash.troubles import ESSENTIAL, Trouble
from tests.support.changelog_fold import check_changelog, check_written_rows
from tests.support.faulty_file_io import Fault, FaultyFileIO, FaultyIOError, ProcessDied
from tests.support.levels import examples
from tests.support.merge_engines import ENGINES, Engine, Rows
from tidelake.errors import TidelakeError
from tidelake.storage.fileio.base import FileIO
from tidelake.storage.maintenance.verify import verify
from tidelake.table import Table
from tidelake.writer import Writer


@dataclass(frozen=True, slots=True)
class Happening:
    """rows: of a commit. trouble: comes in the call-th call of the file system."""

    what: str
    rows: int
    trouble: Trouble | None
    call: int

    @property
    def is_job(self) -> bool:
        return self.what in ("job", "full job")


TROUBLES: Final = (*ESSENTIAL, Trouble(Fault.TORN, is_crash=True))
UNTROUBLED: Final = [Happening("commit", 20, None, 0)] * 3
USER: Final = "etl"
AS_WRITTEN: Final = [
    pytest.param(engine, producer, id=f"{engine.about}, {producer}")
    for engine in ENGINES
    for producer in ("none", "input")
    if not (engine.name == "first-row" and producer == "input")
]
STEPS: Final = st.lists(
    st.builds(
        Happening,
        st.sampled_from(["commit", "commit", "commit", "leave to a job", "job", "full job"]),
        st.integers(1, 20),
        st.sampled_from([None, *TROUBLES]),
        st.integers(0, 60),
    ),
    min_size=3,
    max_size=8,
)


@pytest.mark.exhaustive(kept=2)
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("engine", "producer"), ALLOWED)
def test_applying_the_changelog_gives_the_table_after_any_fault(engine: Engine, producer: str, points: Points) -> None:
    reported = 0
    may_have_vectors = producer == "lookup" and engine.name != "first-row"

    @settings(max_examples=examples(15), phases=(Phase.explicit, Phase.generate))
    @given(
        layout=st.sampled_from(LAYOUTS),
        deduplicates=st.booleans(),
        has_vectors=st.booleans() if may_have_vectors else st.just(False),
        steps=STEPS,
        seed=st.integers(0, 2**32),
    )
    @example(layout=LAYOUTS[0], deduplicates=False, has_vectors=False, steps=UNTROUBLED, seed=0)
    def check(
        layout: Mapping[str, str], deduplicates: bool, has_vectors: bool, steps: Sequence[Happening], seed: int
    ) -> None:
        nonlocal reported
        chosen = {"changelog-producer": producer, "changelog-producer.row-deduplicate": str(deduplicates).lower()}
        chosen |= {"deletion-vectors.enabled": "true"} if has_vectors else {}
        table = new_table({"bucket": "1", **OFTEN_COMPACTED, **engine.options, **chosen, **layout})
        _live(table, Rows(engine, Random(seed), keys=8), steps, points)
        table.compact(full=True)
        reported_now = check_changelog(table)
        assert reported_now or table.scan().to_arrow().num_rows == 0
        reported += reported_now
        _check_the_rest(table)

    check()
    assert reported


@pytest.mark.exhaustive(kept=2)
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("engine", "producer"), AS_WRITTEN)
def test_merging_the_written_rows_gives_the_table_after_any_fault(
    engine: Engine, producer: str, points: Points
) -> None:
    """Engines to which it matters which rows of a key are merged first are without compactions."""
    reported = 0
    is_compacted = engine.is_associative
    may_have_vectors = is_compacted and engine.name != "first-row"

    @settings(max_examples=examples(15), phases=(Phase.explicit, Phase.generate))
    @given(
        layout=st.sampled_from(LAYOUTS),
        deduplicates=st.booleans(),
        has_vectors=st.booleans() if may_have_vectors else st.just(False),
        steps=STEPS,
        seed=st.integers(0, 2**32),
    )
    @example(layout=LAYOUTS[0], deduplicates=False, has_vectors=False, steps=UNTROUBLED, seed=0)
    def check(
        layout: Mapping[str, str], deduplicates: bool, has_vectors: bool, steps: Sequence[Happening], seed: int
    ) -> None:
        nonlocal reported
        chosen = {"changelog-producer": producer, "changelog-producer.row-deduplicate": str(deduplicates).lower()}
        chosen |= {"deletion-vectors.enabled": "true"} if has_vectors else {}
        compacted = {} if is_compacted else {"write-only": "true"}
        table = new_table({"bucket": "1", **OFTEN_COMPACTED, **engine.options, **chosen, **compacted, **layout})
        if not is_compacted:
            steps = [replace(step, what="commit") if step.is_job else step for step in steps]
        _live(table, Rows(engine, Random(seed), keys=8), steps, points)
        if is_compacted:
            table.compact(full=True)
        copy = new_table({"bucket": "1", **engine.options, **compacted})
        reported_now = check_written_rows(table, copy)
        assert reported_now or all(step.is_job for step in steps)
        reported += reported_now
        _check_the_rest(table)

    check()
    assert reported


def _live(table: Table, rows: Rows, steps: Sequence[Happening], points: Points) -> None:
    """What fails is tried again."""
    for number, step in enumerate(steps, 1):
        happen = _job(full=step.what == "full job")
        if not step.is_job:
            happen = _commit(rows.batch(step.rows), number, write_only=step.what == "leave to a job")
        if step.trouble is None:
            happen(table, table.context.io)
            continue
        io = FaultyFileIO(table.context.io)
        step.trouble.await_in(io, step.call)
        with suppress(TidelakeError, FaultyIOError, ProcessDied):
            happen(table, io)
        happen(table, table.context.io)
        points.tried(f"histories of changelogs: {step.trouble.kind}")


def _check_the_rest(table: Table) -> None:
    identifiers = [s.commit_identifier for s in table.snapshots() if s.commit_user == USER]
    assert sorted(identifiers) == identifiers
    assert verify(table.context, deep=True) == []


Step = Callable[[Table, FileIO], None]


def _commit(rows: pa.Table, number: int, *, write_only: bool) -> Step:
    def commit(table: Table, io: FileIO) -> None:
        context = with_io(table, io)
        if write_only:
            context = context.with_options({"write-only": "true"})
        with Writer(context, USER, environment=NO_WAIT) as writer:
            writer.write(rows)
            writer.commit(number)

    return commit


def _job(*, full: bool) -> Step:
    def job(table: Table, io: FileIO) -> None:
        Table(with_io(table, io)).compact(full=full)

    return job
