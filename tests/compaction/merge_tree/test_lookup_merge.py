"""In tables with lookups, rows that a compaction moves out of level 0 are merged even if no other row of their key
takes part.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest

import tidelake

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("s", pa.int64())])
WITH_KIND = SCHEMA.append(pa.field("_VALUE_KIND", pa.int8()))
INSERT, DELETE = 0, 3
SUM = {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"}
GROUP = {"merge-engine": "partial-update", "fields.s.sequence-group": "v"}
LOOKUP = {"force-lookup": "true"}


def seen(
    options: Mapping[str, str], *commits: tuple[int, int, int, int | None], schema: pa.Schema = SCHEMA
) -> list[list[tuple[Any, ...]]]:
    """(k, v) that readers see after each commit of one row (kind, k, v, s)."""
    catalog = tidelake.open_catalog(f"memory://{uuid4().hex}/lake")
    catalog.create_database("db")
    table = catalog.create_table("db.t", schema, primary_key=["k"], options={"bucket": "1", **options})
    found = []
    with table.writer() as writer:
        for kind, *row in commits:
            values = dict(zip(SCHEMA.names, row, strict=True)) | {"_VALUE_KIND": kind}
            writer.write(pa.Table.from_pylist([values], WITH_KIND))
            writer.commit()
            rows = table.scan(columns=["k", "v"]).to_arrow().to_pylist()
            found.append(sorted(tuple(row.values()) for row in rows))
    return found


@pytest.mark.parametrize(
    ("options", "after_delete", "after_insert"),
    [
        pytest.param(SUM | LOOKUP, [(1, -5)], [(1, 0)], id="a sum that is looked up"),
        pytest.param(SUM, [], [(1, 0)], id="a sum"),
        pytest.param({"merge-engine": "deduplicate"} | LOOKUP, [], [(1, 5)], id="the newest row"),
        pytest.param(
            {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"} | LOOKUP,
            [],
            [(1, 5)],
            id="a record that is removed",
        ),
    ],
)
def test_a_delete_without_a_matching_row_is_merged(
    options: Mapping[str, str], after_delete: list[tuple[int, int]], after_insert: list[tuple[int, int]]
) -> None:
    assert seen(options, (DELETE, 1, 5, 1), (INSERT, 1, 5, 1)) == [after_delete, after_insert]


@pytest.mark.parametrize(
    ("options", "left"),
    [pytest.param(GROUP | LOOKUP, None, id="looked up"), pytest.param(GROUP, 5, id="left as it is")],
)
def test_a_row_without_a_sequence_value_is_merged(options: Mapping[str, str], left: int | None) -> None:
    """The first file is only upgraded to the highest level. Its row is unchanged, because the file is not rewritten."""
    found = seen(options, (INSERT, 1, 5, None), (INSERT, 2, 5, None))
    assert found == [[(1, 5)], [(1, 5), (2, left)]]


def test_a_delete_is_merged_with_the_rows_of_its_key_above_it() -> None:
    rows = [(INSERT, 1, 5, 1), (INSERT, 2, 7, 1), (DELETE, 2, 3, 2), (DELETE, 3, 1, 1)]
    assert seen(SUM | LOOKUP, *rows)[-1] == [(1, 5), (2, 4), (3, -1)]


@pytest.mark.parametrize(
    ("options", "rows", "left"),
    [
        pytest.param(
            SUM | {"fields.v.ignore-retract": "true"}, [(DELETE, 2, 3, 1), (INSERT, 2, 4, 1)], (2, 4), id="a retract"
        ),
        pytest.param(GROUP, [(INSERT, 2, 3, None), (INSERT, 2, 4, 1)], (2, 4), id="a row without a sequence"),
    ],
)
def test_a_single_row_is_kept_when_merging_would_put_null_into_a_not_null_column(
    options: Mapping[str, str], rows: list[tuple[int, int, int, int | None]], left: tuple[int, int]
) -> None:
    """Java's compaction fails, and all later ones."""
    no_null = pa.schema([SCHEMA.field("k"), SCHEMA.field("v").with_nullable(False), SCHEMA.field("s")])
    found = seen({**options, **LOOKUP}, (INSERT, 1, 5, 1), *rows, schema=no_null)
    assert found[-1] == [(1, 5), left]
