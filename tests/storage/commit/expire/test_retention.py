"""Which snapshots the options retain."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from tests.support.cases import Case, case_id, check_members, options_of, vectors
from tidelake.errors import BadInput
from tidelake.storage.commit.expire.retention import Retention, retention_of
from tidelake.storage.model.options import TableOptions

HOUR_MS = 3_600_000


@dataclass(frozen=True)
class Line:
    """Snapshots 1 to 20, one an hour, each followed by the next an hour later; it is the hour of the 20th."""

    id: str
    options: dict[str, str]
    earliest_to_keep: int
    earliest: int = 1
    gone: set[int] = field(default_factory=set)


LINES = [
    Line("by default ten stay, and what is younger than an hour", {}, 11),
    Line("age alone", {"snapshot.num-retained.min": "1", "snapshot.time-retained": "5 h"}, 14),
    Line(
        "exactly as old as allowed is too young",
        {"snapshot.num-retained.min": "1", "snapshot.time-retained": "0 s"},
        19,
    ),
    Line("too many, however young", {"snapshot.num-retained.max": "12", "snapshot.time-retained": "100 d"}, 9),
    Line("the least number wins over age", {"snapshot.num-retained.min": "15"}, 6),
    Line("no more than the limit in a round", {"snapshot.expire.limit": "3"}, 4),
    Line("the limit counts from the earliest", {"snapshot.expire.limit": "3"}, 8, earliest=5),
    Line("nothing old enough", {"snapshot.time-retained": "1 d"}, 1),
    Line("fewer there than must stay", {"snapshot.num-retained.min": "30"}, 1),
    Line(
        "the newest stays though none is asked for",
        {"snapshot.num-retained.min": "0", "snapshot.num-retained.max": "0"},
        20,
    ),
    Line(
        "one that went meanwhile keeps nothing",
        {"snapshot.num-retained.min": "1", "snapshot.time-retained": "5 h"},
        15,
        gone={15},
    ),
]


@pytest.mark.parametrize("line", [pytest.param(line, id=line.id) for line in LINES])
def test_the_first_retained_snapshot_follows_the_options(line: Line) -> None:
    asked: list[int] = []

    def followed_at_ms(snapshot_id: int) -> int | None:
        asked.append(snapshot_id)
        return None if snapshot_id + 1 in line.gone else (snapshot_id + 1) * HOUR_MS

    retention = retention_of(TableOptions(line.options))
    assert retention.earliest_to_keep(line.earliest, 20, 20 * HOUR_MS, followed_at_ms) == line.earliest_to_keep
    assert len(asked) <= retention.limit


def test_numbers_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(BadInput, match="at least 10 and at most 3"):
        Retention.of_snapshots(TableOptions({"snapshot.num-retained.max": "3"}))


def test_an_argument_overrides_a_contradicting_option() -> None:
    options = TableOptions({"snapshot.num-retained.min": "10", "snapshot.num-retained.max": "20"})
    assert (retention_of(options, num_max=3).num_min, retention_of(options, num_min=30).num_max) == (3, 30)
    with pytest.raises(BadInput):
        retention_of(options, num_min=5, num_max=3)


@pytest.mark.parametrize(
    ("own", "earliest_to_keep"),
    [
        pytest.param({}, 14, id="as their snapshots"),
        pytest.param({"changelog.time-retained": "9 h"}, 10, id="by age"),
        pytest.param({"changelog.time-retained": "9 h", "changelog.num-retained.max": "3"}, 18, id="at most"),
        pytest.param({"changelog.num-retained.min": "12"}, 9, id="at least"),
    ],
)
def test_changelogs_have_their_own_retention(own: dict[str, str], earliest_to_keep: int) -> None:
    """The same twenty hours."""
    options = TableOptions({"snapshot.num-retained.min": "1", "snapshot.time-retained": "5 h", **own})
    retention = Retention.of_changelogs(options)
    assert retention.earliest_to_keep(1, 20, 20 * HOUR_MS, lambda n: (n + 1) * HOUR_MS) == earliest_to_keep


@pytest.mark.parametrize("case", vectors("changelog_decoupled"), ids=case_id)
def test_changelogs_outlive_snapshots_when_any_option_keeps_them_longer(case: Case) -> None:
    check_members(case, {"options", "expect_decoupled"})
    assert TableOptions(options_of(case)).changelog_outlives_snapshots == case["expect_decoupled"]
