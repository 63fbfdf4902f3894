"""A refused read, filter or stream of changes names a remedy, and the remedy works."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import pyarrow.compute as pc

from tests.tidelake.remedies.refusals import ROWS, Lake, Refusal, Steps, check, each_remedy, filled, then
from tidelake import col

KEYED = {"bucket": "1"}
CHANGELOG = {**KEYED, "changelog-producer": "input"}
NAN = float("nan")


def scanned(**arguments: Any) -> Steps:
    return lambda lake: lake.table.scan(**arguments).to_arrow()


def found(keys: list[int], **arguments: Any) -> Steps:
    def steps(lake: Lake) -> None:
        assert sorted(lake.table.scan(**arguments).to_arrow()["k"].to_pylist()) == keys

    return steps


def opened(name: str, options: Mapping[str, str]) -> Steps:
    return lambda lake: lake.catalog.table(name, options).scan().to_arrow()


def followed(**arguments: Any) -> Steps:
    return lambda lake: next(iter(islice(lake.table.follow(**arguments), 1)))


def differing(start: int, end: int) -> Steps:
    return lambda lake: list(lake.table.changes(between=(start, end), between_mode="diff"))


def written(lake: Lake) -> None:
    lake.write(ROWS)


def rescaled(lake: Lake) -> None:
    lake.catalog.rescale_table("d.t", 3)


def expired(lake: Lake) -> None:
    lake.table.expire(retain_min=1, retain_max=1)


def followed_after_a_scan(lake: Lake) -> None:
    scan = lake.table.scan()
    assert scan.to_arrow().num_rows == 2
    written(lake)
    assert scan.snapshot_id is not None
    followed(start=scan.snapshot_id + 1)(lake)


def expired_beside_a_consumer(lake: Lake) -> None:
    filled(CHANGELOG, key=["k"])(lake)
    followed(start=1, consumer="search")(lake)
    written(lake)
    expired(lake)
    followed(consumer="search")(lake)


def expired_beside_a_tag(lake: Lake) -> None:
    filled(CHANGELOG, key=["k"])(lake)
    lake.table.create_tag("first")
    written(lake)
    expired(lake)
    assert lake.table.scan(tag="first").to_arrow().num_rows == 2


def expired_with_time(lake: Lake) -> None:
    filled({**CHANGELOG, "snapshot.time-retained": "7 d"}, key=["k"])(lake)
    written(lake)
    lake.table.expire()
    followed(start=1)(lake)


FILTERS: Mapping[str, Refusal] = {
    "a text compares with null": Refusal(
        scanned(filter="v = null"),
        {
            "write IS NULL": found([], filter="v IS NULL"),
            "or IS NOT NULL": found([1, 2], filter="v IS NOT NULL"),
        },
        ready=filled({}),
    ),
    "a condition compares with None": Refusal(
        lambda lake: lake.table.scan(filter=col("v") < None).to_arrow(),
        {
            "use is_null()": found([], filter=col("v").is_null()),
            "or is_not_null()": found([1, 2], filter=col("v").is_not_null()),
        },
        ready=filled({}),
    ),
    "a condition is combined with an expression of pyarrow": Refusal(
        lambda lake: lake.table.scan(filter=(col("v") > 1) & (pc.field("k") > 1)).to_arrow(),
        {"write both in one style": found([2], filter=(col("v") > 1) & (col("k") > 1))},
        ready=filled({}),
    ),
    "an expression names a column by its position": Refusal(
        scanned(filter=pc.field(0) > 1),
        {
            "name it: pyarrow.compute.field('name')": found([2], filter=pc.field("k") > 1),
            "or tidelake.col('name')": found([2], filter=col("k") > 1),
        },
        ready=filled({}),
    ),
    "a filter is misspelt": Refusal(
        scanned(filter="vv > 1"), {"the table has k, v, p": found([2], filter="v > 1")}, ready=filled({})
    ),
    "a range of rows is read while files must be merged": Refusal(
        lambda lake: lake.table.scan().row_range(0, 1).to_arrow(),
        {
            "Use shard(index, count)": lambda lake: lake.table.scan().shard(0, 2).to_arrow(),
            "or compact the table": then(
                lambda lake: lake.table.compact(full=True), lambda lake: lake.table.scan().row_range(0, 1).to_arrow()
            ),
        },
        ready=then(filled(KEYED, key=["k"]), written),
    ),
    "rows without ids are asked for them": Refusal(
        lambda lake: lake.catalog.table("d.t$row_tracking").scan().to_arrow(),
        {
            "only tables that were created with row-tracking.enabled = true have them": then(
                filled({"row-tracking.enabled": "true"}),
                lambda lake: lake.catalog.table("d.t$row_tracking").scan().to_arrow(),
            ),
            "Read the table itself": found([1, 2]),
        },
        ready=filled({}),
    ),
}

STATES: Mapping[str, Refusal] = {
    "a mode of scans lacks its value": Refusal(
        opened("d.t", {"scan.mode": "from-snapshot"}),
        {"needs scan.snapshot-id": opened("d.t", {"scan.mode": "from-snapshot", "scan.snapshot-id": "1"})},
        ready=filled({}),
    ),
    "a fallback branch does not exist": Refusal(
        opened("d.t", {"scan.fallback-branch": "old"}),
        {
            "create it": then(
                lambda lake: lake.table.create_branch("old"), opened("d.t", {"scan.fallback-branch": "old"})
            ),
            "or unset the option": opened("d.t", {}),
        },
        ready=filled({}),
    ),
    "a branch does not exist": Refusal(
        opened("d.t", {"branch": "old"}),
        {"has no branch 'old'": then(lambda lake: lake.table.create_branch("old"), opened("d.t", {"branch": "old"}))},
        ready=filled({}),
    ),
    "the difference of two states spans a rescale": Refusal(
        differing(1, 2),
        {
            "Read the difference up to the snapshot before": differing(1, 1),
            "or scan both states": then(scanned(snapshot=1), scanned(snapshot=2)),
        },
        ready=then(filled({"bucket": "2"}, key=["k"]), rescaled),
    ),
}

STREAMS: Mapping[str, Refusal] = {
    "a stream starts at a word that is no time": Refusal(
        followed(start="yesterday"),
        {
            "expected a snapshot id": followed(start=1),
            "a datetime": followed(start=datetime(2020, 5, 1, 12, tzinfo=UTC)),
            "earliest": followed(start="earliest"),
            "from-snapshot-full:7": followed(start="from-snapshot-full:1"),
        },
        ready=filled(CHANGELOG, key=["k"]),
    ),
    "a follower asks for a snapshot that expired": Refusal(
        followed(start=1),
        {
            "scan the table, and read its changes from that snapshot on": followed_after_a_scan,
            "use a consumer": expired_beside_a_consumer,
            "a tag": expired_beside_a_tag,
            "or a longer 'snapshot.time-retained'": expired_with_time,
        },
        ready=then(filled(CHANGELOG, key=["k"]), written, expired),
    ),
}


@each_remedy({**FILTERS, **STATES, **STREAMS})
def test_the_remedy_of_a_refused_read_works(refusal: Refusal, words: str) -> None:
    check(refusal, words)
