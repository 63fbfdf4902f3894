"""Partial-update beyond single rows of integers: sequences of every type, columns that may not be null, no rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import permutations
from typing import Any

import pytest

from tests.support.column_merge import KEY, batch_of_records, merge_function, merge_records
from tests.support.row_merge import Record
from tidelake.storage.model.types import BIGINT, INT, DataType, not_null, parse_type

GROUP = {"merge-engine": "partial-update", "fields.s.sequence-group": "v"}


@pytest.mark.parametrize(
    ("data_type", "rising"),
    [
        ("BOOLEAN", [False, True]),
        ("TINYINT", [-128, 0, 127]),
        ("FLOAT", [-math.inf, -0.0, 0.0, math.inf, math.nan]),
        ("DOUBLE", [-1e300, -0.0, 0.0, 5e-324, math.nan]),
        ("DECIMAL(18, 2)", [Decimal("-0.01"), Decimal("0.00"), Decimal("9999999999999999.99")]),
        ("DECIMAL(38, 0)", [Decimal(-(10**37)), Decimal(2**64), Decimal(10**37)]),
        ("DATE", [date(1, 1, 1), date(1969, 12, 31), date(9999, 12, 31)]),
        ("TIMESTAMP(6)", [datetime(1, 1, 1), datetime(1969, 12, 31, 23, 59, 59, 999_999), datetime(2026, 1, 1)]),
        ("TIMESTAMP(3) WITH LOCAL TIME ZONE", [datetime(1969, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)]),
        ("STRING", ["", "a", "a\0", "ab", "ﬀ", "🌊"]),
        ("BYTES", [b"", b"\x00", b"\x7f", b"\x80", b"\xff\xff"]),
    ],
)
def test_the_newest_sequence_wins_in_any_row_order(data_type: str, rising: Sequence[Any]) -> None:
    """Each order of arrival is a key; the last of `rising` is the newest, and its row's value stays."""
    types: dict[str, DataType] = {KEY: BIGINT, "v": INT, "s": parse_type(data_type)}
    orders = list(permutations(range(len(rising))))[:24]
    records = [
        Record("+I", i, {KEY: key, "v": place, "s": rising[place]})
        for key, order in enumerate(orders)
        for i, place in enumerate(order)
    ]
    merged = merge_records(merge_function(types, GROUP), batch_of_records(types, records))
    assert [record.row["v"] for record in merged] == [len(rising) - 1] * len(orders)


def test_a_delete_may_leave_null_in_a_not_null_column() -> None:
    """As Java hands it to readers; it is not written."""
    types: dict[str, DataType] = {KEY: BIGINT, "v": not_null(INT), "s": INT}
    records = [Record("+I", 0, {KEY: 1, "v": 5, "s": 1}), Record("-D", 1, {KEY: 1, "v": 5, "s": 2})]
    (merged,) = merge_records(merge_function(types, GROUP), batch_of_records(types, records))
    assert merged.row == {KEY: 1, "v": None, "s": 2}


def test_a_key_with_thousands_of_deletes_is_merged_row_by_row() -> None:
    """A delete removes the record only where its sequence is not older: so each row has to be asked in turn."""
    options = GROUP | {"partial-update.remove-record-on-sequence-group": "s"}
    types: dict[str, DataType] = {KEY: BIGINT, "v": INT, "s": INT, "free": INT}
    rows = [("+I", 0, 7)] + [("-D" if i % 2 else "+I", i // 4, None) for i in range(1, 4000)]
    records = [
        Record(kind, i, {KEY: 1, "v": i, "s": sequence, "free": free})
        for i, (kind, sequence, free) in enumerate([*rows, ("-D", 3, 9)])
    ]
    (merged,) = merge_records(merge_function(types, options), batch_of_records(types, records))
    # the last delete is older than the record, and changes nothing; the one before it removed the record
    assert (merged.kind, merged.sequence) == ("+I", 4000)
    assert merged.row == {KEY: 1, "v": 3999, "s": 999, "free": None}
