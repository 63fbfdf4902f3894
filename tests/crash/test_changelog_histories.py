"""Whatever goes wrong in whichever call: the changelog that compaction makes tells the table. Random histories of all
engines, whose writers and jobs fail, die, and are followed by others that repeat what was not committed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from random import Random
from typing import Final

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from storage.errors import TidelakeError
from storage.fileio.base import FileIO
from storage.verify import verify
from tests.compaction.lakes import with_io
from tests.compaction.test_changelog_histories import ALLOWED, LAYOUTS, OFTEN_COMPACTED, new_table
from tests.crash.points import Points
from tests.crash.table_life import NO_WAIT
from tests.crash.troubles import ESSENTIAL, Trouble
from tests.support.changelog_fold import check_changelog
from tests.support.faulty_file_io import Fault, FaultyFileIO, FaultyIOError, ProcessDied
from tests.support.levels import examples
from tests.support.merge_engines import Engine, Rows
from tidelake.table import Table
from tidelake.writer import Writer

TROUBLES: Final = (*ESSENTIAL, Trouble(Fault.TORN, is_crash=True))
USER: Final = "etl"
# what happens, to how many rows; what goes wrong in which call
STEPS: Final = st.lists(
    st.tuples(
        st.sampled_from(["commit", "commit", "commit", "leave to a job", "job", "full job"]),
        st.integers(1, 20),
        st.sampled_from([None, *TROUBLES]),
        st.integers(0, 60),
    ),
    min_size=3,
    max_size=8,
)


@pytest.mark.exhaustive(kept=3)
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("engine", "producer"), ALLOWED)
def test_folding_the_changelog_gives_the_table_whatever_went_wrong(
    engine: Engine, producer: str, points: Points
) -> None:
    may_have_vectors = producer == "lookup" and engine.name != "first-row"

    @settings(max_examples=examples(15), phases=(Phase.explicit, Phase.generate))
    @given(
        layout=st.sampled_from(LAYOUTS),
        deduplicates=st.booleans(),
        has_vectors=st.booleans() if may_have_vectors else st.just(False),
        steps=STEPS,
        seed=st.integers(0, 2**32),
    )
    def check(
        layout: Mapping[str, str],
        deduplicates: bool,
        has_vectors: bool,
        steps: list[tuple[str, int, Trouble | None, int]],
        seed: int,
    ) -> None:
        chosen = {"changelog-producer": producer, "changelog-producer.row-deduplicate": str(deduplicates).lower()}
        chosen |= {"deletion-vectors.enabled": "true"} if has_vectors else {}
        table = new_table({"bucket": "1", **OFTEN_COMPACTED, **engine.options, **chosen, **layout})
        rows = Rows(engine, Random(seed), keys=8)
        for number, (what, count, trouble, call) in enumerate(steps, 1):
            step = _job(full=what == "full job")
            if not what.endswith("job"):
                step = _commit(rows.batch(count), number, write_only=what == "leave to a job")
            if trouble is None:
                step(table, table.context.io)
                continue
            io = FaultyFileIO(table.context.io)
            trouble.await_in(io, call)
            with suppress(TidelakeError, FaultyIOError, ProcessDied):
                step(table, io)
            step(table, table.context.io)
            points.tried(f"histories of changelogs: {trouble.kind}")
        table.compact(full=True)
        assert check_changelog(table) or table.scan().to_arrow().num_rows == 0
        identifiers = [s.commit_identifier for s in table.snapshots() if s.commit_user == USER]
        assert sorted(identifiers) == identifiers
        assert verify(table.context, deep=True) == []

    check()


Step = Callable[[Table, FileIO], None]


def _commit(rows: pa.Table, number: int, *, write_only: bool) -> Step:
    def commit(table: Table, io: FileIO) -> None:
        context = with_io(table, io)
        with Writer(context.with_options({"write-only": "true"}) if write_only else context, USER) as writer:
            writer._commit._publisher._environment = NO_WAIT
            writer.write(rows)
            writer.commit(number)

    return commit


def _job(*, full: bool) -> Step:
    def job(table: Table, io: FileIO) -> None:
        Table(with_io(table, io)).compact(full=full)

    return job
