"""`tidelake ingest pause`, `resume` and `release`, `tidelake table rewrite`, and the plan of shaped tables."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

import tidelake
from tests.support.command_line import Call
from tests.tidelake.cli.commands.test_ingest_plan import write_config
from tidelake.ingest.quarantine.table_requests import read_requests
from tidelake.storage.fileio import open_file_io


def paused(tmp_path: Path) -> set[str]:
    location = f"{tmp_path}/lake/shop.quarantine"
    return set(read_requests(open_file_io(location, {}), location).paused)


def test_a_table_is_paused_and_resumed_by_its_name(call: Call, tmp_path: Path) -> None:
    path = write_config(tmp_path, "{name: shop.orders}, {name: shop.customers}")
    assert call("ingest", "pause", path, "shop.orders", "--json").document == {
        "table": "shop.orders",
        "state": "is paused",
    }
    assert paused(tmp_path) == {"shop.orders"}
    assert "was paused already" in call("ingest", "pause", path, "shop.orders").err
    assert "is resumed" in call("ingest", "resume", path, "shop.orders").err
    assert "was not paused" in call("ingest", "resume", path, "shop.orders").err
    assert call("ingest", "release", path, "shop.orders").code == 0
    assert paused(tmp_path) == set()


def test_a_table_that_can_t_be_paused_is_refused(call: Call, tmp_path: Path) -> None:
    path = write_config(tmp_path, "{name: shop.orders}, {name: shop.customers}")
    misspelt = call("ingest", "pause", path, "shop.order")
    assert (misspelt.code, "did you mean 'shop.orders'?" in misspelt.err) == (1, True)
    alone = call("ingest", "pause", write_config(tmp_path, "{name: shop.orders}"), "shop.orders")
    assert (alone.code, "has no quarantine" in alone.err) == (1, True)
    held = write_config(tmp_path, "{name: shop.orders, paused: true}, {name: shop.customers}")
    assert "stays paused, because the configuration says so" in call("ingest", "resume", held, "shop.orders").err


def test_an_entry_of_many_tables_pauses_each_of_them_by_its_name(call: Call, tmp_path: Path) -> None:
    path = write_config(tmp_path, "{name: 'shop.{table}'}")
    assert call("ingest", "pause", path, "shop.orders").code == 0
    assert paused(tmp_path) == {"shop.orders"}


def test_plan_shows_what_a_table_takes_and_that_it_is_paused(call: Call, tmp_path: Path) -> None:
    path = write_config(
        tmp_path,
        "{name: shop.a, drop_columns: [note], rename_columns: {no: id}, masks: {mail: redact}, filter: 'id > 3'}, "
        "{name: shop.b}",
    )
    text = "shop.a: without note; no is named id; mail is masked: redact; rows where id > 3"
    path.write_text(path.read_text().replace("{no: id}", "{'no': id}"))
    planned = call("ingest", "plan", path)
    assert text in " ".join(planned.out.split())
    path = write_config(tmp_path, "{name: shop.a, paused: true}, {name: shop.b}")
    assert "shop.a is paused by the configuration" in call("ingest", "plan", path).out


def test_a_table_is_rewritten_with_a_wider_key(call: Call, tmp_path: Path) -> None:
    catalog = tidelake.open_catalog(str(tmp_path / "lake"))
    catalog.create_database("shop")
    schema = pa.schema([pa.field("id", pa.int32(), False), ("v", pa.string())])
    table = catalog.create_table("shop.t", schema, primary_key=["id"])
    table.upsert(pa.table({"id": pa.array([-1, 1], pa.int32()), "v": ["a", "b"]}))
    lake = str(tmp_path / "lake")
    done = call("table", "rewrite", "shop.t", "-w", lake, "--set-type", "id BIGINT")
    assert (done.code, "all rows were rewritten" in done.err) == (0, True)
    rows = catalog.table("shop.t").scan().to_arrow()
    assert (rows["id"].type, sorted(rows["id"].to_pylist())) == (pa.int64(), [-1, 1])
    assert call("table", "rewrite", "shop.t", "-w", lake, "--set-type", "id INT").code == 1


def test_plan_shows_what_a_table_keeps_of_changes(call: Call, tmp_path: Path) -> None:
    path = write_config(
        tmp_path,
        "{name: shop.a, deletes: soft, deleted_at_column: gone, drop_columns: [note]}, {name: shop.b, mode: append}, "
        "{name: shop.c}, {name: shop.d, mode: scd2, valid_to_column: until}",
    )
    planned = call("ingest", "plan", path)
    shown = " ".join(planned.out.split())
    assert "shop.a: without note; deleted rows stay, with the time in gone" in shown
    assert "shop.b: each change is a row" in shown
    assert "shop.d: each version of a row stays, from valid_from to until" in shown
    assert "shop.c: " not in shown
