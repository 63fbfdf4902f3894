"""After any changes of a source between refreshes, a materialized table equals its query."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.levels import examples
from tests.tidelake.materialized.orders import (
    LARGE,
    LARGE_QUERY,
    TOTALS,
    TOTALS_QUERY,
    large_of,
    materialized,
    new_lake,
    order,
    reread,
    totals_of,
)

SOURCES: Final[dict[str, dict[str, str]]] = {
    "append": {},
    "no changelog": {"bucket": "2"},
    "lookup": {"bucket": "2", "changelog-producer": "lookup"},
    "lookup, dynamic buckets": {"changelog-producer": "lookup", "dynamic-bucket.target-row-num": "3"},
    "full-compaction": {"bucket": "2", "changelog-producer": "full-compaction"},
    "deletion vectors": {"bucket": "1", "deletion-vectors.enabled": "true"},
    "a sequence field": {"bucket": "1", "sequence.field": "pieces"},
    "partial update": {"bucket": "1", "merge-engine": "partial-update", "changelog-producer": "lookup"},
}

Step = tuple[str, Any]
_ORDER = st.tuples(
    st.integers(1, 6),
    st.sampled_from(["mon", "tue", "wed"]),
    st.one_of(st.none(), st.integers(-500, 500).map(lambda cents: f"{cents / 100:.2f}")),
    st.one_of(st.none(), st.integers(0, 9)),
)
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("order"), st.lists(_ORDER, min_size=1, max_size=4)),
        st.tuples(st.just("order"), st.lists(_ORDER, min_size=1, max_size=4)),
        st.tuples(st.just("delete"), st.lists(_ORDER, min_size=1, max_size=2)),
        st.tuples(st.sampled_from(["compact", "overwrite", "refresh", "refresh", "refresh"]), st.just(None)),
    ),
    min_size=3,
    max_size=12,
)


@pytest.mark.exhaustive(kept=2)
@pytest.mark.parametrize("source", SOURCES)
@settings(max_examples=examples(10), suppress_health_check=list(HealthCheck))
@given(steps=_STEPS)
def test_after_each_refresh_the_rows_equal_the_query(source: str, steps: Sequence[Step]) -> None:
    folder = Path(tempfile.mkdtemp())
    try:
        _live(folder, SOURCES[source], [*steps, ("refresh", None)])
    finally:
        shutil.rmtree(folder)


def _live(folder: Path, options: dict[str, str], steps: Sequence[Step]) -> None:
    lake = new_lake(folder, **options)
    materialized(lake, "totals", TOTALS_QUERY, TOTALS, "day")
    materialized(lake, "large", LARGE_QUERY, LARGE, *(["number"] if options else []))
    for step, argument in steps:
        if step == "order":
            order(lake, *argument)
        elif step == "delete" and options and options.get("merge-engine") is None:
            order(lake, deleted=tuple(argument))
        elif step == "compact":
            lake.table("shop.orders").compact(full=True)
        elif step == "overwrite":
            order(lake, (1, "mon", "1.00", 7), overwrite=True)
        elif step == "refresh":
            orders = lake.table("shop.orders").scan().to_arrow().to_pylist()
            for name in ("totals", "large"):
                lake.refresh_table(f"shop.{name}")
            assert reread(lake, "totals") == totals_of(orders)
            assert reread(lake, "large") == large_of(orders)


@pytest.mark.parametrize("source", [name for name in SOURCES if name != "append"])
def test_updates_of_each_kind_of_source_are_incremental(source: str, tmp_path: Path) -> None:
    lake = new_lake(tmp_path, **SOURCES[source])
    materialized(lake, "totals", TOTALS_QUERY, TOTALS, "day")
    order(lake, (1, "mon", "1.00", 7), (2, "tue", "3.00", 7))
    assert lake.refresh_table("shop.totals").kind == "full"
    for amount in ("2.00", "4.00"):
        order(lake, (1, "tue", amount, 7))
        done = lake.refresh_table("shop.totals")
        assert done.kind == "incremental", done.reason
        orders = lake.table("shop.orders").scan().to_arrow().to_pylist()
        assert reread(lake, "totals") == totals_of(orders)
