"""Columns become wider ones of their kind, and nothing else, while a pipeline runs."""

from __future__ import annotations

import pytest

from ingest.formats.types.type_rules import is_widening
from storage.types import parse_type

WIDER = [
    ("TINYINT", "BIGINT"),
    ("INT", "BIGINT"),
    ("INT NOT NULL", "BIGINT"),
    ("FLOAT", "DOUBLE"),
    ("DECIMAL(8, 2)", "DECIMAL(12, 4)"),
    ("VARCHAR(10)", "VARCHAR(50)"),
    ("CHAR(3)", "STRING"),
    ("VARBINARY(4)", "BYTES"),
    ("TIMESTAMP(3)", "TIMESTAMP(6)"),
    ("TIMESTAMP(3) WITH LOCAL TIME ZONE", "TIMESTAMP(6) WITH LOCAL TIME ZONE"),
    ("TIME(0)", "TIME(3)"),
]
OTHERS = [
    ("DECIMAL(14, 2)", "DECIMAL(12, 6)"),  # Paimon makes this change, and loses digits before the point
    ("INT", "DECIMAL(20, 0)"),
    ("BIGINT", "DOUBLE"),
    ("INT", "STRING"),
    ("STRING", "INT"),
    ("DATE", "TIMESTAMP(3)"),
    ("TIMESTAMP(3)", "TIMESTAMP(3) WITH LOCAL TIME ZONE"),
    ("ARRAY<INT>", "ARRAY<BIGINT>"),  # its element is a column of its own here
]


@pytest.mark.parametrize(("old", "new"), WIDER)
def test_a_wider_type_of_the_same_kind_may_come_and_the_way_back_not(old: str, new: str) -> None:
    assert is_widening(parse_type(old), parse_type(new))
    assert not is_widening(parse_type(new), parse_type(old))


@pytest.mark.parametrize(("old", "new"), OTHERS)
def test_a_change_that_may_touch_values_or_their_kind_may_not(old: str, new: str) -> None:
    assert not is_widening(parse_type(old), parse_type(new))
