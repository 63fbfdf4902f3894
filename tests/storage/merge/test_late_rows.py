"""With `sequence.field`, a row that arrives late may give another value, depending on when older rows were merged.

A merged row keeps only the greatest sequence of its rows. Each column is either named, or keeps its value.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import permutations
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest

import tidelake
from tidelake.storage.merge.sequence_groups import columns_changed_by_late_rows, late_rows_note

COLUMNS = pa.schema([("k", pa.int64()), ("at", pa.int64()), ("a", pa.int64()), ("b", pa.string())])
AGGREGATION = {"merge-engine": "aggregation", "sequence.field": "at"}
PARTIAL_UPDATE = {"merge-engine": "partial-update", "sequence.field": "at"}


def functions(a: str, b: str) -> dict[str, str]:
    return {"fields.a.aggregate-function": a, "fields.b.aggregate-function": b}


TABLES: Mapping[str, tuple[Mapping[str, str], tuple[str, ...]]] = {
    "first_value and listagg": (AGGREGATION | functions("first_value", "listagg"), ("a", "b")),
    "first_non_null_value": (AGGREGATION | functions("first_non_null_value", "max"), ("a",)),
    "no function is last_non_null_value": (AGGREGATION, ("a", "b")),
    "functions of the newest row, or of any order": (AGGREGATION | functions("sum", "last_value"), ()),
    "without a sequence": ({"merge-engine": "aggregation"} | functions("first_value", "listagg"), ()),
    "partial-update": (PARTIAL_UPDATE, ("a", "b")),
    "partial-update with a group": (PARTIAL_UPDATE | {"fields.a.sequence-group": "b"}, ()),
    "deduplicate": ({"sequence.field": "at"}, ()),
}


@pytest.mark.exhaustive(kept=3)
@pytest.mark.parametrize(("options", "named"), TABLES.values(), ids=TABLES)
def test_the_named_columns_depend_on_compactions_and_no_others_do(
    options: Mapping[str, str], named: tuple[str, ...]
) -> None:
    catalog = tidelake.open_catalog(f"memory://{uuid4().hex}/lake")
    catalog.create_database("d")
    changed: set[str] = set()
    rows = [{"k": 1, "at": at, "a": a, "b": b} for at, a, b in ((2, 20, "two"), (3, 30, "three"), (4, None, None))]
    for number, order in enumerate(permutations(rows)):
        results: list[dict[str, Any]] = []
        for compacts in (False, True):
            table = catalog.create_table(
                f"d.t{number}{compacts}", COLUMNS, primary_key=["k"], options={"bucket": "1", **options}
            )
            assert columns_changed_by_late_rows(table.context.schema, table.context.options) == named
            for row in order:
                with table.writer() as writer:
                    writer.write(pa.Table.from_pylist([row], COLUMNS))
                    writer.commit()
                if compacts:
                    table.compact(full=True)
            results += table.scan().to_arrow().to_pylist()
        changed |= {name for name in COLUMNS.names if results[0][name] != results[1][name]}
    assert changed == set(named)


def test_the_note_names_the_columns_and_the_sequence() -> None:
    catalog = tidelake.open_catalog(f"memory://{uuid4().hex}/lake")
    catalog.create_database("d")
    options = AGGREGATION | functions("first_value", "max")
    table = catalog.create_table("d.t", COLUMNS, primary_key=["k"], options=options)
    note = late_rows_note(table.context.schema, table.context.options)
    assert note == "a depends on when rows were merged if rows don't arrive in the order of at, as in Java"
