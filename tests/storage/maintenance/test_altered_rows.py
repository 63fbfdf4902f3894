"""A type is altered only if the files of the newest snapshot can be read by it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tidelake
from tests.support.command_line import Call
from tidelake import BadInput, Catalog, Table
from tidelake.schema import DropColumn, RenameColumn, UpdateColumnType
from tidelake.storage.model.types import DataField, not_null, parse_type


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("shop")
    return catalog


def table_of(catalog: Catalog, kind: str, **options: str) -> Table:
    fields = [DataField(0, "id", not_null(parse_type("INT"))), DataField(1, "v", parse_type(kind))]
    named = {name.replace("_", "-"): value for name, value in options.items()}
    return catalog.create_table("shop.t", fields, primary_key=["id"], options={"bucket": "1", **named})


@pytest.mark.parametrize(
    ("old", "value", "new"),
    [
        pytest.param("STRING", "x", "INT", id="a text as a number"),
        pytest.param("STRING", "x", "BOOLEAN", id="a text as a truth value"),
        pytest.param("STRING", "today", "DATE", id="a text as a date"),
        pytest.param("STRING", "now", "TIMESTAMP(6)", id="a text as a time"),
        pytest.param("DOUBLE", float("nan"), "DECIMAL(10, 2)", id="NaN as a decimal"),
        pytest.param("ROW<a STRING>", {"a": "x"}, "ROW<a INT>", id="a text in a ROW"),
        pytest.param("ARRAY<STRING>", ["1", "x"], "ARRAY<INT>", id="a text in an ARRAY"),
    ],
)
def test_a_type_that_a_row_does_not_fit_is_refused(old: str, value: Any, new: str, catalog: Catalog) -> None:
    path: tuple[str, ...] = ("v",)
    if old.startswith("ROW"):
        path, new = ("v", "a"), "INT"
    elif old.startswith("ARRAY"):
        path, new = ("v", "element"), "INT"
    table = table_of(catalog, old)
    table.upsert([{"id": 1, "v": value}])
    with pytest.raises(BadInput, match=r"shop.t: column 'v' .* can't become .* Add a column of the new type"):
        catalog.alter_table("shop.t", [UpdateColumnType(path, new)])
    assert catalog.table("shop.t").context.schema.id == table.context.schema.id
    assert table.scan().count() == 1


def test_a_value_of_a_replaced_row_counts_until_its_file_is_compacted(catalog: Catalog) -> None:
    """Readers merge rows after they cast them."""
    table = table_of(catalog, "STRING", write_only="true")
    table.upsert([{"id": 1, "v": "x"}])
    table.upsert([{"id": 1, "v": "5"}])
    with pytest.raises(BadInput, match="the text 'x' can't be read as INT"):
        catalog.alter_table("shop.t", [UpdateColumnType("v", "INT")])
    table.compact(full=True)
    altered = catalog.alter_table("shop.t", [UpdateColumnType("v", "INT")])
    assert altered.scan().to_arrow().to_pylist() == [{"id": 1, "v": 5}]


def test_columns_are_known_by_their_ids(catalog: Catalog) -> None:
    table = table_of(catalog, "STRING")
    table.upsert([{"id": 1, "v": "x"}])
    with pytest.raises(BadInput, match=r"column 'v' \(STRING\) can't become INT"):
        catalog.alter_table("shop.t", [RenameColumn("v", "w"), UpdateColumnType("w", "INT")])
    altered = catalog.alter_table(
        "shop.t", [DropColumn("v"), tidelake.AddColumn("v", "STRING"), UpdateColumnType("v", "INT")]
    )
    assert altered.scan().to_arrow().to_pylist() == [{"id": 1, "v": None}]


def test_a_column_without_rows_takes_any_type(catalog: Catalog) -> None:
    table_of(catalog, "STRING")
    assert str(catalog.alter_table("shop.t", [UpdateColumnType("v", "INT")]).context.schema.by_name["v"].type) == "INT"


def test_files_of_all_earlier_types_are_read(catalog: Catalog) -> None:
    """Each step has a cast, but both together have none."""
    table = table_of(catalog, "INT")
    table.upsert([{"id": 1, "v": 5}])
    catalog.alter_table("shop.t", [UpdateColumnType("v", "STRING")])
    with pytest.raises(BadInput, match=r"column 'v' \(STRING\) can't become BYTES: .* from INT to BYTES"):
        catalog.alter_table("shop.t", [UpdateColumnType("v", "BYTES")])
    catalog.table("shop.t").overwrite([{"id": 1, "v": "5"}])
    altered = catalog.alter_table("shop.t", [UpdateColumnType("v", "BYTES")])
    assert altered.scan().to_arrow().to_pylist() == [{"id": 1, "v": b"5"}]


def test_a_dry_run_is_refused_too(catalog: Catalog, tmp_path: Path, call: Call) -> None:
    table_of(catalog, "STRING").upsert([{"id": 1, "v": "x"}])
    said = call("table", "alter", "shop.t", "-w", tmp_path, "--set-type", "v INT", "--dry-run")
    assert said.code
    assert "can't become INT" in said.err
