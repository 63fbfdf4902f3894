"""Which files are rewritten, which are only upgraded, and when deletes are dropped."""

from __future__ import annotations

from typing import Any

import pytest

from tests.compaction.files import KEY_TYPES, bucket, keys_of, paper_file
from tests.support.cases import Case, case_id, check_members, vectors
from tidelake.compaction.merge_tree.compact_unit import CompactUnit, PickReason
from tidelake.compaction.merge_tree.rewrite_plan import Rewrite, Step, can_drop_deletes, plan_rewrite
from tidelake.compaction.merge_tree.universal_compaction import pick_full_compaction
from tidelake.storage.files.data_file import DataFileMeta


def reported(step: Step) -> dict[str, Any]:
    if isinstance(step, Rewrite):
        return {"op": "rewrite", "files": sorted(file.file_name for file in step.files)}
    return {"op": "upgrade", "files": [step.file.file_name]}


def rewritten(files: tuple[DataFileMeta, ...], level: int) -> list[int]:
    return [level, min(keys_of(file)[0] for file in files), max(keys_of(file)[1] for file in files)]


TASK_MEMBERS = {
    *("num_levels", "output_level", "min_file_size", "force_rewrite_all_files", "deletion_vectors"),
    *("force_keep_delete", "files", "unit_files", "expect"),
}
EXPECTED_MEMBERS = {"drop_delete", "operations", "resulting_files_if_rewrite_yields_one_file"}


@pytest.mark.parametrize("case", vectors("compact_task"), ids=case_id)
def test_compact_task(case: Case) -> None:
    check_members(case, TASK_MEMBERS)
    check_members(case["expect"], EXPECTED_MEMBERS)
    for f in case["files"]:
        check_members(f, {"level", "min", "max", "size", "deletes", "expired", "contains_expired"})
    files = {
        f["name"]: paper_file(f["name"], f["level"], (f["min"], f["max"]), size=f["size"], deletes=f["deletes"])
        for f in case["files"]
    }
    expired = {f["name"] for f in case["files"] if f.get("expired") or f.get("contains_expired")}
    rewrite_all = case.get("force_rewrite_all_files", False)
    levels = bucket(list(files.values()), case["num_levels"])
    output_level = case["output_level"]
    unit = CompactUnit(output_level, tuple(files[name] for name in case["unit_files"]), PickReason.FULL)
    steps = plan_rewrite(
        unit,
        KEY_TYPES,
        levels.max_level,
        min_file_size_bytes=case["min_file_size"],
        must_rewrite=lambda file: rewrite_all or file.file_name in expired,
    )
    expect = case["expect"]
    dropped = can_drop_deletes(
        output_level, levels.highest_level, has_deletion_vectors=case.get("deletion_vectors", False)
    )
    assert (dropped and not case.get("force_keep_delete", False)) is expect["drop_delete"]
    assert [reported(step) for step in steps] == [
        {"op": op["op"], "files": sorted(op["files"])} for op in expect["operations"]
    ]
    if "resulting_files_if_rewrite_yields_one_file" not in expect:
        return
    gone = {name for step in steps for name in reported(step)["files"]}
    left = [[file.level, *keys_of(file)] for name, file in files.items() if name not in gone]
    new = [rewritten(s.files if isinstance(s, Rewrite) else (s.file,), output_level) for s in steps]
    assert sorted(left + new) == sorted(expect["resulting_files_if_rewrite_yields_one_file"])


PICK_MEMBERS = {
    *("num_levels", "runs", "record_level_expire_files", "files_with_deletion_vector"),
    *("force_rewrite_all_files", "expect"),
}


@pytest.mark.parametrize("case", vectors("pick_full_compaction"), ids=case_id)
def test_pick_full_compaction(case: Case) -> None:
    check_members(case, PICK_MEMBERS)
    files = [
        paper_file(name, run["level"], (10 * number, 10 * number))
        for run in case["runs"]
        for number, name in enumerate(run["files"])
    ]
    to_go = {*(case.get("record_level_expire_files") or ()), *(case.get("files_with_deletion_vector") or ())}
    unit = pick_full_compaction(
        bucket(files, case["num_levels"]),
        must_rewrite=lambda file: case.get("force_rewrite_all_files", False) or file.file_name in to_go,
    )
    got = unit and {
        "output_level": unit.output_level,
        "files": [file.file_name for file in unit.files],
        "file_rewrite": unit.rewrites_each_file,
    }
    assert got == case["expect"]


def test_a_unit_that_rewrites_files_one_by_one_merges_none() -> None:
    files = (paper_file("a", 5, (0, 1)), paper_file("b", 5, (2, 3)))
    unit = CompactUnit(5, files, PickReason.FULL, rewrites_each_file=True)
    steps = plan_rewrite(unit, KEY_TYPES, 5, min_file_size_bytes=100, must_rewrite=lambda _: False)
    assert [reported(step) for step in steps] == [{"op": "rewrite", "files": ["a"]}, {"op": "rewrite", "files": ["b"]}]
