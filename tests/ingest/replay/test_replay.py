"""Dead letters in a table, and their replay: afterwards each table equals one without bad records."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import tidelake
from tests.support.levels import examples
from tests.support.recorded_progress import Recorded
from tidelake.checkpoint.offsets import OffsetRange, TopicPartition
from tidelake.errors import BadInput, CommitConflict
from tidelake.ingest.config.config import parse_config
from tidelake.ingest.dead_letter_table import COLUMNS, TableDeadLetters
from tidelake.ingest.pipeline.builder import build_pipeline
from tidelake.ingest.pipeline.recovery_flags import parse_recovery_flags
from tidelake.ingest.replay import replay
from tidelake.ingest.replay.later_changes import row_values
from tidelake.ingest.replay.replay import DeadLetterReplay, ReplayReport
from tidelake.ingest.settings import Config
from tidelake.ingest.sources.change_log_folder import ChangeLogFolder
from tidelake.storage.base.progress import shown_on
from tidelake.storage.catalog.filesystem import FileSystemCatalog
from tidelake.storage.ddl.schema_changes import SchemaChange
from tidelake.storage.model.schema.table_schema import TableSchema
from tidelake.storage.model.types import arrow_type, parse_type

Change = tuple[int, Any]  # key and quantity; None deletes
BAD = "many"  # no INT; a STRING
BAD_DELETE = "many of a deleted row"
LETTERS = "ops.dead_letters"


def line(offset: int, change: Change, partition: int = 0, **more: str) -> str:
    id_, quantity = change
    source = {"db": "shop", "table": "orders", "connector": "postgresql"}
    row = {"id": id_, "quantity": "0" if quantity is None else str(quantity), "version": offset}
    is_delete = quantity in (None, BAD_DELETE)
    value = {"before": row, "after": None, "op": "d"} if is_delete else {"before": None, "after": row, "op": "c"}
    record = {
        "topic": "shop",
        "partition": partition,
        "offset": offset,
        "timestamp_ms": 1_700_000_000_000 + offset,
        "key": json.dumps({"id": id_}),
        "value": json.dumps({**value, "source": source}),
        **more,
    }
    return json.dumps(record) + "\n"


class Shop:
    """A folder with changes, the pipeline that reads it, and a table whose `quantity` is an INT until it is fixed."""

    def __init__(self, path: Path, *, key: bool = True, options: dict[str, str] | None = None) -> None:
        self.path = path
        (path / "in").mkdir(parents=True)
        self.catalog = tidelake.open_catalog(str(path / "lake"))
        self.catalog.create_database("shop")
        columns = pa.schema([("id", pa.int64()), ("quantity", pa.int32()), ("version", pa.int64())])
        self.catalog.create_table(
            "shop.orders",
            columns,
            primary_key=["id"] if key else (),
            options={"bucket": "1" if key else "-1", **(options or {})},
        )
        self.settings = "tables: [{name: shop.orders}]"
        self.files = 0
        self.offset = 0
        self.timestamp_type: str | None = None  # what lines say from now on

    @property
    def config(self) -> Config:
        text = f"""
            warehouse: {self.path}/lake
            source: {{type: change-log-folder, path: {self.path}/in, until: end}}
            {self.settings}
            errors: {{tolerance: all, dead_letters: {{table: {LETTERS}}}}}
        """
        return parse_config(text, "shop.yaml", [], {}, pipeline="shop")

    def add(self, *changes: Change) -> None:
        more = {} if self.timestamp_type is None else {"timestamp_type": self.timestamp_type}
        lines = [line(self.offset + number, change, 0, **more) for number, change in enumerate(changes)]
        (self.path / "in" / f"{self.files:04}.jsonl").write_text("".join(lines))
        self.files += 1
        self.offset += len(changes)

    def add_truncate(self) -> None:
        value = {"op": "t", "before": None, "after": None, "source": {"db": "shop", "table": "orders"}}
        record = {"topic": "shop", "partition": 0, "offset": self.offset, "timestamp_ms": 1_700_000_000_000}
        text = json.dumps({**record, "key": None, "value": json.dumps(value)})
        (self.path / "in" / f"{self.files:04}.jsonl").write_text(text + "\n")
        self.files += 1
        self.offset += 1

    def run(self) -> None:
        asyncio.run(build_pipeline(self.config).run())

    def fix(self) -> None:
        self.catalog.alter_table("shop.orders", [tidelake.UpdateColumnType("quantity", "STRING")])

    def replay(self, where: Any = None, *, is_dry: bool = False) -> list[ReplayReport]:
        return asyncio.run(DeadLetterReplay(self.config).run(where, is_dry=is_dry))

    def rows(self) -> dict[int, Any]:
        rows = self.catalog.table("shop.orders").scan().to_arrow().to_pylist()
        return {row["id"]: row["quantity"] for row in rows}

    def dead_letters(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.catalog.table(LETTERS).scan().to_arrow().sort_by("offset").to_pylist()
        return found


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def outcomes(reports: list[ReplayReport]) -> dict[str, int]:
    (report,) = reports
    return report.outcomes


def test_a_dead_letter_row_contains_the_whole_record(shop: Shop) -> None:
    shop.add((1, 5), (2, BAD))
    shop.run()
    (letter,) = shop.dead_letters()
    assert (letter["topic"], letter["partition"], letter["offset"]) == ("shop", 0, 1)
    assert (letter["pipeline"], letter["error_code"], letter["schema_id"]) == ("shop", "BAD_RECORD", None)
    assert "quantity" in letter["message"]
    assert json.loads(letter["key"]) == {"id": 2}
    assert json.loads(letter["value"])["after"]["quantity"] == BAD
    assert letter["timestamp"].timestamp() == 1_700_000_000.001
    assert letter["replayed_at"] is None
    assert shop.rows() == {1: 5}


def test_a_reread_record_is_not_added_again(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process dies between the letters' commit and the table's."""
    shop.add((1, 5), (2, BAD), (3, BAD))
    flush = TableDeadLetters.flush

    def flush_and_die(dead_letters: TableDeadLetters) -> None:
        flush(dead_letters)
        raise OSError("power cut")

    with monkeypatch.context() as patch:
        patch.setattr(TableDeadLetters, "flush", flush_and_die)
        with pytest.raises(OSError, match="power cut"):
            shop.run()
    assert [letter["offset"] for letter in shop.dead_letters()] == [1, 2]
    shop.run()
    assert [letter["offset"] for letter in shop.dead_letters()] == [1, 2]
    assert shop.rows() == {1: 5}


def test_replay_writes_missing_rows_and_keeps_newer_ones(shop: Shop) -> None:
    shop.add((1, 5), (2, BAD), (3, BAD), (4, 1), (4, BAD))
    shop.run()
    shop.add((3, 7), (4, None))  # newer changes of two of the keys
    shop.run()
    shop.fix()
    assert outcomes(shop.replay()) == {"replayed": 1, "superseded": 2}
    assert shop.rows() == {1: "5", 2: BAD, 3: "7"}
    assert [letter["replay_outcome"] for letter in shop.dead_letters()] == ["replayed", "superseded", "superseded"]
    assert shop.replay() == []
    shop.add((2, 8))
    shop.run()  # the pipeline continues at its position
    assert shop.rows()[2] == "8"


@pytest.mark.parametrize("case_of", [str.lower, str.upper], ids=["lower case", "upper case"])
def test_derived_columns_of_replayed_rows_have_their_original_values(
    tmp_path: Path, case_of: Callable[[str], str]
) -> None:
    """Also where they are part of the key. The catalog takes lower case only."""
    shop = Shop(tmp_path)
    shop.settings = """
            warehouse_options: {case-sensitive: 'false'}
            tables: [{name: shop.days, match: orders, primary_key: [id, day], partition_by: [day],
              columns: {quantity: INT}, computed_columns: {day: 'substring(QUANTITY_DAY, 0, 1)'},
              metadata_columns: [offset, timestamp_type]}]
    """

    def add(offset: int, quantity: str) -> None:
        row = {case_of("id"): 1 + offset % 2, case_of("quantity"): quantity, case_of("quantity_day"): f"{offset % 2}x"}
        value = {"before": None, "after": row, "op": "c", "source": {"db": "shop", "table": "orders"}}
        place = {"topic": "shop", "partition": 0, "offset": offset, "timestamp_ms": 1, "key": None}
        place["timestamp_type"] = "LogAppendTime" if offset > 2 else "CreateTime"
        (tmp_path / "in" / f"{offset}.jsonl").write_text(json.dumps({**place, "value": json.dumps(value)}) + "\n")

    add(0, "5")
    add(1, BAD)
    add(2, BAD)
    add(3, BAD)
    add(4, "7")  # of the same key as 0 and 2
    shop.run()
    shop.catalog.alter_table("shop.days", [tidelake.UpdateColumnType("quantity", "STRING")])
    assert outcomes(shop.replay()) == {"replayed": 2, "superseded": 1}
    rows = shop.catalog.table("shop.days").scan().to_arrow().sort_by("id").to_pylist()
    assert [(row["id"], row["quantity"], row["day"], row["offset"], row["timestamp_type"]) for row in rows] == [
        ("1", "7", "0", 4, "LogAppendTime"),
        ("2", BAD, "1", 3, "LogAppendTime"),
    ]


def test_a_table_of_an_earlier_release_gets_the_column_with_the_first_letter_that_fills_it(shop: Shop) -> None:
    shop.catalog.create_database("ops")
    before = pa.schema([field for field in COLUMNS if field.name != "timestamp_type"])
    shop.catalog.create_table(LETTERS, before, options={"bucket": "-1", "deletion-vectors.enabled": "true"})
    shop.add((1, BAD))
    shop.run()
    assert "timestamp_type" not in shop.dead_letters()[0]  # the lines say nothing of it
    shop.timestamp_type = "CreateTime"
    shop.add((2, BAD))
    shop.run()
    assert [letter["timestamp_type"] for letter in shop.dead_letters()] == [None, "CreateTime"]
    shop.fix()
    assert outcomes(shop.replay()) == {"replayed": 2}
    assert shop.rows() == {1: BAD, 2: BAD}


def test_a_table_of_an_earlier_release_is_replayed_as_it_is(shop: Shop) -> None:
    shop.catalog.create_database("ops")
    before = pa.schema([field for field in COLUMNS if field.name != "timestamp_type"])
    shop.catalog.create_table(LETTERS, before, options={"bucket": "-1", "deletion-vectors.enabled": "true"})
    shop.add((1, BAD))
    shop.run()
    shop.fix()
    assert outcomes(shop.replay()) == {"replayed": 1}
    assert shop.rows() == {1: BAD}


def test_pipelines_sharing_a_table_of_an_earlier_release_add_the_column_once(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one adds it between the look at the table and the change."""
    shop.catalog.create_database("ops")
    before = pa.schema([field for field in COLUMNS if field.name != "timestamp_type"])
    shop.catalog.create_table(LETTERS, before, options={"bucket": "-1", "deletion-vectors.enabled": "true"})
    alter = FileSystemCatalog.alter_table

    def late(self: FileSystemCatalog, name: str, changes: Sequence[SchemaChange]) -> TableSchema:
        alter(self, name, changes)
        return alter(self, name, changes)

    monkeypatch.setattr(FileSystemCatalog, "alter_table", late)
    shop.timestamp_type = "LogAppendTime"
    shop.add((1, BAD))
    shop.run()
    assert [letter["timestamp_type"] for letter in shop.dead_letters()] == ["LogAppendTime"]


def test_a_dry_run_writes_nothing(shop: Shop) -> None:
    shop.add((2, BAD))
    shop.run()
    shop.fix()
    assert outcomes(shop.replay(is_dry=True)) == {"replayed": 1}
    assert (shop.rows(), shop.dead_letters()[0]["replay_id"]) == ({}, None)


def test_only_matching_letters_are_replayed_and_the_order_of_the_others_is_kept(shop: Shop) -> None:
    """The newer letter of a key waits: the older one is written, and the newer one, once replayed, wins."""
    shop.add((1, "first"), (1, "second"))
    shop.run()
    shop.fix()
    assert outcomes(shop.replay(tidelake.col("offset") == 0)) == {"replayed": 1}
    assert shop.rows() == {1: "first"}
    assert outcomes(shop.replay()) == {"replayed": 1}
    assert shop.rows() == {1: "second"}


def test_a_letter_that_is_written_while_a_replay_begins_supersedes_nothing(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pipeline writes it before its table's position passes the record, so both are new to the replay."""
    shop.add((1, "first"), (1, "second"))
    shop.run()
    shop.fix()
    letters = shop.catalog.table(LETTERS)
    newer = letters.scan(filter="offset = 1").to_arrow()
    letters.delete("offset = 1")
    own_states = DeadLetterReplay._own_states

    def write_newer(self: DeadLetterReplay) -> Any:
        if not letters.scan(filter="offset = 1").to_arrow().num_rows:
            letters.append(newer)
        return own_states(self)

    monkeypatch.setattr(DeadLetterReplay, "_own_states", write_newer)
    assert outcomes(shop.replay()) == {"replayed": 1}
    assert shop.rows() == {1: "first"}
    assert outcomes(shop.replay()) == {"replayed": 1}
    assert shop.rows() == {1: "second"}


def add_with_note(shop: Shop, change: Change) -> None:
    """Add a change with a column that the table lacks."""
    record = json.loads(line(shop.offset, change))
    value = json.loads(record["value"])
    value["after"]["note"] = "new"
    text = json.dumps({**record, "value": json.dumps(value)})
    (shop.path / "in" / f"{shop.files:04}.jsonl").write_text(text + "\n")
    shop.files += 1
    shop.offset += 1


def test_a_change_with_a_column_that_is_added_while_a_replay_begins_is_newer(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.add((1, BAD))
    shop.run()
    shop.fix()
    states = DeadLetterReplay._own_states

    def change_first(self: DeadLetterReplay) -> Any:
        if shop.offset == 1:
            shop.catalog.alter_table("shop.orders", [tidelake.AddColumn("note", "STRING")])
            add_with_note(shop, (1, "newer"))
            shop.run()
        return states(self)

    monkeypatch.setattr(DeadLetterReplay, "_own_states", change_first)
    assert outcomes(shop.replay()) == {"superseded": 1}
    assert shop.rows() == {1: "newer"}


def test_a_letter_stays_if_a_later_record_has_a_column_that_was_dropped_since(shop: Shop) -> None:
    shop.add((1, BAD))
    shop.run()
    shop.fix()
    shop.catalog.alter_table("shop.orders", [tidelake.AddColumn("note", "STRING")])
    add_with_note(shop, (1, "newer"))
    shop.run()
    shop.catalog.alter_table("shop.orders", [tidelake.DropColumn("note")])
    (report,) = shop.replay()
    assert "a later record can't be decoded now: shop:0:1: " in report.remaining[0]["reason"]
    assert shop.rows() == {1: "newer"}


def test_replaying_the_newer_letter_first_supersedes_the_older_one(shop: Shop) -> None:
    shop.add((1, "first"), (1, "second"))
    shop.run()
    shop.fix()
    shop.replay(tidelake.col("offset") == 1)
    assert outcomes(shop.replay()) == {"superseded": 1}
    assert shop.rows() == {1: "second"}


def test_a_letter_that_still_cannot_be_decoded_stays_with_its_reason(shop: Shop) -> None:
    shop.add((1, BAD))
    shop.run()
    (report,) = shop.replay()
    assert (report.outcomes, report.replay_id, len(report.remaining)) == ({}, None, 1)
    assert "quantity" in report.remaining[0]["reason"]
    assert shop.dead_letters()[0]["replayed_at"] is None


def test_a_letter_stays_if_the_log_no_longer_holds_later_records(shop: Shop) -> None:
    shop.add((1, BAD))
    shop.run()
    shop.add((2, 2))
    shop.run()
    shop.fix()
    for file in (shop.path / "in").iterdir():
        file.unlink()
    (report,) = shop.replay()
    assert "the log no longer has the later records" in report.remaining[0]["reason"]
    assert shop.rows() == {2: "2"}


def test_a_letter_is_replayed_although_the_log_lacks_records_after_an_older_one(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.add((1, BAD))
    shop.add((5, 5))
    shop.run()
    shop.add((2, BAD), (3, 3))
    shop.run()
    shop.fix()
    for name in ("0000", "0001"):
        (shop.path / "in" / f"{name}.jsonl").unlink()

    async def bounds(self: ChangeLogFolder, partitions: Any) -> dict[TopicPartition, OffsetRange]:
        return {TopicPartition("shop", 0): OffsetRange(2, 4)}

    monkeypatch.setattr(ChangeLogFolder, "bounds", bounds)
    (report,) = shop.replay()
    assert report.outcomes == {"replayed": 1}
    assert [one["offset"] for one in report.remaining] == [0]
    assert shop.rows() == {2: BAD, 3: "3", 5: "5"}


@pytest.mark.parametrize("options", [{}, {"merge-engine": "aggregation", "fields.quantity.aggregate-function": "max"}])
def test_a_letter_from_before_a_truncate_adds_no_row(tmp_path: Path, options: dict[str, str]) -> None:
    shop = Shop(tmp_path, options=options)
    shop.add((1, BAD), (2, 2))
    shop.run()
    shop.add_truncate()
    shop.add((3, BAD))
    shop.run()
    shop.fix()
    assert outcomes(shop.replay()) == {"replayed": 1, "superseded": 1}
    assert shop.rows() == {3: BAD}


@pytest.mark.parametrize("crash_at", ["_write", "_mark", "the last _mark"])
def test_an_interrupted_replay_is_completed_by_the_next_one_and_counted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crash_at: str
) -> None:
    """In an append table a row that came twice would stay twice."""
    shop = Shop(tmp_path, key=False)
    shop.add((1, BAD), (2, BAD))
    shop.run()
    shop.fix()
    calls = []
    step = getattr(DeadLetterReplay, crash_at.rsplit(maxsplit=1)[-1])

    def crash(*arguments: Any) -> Any:
        calls.append(1)
        if crash_at == "the last _mark" and len(calls) == 1:
            return step(*arguments)
        if crash_at != "the last _mark":
            step(*arguments)
        raise OSError("power cut")

    with monkeypatch.context() as patch:
        patch.setattr(DeadLetterReplay, crash_at.rsplit(maxsplit=1)[-1], crash)
        with pytest.raises(OSError, match="power cut"):
            shop.replay()
    shop.add((3, "3"))
    shop.run()
    assert outcomes(shop.replay()) == {"replayed": 2}
    assert shop.catalog.table("shop.orders").scan().to_arrow().num_rows == 3
    assert shop.replay() == []


def expire_log(shop: Shop, patches: pytest.MonkeyPatch, first: int) -> None:
    """Let the log begin at an offset, a file for each, as Kafka's does by its retention."""
    for offset in range(first):
        (shop.path / "in" / f"{offset:04}.jsonl").unlink()

    async def bounds(self: ChangeLogFolder, partitions: Any) -> dict[TopicPartition, OffsetRange]:
        return {TopicPartition("shop", 0): OffsetRange(first, shop.offset)}

    patches.setattr(ChangeLogFolder, "bounds", bounds)


def test_a_letter_that_a_second_attempt_can_not_decide_is_not_taken_for_replayed_later(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.add((1, BAD))
    shop.add((2, BAD))
    shop.add((3, 3))
    shop.run()
    shop.fix()
    write, kept = DeadLetterReplay._write, (shop.path / "in" / "0001.jsonl").read_text()
    attempts: list[int] = []

    with monkeypatch.context() as patches:

        def lose_log(*arguments: Any) -> None:
            attempts.append(1)
            if len(attempts) == 1:
                expire_log(shop, patches, 2)
                raise replay._TableChanged
            write(*arguments)

        patches.setattr(DeadLetterReplay, "_write", lose_log)
        (report,) = shop.replay()
        assert len(attempts) == 2
        assert [one["offset"] for one in report.remaining] == [0]
        assert shop.rows() == {2: BAD, 3: "3"}
        assert [letter["replay_id"] is None for letter in shop.dead_letters()] == [True, False]
    (shop.path / "in" / "0001.jsonl").write_text(kept)  # a backup of the log
    assert outcomes(shop.replay()) == {"replayed": 1}
    assert shop.rows() == {1: BAD, 2: BAD, 3: "3"}


def test_what_an_interrupted_replay_has_written_is_replayed_although_the_log_is_lost_since(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.add((1, BAD))
    shop.add((2, 2))
    shop.add((3, 3))
    shop.run()
    shop.fix()
    write = DeadLetterReplay._write

    def crash(*arguments: Any) -> None:
        write(*arguments)
        raise OSError("power cut")

    with monkeypatch.context() as patches:
        patches.setattr(DeadLetterReplay, "_write", crash)
        with pytest.raises(OSError, match="power cut"):
            shop.replay()
    expire_log(shop, monkeypatch, 2)
    assert outcomes(shop.replay()) == {"replayed": 1}
    assert shop.replay() == []
    assert shop.rows() == {1: BAD, 2: "2", 3: "3"}


def test_a_letter_that_one_of_two_tables_got_before_a_crash_stays_for_the_other_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(tmp_path, key=False)
    shop.catalog.create_table(
        "shop.newest", shop.catalog.table("shop.orders").schema, primary_key=["id"], options={"bucket": "1"}
    )
    shop.settings = "tables: [{name: shop.orders, match: shop.orders}, {name: shop.newest, match: shop.orders}]"
    shop.add((1, BAD))
    shop.add((2, 2))
    shop.add((3, 3))
    shop.run()
    shop.fix()
    shop.catalog.alter_table("shop.newest", [tidelake.UpdateColumnType("quantity", "STRING")])
    # A record that nobody could decode has one letter for both tables.
    letters = shop.catalog.table(LETTERS)
    letters.delete(tidelake.col("table") == "shop.newest")
    letters.update(tidelake.col("offset") == 0, {"table": None})
    write, kept = DeadLetterReplay._write, (shop.path / "in" / "0001.jsonl").read_text()

    def crash_before_the_second(*arguments: Any) -> None:
        if arguments[1].name == "shop.newest":
            raise OSError("power cut")
        write(*arguments)

    with monkeypatch.context() as patches:
        patches.setattr(DeadLetterReplay, "_write", crash_before_the_second)
        with pytest.raises(OSError, match="power cut"):
            shop.replay()
    with monkeypatch.context() as patches:
        expire_log(shop, patches, 2)
        completed, left_over = shop.replay()
        assert completed.outcomes == {"replayed": 1}
        assert [one["offset"] for one in left_over.remaining] == [0]
    (shop.path / "in" / "0001.jsonl").write_text(kept)
    assert outcomes(shop.replay()) == {"replayed": 1}
    assert shop.replay() == []
    assert shop.catalog.table("shop.newest").scan().to_arrow()["id"].to_pylist() == [1, 2, 3]
    assert sorted(shop.catalog.table("shop.orders").scan().to_arrow()["id"].to_pylist()) == [1, 2, 3]


def test_a_concurrent_pipeline_commit_makes_the_replay_retry(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """A newer change comes into the table after the log was read, and before the replay writes."""
    shop.add((1, BAD))
    shop.run()
    shop.fix()
    carry_out = DeadLetterReplay._execute
    races: list[int] = []

    def race(*arguments: Any) -> None:
        if not races:
            races.append(1)
            shop.add((1, "newer"))
            shop.run()
        carry_out(*arguments)

    monkeypatch.setattr(DeadLetterReplay, "_execute", race)
    assert outcomes(asyncio.run(to_end(shop))) == {"superseded": 1}
    assert shop.rows() == {1: "newer"}


async def to_end(shop: Shop) -> list[ReplayReport]:
    return await DeadLetterReplay(shop.config).run()


def test_a_replay_that_always_loses_the_race_raises(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.add((1, BAD))
    shop.run()
    shop.fix()

    def lose(*_: Any) -> None:
        raise replay._TableChanged

    monkeypatch.setattr(DeadLetterReplay, "_execute", lose)
    with pytest.raises(CommitConflict, match="Stop the pipeline, replay, and start the pipeline again"):
        shop.replay()


def test_sequence_fields_decide_which_row_is_newer(tmp_path: Path) -> None:
    """Whatever the log's order: a letter whose sequence value is higher than the newer record's wins."""
    shop = Shop(tmp_path, options={"sequence.field": "version"})
    shop.add((1, BAD), (2, BAD), (2, 9))
    shop.run()
    shop.fix()
    assert outcomes(shop.replay()) == {"replayed": 1, "superseded": 1}
    assert shop.rows() == {1: BAD, 2: "9"}


def test_a_merge_engine_that_cannot_add_older_rows_is_refused_by_name(tmp_path: Path) -> None:
    shop = Shop(tmp_path, options={"merge-engine": "first-row"})
    shop.add((1, BAD), (1, 5), (2, BAD))
    shop.run()
    shop.fix()
    (report,) = shop.replay()
    assert report.outcomes == {"replayed": 1}
    (left,) = report.remaining
    assert left["reason"].startswith("shop.orders has newer changes of the key (1), and merge-engine = first-row")


def test_versions_of_rows_are_not_replayed_and_reading_the_record_again_splits_them(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.settings = "tables: [{name: shop.versions, match: orders, mode: scd2, columns: {quantity: INT}}]"
    shop.add((1, 5), (1, BAD), (1, 7), (1, None))
    shop.run()

    def versions() -> list[tuple[Any, ...]]:
        found = shop.catalog.table("shop.versions").scan().to_arrow().sort_by("valid_from").to_pylist()
        ms = [[round(row[name].timestamp() * 1000) % 1000 for name in ("valid_from", "valid_to")] for row in found]
        return [(row["quantity"], *times) for row, times in zip(found, ms, strict=True)]

    assert versions() == [(5, 0, 2), (7, 2, 3)]
    shop.catalog.alter_table("shop.versions", [tidelake.UpdateColumnType("quantity", "STRING")])
    shop.settings = "tables: [{name: shop.versions, match: orders, mode: scd2}]"
    (report,) = shop.replay()
    (left,) = report.remaining
    assert left["reason"].startswith("shop.versions keeps versions of rows, which a replay can't split")
    flags = parse_recovery_flags((), ["shop.versions=earliest"], (), ["shop.versions"])
    asyncio.run(build_pipeline(shop.config, flags).run())
    assert versions() == [("5", 0, 1), (BAD, 1, 2), ("7", 2, 3)]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("TIMESTAMP(3)", [253_402_300_800_000, 2**53, 0]),  # milliseconds, the first of the year 10000
        ("TIMESTAMP(9)", [1, 2, 3]),  # nanoseconds, which Python's datetimes lack
    ],
)
def test_keys_may_be_times_outside_of_pythons_range(kind: str, values: list[int]) -> None:
    schema = pa.schema([("at", arrow_type(parse_type(kind)))])
    rows = pa.record_batch([pa.array(values, pa.int64()).view(schema.field("at").type)], schema=schema)
    assert row_values(rows, ["at"]) == [(value,) for value in values]
    assert row_values(rows, []) == [()] * 3


def test_replaying_file_dead_letters_is_refused_with_the_setting_for_a_table(shop: Shop) -> None:
    config = msgspec.structs.replace(shop.config, errors=msgspec.structs.replace(shop.config.errors, dead_letters=None))
    with pytest.raises(BadInput, match=r"errors.dead_letters: \{table: database.table\}"):
        DeadLetterReplay(config)


def test_a_dead_letter_table_with_other_columns_is_refused_before_reading(shop: Shop) -> None:
    shop.catalog.create_database("ops")
    shop.catalog.create_table(LETTERS, pa.schema([("a", pa.int64())]))
    with pytest.raises(BadInput, match=r"ops.dead_letters lacks id, pipeline, .*errors.dead_letters.table"):
        build_pipeline(shop.config)


KEYS = st.integers(1, 3)
QUANTITIES = st.one_of(st.none(), st.integers(0, 9), st.sampled_from(["bad a", "bad b"]))
RUNS = st.lists(st.lists(st.tuples(KEYS, QUANTITIES), min_size=1, max_size=5), min_size=1, max_size=3)


@settings(max_examples=examples(15), phases=(Phase.explicit, Phase.generate))
@given(RUNS, st.lists(st.booleans(), min_size=15, max_size=15))
def test_after_a_full_replay_the_table_equals_one_without_bad_records(
    tmp_path_factory: pytest.TempPathFactory, runs: list[list[Change]], first: list[bool]
) -> None:
    """In two replays, of any letters each, with the pipeline running before and after."""
    shop = Shop(tmp_path_factory.mktemp("shop") / "shop")
    truth: dict[int, str] = {}
    for changes in runs:
        shop.add(*changes)
        shop.run()
        for id_, quantity in changes:
            truth.pop(id_, None)
            if quantity is not None:
                truth[id_] = str(quantity)
    shop.fix()
    offsets = [offset for offset, is_first in enumerate(first) if is_first]
    shop.replay(tidelake.col("offset").is_in(offsets))
    shop.replay()
    assert shop.rows() == truth


class SoftShop(Shop):
    """A shop whose table keeps deleted rows, with the time of the delete."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.catalog.alter_table("shop.orders", [tidelake.AddColumn("deleted_at", "TIMESTAMP_LTZ(3)")])
        self.settings = "tables: [{name: shop.orders, deletes: soft, deleted_at_column: deleted_at}]"

    def kept(self) -> dict[int, tuple[str, int | None]]:
        """Return key to quantity, and the offset of the delete."""
        rows = self.catalog.table("shop.orders").scan().to_arrow().to_pylist()
        times = {row["id"]: row["deleted_at"] for row in rows}
        offsets = {id_: time and round(time.timestamp() * 1000) - 1_700_000_000_000 for id_, time in times.items()}
        return {row["id"]: (row["quantity"], offsets[row["id"]]) for row in rows}


@pytest.mark.parametrize(
    ("changes", "letters", "row"),
    [
        ([(1, 5), (1, BAD_DELETE)], 1, ("5", 1)),
        ([(1, 5), (1, BAD_DELETE), (1, 6)], 1, ("6", None)),
        ([(1, BAD), (1, BAD_DELETE)], 2, (BAD, 1)),
        ([(1, BAD), (1, None)], 1, (BAD, 1)),
        ([(1, 5), (1, BAD), (1, None)], 1, (BAD, 2)),
        ([(1, BAD), (1, None), (1, BAD)], 2, (BAD, None)),
        ([(1, BAD), (1, None), (1, BAD), (1, None), (1, None)], 2, (BAD, 4)),
        ([(1, BAD_DELETE)], 1, None),
    ],
    ids=[
        "a delete",
        "a delete before a newer row",
        "a row and its delete",
        "a row that was deleted since",
        "an update of a row that was deleted since",
        "a row, and one after its delete",
        "deletes between the rows",
        "a delete of no row",
    ],
)
def test_a_replayed_delete_keeps_the_row_with_the_time_of_the_delete(
    tmp_path: Path, changes: list[Change], letters: int, row: tuple[str, int | None] | None
) -> None:
    shop = SoftShop(tmp_path)
    shop.add(*changes)
    shop.run()
    assert len(shop.dead_letters()) == letters
    shop.fix()
    shop.replay()
    assert shop.kept() == ({} if row is None else {1: row})


@settings(max_examples=examples(15), phases=(Phase.explicit, Phase.generate))
@given(
    st.lists(
        st.lists(st.tuples(KEYS, st.one_of(QUANTITIES, st.just(BAD_DELETE))), min_size=1, max_size=5),
        min_size=1,
        max_size=3,
    ),
    st.lists(st.booleans(), min_size=15, max_size=15),
)
def test_after_a_full_replay_a_table_of_soft_deletes_equals_one_without_bad_records(
    tmp_path_factory: pytest.TempPathFactory, runs: list[list[Change]], first: list[bool]
) -> None:
    shop = SoftShop(tmp_path_factory.mktemp("shop") / "shop")
    truth: dict[int, tuple[str, int | None]] = {}
    for offset, (id_, quantity) in enumerate(change for changes in runs for change in changes):
        if quantity not in (None, BAD_DELETE):
            truth[id_] = (str(quantity), None)
        elif id_ in truth:
            truth[id_] = (truth[id_][0], offset)
    for changes in runs:
        shop.add(*changes)
        shop.run()
    shop.fix()
    shop.replay(tidelake.col("offset").is_in([offset for offset, is_first in enumerate(first) if is_first]))
    shop.replay()
    shop.run()
    assert shop.kept() == truth


def test_a_replay_counts_the_records_that_it_reads_again(shop: Shop) -> None:
    shop.add((1, 5), (2, BAD), (2, 6), (3, 7))
    shop.run()
    shop.fix()
    display = Recorded()
    with shown_on(display):
        assert outcomes(shop.replay()) == {"superseded": 1}
    assert display.tasks == [("reading the log after the dead letters", "records", 2, 2)]
