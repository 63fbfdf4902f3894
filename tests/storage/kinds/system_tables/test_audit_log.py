"""`$audit_log`, `$binlog` and `$ro`: their columns, and their rows for the history of a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidelake
from tidelake.storage.read.changes import change_reader

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])
NUMBERS = {"table-read.sequence-number.enabled": "true"}


@pytest.fixture
def catalog(tmp_path: Path) -> tidelake.Catalog:
    """1 and 2 are inserted and compacted, then 1 is updated (with -U and +U), 2 deleted, 3 inserted."""
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("db")
    options = {"bucket": "1", "changelog-producer": "input", "write-only": "true"}
    table = catalog.create_table("db.t", SCHEMA, primary_key=["id"], options=options)
    write(table, [(0, 1, "a"), (0, 2, "b")])
    table.compact(full=True)
    write(table, [(1, 1, "a"), (2, 1, "c"), (3, 2, "b"), (0, 3, "d")])
    return catalog


def write(table: tidelake.Table, rows: list[tuple[int, int, str]]) -> None:
    kinds, ids, values = zip(*rows, strict=True)
    with table.writer() as writer:
        columns = {"id": ids, "v": values, "_VALUE_KIND": kinds}
        writer.write(pa.table(columns, SCHEMA.append(pa.field("_VALUE_KIND", pa.int8()))))
        writer.commit(len(table.snapshots()) + 1)


def rows_of(table: pa.Table | pa.RecordBatch) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]


def test_the_audit_log_has_the_row_kind_first_and_the_columns_unchanged(catalog: tidelake.Catalog) -> None:
    assert catalog.table("db.t$audit_log").schema == pa.schema([("rowkind", pa.string()), *SCHEMA])
    with_numbers = catalog.table("db.t$audit_log", NUMBERS).schema
    assert with_numbers.names == ["rowkind", "_SEQUENCE_NUMBER", "id", "v"]
    assert with_numbers.field(1) == pa.field("_SEQUENCE_NUMBER", pa.int64(), nullable=False)


def test_the_audit_log_of_a_snapshot_keeps_what_was_deleted(catalog: tidelake.Catalog) -> None:
    table = catalog.table("db.t$audit_log")
    assert sorted(rows_of(table.scan().to_arrow())) == [("+I", 3, "d"), ("+U", 1, "c"), ("-D", 2, "b")]
    assert sorted(rows_of(table.scan(snapshot=1).to_arrow())) == [("+I", 1, "a"), ("+I", 2, "b")]
    assert rows_of(table.scan(filter=tidelake.col("rowkind") == "-D", columns=["v"]).to_arrow()) == [("b",)]


def test_the_audit_log_has_sequence_numbers_on_request(catalog: tidelake.Catalog) -> None:
    rows = rows_of(catalog.table("db.t$audit_log", NUMBERS).scan().to_arrow())
    numbers = {row[2]: row[1] for row in rows}
    assert sorted(numbers) == [1, 2, 3]
    assert len(set(numbers.values())) == 3
    reported = catalog.table("db.t$audit_log", NUMBERS).changes(start=3)
    assert [row[1] for batch in reported for row in rows_of(batch.rows)] == sorted([numbers[1] - 1, *numbers.values()])


CHANGES = [("-U", 1, "a"), ("+U", 1, "c"), ("-D", 2, "b"), ("+I", 3, "d")]


def test_the_audit_log_of_changes_contains_each_change(catalog: tidelake.Catalog) -> None:
    table = catalog.table("db.t$audit_log")
    for batches in (table.changes(start=3), table.follow(start=3, end=3)):
        (batch,) = batches
        assert rows_of(batch.rows.drop_columns("_VALUE_KIND")) == CHANGES
        assert batch.rows["_VALUE_KIND"].to_pylist() == [0] * 4
    assert rows_of(table.scan(between=(2, 3)).to_arrow()) == CHANGES


def test_the_audit_log_of_a_difference_has_the_rows_after(catalog: tidelake.Catalog) -> None:
    rows = rows_of(catalog.table("db.t$audit_log").scan(between=(1, 3), between_mode="diff").to_arrow())
    assert rows == [("+U", 1, "c"), ("-D", 2, "b"), ("+I", 3, "d")]


def test_the_binlog_has_an_update_in_one_row(catalog: tidelake.Catalog) -> None:
    table = catalog.table("db.t$binlog")
    assert table.schema.names == ["rowkind", "id", "v"]
    assert all(pa.types.is_list(field.type) and field.type.value_field.nullable for field in list(table.schema)[1:])
    changed = [("+U", [1, 1], ["a", "c"]), ("-D", [2], ["b"]), ("+I", [3], ["d"])]
    assert rows_of(table.scan(between=(2, 3)).to_arrow()) == changed
    (batch,) = table.follow(start=3, end=3)
    assert rows_of(batch.rows.drop_columns("_VALUE_KIND")) == changed
    assert sorted(rows_of(table.scan().to_arrow())) == [("+I", [3], ["d"]), ("+U", [1], ["c"]), ("-D", [2], ["b"])]


@pytest.mark.parametrize("size", [1, 2, 3])
def test_an_update_is_one_row_across_batch_boundaries(
    catalog: tidelake.Catalog, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_reader, "BATCH_ROWS", size)
    batches = list(catalog.table("db.t$binlog").follow(start=3, end=3))
    assert [kind for batch in batches for kind in batch.rows["rowkind"].to_pylist()] == ["+U", "-D", "+I"]
    rest = [
        sum(later.rows.num_rows for later in catalog.table("db.t$binlog").follow(start=batch.position, end=3))
        for batch in batches
    ]
    assert rest == [sum(later.rows.num_rows for later in batches[index + 1 :]) for index in range(len(batches))]


def test_the_read_optimized_table_contains_the_highest_level(catalog: tidelake.Catalog) -> None:
    table = catalog.table("db.t$ro")
    assert table.schema == SCHEMA
    assert sorted(rows_of(table.scan().to_arrow())) == [(1, "a"), (2, "b")]
    assert rows_of(table.scan(snapshot=1).to_arrow()) == []
    assert rows_of(table.scan(filter=tidelake.col("v") == "b").to_arrow()) == [(2, "b")]
    with pytest.raises(tidelake.UnsupportedFeature, match="it shows one snapshot"):
        table.changes(start=1)


def test_without_a_primary_key_the_read_optimized_table_is_the_table(catalog: tidelake.Catalog) -> None:
    table = catalog.create_table("db.a", SCHEMA)
    with table.writer() as writer:
        writer.write(pa.table({"id": [1], "v": ["a"]}, SCHEMA))
        writer.commit()
    assert rows_of(catalog.table("db.a$ro").scan().to_arrow()) == [(1, "a")]
    (batch,) = catalog.table("db.a$ro").changes(start=1)
    assert rows_of(batch.rows) == [(1, "a", 0)]
    assert rows_of(catalog.table("db.a$audit_log").scan().to_arrow()) == [("+I", 1, "a")]
    with pytest.raises(tidelake.UnsupportedFeature, match="no sequence numbers"):
        catalog.table("db.a$audit_log", NUMBERS)


@pytest.mark.parametrize(
    "use",
    [
        pytest.param(lambda table: table.writer(), id="write"),
        pytest.param(lambda table: table.compact(), id="compact"),
        pytest.param(lambda table: table.truncate(), id="truncate"),
        pytest.param(lambda table: table.expire(), id="expire"),
    ],
)
def test_a_system_table_is_read_only(catalog: tidelake.Catalog, use: Any) -> None:
    with pytest.raises(tidelake.BadInput, match=r"db\.t\$binlog is a system table"):
        use(catalog.table("db.t$binlog"))


def test_an_unknown_system_table_raises_with_the_existing_ones(catalog: tidelake.Catalog) -> None:
    with pytest.raises(
        tidelake.UnsupportedFeature, match=r"audit_log, binlog, ro, .* can be read; did you mean 'audit_log'"
    ):
        catalog.table("db.t$auditlog")
