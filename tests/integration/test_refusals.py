"""A pipeline that cannot prove its position refuses to start, and every offered recovery flag lets it continue.

Each case damages what a first run left, on a real broker. The refusal is compared with `failure_messages.txt`, to be
read as text; then each command it prints is run, on the same state.
"""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from aiokafka.structs import TopicPartition as KafkaPartition

import tidelake
from tests.support.command_line import Call, Said
from tests.support.golden_text import matches_golden_text
from tests.support.kafka_broker import KafkaBroker
from tidelake.checkpoint.offsets import POSITION_PROPERTY, ChainBreak, TopicPartition, chain_breaks, position_from_text
from tidelake.ingest.sources.kafka.kafka_source import KafkaSource

MESSAGES = Path(__file__).with_name("failure_messages.txt")
PIPELINE, TOPIC = "shop", "shop.public.orders"
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False)])


def change(id_: int) -> dict[str, Any]:
    source = {"db": "shop", "schema": "public", "table": "orders", "connector": "postgresql"}
    value = json.dumps({"before": None, "after": {"id": id_}, "op": "c", "source": source})
    return {"topic": TOPIC, "partition": 0, "timestamp_ms": 1, "key": f'{{"id":{id_}}}', "value": value, "headers": []}


class Shop:
    """An append table, so that a record that is lost or comes twice is seen, and a topic with offsets 0 to 9 in it."""

    def __init__(self, home: Path, broker: KafkaBroker, call: Call) -> None:
        self.home, self.broker, self._call = home, broker, call
        self.topic = broker.create_topic()
        self.match = "orders"
        self.configure()
        catalog = tidelake.open_catalog(str(self.lake))
        catalog.create_database("shop")
        self.table = catalog.create_table("shop.orders", SCHEMA, options={"ignore-delete": "true"})
        self.send(*range(10))

    @property
    def lake(self) -> Path:
        return self.home / "lake"

    @property
    def root(self) -> Path:
        return Path(self.table.location)

    def configure(self, **more: object) -> None:
        config: dict[str, Any] = {
            "pipeline": PIPELINE,
            "warehouse": str(self.lake),
            "source": {
                "type": "kafka",
                "bootstrap_servers": self.broker.address,
                "topics": self.topic,
                "until": "end",
            },
            "tables": [{"name": "shop.orders", "match": self.match}],
            **more,
        }
        (self.home / "shop.yaml").write_text(json.dumps(config))

    def send(self, *ids: int) -> None:
        self.broker.send([change(id_) for id_ in ids], self.topic)

    def run(self, *options: str) -> Said:
        return self._call("ingest", "run", self.home / "shop.yaml", "--log-level", "error", *options)

    def paste(self, command: str) -> Said:
        program, *arguments = shlex.split(command)
        assert program == "tidelake"
        return self._call(*arguments, "--log-level", "error")

    @property
    def counts(self) -> dict[int, int]:
        ids = self.table.scan().to_arrow()["id"].to_pylist()
        return {id_: ids.count(id_) for id_ in sorted(set(ids))}

    @property
    def breaks(self) -> list[ChainBreak]:
        own = [s for s in self.table.snapshots() if s.commit_user == PIPELINE and POSITION_PROPERTY in s.properties]
        positions = [position_from_text(s.properties[POSITION_PROPERTY], str(s.id)) for s in own]
        return chain_breaks(zip((s.commit_identifier for s in own), positions, strict=True))

    def administer(self, act: Callable[[AIOKafkaAdminClient], Any]) -> None:
        async def connect_and_act() -> None:
            admin = AIOKafkaAdminClient(bootstrap_servers=self.broker.address)
            await admin.start()
            try:
                await act(admin)
            finally:
                await admin.close()

        asyncio.run(connect_and_act())

    def commit_as_pipeline(self, end: int, read: int) -> None:
        """A snapshot of the pipeline's user that says it read [end - read, end)."""
        newest = self.table.snapshots()[-1]
        position = json.loads(newest.properties[POSITION_PROPERTY])
        position["topics"][self.topic] |= {"end": [end], "read": [read]}
        properties = {**newest.properties, POSITION_PROPERTY: json.dumps(position)}
        with self.table.writer(commit_user=PIPELINE) as writer:
            writer.commit(identifier=newest.commit_identifier + 1, properties=properties)

    def remove_snapshots(self, *ids: int) -> None:
        for id_ in ids:
            (self.root / "snapshot" / f"snapshot-{id_}").unlink()
        for hint in ("LATEST", "EARLIEST"):
            (self.root / "snapshot" / hint).unlink(missing_ok=True)


@pytest.fixture
def shop(tmp_path: Path, kafka_broker: KafkaBroker, call: Call) -> Shop:
    made = Shop(tmp_path, kafka_broker, call)
    assert made.run().code == 0
    return made


# ---------------------------------------------------------------- what can happen to a pipeline


def own_snapshots_expire(shop: Shop) -> None:
    """Another engine expires what the consumer file should have spared."""
    own = [snapshot.id for snapshot in shop.table.snapshots()]
    with shop.table.writer(commit_user="other") as writer:
        writer.commit(identifier=1)
    shop.remove_snapshots(*own)
    (shop.lake / f"{PIPELINE}.progress").unlink()


def the_topic_is_created_again(shop: Shop) -> None:
    shop.administer(lambda admin: admin.delete_topics([shop.topic]))
    shop.broker.create_topic(shop.topic)


def retention_deletes_records(shop: Shop) -> None:
    shop.send(10, 11)
    before = RecordsToDelete(before_offset=12)
    shop.administer(lambda admin: admin.delete_records({KafkaPartition(shop.topic, 0): before}))


def the_topic_loses_its_end(shop: Shop) -> None:
    shop.commit_as_pipeline(end=40, read=30)


def the_chain_is_broken(shop: Shop) -> None:
    shop.commit_as_pipeline(end=9, read=4)


def the_pipeline_takes_other_records(shop: Shop) -> None:
    shop.match = "order*"
    shop.configure()


def the_table_is_rolled_back(shop: Shop) -> None:
    shop.remove_snapshots(shop.table.snapshots()[-1].id)


def something_else_commits_under_its_name(shop: Shop) -> None:
    with shop.table.writer(commit_user=PIPELINE) as writer:
        writer.commit(identifier=99)


TWICE = dict.fromkeys(range(10), 2) | dict.fromkeys(range(10, 15), 1)
ONCE = dict.fromkeys(range(15), 1)
WITHOUT_NEW = dict.fromkeys(range(10), 1)


@dataclass(frozen=True)
class Case:
    """damage: after which ids 10 to 14 are sent, too. counts: for each way out, how often each id is in the table."""

    damage: Callable[[Shop], None]
    counts: Mapping[str, Mapping[int, int]]

    @property
    def id(self) -> str:
        return self.damage.__name__.replace("_", " ")


CASES = [
    Case(own_snapshots_expire, {"--accept-gap": WITHOUT_NEW, "--rewind-to": TWICE}),
    Case(
        the_topic_is_created_again,
        {"--accept-gap": ONCE, "--rewind-to": ONCE},  # what was in the old one is no more
    ),
    Case(
        retention_deletes_records,
        {"--accept-gap": ONCE, "--rewind-to": ONCE},  # as the new records are those sent afterwards
    ),
    Case(the_topic_loses_its_end, {"--accept-gap": WITHOUT_NEW, "--rewind-to": TWICE, "--from-snapshot": ONCE}),
    Case(
        the_chain_is_broken,
        {
            "--accept-gap": {**ONCE, 9: 2},
            "--rewind-to": TWICE,
            "--from-snapshot": ONCE,
        },
    ),
    Case(
        the_pipeline_takes_other_records,
        {"--accept-gap": ONCE, "--rewind-to": TWICE, "--from-snapshot": ONCE},
    ),
    Case(
        the_table_is_rolled_back,
        {"--accept-gap": dict.fromkeys(range(10, 15), 1), "--rewind-to": ONCE, "--from-snapshot": ONCE},
    ),
    Case(
        something_else_commits_under_its_name,
        {"--accept-gap": WITHOUT_NEW, "--rewind-to": TWICE, "--from-snapshot": ONCE},
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_each_offered_recovery_flag_lets_the_pipeline_continue(case: Case, shop: Shop) -> None:
    case.damage(shop)
    shop.send(*range(10, 15))
    snapshots = [s.uuid for s in shop.table.snapshots()]
    result = shop.run()
    assert (result.code, result.out) == (3, "")
    assert [s.uuid for s in shop.table.snapshots()] == snapshots
    matches_golden_text(MESSAGES, case.id, neutral(result.err, shop))
    ways = {command.split()[-2]: command for command in commands(result.err)}
    assert ways.keys() == case.counts.keys()

    shutil.copytree(shop.lake, shop.home / "refused")
    for option, command in ways.items():
        shutil.rmtree(shop.lake)
        shutil.copytree(shop.home / "refused", shop.lake)
        assert shop.paste(command).code == 0
        assert shop.counts == case.counts[option], option
        assert shop.run().code == 0  # from then on there is nothing to decide
        assert shop.counts == case.counts[option], option
        assert all(b.accepted is not None for b in shop.breaks)
        decided = [
            json.loads(s.properties[POSITION_PROPERTY]).get("accepted") for s in shop.table.snapshots() if s.properties
        ]
        assert [d["way"] for d in decided if d] == [" ".join(command.split()[-2:])]


def test_the_progress_file_bridges_expired_own_snapshots(shop: Shop) -> None:
    progress = (shop.lake / f"{PIPELINE}.progress").read_bytes()
    own_snapshots_expire(shop)
    (shop.lake / f"{PIPELINE}.progress").write_bytes(progress)
    shop.send(*range(10, 15))
    assert shop.run().code == 0
    assert shop.counts == ONCE


@pytest.mark.interop
def test_another_cluster_is_refused(shop: Shop, private_kafka_broker: KafkaBroker) -> None:
    shop.broker = private_kafka_broker
    private_kafka_broker.create_topic(shop.topic)
    shop.send(*range(10, 15))
    shop.configure()
    result = shop.run()
    assert result.code == 3
    matches_golden_text(MESSAGES, "another cluster", neutral(result.err, shop))
    accept, rewind = commands(result.err)
    assert "--rewind-to" in rewind
    assert shop.paste(accept).code == 0
    shop.send(15)
    assert shop.run().code == 0
    assert shop.counts == {**WITHOUT_NEW, 15: 1}  # 10 to 14 were there before it was accepted
    (found,) = {b.accepted for b in shop.breaks}
    assert found is not None
    assert (found.flag, found.accepted_problems) == ("--accept-gap shop.orders", ("another source",))


def test_records_deleted_during_reading_are_reported_like_at_a_start(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The consumer notices only then: the check before reading is passed by."""
    retention_deletes_records(shop)

    async def passed(self: object, partitions: object) -> Mapping[object, object]:
        monkeypatch.undo()
        return {}

    monkeypatch.setattr(KafkaSource, "bounds", passed)
    result = shop.run()
    assert result.code == 3
    assert "--accept-gap shop.orders" in result.err


def test_a_topic_recreated_during_reading_publishes_nothing_under_the_old_id(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = shop.counts
    look = KafkaSource.open

    def created_again() -> None:
        the_topic_is_created_again(shop)
        shop.send(*range(100, 115))  # also the position where reading continues

    async def look_too_early(self: KafkaSource, known: Collection[TopicPartition]) -> frozenset[TopicPartition]:
        there = await look(self, known)
        monkeypatch.undo()
        await asyncio.to_thread(created_again)
        return there

    monkeypatch.setattr(KafkaSource, "open", look_too_early)
    result = shop.run()
    assert result.code == 3
    assert "it was created again" in result.err
    assert "--accept-gap shop.orders" in result.err
    assert shop.counts == before
    assert shop.run("--accept-gap", "shop.orders").code == 0
    assert shop.counts == {**before, **dict.fromkeys(range(100, 115), 1)}


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (["--accept-gap", "shop.orders"], "the position of shop.orders is proven, so no gap must be accepted"),
        (["--from-snapshot", "shop.orders=99"], "the snapshot does not exist"),
        (["--rewind-to", "shop.orders=other:0:5"], "other-0 holds no records for shop.orders"),
        (["--accept-gap", "shop.order"], "the pipeline has no table shop.order; did you mean 'shop.orders'?"),
    ],
)
def test_an_unneeded_recovery_flag_changes_nothing(shop: Shop, option: list[str], message: str) -> None:
    before = [s.uuid for s in shop.table.snapshots()]
    answer = shop.run(*option)
    assert (answer.code, [s.uuid for s in shop.table.snapshots()]) == (1, before)
    assert message in answer.err


def test_settings_that_change_no_routing_are_accepted(shop: Shop) -> None:
    tables = [{"name": "shop.orders", "match": ["orders", "orders"]}, {"name": "shop.returns"}]
    shop.configure(tables=tables, checkpoint={"interval_ms": 77}, write={"memory_bytes": 64 << 20})
    shop.send(*range(10, 15))
    assert shop.run().code == 0
    assert shop.counts == ONCE


def test_a_healthy_pipeline_may_be_rewound_to_offsets(shop: Shop) -> None:
    assert shop.run("--rewind-to", f"shop.orders={shop.topic}:0:7").code == 0
    assert shop.counts == {**WITHOUT_NEW, 7: 2, 8: 2, 9: 2}
    assert [b.accepted is not None for b in shop.breaks] == [True]


def commands(message: str) -> Iterator[str]:
    return (line.strip() for line in message.splitlines() if line.startswith("  tidelake "))


def neutral(message: str, shop: Shop) -> str:
    """Without what differs from run to run."""
    text = message.replace(str(shop.home), "/srv").replace(shop.topic, TOPIC)
    text = re.sub(r"has id \S+, not \S+: it", "has id NEW, not OLD: it", text)
    return re.sub(r"the cluster is \S+, not \S+;", "the cluster is NEW, not OLD;", text)
