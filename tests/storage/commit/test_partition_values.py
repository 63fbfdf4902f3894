"""The values that name a partition: exact, or refused. A value that is cut would replace another partition."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

import tidelake

CASES: Final[dict[str, tuple[pa.DataType, Any, list[Any], list[Any]]]] = {
    # the type of the partition column, a value of it, what names it, what names nothing
    "a date": (
        pa.date32(),
        date(2026, 5, 2),
        ["2026-05-02", date(2026, 5, 2), datetime(2026, 5, 2), pa.scalar(date(2026, 5, 2))],
        [datetime(2026, 5, 2, 12), datetime(2026, 5, 2, tzinfo=UTC), 20575, "2026-05-02 12:00:00", "May"],
    ),
    "an hour": (pa.int32(), 1, [1, "1", 1.0], [1.7, "1.7", True, date(1970, 1, 2)]),
    "a moment": (
        pa.timestamp("ms"),
        datetime(2026, 5, 2, 12),
        [datetime(2026, 5, 2, 12), "2026-05-02 12:00:00"],
        [datetime(2026, 5, 2, 12, 0, 0, 1), datetime(2026, 5, 2, 12, tzinfo=UTC), 1777723200000],
    ),
    "an amount": (pa.decimal128(5, 2), Decimal("1.00"), [Decimal("1.0"), 1, "1.00"], [Decimal("1.001"), "1.001"]),
    "a text": (pa.string(), "1", ["1"], [1]),
}


def table_of(tmp_path: Path, kind: pa.DataType, value: Any) -> tidelake.Table:
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("d")
    table = catalog.create_table("d.t", pa.schema([("p", kind), ("v", pa.int32())]), partition_by=["p"])
    table.append([{"p": value, "v": 1}])
    return table


def truncated(table: tidelake.Table, value: Any) -> None:
    table.truncate(partition={"p": value})


def overwritten(table: tidelake.Table, value: Any) -> None:
    table.overwrite(table.scan().to_arrow().slice(0, 0), partition={"p": value})


@pytest.mark.parametrize("change", [truncated, overwritten])
@pytest.mark.parametrize(("kind", "value", "named", "wrong"), CASES.values(), ids=CASES)
def test_a_partition_is_replaced_by_its_exact_value_only(
    tmp_path: Path,
    kind: pa.DataType,
    value: Any,
    named: list[Any],
    wrong: list[Any],
    change: Callable[[tidelake.Table, Any], None],
) -> None:
    table = table_of(tmp_path, kind, value)
    for other in wrong:
        with pytest.raises(tidelake.BadInput, match="is not a valid value of partition column p"):
            change(table, other)
    assert len(table.scan().to_arrow()) == 1
    for same in named:
        change(table, same)
        assert len(table.scan().to_arrow()) == 0, same
        table.append([{"p": value, "v": 1}])
