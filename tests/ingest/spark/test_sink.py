"""The guarantees of `foreachBatch` with our sink: each batch once, in order, or a refusal with a remedy."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import tidelake
from tests.support.java_oracle import JavaOracle
from tidelake.ingest.spark import batch_write
from tidelake.ingest.spark.maintenance import SinkMaintenance
from tidelake.ingest.spark.sink import SparkSink
from tidelake.spark import sink
from tidelake.storage.maintenance.maintenance_worker import MaintenanceWorker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Row = Mapping[str, Any]
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string()), ("version", pa.int32())])


@dataclass
class Stream:
    """A folder of JSON rows that Spark reads as a stream into one table; each `put` is a micro-batch."""

    spark: SparkSession
    home: Path
    columns: str = "id long, name string, version int"
    files: int = 0
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def warehouse(self) -> str:
        return str(self.home / "lake")

    def create(self, schema: pa.Schema = SCHEMA, **arguments: Any) -> tidelake.Table:
        catalog = tidelake.open_catalog(self.warehouse)
        catalog.create_database("shop", if_not_exists=True)
        return catalog.create_table("shop.t", schema, **arguments)

    def put(self, rows: Sequence[Row]) -> None:
        folder = self.home / "rows"
        folder.mkdir(exist_ok=True)
        path = folder / f"{self.files}.json"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        os.utime(path, (self.files, self.files))  # Spark reads files in the order of their times
        self.files += 1

    def read(self) -> DataFrame:
        return self.spark.readStream.schema(self.columns).option("maxFilesPerTrigger", 1).json(str(self.home / "rows"))

    def run(self, checkpoint: str = "checkpoint", change: Callable[[DataFrame], DataFrame] = lambda d: d) -> None:
        writer = change(self.read()).writeStream.foreachBatch(sink("shop.t", self.warehouse, **self.options))
        query = writer.option("checkpointLocation", str(self.home / checkpoint)).trigger(availableNow=True).start()
        query.awaitTermination()

    def forget_commit(self, batch_id: int) -> None:
        """As if the driver had died after our commit and before Spark's own."""
        self._forget("commits", batch_id)

    def forget_batch(self, batch_id: int) -> None:
        """As if the checkpoint directory came from a backup that was made before the batch was planned."""
        for log in ("commits", "offsets"):
            self._forget(log, batch_id)

    def _forget(self, log: str, batch_id: int) -> None:
        folder = self.home / "checkpoint" / log
        (folder / str(batch_id)).unlink()
        (folder / f".{batch_id}.crc").unlink(missing_ok=True)


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Stream:
    return Stream(spark, tmp_path)


def rows_of(table: tidelake.Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.scan().to_arrow().to_pylist())


@pytest.mark.interop
def test_rows_reach_every_bucket_and_java_reads_them(stream: Stream, java_oracle: JavaOracle) -> None:
    table = stream.create(primary_key=["id"], options={"bucket": "3"})
    stream.put([{"id": i, "name": f"n{i}"} for i in range(100)])
    stream.put([{"id": i, "name": f"m{i}"} for i in range(50, 150)])
    stream.run()
    expected = [(i, f"{'n' if i < 50 else 'm'}{i}", None) for i in range(150)]
    assert rows_of(table) == expected
    java = java_oracle.read(stream.warehouse, "shop.t")
    assert sorted((row["id"], row["name"], row["version"]) for row in java) == expected
    assert [snapshot.commit_identifier for snapshot in table.snapshots()] == [0, 1]


@pytest.mark.interop
@pytest.mark.parametrize("bytes_sent_to_all", [1 << 20, 0], ids=["with its work", "among its chunks"])
def test_each_of_several_tasks_finds_its_plan(
    bytes_sent_to_all: int, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_write, "PLANS_IN_CLOSURE_BYTES_MAX", bytes_sent_to_all)
    table = stream.create(primary_key=["id"], options={"bucket": "150"})  # 6 MB of work, for one task a core
    stream.put([{"id": i, "name": f"n{i}"} for i in range(300)])
    stream.put([{"id": i, "name": f"m{i}"} for i in range(300)])
    stream.run()
    assert rows_of(table) == [(i, f"m{i}", None) for i in range(300)]


@pytest.mark.interop
def test_a_batch_leaves_its_session_the_settings_that_it_had(stream: Stream) -> None:
    stream.create(primary_key=["id"])
    names = ["spark.sql.adaptive.enabled", "spark.sql.execution.arrow.maxBytesPerBatch"]
    conf = stream.spark.conf
    seen = []
    into = sink("shop.t", stream.warehouse, commit_user="settings")
    for batch_id, given in enumerate(("true", None)):
        if given is None:
            conf.unset(names[0])
        else:
            conf.set(names[0], given)
        before = [conf.get(name) for name in names]
        into(stream.spark.createDataFrame([(batch_id, "a", 1)], stream.columns), batch_id)
        seen.append([conf.get(name) for name in names] == before)
    assert seen == [True, True]


@pytest.mark.exhaustive
@pytest.mark.parametrize("primary_key", [["id"], []], ids=["primary key", "append table"])
def test_a_replayed_batch_is_a_no_op(stream: Stream, primary_key: list[str]) -> None:
    table = stream.create(primary_key=primary_key)
    stream.put([{"id": 1, "name": "a"}])
    stream.put([{"id": 2, "name": "b"}])
    stream.run()
    before = [snapshot.uuid for snapshot in table.snapshots()]
    stream.forget_commit(1)
    stream.run()
    assert [snapshot.uuid for snapshot in table.snapshots()] == before
    assert rows_of(table) == [(1, "a", None), (2, "b", None)]
    stream.put([{"id": 3, "name": "c"}])
    stream.run()
    assert rows_of(table) == [(1, "a", None), (2, "b", None), (3, "c", None)]


@pytest.mark.interop
def test_old_snapshots_expire_except_the_one_needed_to_detect_a_replay(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = MaintenanceWorker()
    monkeypatch.setattr("tidelake.ingest.spark.table_batch.maintenance", SinkMaintenance(worker))
    options = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "2", "snapshot.time-retained": "1 ms"}
    table = stream.create(options=options)
    for i in range(8):
        stream.put([{"id": i, "name": "a"}])
    stream.run()
    worker.close(finish=True)
    snapshots = list(table.snapshots())
    assert [snapshot.id for snapshot in snapshots] == [8]
    consumer = stream.home / "lake" / "shop.db" / "t" / "consumer"
    assert [json.loads(file.read_text())["nextSnapshot"] for file in consumer.iterdir()] == [8]
    for _ in range(3):  # snapshots of others expire; our newest stays, and a replay of its batch is recognised
        with table.writer() as other:
            other.write(pa.table({"id": [100], "name": ["other"]}))
            other.commit()
    stream.forget_commit(7)
    stream.run()
    assert [id_ for id_, _, _ in rows_of(table)] == [*range(8), 100, 100, 100]
    assert 8 in [snapshot.id for snapshot in table.snapshots()]


@pytest.mark.exhaustive
@pytest.mark.parametrize("batches", [1, 3], ids=["the same batch id", "an older batch id"])
def test_a_commit_user_of_another_checkpoint_directory_is_refused(stream: Stream, batches: int) -> None:
    """Batch ids begin at 0 again: taken for replays, its batches would never arrive."""
    table = stream.create(primary_key=["id"])
    stream.options = {"commit_user": "etl"}
    for i in range(batches):
        stream.put([{"id": i, "name": "a"}])
    stream.run("one")
    stream.run("one")
    message = rf"(?s)batch 0, but 'etl' has already committed batch {batches - 1}.*new name for commit_user="
    with pytest.raises(Exception, match=message):
        stream.run("two")
    assert [snapshot.commit_identifier for snapshot in table.snapshots()] == [*range(batches)]
    stream.put([{"id": 9, "name": "b"}])
    stream.run("one")
    assert [id_ for id_, _, _ in rows_of(table)] == [*range(batches), 9]


@pytest.mark.interop
def test_a_reset_checkpoint_directory_is_refused(stream: Stream) -> None:
    """Spark makes other batches under the ids that the table knows."""
    table = stream.create(primary_key=["id"])
    for i in range(3):
        stream.put([{"id": i, "name": "a"}])
    stream.run()
    for batch_id in (1, 2):
        stream.forget_batch(batch_id)
    stream.put([{"id": 3, "name": "b"}])
    with pytest.raises(Exception, match=r"(?s)batch 1, but 'spark-.*has already committed batch 2.*or it was reset"):
        stream.run()
    assert [snapshot.commit_identifier for snapshot in table.snapshots()] == [0, 1, 2]


def test_a_one_off_commit_of_the_same_user_is_not_a_stream_batch(stream: Stream) -> None:
    table = stream.create(primary_key=["id"])
    stream.options = {"commit_user": "etl"}
    table.truncate(commit_user="etl")
    stream.put([{"id": 1, "name": "a"}])
    stream.run()
    with table.writer(commit_user="etl") as writer:
        writer.write(pa.table({"id": [2], "name": ["b"]}))
        writer.commit()
    stream.forget_commit(0)
    stream.run()
    stream.put([{"id": 3, "name": "c"}])
    stream.run()
    assert rows_of(table) == [(1, "a", None), (2, "b", None), (3, "c", None)]
    own = [snapshot.commit_identifier for snapshot in table.snapshots() if snapshot.is_numbered]
    assert own == [0, 1]


def test_a_new_checkpoint_directory_is_a_new_commit_user(stream: Stream) -> None:
    """Its batch ids begin at 0 again: under the old user they would be refused."""
    table = stream.create(primary_key=["id"])
    stream.put([{"id": 1, "name": "a"}])
    stream.run("one")
    stream.run("two")
    first, second = table.snapshots()
    assert first.commit_identifier == second.commit_identifier == 0
    assert first.commit_user != second.commit_user


def test_row_kinds_may_delete_rows(stream: Stream) -> None:
    table = stream.create(primary_key=["id"])
    stream.columns += ", _VALUE_KIND byte"
    stream.put([{"id": 1, "name": "a", "_VALUE_KIND": 0}, {"id": 2, "name": "b", "_VALUE_KIND": 0}])
    stream.put([{"id": 1, "_VALUE_KIND": 3}])
    stream.run()
    assert rows_of(table) == [(2, "b", None)]


TWICE = [{"id": 1, "name": "new", "version": 2}, {"id": 1, "name": "old", "version": 1}]


def test_a_duplicate_key_without_an_order_is_refused(stream: Stream) -> None:
    table = stream.create(primary_key=["id"])
    stream.put(TWICE)
    with pytest.raises(Exception, match=r"(?s)key \{'id': 1\} occurs twice.*order_by=.*sequence.field"):
        stream.run()
    assert table.snapshots() == []


def test_order_by_decides_which_row_of_a_key_is_newer(stream: Stream) -> None:
    table = stream.create(primary_key=["id"])
    stream.options = {"order_by": ["version"]}
    stream.put(TWICE)
    stream.run()
    assert rows_of(table) == [(1, "new", 2)]


@pytest.mark.interop
def test_rows_of_a_key_that_order_by_does_not_tell_apart_are_refused_until_it_does(stream: Stream) -> None:
    """The batch is repeated after a restart, and then written in the order of the added column."""
    table = stream.create(primary_key=["id"])
    stream.options = {"order_by": ["version"]}
    stream.put([{"id": 1, "name": "b", "version": 7}, {"id": 1, "name": "a", "version": 7}])
    with pytest.raises(Exception, match=r"rows that differ and are equal by order_by \(7\)"):
        stream.run()
    stream.options = {"order_by": ["version", "name"]}
    stream.run()
    assert table.scan().to_arrow().to_pylist() == [{"id": 1, "name": "b", "version": 7}]


@pytest.mark.interop
def test_a_replayed_batch_of_a_query_with_state_computes_its_rows(stream: Stream) -> None:
    table = stream.create(primary_key=["id"])

    def counted(rows: DataFrame) -> DataFrame:
        counts = rows.groupBy("id").count()
        return counts.selectExpr("id", "'n' name", "cast(count as int) version")

    def run() -> None:
        writer = counted(stream.read()).writeStream.foreachBatch(sink("shop.t", stream.warehouse))
        writer = writer.outputMode("update").option("checkpointLocation", str(stream.home / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()

    for _ in range(3):
        stream.put([{"id": 1}])
        run()
        stream.forget_commit(max(snapshot.commit_identifier for snapshot in table.snapshots()))
    stream.put([{"id": 1}, {"id": 2}])
    run()
    found = {row["id"]: row["version"] for row in table.scan().to_arrow().to_pylist()}
    assert found == {1: 4, 2: 1}


def test_jobs_and_stages_are_named_by_their_step_and_table(stream: Stream) -> None:
    stream.create(primary_key=["id"], options={"bucket": "1"})
    stream.put([{"id": 1, "name": "a", "version": 1}])
    stream.run()
    store = stream.spark.sparkContext._jsc.sc().statusStore()
    jobs = store.jobsList(None)
    found = sorted((jobs.apply(number) for number in range(jobs.size())), key=lambda job: job.jobId())[-2:]
    steps = ["tidelake: decode shop.t", "tidelake: write shop.t, 1 bucket"]
    assert [job.description().get().splitlines()[-1] for job in found] == steps
    assert [job.name() for job in found] == steps


def test_order_by_may_name_a_column_that_the_table_lacks(stream: Stream) -> None:
    table = stream.create(SCHEMA.remove(2), primary_key=["id"])
    stream.options = {"order_by": ["version"]}
    stream.put(TWICE)
    stream.run()
    assert rows_of(table) == [(1, "new")]


def test_a_sequence_field_orders_rows_in_any_batch(stream: Stream) -> None:
    table = stream.create(primary_key=["id"], options={"sequence.field": "version"})
    stream.put(TWICE)
    stream.put([{"id": 1, "name": "late", "version": 0}])
    stream.run()
    assert rows_of(table) == [(1, "new", 2)]


@pytest.mark.interop
def test_partitioned_and_empty_batches_are_written(stream: Stream) -> None:
    table = stream.create(primary_key=["id", "name"], partition_by=["name"], options={"bucket": "2"})
    stream.put([{"id": i, "name": name} for i in range(10) for name in ("x", "y/ö")])
    stream.put([])
    stream.run()
    assert rows_of(table) == sorted((i, name, None) for i in range(10) for name in ("x", "y/ö"))
    assert len(table.snapshots()) == 1


def test_a_column_that_the_table_lacks_stops_the_query(stream: Stream) -> None:
    table = stream.create(SCHEMA.remove(2), primary_key=["id"])
    stream.put([{"id": 1, "name": "a", "version": 1}])
    with pytest.raises(Exception, match="no column 'version'"):
        stream.run()
    assert table.snapshots() == []


# ---------------------------------------------------------------- raw change records


def change(offset: int, op: str, row: Row, partition: int = 0) -> Row:
    """A line of a change log with a Debezium record."""
    image = {"before": row if op == "d" else None, "after": None if op == "d" else row}
    value = {**image, "op": op, "source": {"db": "shop", "schema": "public", "table": "t"}}
    key = json.dumps({"id": row["id"]})
    return {
        "topic": "shop.public.t",
        "partition": partition,
        "offset": offset,
        "timestamp_ms": 1000 + offset,
        "key": key,
        "value": json.dumps(value),
        "headers": [],
    }


@pytest.fixture
def records(stream: Stream) -> Stream:
    stream.options = {"format": "debezium-json"}
    return stream


def run_records(stream: Stream, checkpoint: str = "checkpoint") -> None:
    lines = stream.spark.readStream.option("maxFilesPerTrigger", 1).text(str(stream.home / "rows"), lineSep="\n")
    writer = lines.writeStream.foreachBatch(sink("shop.t", stream.warehouse, **stream.options))
    writer.option("checkpointLocation", str(stream.home / checkpoint)).trigger(
        availableNow=True
    ).start().awaitTermination()


def test_raw_records_are_applied_in_the_order_of_their_offsets(records: Stream) -> None:
    table = records.create(primary_key=["id"], options={"bucket": "2"})
    records.put(
        [
            change(3, "u", {"id": 1, "name": "newest", "version": 3}),
            change(1, "c", {"id": 1, "name": "oldest", "version": 1}),
            change(2, "d", {"id": 1, "name": "oldest", "version": 1}),
            change(4, "c", {"id": 2, "name": "other", "version": 1}),
        ]
    )
    run_records(records)
    assert rows_of(table) == [(1, "newest", 3), (2, "other", 1)]


def test_the_position_is_in_the_snapshot_and_rereading_it_is_refused(records: Stream) -> None:
    table = records.create(primary_key=["id"])
    records.put(
        [change(5, "c", {"id": 1, "name": "a", "version": 1}), change(0, "c", {"id": 2, "name": "b", "version": 1}, 1)]
    )
    records.put([change(6, "u", {"id": 1, "name": "a2", "version": 2})])
    run_records(records)
    positions = [json.loads(snapshot.properties["tidelake.position"]) for snapshot in table.snapshots()]
    assert [position["topics"]["shop.public.t"] for position in positions] == [
        {"end": [6, 1], "read": [1, 1]},
        {"end": [7, 1], "read": [1, 0]},
    ]
    with pytest.raises(Exception, match=r"(?s)already has the records up to 7.*startingOffsets.*reread=True"):
        run_records(records, "another")
    records.options["reread"] = True
    run_records(records, "a third")
    assert rows_of(table) == [(1, "a2", 2), (2, "b", 1)]


def created(*offsets: int, table: str = "t") -> list[Row]:
    lines = [change(offset, "c", {"id": offset, "name": "a", "version": 1}) for offset in offsets]
    return [{**line, "value": line["value"].replace('"table": "t"', f'"table": "{table}"')} for line in lines]


def test_a_replayed_batch_of_raw_records_is_a_no_op(records: Stream) -> None:
    table = records.create()
    records.put(created(0, 1))
    records.put(created(4, 5))
    run_records(records)
    records.forget_commit(1)
    run_records(records)
    records.put(created(6))
    run_records(records)
    assert [id_ for id_, _, _ in rows_of(table)] == [0, 1, 4, 5, 6]


@pytest.mark.interop
def test_a_checkpoint_directory_reset_by_one_raw_batch_is_refused(records: Stream) -> None:
    """Spark makes the batch again, of other files than the table knows under its number."""
    table = records.create(primary_key=["id"])
    records.put(created(0))
    records.put(created(1))
    run_records(records)
    records.forget_batch(1)
    (records.home / "rows" / "1.json").unlink()
    records.put(created(2))
    message = (
        r"(?s)has the records shop.public.t-0 \[1, 2\), but this one reads shop.public.t-0 \[2, 3\).*or it was reset"
    )
    with pytest.raises(Exception, match=message):
        run_records(records)
    assert [id_ for id_, _, _ in rows_of(table)] == [0, 1]


@pytest.mark.interop
def test_the_second_half_of_a_batch_is_refused(spark: SparkSession, records: Stream) -> None:
    """Under its number the first half is in the table: taken for that, it would never arrive."""
    table = records.create()
    feed = sink("shop.t", records.warehouse, commit_user="etl", **records.options)
    halves = [
        spark.createDataFrame([(json.dumps(line),) for line in created(*h)], "value string") for h in ((0, 2), (1, 3))
    ]
    feed(halves[0], 0)
    with pytest.raises(tidelake.PositionRefused, match=r"(?s)\[0, 3\).*\[1, 4\).*once per batch, with all its rows"):
        feed(halves[1], 0)
    assert [id_ for id_, _, _ in rows_of(table)] == [0, 2]


def test_the_second_half_of_a_batch_of_columns_is_refused(stream: Stream) -> None:
    """It has no offsets by which it could be told from a replay."""
    table = stream.create(primary_key=["id"])
    stream.put([{"id": 1, "name": "a"}, {"id": 2, "name": "b"}])
    feed = sink("shop.t", stream.warehouse)

    def in_halves(batch: DataFrame, number: int) -> None:
        feed(batch.where("id = 1"), number)
        feed(batch.where("id = 2"), number)

    for _ in range(2):  # the same batch again, in a new run
        query = stream.read().writeStream.foreachBatch(in_halves)
        query = query.option("checkpointLocation", str(stream.home / "checkpoint")).trigger(availableNow=True)
        with pytest.raises(Exception, match="once per batch, with all its rows"):
            query.start().awaitTermination()
        assert rows_of(table) == [(1, "a", None)]


def test_a_new_query_that_starts_past_the_table_writes_nothing_without_acceptance(records: Stream) -> None:
    table = records.create()
    records.put(created(0, 1))
    run_records(records)
    (records.home / "rows" / "0.json").unlink()
    records.put(created(5))
    before = data_files(records)
    with pytest.raises(Exception, match=r"(?s)at offset 5, but .* up to 2.*startingOffsets.*accept_gap=True"):
        run_records(records, "another")
    assert data_files(records) == before
    records.options["accept_gap"] = True
    run_records(records, "another")
    position = json.loads(table.snapshots()[-1].properties["tidelake.position"])
    assert position["topics"]["shop.public.t"] == {"end": [6], "read": [1]}
    assert position["accepted"] == {"way": "sink(…, accept_gap=True)", "found": ["gap"]}


def test_a_new_query_is_recorded_even_if_its_first_batch_has_no_rows(records: Stream) -> None:
    table = records.create()
    records.options["match"] = "public.t"
    records.put(created(0, 1))
    run_records(records)
    (records.home / "rows" / "0.json").unlink()
    for lines in (created(2, table="u"), created(3, table="u"), created(6)):
        records.put(lines)
    run_records(records, "another")
    assert [id_ for id_, _, _ in rows_of(table)] == [0, 1, 6]
    assert [snapshot.commit_identifier for snapshot in table.snapshots()] == [0, 0, 2]


def data_files(stream: Stream) -> set[Path]:
    return set((stream.home / "lake").rglob("data-*"))


def test_a_position_moved_by_another_stream_is_a_conflict(records: Stream, monkeypatch: Any) -> None:
    table = records.create(primary_key=["id"])
    records.put([change(0, "c", {"id": 1, "name": "a", "version": 1})])
    keep_letters = SparkSink.keep_dead_letters  # comes between the comparison and the commit

    def other_stream_first(*arguments: Any) -> None:
        keep_letters(*arguments)
        with table.writer(commit_user="other") as writer:
            writer.commit(identifier=1, properties={"tidelake.position": "…"})

    monkeypatch.setattr(SparkSink, "keep_dead_letters", other_stream_first)
    with pytest.raises(Exception, match="'other' moved the table's position in snapshot 1"):
        run_records(records)
    assert [snapshot.commit_user for snapshot in table.snapshots()] == ["other"]


def test_a_batch_whose_commit_lost_a_race_is_rewritten(spark: SparkSession, stream: Stream, monkeypatch: Any) -> None:
    table = stream.create(primary_key=["id"], options={"bucket": "1"})
    keep_letters = SparkSink.keep_dead_letters  # comes after the rows were written
    others = [[5, 6], [6]]

    def others_first(*arguments: Any) -> None:
        keep_letters(*arguments)
        if others:
            with table.writer() as writer:
                ids = others.pop(0)
                writer.write(pa.table({"id": ids, "name": ["other"] * len(ids)}))
                writer.commit()

    monkeypatch.setattr(SparkSink, "keep_dead_letters", others_first)
    rows = spark.createDataFrame([(5, "ours", 1), (7, "ours", 1)], stream.columns)
    sink("shop.t", stream.warehouse, commit_user="etl")(rows, 0)
    assert rows_of(table) == [(5, "ours", 1), (6, "other", None), (7, "ours", 1)]
    assert [snapshot.commit_user for snapshot in table.snapshots()][2:] == ["etl"]
    assert len(data_files(stream)) == 3  # none of the attempts that lost


def test_a_bad_record_stops_the_query_or_becomes_a_dead_letter(records: Stream, tmp_path: Path) -> None:
    table = records.create(primary_key=["id"])
    bad = {**change(1, "c", {"id": 1, "name": "a", "version": 1}), "value": "{broken"}
    records.put([change(0, "c", {"id": 7, "name": "g", "version": 1}), bad])
    with pytest.raises(Exception, match=r"topic shop.public.t, partition 0, offset 1: .*dead_letters="):
        run_records(records)
    assert table.snapshots() == []
    records.options["dead_letters"] = str(tmp_path / "letters")
    run_records(records)
    assert rows_of(table) == [(7, "g", 1)]
    (file,) = (tmp_path / "letters").iterdir()
    (letter,) = map(json.loads, file.read_text().splitlines())
    assert (letter["topic"], letter["partition"], letter["offset"], letter["value"]) == (
        "shop.public.t",
        0,
        1,
        "{broken",
    )


@pytest.mark.interop
@pytest.mark.parametrize("has_headers", [True, False])
def test_records_without_headers_are_applied_with_those_that_have_some(records: Stream, has_headers: bool) -> None:
    """As Kafka's columns: what has no headers is null there."""
    table = records.create(primary_key=["id"])
    old_key = [("__debezium.oldkey", bytearray(b'{"id": 1}'))]
    new_key = [("trace", None), ("__debezium.newkey", bytearray(b'{"id": 3}'))]
    headers = [None, [], new_key, old_key, None]
    changes = [
        change(0, "c", {"id": 1, "name": "moves", "version": 1}),
        change(1, "c", {"id": 2, "name": "stays", "version": 1}),
        change(2, "d", {"id": 1, "name": "moves", "version": 1}),
        change(3, "c", {"id": 3, "name": "__debezium_unavailable_value", "version": 1}),
        {**change(4, "c", {"id": 4, "name": "d", "version": 1}), "value": "{broken"},
    ]
    rows = [
        (one["topic"], one["partition"], one["offset"], one["key"].encode(), one["value"].encode(), of_one)
        for one, of_one in zip(changes, headers, strict=True)
    ]
    schema = "topic string, partition int, offset bigint, key binary, value binary"
    if has_headers:
        schema += ", headers array<struct<key: string, value: binary>>"
    batch = records.spark.createDataFrame([row if has_headers else row[:-1] for row in rows], schema)
    letters = records.home / "letters"
    sink("shop.t", records.warehouse, commit_user="etl", dead_letters=str(letters), **records.options)(batch, 0)
    found = [json.loads(line) for file in letters.iterdir() for line in file.read_text().splitlines()]
    moved = [(3, "moves", 1)] if has_headers else []  # only its header has the key under which its name is stored
    assert rows_of(table) == [(2, "stays", 1), *moved]
    assert sorted(letter["offset"] for letter in found) == ([4] if has_headers else [3, 4])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(
            {"connector": {"binary_handling_mod": "hex"}},
            "no option 'binary_handling_mod'; did you mean 'binary_handling_mode'",
            id="an option that is none",
        ),
        pytest.param(
            {"connector": {"binary_handling_mode": "octal"}}, "'octal' is not one of base64, hex", id="a mode"
        ),
        pytest.param(
            {"truncates": "Fail"}, "truncates of debezium-json must be apply, fail or skip, not 'Fail'", id="truncates"
        ),
    ],
)
def test_unknown_format_options_are_refused(arguments: Mapping[str, Any], message: str) -> None:
    with pytest.raises(tidelake.BadInput, match=message):
        sink("shop.t", "lake", format="debezium-json", **arguments)


@pytest.mark.parametrize("name", ["topics", "order_by", "rounded_columns"])
def test_a_text_in_place_of_a_list_is_refused(name: str) -> None:
    """Its letters would be taken for names: a batch of topic `orders` had no records for topics `o`, `r`, …"""
    with pytest.raises(tidelake.BadInput, match=rf"sink\({name}=….*pass \['orders'\]"):
        sink("shop.t", "lake", **{name: "orders"})  # type: ignore[arg-type]


def test_records_of_two_tables_require_a_table_selection(records: Stream) -> None:
    table = records.create(primary_key=["id"])
    one = change(0, "c", {"id": 1, "name": "a", "version": 1})
    other = {**one, "offset": 1, "value": one["value"].replace('"table": "t"', '"table": "u"')}
    records.put([one, other])
    with pytest.raises(Exception, match=r"shop.public.t and shop.public.u; .*match="):
        run_records(records)
    assert table.snapshots() == []
    records.options["match"] = "public.t"
    run_records(records)
    assert len(rows_of(table)) == 1


def test_outside_of_a_streaming_query_a_commit_user_is_required(spark: SparkSession, stream: Stream) -> None:
    table = stream.create(primary_key=["id"])
    rows = spark.createDataFrame([(1, "a", 1)], stream.columns)
    with pytest.raises(tidelake.BadInput, match="commit_user="):
        sink("shop.t", stream.warehouse)(rows, 0)
    sink("shop.t", stream.warehouse, commit_user="nightly")(rows, 0)
    sink("shop.t", stream.warehouse, commit_user="nightly")(rows, 0)
    assert rows_of(table) == [(1, "a", 1)]
    assert len(table.snapshots()) == 1
