"""`merge(on=…)` takes keys for equal that conditions take for equal, and never changes a primary key."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

import tidelake
from tidelake import BadInput, Catalog, Table
from tidelake.storage.model.types import DataField, parse_type

NAN: Final = math.nan


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("shop")
    return catalog


def table_of(catalog: Catalog, kind: str, vectors: str = "true") -> Table:
    fields = [DataField(0, "k", parse_type(kind)), DataField(1, "v", parse_type("STRING"))]
    return catalog.create_table("shop.t", fields, options={"deletion-vectors.enabled": vectors})


def rows_of(table: Table, *names: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(row[name] for name in names) for row in table.scan().to_arrow().to_pylist()), key=str)


@pytest.mark.parametrize("vectors", ["true", "false"])
@pytest.mark.parametrize("kind", ["FLOAT", "DOUBLE"])
def test_floats_are_equal_as_in_conditions(kind: str, vectors: str, catalog: Catalog) -> None:
    """Zeros of both signs are equal, and NaN equals nothing, whichever other keys are merged with it."""
    table = table_of(catalog, kind, vectors)
    floats = pa.float32() if kind == "FLOAT" else pa.float64()

    def rows(keys: list[float | None], value: str) -> pa.Table:
        return pa.table({"k": pa.array(keys, floats), "v": [value] * len(keys)})

    table.append(rows([-0.0, 1.5, NAN, None], "old"))
    table.merge(rows([0.0, 1.5, NAN, None], "new"), on=["k"])
    merged = [(-0.0, "new"), (1.5, "new"), (NAN, "old"), (None, "old"), (NAN, "new"), (None, "new")]
    assert str(rows_of(table, "k", "v")) == str(sorted(merged, key=str))


def test_two_zeros_are_the_same_key_twice(catalog: Catalog) -> None:
    with pytest.raises(BadInput, match="two of the rows to merge have the same keys"):
        table_of(catalog, "DOUBLE").merge([{"k": 0.0, "v": "a"}, {"k": -0.0, "v": "b"}], on=["k"])


@pytest.mark.parametrize("kind", ["ARRAY<INT>", "MAP<STRING, INT>", "ROW<a INT>"])
def test_nested_values_are_no_keys(kind: str, catalog: Catalog) -> None:
    value = {"ARRAY<INT>": [1], "MAP<STRING, INT>": {"a": 1}, "ROW<a INT>": {"a": 1}}[kind]
    with pytest.raises(BadInput, match=r"merge\(on=…\) names 'k', whose values .* can't be compared"):
        table_of(catalog, kind).merge([{"k": value, "v": "a"}], on=["k"])


@pytest.fixture
def people(catalog: Catalog) -> Table:
    table = catalog.create_table(
        "shop.people",
        pa.schema([pa.field("id", pa.int64(), nullable=False), ("email", pa.string()), ("name", pa.string())]),
        primary_key=["id"],
    )
    table.upsert([{"id": 1, "email": "a@x", "name": "Ann"}, {"id": 2, "email": "b@x", "name": "Bob"}])
    return table


def test_rows_of_a_keyed_table_are_merged_on_other_columns(people: Table) -> None:
    people.merge([{"id": 1, "email": "a@x", "name": "Anna"}, {"id": 3, "email": "c@x", "name": "Cem"}], on=["email"])
    assert rows_of(people, "id", "name") == [(1, "Anna"), (2, "Bob"), (3, "Cem")]


def test_a_merge_never_changes_a_primary_key(people: Table) -> None:
    reason = r"merge\(on=\['email'\]\) would change id, of the primary key, from 1 to 7 in the row with .*'a@x'"
    with pytest.raises(BadInput, match=reason):
        people.merge([{"id": 7, "email": "a@x", "name": "Anna"}], on=["email"])
    assert rows_of(people, "id", "name") == [(1, "Ann"), (2, "Bob")]
    people.merge([{"email": "a@x", "name": "Anna"}], on=["email"], when_not_matched="ignore")
    assert rows_of(people, "id", "name") == [(1, "Anna"), (2, "Bob")]
