"""Rows are sliced by the offsets of their records, whole records at a time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from tests.ingest.pipeline.fakes import SCHEMA, rows
from tidelake.ingest.formats.base import TableRows, Target, UnavailableValues
from tidelake.ingest.formats.table_rows import drop_records, keep_records, slice_by_offset

CELLS = [(n, f"v{n}") for n in range(6)]
OFFSETS = [3, 5, 5, 8, 8, 9]


def batch() -> TableRows:
    keys = pa.record_batch({"id": pa.array([1, 4])})
    unavailable = UnavailableValues(
        np.array([1, 4]), {"v": np.array([True, False]), "w": np.array([False, True])}, keys
    )
    return TableRows(Target("t", SCHEMA), rows(*CELLS), np.array(OFFSETS), unavailable)


@pytest.mark.parametrize(
    ("start", "stop", "kept", "flagged", "columns"),
    [
        pytest.param(0, None, [0, 1, 2, 3, 4, 5], [1, 4], {"v", "w"}, id="all"),
        pytest.param(5, None, [1, 2, 3, 4, 5], [0, 3], {"v", "w"}, id="from a record"),
        pytest.param(6, None, [3, 4, 5], [1], {"w"}, id="from a gap"),
        pytest.param(0, 8, [0, 1, 2], [1], {"v"}, id="up to a record"),
        pytest.param(5, 9, [1, 2, 3, 4], [0, 3], {"v", "w"}, id="both"),
        pytest.param(9, None, [5], None, set(), id="no flagged row left"),
        pytest.param(10, None, [], None, set(), id="nothing left"),
        pytest.param(9, 5, [], None, set(), id="an empty range"),
    ],
)
def test_rows_between_two_offsets_are_selected(
    start: int, stop: int | None, kept: list[int], flagged: list[int] | None, columns: set[str]
) -> None:
    part = slice_by_offset(batch(), start, stop)
    assert part.rows["id"].to_pylist() == kept
    assert part.offsets.tolist() == [OFFSETS[n] for n in kept]
    if flagged is None:
        assert part.unavailable is None
    else:
        assert part.unavailable is not None
        assert part.unavailable.rows.tolist() == flagged
        assert set(part.unavailable.columns) == columns
        assert part.unavailable.keys["id"].to_pylist() == [kept[n] for n in flagged]
        assert all(len(flags) == len(flagged) for flags in part.unavailable.columns.values())


def test_rows_of_a_table_without_a_key_are_selected_with_their_missing_values() -> None:
    """There are no columns of keys, and so no number of rows that Arrow knows."""
    without_key = pa.record_batch([], names=[])
    of_batch = UnavailableValues(np.array([1, 4]), {"v": np.array([True, True])}, without_key)
    rows_left = replace(batch(), unavailable=of_batch)
    sliced, kept = slice_by_offset(rows_left, 5, 9), keep_records(rows_left, np.arange(6) % 3 == 1)
    some = of_batch.only({"v": np.array([False, True])})
    assert some is not None
    assert (some.rows.tolist(), some.keys.num_columns) == ([4], 0)
    for part, flagged in ((sliced, [0, 3]), (kept, [0, 1])):
        assert part.unavailable is not None
        assert part.unavailable.rows.tolist() == flagged
        assert part.unavailable.keys.num_columns == 0


def test_all_rows_of_a_record_are_dropped_together() -> None:
    rest = drop_records(batch(), np.array([False, True, False, False, False, True]))
    assert rest.rows["id"].to_pylist() == [0, 3, 4]
    assert (rest.offsets.tolist(), rest.unavailable) == ([3, 8, 8], None)
