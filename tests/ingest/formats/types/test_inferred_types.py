"""While a pipeline runs, columns are only widened within their kind of type."""

from __future__ import annotations

import pytest

from tidelake.ingest.formats.types.inferred_types import is_widening
from tidelake.storage.model.types import parse_type

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
def test_only_widening_within_one_kind_of_type_is_allowed(old: str, new: str) -> None:
    assert is_widening(parse_type(old), parse_type(new))
    assert not is_widening(parse_type(new), parse_type(old))


@pytest.mark.parametrize(("old", "new"), OTHERS)
def test_changes_that_could_alter_values_are_not_allowed(old: str, new: str) -> None:
    assert not is_widening(parse_type(old), parse_type(new))
