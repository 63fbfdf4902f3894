"""`tidelake doctor --chaos` disturbs the user's pipeline on a scratch warehouse, and touches nothing else."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from hypothesis import given
from hypothesis import strategies as st

import tidelake
from tests.support.command_line import Call
from tests.support.kafka_broker import KafkaBroker
from tests.tidelake.doctor.test_doctor import contents
from tidelake.doctor.chaos.comparison import compare
from tidelake.doctor.chaos.lossy_file_io import LOST_ANSWER, LOST_REQUEST, LossyFileIO
from tidelake.doctor.chaos.scratch_lake import PREFIX, ScratchPipeline
from tidelake.doctor.checks import Status
from tidelake.ingest.raw_batch import RawBatch, binary_column, timestamp_types_of
from tidelake.ingest.sources.change_log_record import encode_records, parse_records
from tidelake.storage.fileio.local import LocalFileIO
from tidelake.storage.fileio.retrying import RetryingFileIO

KEYS = 40
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
BRIEF = ("--chaos", "--minutes", "0.05", "--seed", "5")


def change(number: int) -> dict[str, Any]:
    """A random change of one of KEYS rows."""
    random = Random(number)
    source = {"db": "shop", "schema": "public", "table": "t", "connector": "postgresql"}
    value = {"before": None, "after": {"id": random.randrange(KEYS), "name": f"ä{number}"}, "op": "c", "source": source}
    place = {"topic": "t", "partition": 0, "offset": number, "timestamp_ms": number}
    return {**place, "key": None, "value": json.dumps(value), "headers": []}


def write_world(root: Path, records: int = 400) -> Path:
    """A configuration, its folder of change logs, and a table with a row that no record made."""
    (root / "in").mkdir()
    lines = [json.dumps(change(number)) + "\n" for number in range(records)]
    (root / "in" / "t.jsonl").write_text("".join(lines), encoding="utf-8")
    table = create_table(root / "lake")
    table.upsert(pa.table({"id": [-1], "name": ["own"]}, schema=SCHEMA))
    path = root / "shop.yaml"
    path.write_text(
        f"pipeline: p\nwarehouse: {root}/lake\nsource: {{type: change-log-folder, path: {root}/in}}\n"
        "tables: [{name: shop.t}, {name: 'shop.{table}_log', mode: append}]\n"
    )
    return path


def create_table(lake: Path) -> tidelake.Table:
    catalog = tidelake.open_catalog(str(lake))
    catalog.create_database("shop")
    return catalog.create_table(
        "shop.t", SCHEMA, primary_key=["id"], options={"bucket": "2", "changelog-producer": "lookup"}
    )


@pytest.mark.interop
def test_a_disturbed_pipeline_ends_with_the_rows_of_an_undisturbed_one_and_no_other_byte_changes(
    call: Call, tmp_path: Path
) -> None:
    path = write_world(tmp_path)
    before = contents(tmp_path)
    said = call("doctor", path, *BRIEF, "--json")
    assert said.code == 0, said.out
    assert said.document["sound"]
    assert said.document["records"] == 400
    assert sum(said.document["tried"].values()) > 0
    [table] = [one for one in said.document["tables"] if one["table"] == "shop.t"]
    keys = len({json.loads(change(number)["value"])["after"]["id"] for number in range(400)})
    assert table["found"] == (
        f"the same {keys} rows as without a disturbance, and its changelog leads to them"
    )  # not the user's own row: the copies of tables are empty
    assert contents(tmp_path) == before
    assert not list(tmp_path.glob(f"lake/{PREFIX}*"))


@pytest.mark.interop
def test_topics_and_offsets_of_groups_stay(call: Call, tmp_path: Path, kafka_broker: KafkaBroker) -> None:
    topic = kafka_broker.create_topic(partitions=2)
    kafka_broker.send([{**change(number), "partition": number % 2} for number in range(200)], topic)
    path = tmp_path / "shop.yaml"
    source = f'{{type: kafka, bootstrap_servers: "{kafka_broker.address}", topics: {topic}, group_id: shop-group}}'
    path.write_text(f"pipeline: p\nwarehouse: {tmp_path}/lake\nsource: {source}\ntables: [{{name: shop.t}}]\n")
    said = call("doctor", path, *BRIEF, "--records", "100", "--json")
    assert said.code == 0, said.out
    assert said.document["records"] == 100
    assert asyncio.run(offsets(kafka_broker, topic)) == [(None, 100), (None, 100)]


async def offsets(broker: KafkaBroker, topic: str) -> list[tuple[int | None, int]]:
    """The offset that the pipeline's group has committed, and the end, of each partition."""
    consumer = AIOKafkaConsumer(bootstrap_servers=broker.address, group_id="shop-group")
    async with consumer:
        places = [TopicPartition(topic, number) for number in range(2)]
        ends = await consumer.end_offsets(places)
        return [(await consumer.committed(place), ends[place]) for place in places]


@pytest.mark.interop
def test_an_undisturbed_run_that_fails_is_said_and_leaves_nothing(call: Call, tmp_path: Path) -> None:
    path = write_world(tmp_path)
    (tmp_path / "in" / "t.jsonl").write_text(json.dumps({**change(0), "value": "no json"}) + "\n")
    said = call("doctor", path, *BRIEF)
    assert said.code == 1
    assert "an undisturbed run of the pipeline failed" in said.err
    assert "t:0:0" in said.err
    assert not list(tmp_path.glob(f"lake/{PREFIX}*"))


@pytest.mark.parametrize(
    ("more", "arguments", "reason"),
    [
        ("", ["--seed", "1"], "--seed, --minutes and --records need --chaos"),
        ("", ["--chaos", "--minutes", "0"], "--minutes and --records must be positive"),
        ("", ["--chaos"], "has no records: there is nothing to try"),
        ("chekpoint: {}\n", ["--chaos"], "chekpoint"),
    ],
)
def test_what_can_not_be_tried_is_refused(
    call: Call, tmp_path: Path, more: str, arguments: list[str], reason: str
) -> None:
    path = write_world(tmp_path, records=0)
    path.write_text(path.read_text() + more)
    said = call("doctor", path, *arguments)
    assert said.code != 0
    assert reason in said.err


def test_a_rest_catalog_is_refused(call: Call, tmp_path: Path) -> None:
    path = write_world(tmp_path, records=1)
    path.write_text(path.read_text() + "warehouse_options: {metastore: rest, uri: 'http://127.0.0.1:9'}\n")
    said = call("doctor", path, "--chaos")
    assert said.code != 0
    assert "--chaos with a REST catalog" in said.err


def test_a_copy_of_a_table_writes_and_calls_nothing_outside_of_its_folder(tmp_path: Path) -> None:
    path = write_world(tmp_path, records=1)
    catalog = tidelake.open_catalog(f"{tmp_path}/lake")
    outside = {"metadata.iceberg.storage": "hadoop-catalog", "metadata.iceberg.previous-versions-max": "3"}
    catalog.create_table("shop.external", SCHEMA, primary_key=["id"], options={"bucket": "1", **outside})
    path.write_text(path.read_text().replace("tables: [", f"tables: [{{name: shop.external, options: {outside}}}, "))
    lake = ScratchPipeline(str(path), [], f"{tmp_path}/lake/{PREFIX}1/undisturbed", str(tmp_path / "in"))
    lake.create_tables()
    assert lake.catalog().load("shop.external").schema.options == {"bucket": "1"}
    [entry] = [one for one in lake.settings_of_run(until_end=True).tables if one.name == "shop.external"]
    assert entry.options == {}


def test_a_target_of_freshness_does_not_slow_the_checkpoints_of_a_scratch_run(tmp_path: Path) -> None:
    path = write_world(tmp_path, records=1)
    path.write_text(path.read_text() + "freshness: {target_ms: 60000}\n")
    lake = ScratchPipeline(str(path), [], f"{tmp_path}/lake/{PREFIX}1/undisturbed", str(tmp_path / "in"))
    run = lake.settings_of_run(until_end=True)
    assert (run.ruling_target, run.checkpoint.interval_ms) == (None, 500)


# ---------------------------------------------------------------- what it would see


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        ([(1, "a"), (2, "b")], "the same 2 rows"),
        ([(1, "a")], "1 rows are missing and 0 are too many"),
        ([(1, "a"), (2, "c")], "1 rows are missing and 1 are too many"),
        ([(1, "a"), (2, "b"), (3, "c")], "0 rows are missing and 1 are too many"),
    ],
)
def test_rows_that_are_lost_changed_or_added_are_seen(tmp_path: Path, rows: list[tuple[int, str]], found: str) -> None:
    path = write_world(tmp_path)
    lakes = []
    for name, held in (("undisturbed", [(1, "a"), (2, "b")]), ("disturbed", rows)):
        lake = tmp_path / "lake" / f"{PREFIX}1" / name
        table = create_table(lake)
        table.upsert(pa.table({"id": [k for k, _ in held], "name": [v for _, v in held]}, schema=SCHEMA))
        lakes.append(ScratchPipeline(str(path), [], str(lake), ""))
    [(table_name, finding)] = compare(*lakes)
    assert table_name == "shop.t"
    assert found in finding.found
    assert (finding.status is Status.OK) == (found == "the same 2 rows")


def test_a_table_that_only_one_run_made_is_seen(tmp_path: Path) -> None:
    path = write_world(tmp_path)
    lakes = [ScratchPipeline(str(path), [], str(tmp_path / "lake" / f"{PREFIX}1" / n), "") for n in ("a", "b")]
    create_table(Path(lakes[0].warehouse))
    [(_, finding)] = compare(*lakes)
    assert finding.found == "only the undisturbed run created it"


# ---------------------------------------------------------------- its parts


def test_a_lossy_store_loses_requests_and_answers_and_retries_make_up_for_them(tmp_path: Path) -> None:
    mishaps = tmp_path / "mishaps"
    lossy = LossyFileIO(LocalFileIO(), 1, mishaps)
    io = RetryingFileIO(lossy, sleep_ms=lambda _: None)
    outcomes = Counter[bytes]()
    for number in range(300):
        io.write(f"{tmp_path}/w{number}", b"w")
        with io.open_output(f"{tmp_path}/o{number}") as output:
            output.write(b"o")
        before = mishaps.read_bytes()
        path = tmp_path / f"c{number}"
        try:
            lossy.create_if_absent(str(path), b"c")
        except ConnectionResetError:
            what = mishaps.read_bytes()[len(before) :]
            outcomes[what] += 1
            assert path.exists() == (what == LOST_ANSWER)
    assert set(outcomes) == {LOST_ANSWER, LOST_REQUEST}
    for number in range(300):
        assert (tmp_path / f"w{number}").read_bytes() == b"w"
        assert (tmp_path / f"o{number}").read_bytes() == b"o"


def optional(values: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes | None]:
    return st.none() | values


RECORDS = st.lists(
    st.tuples(
        optional(st.binary()),
        optional(st.binary() | st.text().map(str.encode)),
        st.integers(-1, 2**40),
        st.sampled_from([None, "CreateTime", "LogAppendTime"]),
        st.lists(st.tuples(st.text(), optional(st.text().map(str.encode)))),
    ),
    min_size=1,
)


@given(RECORDS)
def test_records_that_are_written_to_a_change_log_are_read_as_they_were(records: list[Mapping[str, object]]) -> None:
    keys, values, times, types, headers = zip(*records, strict=True)
    batch = RawBatch(
        "topic-ä",
        3,
        np.arange(7, 7 + len(records)),
        np.array(times, np.int64),
        binary_column(keys),
        binary_column(values),
        7 + len(records),
        {row: tuple(of_row) for row, of_row in enumerate(headers) if of_row},
        timestamp_types_of(types),
    )
    [again] = parse_records(encode_records(batch), {name for of_row in headers for name, _ in of_row})
    read = again.batch(0)
    assert (read.topic, read.partition, read.next_offset) == ("topic-ä", 3, batch.next_offset)
    assert read.offsets.tolist() == batch.offsets.tolist()
    assert read.timestamps_ms.tolist() == batch.timestamps_ms.tolist()
    assert read.keys.to_pylist() == batch.keys.to_pylist()
    assert read.values.to_pylist() == batch.values.to_pylist()
    assert dict(read.headers) == dict(batch.headers)
    assert [read.timestamp_type(r) for r in range(len(records))] == [
        batch.timestamp_type(r) for r in range(len(records))
    ]
