"""A disk that is full, or that nobody may write to: the error says so, and the table is what it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pyarrow as pa

import tidelake
from tests.support.confined import on_small_disk, without_right_to_read, without_right_to_write
from tests.tidelake.confined_programs import NAME, SCHEMA

PROGRAMS: Final = "tests.tidelake.confined_programs"


def test_a_full_disk_stops_a_commit_at_any_of_its_files_and_room_lets_it_go_on(tmp_path: Path) -> None:
    attempts = json.loads(on_small_disk(tmp_path, 1 << 20, PROGRAMS, "full"))
    for committed, attempt in enumerate(attempts):
        error = attempt["error"]
        before = list(range(1, committed + 1))
        assert attempt["seen"] == [*before, committed + 1]
        if error is None:
            continue
        assert "No space left on device" in error
        assert str(tmp_path / "lake" / "shop.db" / "orders") in error
        assert attempt["snapshots"] == before
        assert attempt["rows"] == committed
        assert attempt["again"] == committed + 1
    errors = [attempt["error"] for attempt in attempts]
    assert errors[0] is not None
    assert errors[-1] is None
    for place in ("bucket-0/data-", "manifest/manifest-", "CommitOutcomeUnknown: "):
        assert any(place in error for error in errors if error), place


def test_a_table_that_may_not_be_changed_is_read_and_says_why_it_is_not_written(tmp_path: Path) -> None:
    warehouse = tmp_path / "lake"
    catalog = tidelake.open_catalog(str(warehouse))
    catalog.create_database("shop")
    with catalog.create_table(NAME, SCHEMA, primary_key=["id"]).writer(commit_user="etl") as writer:
        for number, text in enumerate("ab", 1):
            writer.write(pa.table({"id": [number], "text": [text]}))
            writer.commit(number)
    (tmp_path / "pipeline.yaml").write_text(
        f"warehouse: {warehouse}\nsource: {{type: change-log-folder, path: {tmp_path}, until: end}}\n"
        f"tables: [{{name: {NAME}}}]\n"
    )
    before = {path: path.read_bytes() if path.is_file() else None for path in warehouse.rglob("*")}
    reported = json.loads(without_right_to_write(tmp_path, PROGRAMS, "readonly"))
    assert {path: path.read_bytes() if path.is_file() else None for path in warehouse.rglob("*")} == before
    assert reported["scan"] == [{"id": 1, "text": "a"}, {"id": 2, "text": "b"}]
    assert reported["changes"] == [1, 1]
    for what, error in reported["errors"].items():
        assert error is not None, what
        assert error.startswith(f"AccessDenied: {warehouse}"), what
        assert "Permission denied, trying to write. Let user id" in error, what
        assert ("`write.spill_directory`" in error) == (what == "spill")
    commands = reported["commands"]
    assert {what: said["code"] for what, said in commands.items()} == {"scan": 0, "create": 1, "drop": 1, "ingest": 1}
    for what in ("create", "drop", "ingest"):
        assert "Permission denied" in commands[what]["err"]
        assert "Traceback" not in commands[what]["err"]


def test_files_that_may_not_be_read_are_named_with_who_may_not(tmp_path: Path) -> None:
    catalog = tidelake.open_catalog(str(tmp_path / "lake"))
    catalog.create_database("shop")
    with catalog.create_table(NAME, SCHEMA, primary_key=["id"]).writer() as writer:
        writer.write(pa.table({"id": [1], "text": ["a"]}))
        writer.commit()
    (tmp_path / "changes").mkdir()
    (tmp_path / "changes" / "a.jsonl").write_bytes(b"")
    reported = json.loads(without_right_to_read(tmp_path, PROGRAMS, "unreadable"))
    for what, place in {"table": "lake/shop.db/orders/schema/schema-0", "change log": "changes/a.jsonl"}.items():
        assert reported[what].startswith(
            f"AccessDenied: {tmp_path / place}: Permission denied, trying to read. Let user id"
        )
    assert reported["command"]["code"] == 1
    assert "trying to read" in reported["command"]["err"]
    assert "Traceback" not in reported["command"]["err"]


def test_a_full_disk_is_freed_by_expiry_which_needs_no_room_itself(tmp_path: Path) -> None:
    for hint, said in json.loads(on_small_disk(tmp_path, 1 << 20, PROGRAMS, "expire")).items():
        assert "No space left on device" in said["full"], hint
        assert (said["code"], said["err"]) == (0, ""), hint
        assert said["snapshots"] == [9, 10]
        assert said["rows"] == 10
        assert said["hints"] == {"EARLIEST": "9", "LATEST": "10"}
        assert said["problems"] == []


def test_a_pipeline_on_a_full_disk_tells_its_operator_which_disk_what_comes_next_and_what_helps(tmp_path: Path) -> None:
    reported = json.loads(on_small_disk(tmp_path, 1 << 20, PROGRAMS, "ingest"))
    rows, with_room = reported.pop("rows"), reported.pop("with room")
    stopped = [said["err"] for said in reported.values() if said["code"]]
    assert stopped
    for said in stopped:
        assert f"No space left on device: the file system at {tmp_path}, for {tmp_path}/lake/" in said
        assert " of 1.0 MiB and " in said
        assert "The pipeline has stopped." in said
        assert "no record is lost or written twice" in said
        assert f"  tidelake ingest run {tmp_path}/shop.yaml" in said
        assert f"  tidelake table expire shop.orders -w {tmp_path}/lake" in said
        assert "Commit again" not in said, "that is for programs"
    assert (with_room["code"], rows) == (0, 20)
