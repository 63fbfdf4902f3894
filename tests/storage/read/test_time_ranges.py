"""A timestamp column gets a finer type only if all times of the table fit it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest

from tidelake.errors import BadInput, UnsupportedFeature
from tidelake.storage.catalog.filesystem import FileSystemCatalog
from tidelake.storage.ddl.schema_changes import SetOption, UpdateColumnType
from tidelake.storage.fileio.memory import MemoryFileIO
from tidelake.storage.maintenance.verify import verify
from tidelake.storage.model.schema.schema_store import SchemaStore
from tidelake.storage.model.types import DataField, arrow_type, not_null, parse_type
from tidelake.table import Table

NAME = "db.t"
FAR = 253_402_300_799  # 9999-12-31T23:59:59, in seconds
NEAR = 1_577_836_800  # 2020
MICROS = 10**6


def catalog_with(
    column: str, batches: Sequence[Sequence[Any]], options: Mapping[str, str] | None = None
) -> FileSystemCatalog:
    """A table with one column beside its key, and one commit for each batch of values."""
    catalog = FileSystemCatalog(MemoryFileIO(), f"memory://{uuid4()}/lake")
    catalog.create_database("db")
    fields = [DataField(0, "id", not_null(parse_type("INT"))), DataField(1, "t", parse_type(column))]
    catalog.create_table(NAME, fields, primary_key=["id"], options={"bucket": "1", **(options or {})})
    write(catalog, batches)
    return catalog


def write(catalog: FileSystemCatalog, batches: Sequence[Sequence[Any]]) -> None:
    kind = arrow_type(catalog.load(NAME).schema.by_name["t"].type)
    for number, values in enumerate(batches):
        ids = pa.array([10 * number + i for i in range(len(values))], pa.int32())
        with Table(catalog.load(NAME)).writer() as writer:
            writer.write(pa.table({"id": ids, "t": _times(values, kind)}))
            writer.commit()


def _times(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(kind):
        return pa.array(values, pa.int64()).view(kind)
    return pa.array(values, _as_numbers(kind)).cast(kind)


def _as_numbers(kind: pa.DataType) -> pa.DataType:
    """The type with a number for each timestamp."""
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_as_numbers(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_as_numbers(kind.key_type), _as_numbers(kind.item_type))
    return pa.list_(kind.value_field.with_type(_as_numbers(kind.value_type))) if pa.types.is_list(kind) else kind


def alter(catalog: FileSystemCatalog, new: str, path: str | tuple[str, ...] = "t") -> None:
    catalog.alter_table(NAME, [UpdateColumnType(path, parse_type(new))])


@pytest.mark.parametrize(
    ("old", "new", "values"),
    [
        ("TIMESTAMP(6)", "TIMESTAMP(9)", [NEAR * MICROS, FAR * MICROS]),
        ("TIMESTAMP(6)", "TIMESTAMP(7)", [-62_135_596_800 * MICROS]),  # year 1
        ("TIMESTAMP(6) WITH LOCAL TIME ZONE", "TIMESTAMP(9) WITH LOCAL TIME ZONE", [None, FAR * MICROS]),
        ("TIMESTAMP(3)", "TIMESTAMP(9)", [FAR * 1000]),
        ("TIMESTAMP(0)", "TIMESTAMP(9)", [FAR]),
        ("TIMESTAMP(0)", "TIMESTAMP(6)", [FAR * 1000]),
        ("TIMESTAMP(6)", "TIMESTAMP(9)", [9_223_372_036_825_200_000]),  # PostgreSQL's infinity
    ],
)
@pytest.mark.parametrize("stats", ["truncate(16)", "none"])
def test_a_finer_type_that_would_not_hold_a_row_is_refused(old: str, new: str, values: list[Any], stats: str) -> None:
    catalog = catalog_with(old, [[NEAR], values], {"metadata.stats-mode": stats})
    before = Table(catalog.load(NAME)).scan().to_arrow()
    with pytest.raises(BadInput, match=r"column 't': rows have times such as .*, and TIMESTAMP.* holds only"):
        alter(catalog, new)
    assert Table(catalog.load(NAME)).scan().to_arrow().equals(before)


@pytest.mark.parametrize(
    ("old", "new", "values"),
    [
        ("TIMESTAMP(6)", "TIMESTAMP(9)", [NEAR * MICROS, None, -NEAR * MICROS]),
        ("TIMESTAMP(6)", "TIMESTAMP(9)", [None, None]),
        ("TIMESTAMP(0)", "TIMESTAMP(3)", [FAR]),
        ("TIMESTAMP(3)", "TIMESTAMP(6)", [FAR * 1000]),
        ("TIMESTAMP(4)", "TIMESTAMP(6)", [FAR * MICROS]),
        ("TIMESTAMP(3)", "TIMESTAMP(6)", [9_223_372_036_825_200]),
    ],
)
@pytest.mark.parametrize("stats", ["truncate(16)", "none"])
def test_a_finer_type_that_holds_all_rows_is_accepted(old: str, new: str, values: list[Any], stats: str) -> None:
    catalog = catalog_with(old, [[NEAR], values], {"metadata.stats-mode": stats})
    alter(catalog, new)
    assert Table(catalog.load(NAME)).scan().to_arrow().num_rows == 1 + len(values)


@pytest.mark.parametrize(
    ("column", "path", "value"),
    [
        ("ARRAY<TIMESTAMP(6)>", ("t", "element"), [NEAR * MICROS, FAR * MICROS]),
        ("MAP<INT, TIMESTAMP(6)>", ("t", "value"), [(1, FAR * MICROS)]),
        ("ROW<a TIMESTAMP(6)>", ("t", "a"), {"a": FAR * MICROS}),
    ],
)
def test_times_inside_a_column_are_checked_too(column: str, path: tuple[str, ...], value: Any) -> None:
    catalog = catalog_with(column, [[value]])
    with pytest.raises(BadInput, match=r"times such as 9999-12-31"):
        alter(catalog, "TIMESTAMP(9)", path)


def test_the_type_can_change_once_the_rows_are_corrected_and_compacted() -> None:
    catalog = catalog_with("TIMESTAMP(6)", [[FAR * MICROS]])
    write(catalog, [[NEAR * MICROS]])
    with pytest.raises(BadInput, match="compact the table"):
        alter(catalog, "TIMESTAMP(9)")
    Table(catalog.load(NAME)).compact(full=True)
    alter(catalog, "TIMESTAMP(9)")
    assert Table(catalog.load(NAME)).scan().to_arrow().num_rows == 1


def test_verify_reports_a_column_that_another_engine_made_too_fine_with_a_remedy_that_works() -> None:
    catalog = catalog_with("TIMESTAMP(6)", [[FAR * MICROS]])
    assert not verify(catalog.load(NAME))
    context = catalog.load(NAME)
    with_option = catalog.alter_table(NAME, [SetOption("snapshot.num-retained.max", "70")])
    fields = tuple(
        DataField(f.id, f.name, parse_type("TIMESTAMP(9)")) if f.name == "t" else f for f in with_option.fields
    )
    store = SchemaStore(context.io, context.paths)
    assert store.publish(_renumbered(with_option, fields))  # Java allows it: it reads all years
    with pytest.raises(UnsupportedFeature, match="1677 to 2262"):
        Table(catalog.load(NAME)).scan().to_arrow()
    (finding,) = verify(catalog.load(NAME))
    assert finding.check == "times-unreadable"
    assert "column 't': rows have times such as 9999-12-31" in finding.what
    assert "Change the column back" in finding.remedy
    alter(catalog, "TIMESTAMP(6)")
    assert Table(catalog.load(NAME)).scan().to_arrow().column("t").cast(pa.int64()).to_pylist() == [FAR * MICROS]
    assert not verify(catalog.load(NAME))


def _renumbered(schema: Any, fields: tuple[DataField, ...]) -> Any:
    return replace(schema, id=schema.id + 1, fields=fields)
