"""The batches that a run of a streaming query has written, as far as the process remembers them."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tidelake.errors import PositionRefused
from tidelake.ingest.spark.query_runs import Target, WrittenBatches


@dataclass(frozen=True)
class Case:
    """A batch that is given to the sink after run "a" has written batch 7 of a target."""

    run: str
    batch_id: int
    is_same_target: bool
    is_refused: bool


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(Case("a", 7, is_same_target=True, is_refused=True), id="a second part of the batch"),
        pytest.param(Case("a", 8, is_same_target=True, is_refused=False), id="the next batch"),
        pytest.param(Case("b", 7, is_same_target=True, is_refused=False), id="the batch, repeated after a start"),
        pytest.param(Case("a", 7, is_same_target=False, is_refused=False), id="the batch, for another table"),
    ],
)
def test_a_run_writes_each_batch_of_a_target_once(case: Case) -> None:
    batches = WrittenBatches()
    batches.add(target("orders"), "a", 7)
    given = target("orders" if case.is_same_target else "customers")
    if case.is_refused:
        with pytest.raises(PositionRefused, match=r"orders: this run .* has already written batch 7"):
            batches.check_absent(given, case.run, case.batch_id)
    else:
        batches.check_absent(given, case.run, case.batch_id)


def test_targets_written_longest_ago_are_forgotten() -> None:
    """So memory is bounded where each batch has a new commit user, and so a new target."""
    batches = WrittenBatches(targets_max=2)
    for name in ("again", "old", "again", "new"):
        batches.add(target(name), "a", 1)
    batches.check_absent(target("old"), "a", 1)
    for name in ("again", "new"):
        with pytest.raises(PositionRefused):
            batches.check_absent(target(name), "a", 1)


def target(table: str) -> Target:
    return Target(table, f"file:/lake/{table}", "main", "query")
