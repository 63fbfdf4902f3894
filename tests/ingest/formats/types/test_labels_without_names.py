"""TiCDC's canal-json declares `enum` and `set` without labels, and sends numbers. The record has no labels."""

from __future__ import annotations

from typing import Final

import pytest

from tests.ingest.formats.values.value_case import CellCase
from tidelake.ingest.formats.types.mysql_types import mysql_source_type

_ENUM: Final = mysql_source_type("enum")
_SET: Final = mysql_source_type("set")

CASES: Final = (
    CellCase("a number is no label", "STRING", '"2"', refused="number of a label.*declare an INT column", source=_ENUM),
    CellCase("a number that is no text", "STRING", "2", refused="number of a label", source=_ENUM),
    CellCase("zero", "STRING", '"0"', refused="number of a label", source=_ENUM),
    CellCase("a label", "STRING", '"large"', "large", source=_ENUM),
    CellCase("a number in an INT", "INT", '"2"', 2, source=_ENUM),
    CellCase("bits of a SET", "ARRAY<STRING>", '"3"', refused="number of a label", source=_SET),
    CellCase("labels of a SET", "ARRAY<STRING>", '"a,b"', ["a", "b"], source=_SET),
    CellCase("bits of a SET in a text", "STRING", '"3"', refused="number of a label", source=_SET),
    CellCase("bits of a SET in a BIGINT", "BIGINT", '"3"', 3, source=_SET),
    CellCase("labels that are declared", "STRING", '"2"', "b", source=mysql_source_type("enum('a','b')")),
    CellCase("a SET that is declared", "ARRAY<STRING>", '"3"', ["a", "b"], source=mysql_source_type("set('a','b')")),
    CellCase("its labels", "ARRAY<STRING>", '"a,b"', ["a", "b"], source=mysql_source_type("set('a','b')")),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_a_value_of_an_enum_or_a_set(case: CellCase) -> None:
    case.check()
