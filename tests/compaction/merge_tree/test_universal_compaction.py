"""Which runs universal compaction picks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.compaction.files import bucket, paper_file
from tests.support.cases import Case, NotUnderstood, case_id, check_members, vectors
from tidelake.compaction.merge_tree.compact_unit import CompactUnit, PickReason
from tidelake.compaction.merge_tree.levels import LevelSortedRun
from tidelake.compaction.merge_tree.universal_compaction import (
    OffPeakHours,
    UniversalCompaction,
    UniversalCompactionOptions,
    create_unit,
    pick_by_size_ratio,
)
from tidelake.errors import BadInput
from tidelake.storage.model.options import TableOptions

HOUR = 3


def runs_of(levels_and_sizes: Sequence[Sequence[int]]) -> list[LevelSortedRun]:
    return [
        LevelSortedRun(level, (paper_file(str(number), level, size=size),))
        for number, (level, size) in enumerate(levels_and_sizes)
    ]


def settings_of(config: dict[str, Any]) -> UniversalCompactionOptions:
    check_members(
        config,
        {
            *("trigger", "max_size_amp", "size_ratio", "offpeak_ratio_now", "force_interval", "force_up_level0"),
            *("interval_ms", "total_size_threshold", "incremental_size_threshold", "last_full_compaction_ms"),
        },
    )
    every = config.get("force_interval") or (1 if config.get("force_up_level0") else None)
    return UniversalCompactionOptions(
        trigger=config["trigger"],
        max_size_amplification_percent=config["max_size_amp"],
        size_ratio_percent=config["size_ratio"],
        off_peak=OffPeakHours(HOUR, HOUR + 1, config.get("offpeak_ratio_now", 0)),
        optimization_interval_ms=config.get("interval_ms"),
        total_size_threshold_bytes=config.get("total_size_threshold"),
        incremental_size_threshold_bytes=config.get("incremental_size_threshold"),
        force_level_0_every=every,
    )


def sizes(unit: CompactUnit) -> list[int]:
    return [file.file_size for file in unit.files]


@pytest.mark.parametrize("case", vectors("universal_compaction"), ids=case_id)
def test_universal_compaction(case: Case) -> None:
    match case["op"]:
        case "pick":
            check_pick(case)
        case "create_unit":
            check_output_level(case)
        case "pick_for_size_ratio":
            check_size_ratio(case)
        case "size_ratio_sequence":
            check_runs_of_like_size_merge_like_the_digits_of_a_counter(case)
        case op:
            raise NotUnderstood(f"op {op!r} of a case")


def check_pick(case: Case) -> None:
    check_members(case, {"op", "config", "steps"})
    picker = UniversalCompaction(settings_of(case["config"]), case["config"].get("last_full_compaction_ms"))
    for step in case["steps"]:
        check_members(step, {"runs", "num_levels", "now_ms", "expect"})
        runs, max_level = runs_of(step["runs"]), step["num_levels"] - 1
        unit = picker.pick(runs, max_level, now_ms=step.get("now_ms", 0), local_hour=HOUR)
        got = None if unit is None else {"output_level": unit.output_level, "picked_sizes": sizes(unit)}
        assert got == step["expect"]


def check_output_level(case: Case) -> None:
    check_members(case, {"op", "run_levels", "max_level", "run_count", "expect"})
    runs = runs_of([(level, 1) for level in case["run_levels"]])
    unit = create_unit(runs, case["max_level"], case["run_count"], PickReason.SIZE_RATIO)
    assert {"output_level": unit.output_level, "run_count": len(unit.files)} == case["expect"]


def check_size_ratio(case: Case) -> None:
    check_members(case, {"op", "config", "runs", "max_level", "expect"})
    unit = pick_by_size_ratio(runs_of(case["runs"]), case["max_level"], case["config"]["size_ratio"])
    assert (unit and {"output_level": unit.output_level, "picked": len(unit.files)}) == case["expect"]


def check_runs_of_like_size_merge_like_the_digits_of_a_counter(case: Case) -> None:
    check_members(case, {"op", "procedure", "config", "start", "expect_after_each_step"})
    current, seen = list(case["start"]), []
    for _ in case["expect_after_each_step"]:
        current.insert(0, 1)
        runs = runs_of(list(enumerate(current)))
        due = len(runs) >= case["config"]["trigger"]
        unit = pick_by_size_ratio(runs, len(current), case["config"]["size_ratio"]) if due else None
        if unit is not None:
            current[: len(unit.files)] = [sum(sizes(unit))]
        seen.append(list(current))
    assert seen == case["expect_after_each_step"]


@pytest.mark.parametrize("case", vectors("offpeak_hours"), ids=case_id)
def test_off_peak_hours(case: Case) -> None:
    check_members(case, {"start_hour", "end_hour", "ratio", "enabled", "expect_ratio_by_hour"})
    hours = OffPeakHours(case["start_hour"], case["end_hour"], case["ratio"])
    assert hours.is_enabled is case["enabled"]
    assert {h: hours.ratio_at(int(h)) for h in case["expect_ratio_by_hour"]} == case["expect_ratio_by_hour"]
    if not case["enabled"]:
        assert {hours.ratio_at(hour) for hour in range(24)} == {0}


@pytest.mark.parametrize("case", vectors("unit_filter"), ids=case_id)
def test_units_that_change_nothing_start_no_task(case: Case) -> None:
    check_members(case, {"unit_file_levels", "output_level", "expect_submitted"})
    files = tuple(paper_file(str(n), level, (n, n)) for n, level in enumerate(case["unit_file_levels"]))
    unit = CompactUnit(case["output_level"], files, PickReason.SIZE_RATIO)
    assert unit.changes_nothing is not case["expect_submitted"]


# The tree before, what is done, the tree after: (level: sizes of its runs, newest first).
PICTURES = {
    "four runs rest": ("L0 1 1 1 1", None),
    "five runs of like size become one, on the highest level": ("L0 1 1 1 1 1", "size amplification 1 1 1 1 1 -> L5"),
    "young runs meet below an old one that is much larger": (
        "L0 1 1 1 1 1 | L5 1000",
        "size ratio 1 1 1 1 1 -> L4",
    ),
    "what was merged before joins when the young ones have grown to it": (
        "L0 3 1 1 1 | L4 5 | L5 1000",
        "size ratio 3 1 1 1 5 -> L4",
    ),
    "a run that is too large for the young ones rests": (
        "L0 1 1 1 1 | L3 90 | L5 1000",
        "size ratio 1 1 1 1 -> L2",
    ),
    "level 1 joins whatever its size": ("L0 1 1 1 1 | L1 900 | L5 10000", "size ratio 1 1 1 1 900 -> L4"),
    "growing runs: no two are alike, yet there are too many": (
        "L0 1 3 9 | L2 81 | L3 300 | L4 1000 | L5 9000",
        "number of sorted runs 1 3 9 -> L1",
    ),
}


def drawn(picture: str) -> list[LevelSortedRun]:
    runs = []
    for of_level in picture.split("|"):
        level, *run_sizes = of_level.split()
        runs += [(int(level[1:]), int(size)) for size in run_sizes]
    return runs_of(runs)


@pytest.mark.parametrize(("before", "done"), PICTURES.values(), ids=PICTURES.keys())
def test_picked_units_match_the_drawn_levels(before: str, done: str | None) -> None:
    unit = UniversalCompaction(UniversalCompactionOptions()).pick(drawn(before), 5, now_ms=0, local_hour=0)
    reported = unit and f"{unit.reason} {' '.join(map(str, sizes(unit)))} -> L{unit.output_level}"
    assert reported == done


def test_a_full_compaction_resets_the_clock_of_the_optimization_interval() -> None:
    picker = UniversalCompaction(UniversalCompactionOptions(optimization_interval_ms=1000))
    runs = runs_of([(0, 1), (5, 10)])
    picked = [picker.pick(runs, 5, now_ms=now_ms, local_hour=0) is not None for now_ms in (0, 999, 1000, 1001, 1002)]
    assert picked == [True, False, False, True, False]


# The rule that picks, on each side of its limit: options, the tree, what is done.
LIMITS: dict[str, tuple[dict[str, int], str, str | None]] = {
    "newer runs of twice the oldest one are not too large": (
        {"trigger": 2, "max_size_amplification_percent": 200},
        "L0 1 | L4 199 | L5 100",
        "number of sorted runs 1 199 100 -> L5",
    ),
    "newer runs of more than that are": (
        {"trigger": 2, "max_size_amplification_percent": 200},
        "L0 1 | L4 200 | L5 100",
        "size amplification 1 200 100 -> L5",
    ),
    "a run joins that is larger by just the size ratio": (
        {"trigger": 3, "size_ratio_percent": 1},
        "L0 100 | L2 101 | L5 9000",
        "size ratio 100 101 -> L4",
    ),
    "a larger one does not": ({"trigger": 3, "size_ratio_percent": 1}, "L0 100 | L2 102 | L5 9000", None),
    "no run joins beyond one that does not": ({"trigger": 4}, "L0 1 | L2 100 | L3 1 | L5 9000", None),
    "one run too many: two are merged": (
        {"trigger": 4},
        "L0 1 | L2 10 | L3 100 | L4 1000 | L5 10000",
        "number of sorted runs 1 10 -> L2",
    ),
    "two too many: three are": (
        {"trigger": 3},
        "L0 1 | L2 10 | L3 100 | L4 1000 | L5 10000",
        "number of sorted runs 1 10 100 -> L3",
    ),
    "runs above the last level may have the limit of increments": (
        {"incremental_size_threshold_bytes": 30},
        "L0 10 | L4 20 | L5 100",
        None,
    ),
    "they may not have more": (
        {"incremental_size_threshold_bytes": 29},
        "L0 10 | L4 20 | L5 100",
        "incremental size 10 20 100 -> L5",
    ),
    "a table of the limit of early full compaction is too large for it": (
        {"total_size_threshold_bytes": 30},
        "L0 10 | L5 20",
        None,
    ),
    "a smaller one is not": ({"total_size_threshold_bytes": 31}, "L0 10 | L5 20", "total size 10 20 -> L5"),
}


@pytest.mark.parametrize(("options", "before", "done"), LIMITS.values(), ids=LIMITS.keys())
def test_each_rule_picks_from_its_limit_on(options: dict[str, Any], before: str, done: str | None) -> None:
    unit = UniversalCompaction(UniversalCompactionOptions(**options)).pick(drawn(before), 5, now_ms=0, local_hour=0)
    assert (unit and f"{unit.reason} {' '.join(map(str, sizes(unit)))} -> L{unit.output_level}") == done


def test_runs_that_are_picked_in_any_case_need_no_other_to_join() -> None:
    assert pick_by_size_ratio(drawn("L0 1 | L2 100 | L3 1000"), 5, 1) is None
    unit = pick_by_size_ratio(drawn("L0 1 | L2 100 | L3 1000"), 5, 1, first=2)
    assert unit is not None
    assert sizes(unit) == [1, 100]


def test_level_0_is_compacted_in_every_nth_call_without_another_pick() -> None:
    picker = UniversalCompaction(UniversalCompactionOptions(force_level_0_every=3))
    units = [picker.pick(drawn("L0 1 | L5 10"), 5, now_ms=0, local_hour=0) for _ in range(7)]
    assert [unit and unit.reason for unit in units] == [None, None, PickReason.FORCED_LEVEL_0] * 2 + [None]


def test_the_picker_of_a_table_follows_its_options() -> None:
    settings = UniversalCompactionOptions.of(TableOptions({"force-lookup": "true", "lookup-compact": "gentle"}))
    assert settings == UniversalCompactionOptions(force_level_0_every=10)
    assert UniversalCompactionOptions.of(TableOptions({"compaction.force-up-level-0": "true"})).force_level_0_every == 1
    without_lookups = TableOptions({"lookup-compact": "gentle"})
    assert UniversalCompactionOptions.of(without_lookups) == UniversalCompactionOptions()
    assert UniversalCompactionOptions.of(TableOptions({})) == UniversalCompactionOptions()


def test_the_picker_chooses_from_the_levels() -> None:
    levels = bucket([paper_file(str(n), sequence=(n, n)) for n in range(5)], 6)
    unit = UniversalCompaction(UniversalCompactionOptions()).pick(levels.runs, levels.max_level, now_ms=0, local_hour=0)
    assert unit is not None
    assert [file.file_name for file in unit.files] == ["4", "3", "2", "1", "0"]


@pytest.mark.parametrize("trigger", ["0", "-1"])
def test_an_unreachable_compaction_trigger_is_refused(trigger: str) -> None:
    """New tables can't have one, tables that exist may."""
    with pytest.raises(BadInput, match=f"compaction-trigger = {trigger}: must be at least 1"):
        UniversalCompactionOptions.of(TableOptions({"num-sorted-run.compaction-trigger": trigger}))


def test_the_smallest_trigger_is_1() -> None:
    options = TableOptions({"num-sorted-run.compaction-trigger": "1"})
    assert UniversalCompactionOptions.of(options).trigger == 1
