"""Conditions on `_ROW_ID` and `_SEQUENCE_NUMBER`, which are in no data file: every call that takes a condition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import tidelake
from tidelake import col

TRACKING: Final = {"bucket": "-1", "row-tracking.enabled": "true"}
TABLES: Final[Mapping[str, Mapping[str, str]]] = {
    "row tracking": TRACKING,
    "data evolution": {**TRACKING, "data-evolution.enabled": "true"},
    "deletion vectors": {**TRACKING, "deletion-vectors.enabled": "true"},
    "both": {**TRACKING, "data-evolution.enabled": "true", "deletion-vectors.enabled": "true"},
}
CONDITIONS: Final[Mapping[str, tuple[Any, list[int]]]] = {
    "the snapshot": (col("_SEQUENCE_NUMBER") > 1, [3, 4, 5]),
    "the snapshot, as SQL": ("_SEQUENCE_NUMBER = 3", [5]),
    "the snapshot, of pyarrow": (pc.field("_SEQUENCE_NUMBER") <= 1, [1, 2]),
    "the id": (col("_ROW_ID") >= 3, [4, 5]),
    "both": ((col("_ROW_ID") >= 1) & (col("_SEQUENCE_NUMBER") < 3), [2, 3, 4]),
    "either, and a column": (((col("_ROW_ID") == 0) | (col("_SEQUENCE_NUMBER") == 3)) & (col("k") < 5), [1]),
    "several snapshots": (col("_SEQUENCE_NUMBER").is_in([1, 3]), [1, 2, 5]),
    "none": (col("_SEQUENCE_NUMBER").is_null(), []),
    "another": (~(col("_SEQUENCE_NUMBER") == 2), [1, 2, 5]),
}


@pytest.fixture(params=TABLES.values(), ids=list(TABLES))
def table(request: pytest.FixtureRequest) -> tidelake.Table:
    """A table with the keys 1 and 2 in the first snapshot, 3 and 4 in the second, 5 in the third."""
    catalog = tidelake.open_catalog(f"memory://{uuid4().hex}/lake")
    catalog.create_database("d")
    made = catalog.create_table("d.t", pa.schema([("k", pa.int64()), ("v", pa.string())]), options=request.param)
    for keys in ([1, 2], [3, 4], [5]):
        made.append(pa.table({"k": keys, "v": ["x"] * len(keys)}))
    return made


def keys_of(found: tidelake.Scan) -> list[int]:
    return sorted(found.to_arrow()["k"].to_pylist())


@pytest.mark.parametrize(("condition", "keys"), CONDITIONS.values(), ids=CONDITIONS.keys())
def test_a_scan_takes_the_condition(table: tidelake.Table, condition: Any, keys: list[int]) -> None:
    assert keys_of(table.scan(filter=condition)) == keys
    assert keys_of(table.scan(filter=condition, columns=["k"])) == keys
    assert table.scan(filter=condition, columns=["v"]).to_arrow().num_rows == len(keys)
    assert table.scan(filter=condition, columns=["k"]).limit(10).to_arrow().num_rows == len(keys)


@pytest.mark.parametrize(("condition", "keys"), CONDITIONS.values(), ids=CONDITIONS.keys())
def test_a_delete_takes_the_condition(table: tidelake.Table, condition: Any, keys: list[int]) -> None:
    if "deletion-vectors.enabled" not in table.options:
        with pytest.raises(tidelake.UnsupportedFeature):
            table.delete(condition)
        return
    table.delete(condition)
    assert keys_of(table.scan()) == [key for key in range(1, 6) if key not in keys]


@pytest.mark.parametrize("condition", [col("_SEQUENCE_NUMBER") > "x", "_SEQUENCE_NUMBR = 1", col("_SEQUENCE") == 1])
def test_a_wrong_condition_is_refused_by_name(table: tidelake.Table, condition: Any) -> None:
    with pytest.raises(tidelake.BadInput, match="_SEQUENCE"):
        table.scan(filter=condition).to_arrow()
