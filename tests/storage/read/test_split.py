"""Files of a bucket become the same splits as in Java."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.cases import Case, case_id, check_members, vectors
from tidelake.storage.files.data_file import EMPTY_ROW, EMPTY_STATS, DataFileMeta
from tidelake.storage.merge.sorted_run import KeyRange
from tidelake.storage.model.options import MergeEngine
from tidelake.storage.read.split import BinPacking, append_splits, merge_tree_splits

FILE = DataFileMeta("", 0, 1, EMPTY_ROW, EMPTY_ROW, EMPTY_STATS, EMPTY_STATS, 0, 0, 0, 0)


MEMBERS = {"files", "target_split_size", "open_file_cost", "deletion_vectors", "merge_engine", "expect"}


@pytest.mark.parametrize("case", vectors("split_generator"), ids=case_id)
def test_split_generator(case: Case) -> None:
    check_members(case, MEMBERS)
    for file in case["files"]:
        check_members(file, {"level", "min", "max", "size", "deletes"})
    packing = BinPacking(case["target_split_size"], case["open_file_cost"])
    ranges = [
        KeyRange(
            (file["min"],),
            (file["max"],),
            replace(
                FILE,
                file_name=file["name"],
                level=file["level"],
                file_size=file["size"],
                delete_row_count=file.get("deletes"),
            ),
        )
        for file in case["files"]
    ]
    groups = merge_tree_splits(
        ranges, packing, MergeEngine(case["merge_engine"]), deletion_vectors=case.get("deletion_vectors", False)
    )
    got = [
        {"files": sorted(f.file_name for section in sections for run in section for f in run), "raw_convertible": raw}
        for sections, raw in groups
    ]
    assert got == [{**split, "files": sorted(split["files"])} for split in case["expect"]]


@pytest.mark.parametrize(
    ("sizes", "groups"),
    [
        pytest.param([], [], id="no file, no split"),
        pytest.param([200], [[200]], id="a file above the target is alone"),
        pytest.param([40, 40, 40], [[40, 40], [40]], id="as many as fit"),
        pytest.param([1, 1, 1, 1, 1, 1], [[1] * 5, [1]], id="opening a file counts as 20 bytes"),
    ],
)
def test_append_files_are_packed_in_the_order_they_were_written(sizes: list[int], groups: list[list[int]]) -> None:
    files = [replace(FILE, file_size=size, min_sequence_number=i) for i, size in enumerate(sizes)]
    packed = append_splits(list(reversed(files)), BinPacking(target_size_bytes=100, open_file_cost_bytes=20))
    assert [[run[0].file_size for [run] in sections] for sections, _ in packed] == groups
    assert all(raw for _, raw in packed)
