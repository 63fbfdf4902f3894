"""A full or read-only disk: the error names the reason, and the table is unchanged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pyarrow as pa

import tidelake
from tests.support.confined import on_small_disk, without_right_to_read, without_right_to_write
from tests.tidelake.confined_programs import NAME, SCHEMA

PROGRAMS: Final = "tests.tidelake.confined_programs"


def test_a_commit_stopped_by_a_full_disk_at_any_file_can_be_repeated(tmp_path: Path) -> None:
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


def test_a_read_only_table_is_readable_and_writing_raises_with_the_reason(tmp_path: Path) -> None:
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
    assert {what: report["code"] for what, report in commands.items()} == {
        "scan": 0,
        "create": 1,
        "drop": 1,
        "ingest": 1,
    }
    for what in ("create", "drop", "ingest"):
        assert "Permission denied" in commands[what]["err"]
        assert "Traceback" not in commands[what]["err"]


def test_unreadable_files_are_named_with_the_user(tmp_path: Path) -> None:
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


def test_expiry_frees_a_full_disk_without_needing_space(tmp_path: Path) -> None:
    for hint, report in json.loads(on_small_disk(tmp_path, 1 << 20, PROGRAMS, "expire")).items():
        assert "No space left on device" in report["full"], hint
        assert (report["code"], report["err"]) == (0, ""), hint
        assert report["snapshots"] == [9, 10]
        assert report["rows"] == 10
        assert report["hints"] == {"EARLIEST": "9", "LATEST": "10"}
        assert report["problems"] == []


def test_a_pipeline_on_a_full_disk_reports_the_disk_the_state_and_the_remedy(tmp_path: Path) -> None:
    reported = json.loads(on_small_disk(tmp_path, 1 << 20, PROGRAMS, "ingest"))
    rows, with_room = reported.pop("rows"), reported.pop("with room")
    stopped = [report["err"] for report in reported.values() if report["code"]]
    assert stopped
    for report in stopped:
        assert f"No space left on device: the file system at {tmp_path}, for {tmp_path}/lake/" in report
        assert " of 1.0 MiB and " in report
        assert "The pipeline has stopped." in report
        assert "no record is lost or written twice" in report
        assert f"  tidelake ingest run {tmp_path}/shop.yaml" in report
        assert f"  tidelake table expire shop.orders -w {tmp_path}/lake" in report
        assert "Commit again" not in report, "that is for programs"
    assert (with_room["code"], rows) == (0, 20)
