"""`write` and `commit` behave as `docs/writing-tables.md` says."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

import tidelake
from tidelake import BadInput, Catalog, Table
from tidelake.storage.model.types import DataField, parse_type

PAGE: Final = (Path(__file__).parents[2] / "docs" / "writing-tables.md").read_text(encoding="utf-8")
NAMES: Final = {"Decimal": Decimal, "date": date, "datetime": datetime, "time": time, "UTC": UTC}
SCHEMA: Final = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    catalog = tidelake.open_catalog(str(tmp_path / "lake"))
    catalog.create_database("shop")
    return catalog


@pytest.fixture
def orders(catalog: Catalog) -> Table:
    return catalog.create_table("shop.orders", SCHEMA, primary_key=["id"])


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": ids, "v": ["a"] * len(ids)}, SCHEMA)


def ids(table: Table) -> list[int]:
    return sorted(table.scan().to_arrow()["id"].to_pylist())


def cells(section: str) -> list[list[str]]:
    """Of the section's first table, without its heading."""
    text = PAGE.split(f"\n## {section}\n")[1].split("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[1:]]


def code(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


VALUES: Final = [
    pytest.param(code(column)[0], text, is_taken, id=f"{code(column)[0]} {'takes' if is_taken else 'refuses'} {text}")
    for column, taken, refused in cells("Values")
    for is_taken, texts in ((True, taken), (False, refused))
    for text in code(texts)
]


@pytest.mark.parametrize(("kind", "text", "is_taken"), VALUES)
def test_values_are_accepted_and_refused_as_documented(kind: str, text: str, is_taken: bool, catalog: Catalog) -> None:
    """Alone, and inside an ARRAY."""
    value = eval(text, NAMES)
    for name, spelled, column in (
        ("shop.plain", kind, pa.array([value])),
        ("shop.nested", f"ARRAY<{kind}>", pa.array([[value]])),
    ):
        table = catalog.create_table(name, [DataField(0, "v", parse_type(spelled))])
        with table.writer() as writer:
            if not is_taken:
                with pytest.raises(BadInput, match=r"column 'v"):
                    writer.write(pa.table({"v": column}))
                continue
            writer.write(pa.table({"v": column}))
            writer.commit()
        found = table.scan().to_arrow()["v"][0].as_py()
        found = found[0] if name == "shop.nested" else found
        assert is_same(found, value), (found, value)


def is_same(found: Any, value: Any) -> bool:
    """As far as two Python values of different types can say: texts are read elsewhere."""
    if isinstance(value, str | bytes | list | dict) or isinstance(found, str):
        return bool(found)
    if isinstance(value, date) and not isinstance(value, datetime) and isinstance(found, datetime):
        return found == datetime.combine(value, time())
    if isinstance(value, datetime) and not isinstance(found, datetime):
        return value == datetime.combine(found, time())
    return bool(found == value or str(found).rstrip("0") == str(value))


def test_the_page_lists_values_to_try() -> None:
    assert len(VALUES) > 50


def test_the_documented_error_is_the_raised_one(catalog: Catalog) -> None:
    spelled = "ARRAY<ROW<name STRING NOT NULL>>"
    table = catalog.create_table("shop.orders", [DataField(0, "tags", parse_type(spelled))])
    items = [{"name": "a"}, {"name": "b"}, {"name": "c"}, {"name": None}]
    with table.writer() as writer, pytest.raises(BadInput) as error:
        writer.write(pa.table({"tags": [items]}))
    assert f"\n    {error.value}\n" in PAGE


def test_strings_longer_than_their_column_length_are_kept(catalog: Catalog) -> None:
    types = ("CHAR(3)", "VARCHAR(3)", "BINARY(3)")
    fields = [DataField(at, f"c{at}", parse_type(kind)) for at, kind in enumerate(types)]
    table = catalog.create_table("shop.texts", fields)
    row = {"c0": "abcd", "c1": "abcd", "c2": b"abcd"}
    with table.writer() as writer:
        writer.write(pa.Table.from_pylist([row]))
        writer.commit()
    assert table.scan().to_arrow().to_pylist() == [row]


def test_an_append_table_accepts_only_inserts_and_updates(catalog: Catalog) -> None:
    table = catalog.create_table("shop.log", SCHEMA)
    with table.writer() as writer:
        for kind in range(4):
            batch = rows(kind).append_column("_VALUE_KIND", pa.array([kind]))
            if kind in (1, 3):
                with pytest.raises(BadInput, match="append table"):
                    writer.write(batch)
            else:
                writer.write(batch)
        writer.commit()
    assert ids(table) == [0, 2]


# ---------------------------------------------------------------- identifiers


def test_identifiers_must_rise_and_only_the_newest_is_a_replay(orders: Table) -> None:
    def commit(number: int | None, *written: int) -> int | None:
        with orders.writer(commit_user="etl") as writer:
            if written:
                writer.write(rows(*written))
            return writer.commit(number)

    assert commit(5, 1) == 1
    assert commit(5, 2) is None
    assert commit(7) == 2, "a number without rows is done, too"
    for number in (5, 6):
        with pytest.raises(BadInput, match=f"identifier {number} is below 7"):
            commit(number, 3)
    assert commit(None) is None, "nothing to publish"
    assert commit(None, 4) == 3
    assert ids(orders) == [1, 4]


def test_a_truncation_is_recognised_by_its_identifier(orders: Table) -> None:
    with orders.writer(commit_user="other") as writer:
        writer.write(rows(1))
        writer.commit(1)
    assert orders.truncate(commit_user="etl", identifier=1) == 2
    with orders.writer(commit_user="other") as writer:
        writer.write(rows(2))
        writer.commit(2)
    assert orders.truncate(commit_user="etl", identifier=1) is None
    assert ids(orders) == [2]


def test_an_overwrite_is_a_break_in_the_changes(orders: Table) -> None:
    for number, overwrite in ((1, None), (2, True)):
        with orders.writer(commit_user="etl", overwrite=overwrite) as writer:
            writer.write(rows(number))
            writer.commit(number)
    assert [change.is_break for change in orders.changes(start=1)] == [False, True]


# ---------------------------------------------------------------- ends


def test_a_writer_continues_with_the_schema_it_was_opened_with(catalog: Catalog, orders: Table) -> None:
    with orders.writer() as writer:
        writer.write(rows(1))
        catalog.alter_table("shop.orders", [tidelake.AddColumn("note", "STRING")])
        writer.write(rows(2))
        with pytest.raises(BadInput, match="no column 'note'"):
            writer.write(rows(3).append_column("note", pa.array(["x"])))
        writer.commit()
    found = catalog.table("shop.orders").scan().to_arrow().to_pylist()
    assert found == [{"id": 1, "v": "a", "note": None}, {"id": 2, "v": "a", "note": None}]


CLOSED: Final[tuple[Callable[[Any], object], ...]] = (lambda w: w.write(rows(1)), lambda w: w.commit(1))


@pytest.mark.parametrize("call", CLOSED, ids=["write", "commit"])
def test_a_closed_writer_refuses_rows_and_can_be_closed_again(call: Callable[[Any], object], orders: Table) -> None:
    writer = orders.writer(commit_user="etl")
    writer.close()
    with pytest.raises(BadInput, match="closed"):
        call(writer)
    writer.close()
    assert orders.snapshots() == []


def test_every_documented_error_is_a_public_tidelake_error() -> None:
    named = [code(row[0])[0] for row in cells("Errors")]
    assert {"BadInput", "CommitConflict", "CommitOutcomeUnknown", "AccessDenied", "SnapshotExpired"} < set(named)
    for name in named:
        if name != "OSError":
            assert issubclass(getattr(tidelake, name), tidelake.TidelakeError)
    assert issubclass(tidelake.AccessDenied, OSError)
