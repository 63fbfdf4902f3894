"""Recovery flags of the command line."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tidelake.checkpoint.offsets import TopicPartition
from tidelake.errors import BadInput
from tidelake.ingest.pipeline.recovery_flags import parse_recovery_flags
from tidelake.ingest.sources.source import AtOffsets, AtTimestamp, Earliest, Start

TABLES = ["shop.orders", "shop.users"]


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("earliest", Earliest()),
        ("2026-05-01T12:00:00Z", AtTimestamp(1_777_636_800_000)),
        ("2026-05-01T14:00:00+02:00", AtTimestamp(1_777_636_800_000)),
        ("a.b-c:0:17", AtOffsets({TopicPartition("a.b-c", 0): 17})),
        ("t:0:17,t:1:0", AtOffsets({TopicPartition("t", 0): 17, TopicPartition("t", 1): 0})),
    ],
)
def test_rewind_targets_are_parsed(text: str, start: Start) -> None:
    ways = parse_recovery_flags([], [f"shop.orders={text}"], [], TABLES)
    assert ways.rewinds == {"shop.orders": start}
    assert ways.texts == {"shop.orders": f"--rewind-to shop.orders={text}"}


def test_each_table_may_have_its_own_target() -> None:
    ways = parse_recovery_flags(["shop.orders"], [], ["shop.users=17"], TABLES)
    assert (ways.rewinds, ways.snapshots) == ({}, {"shop.users": 17})
    assert ways.texts == {"shop.orders": "--accept-gap shop.orders", "shop.users": "--from-snapshot shop.users=17"}


@pytest.mark.parametrize(
    ("accept_gap", "rewind_to", "from_snapshot", "message"),
    [
        (["shop.user"], [], [], "the pipeline has no table shop.user; did you mean 'shop.users'"),
        (["shop.users"], ["shop.users=earliest"], [], "shop.users has two options"),
        ([], ["earliest"], [], "write --rewind-to TABLE=earliest"),
        ([], ["shop.users="], [], "write --rewind-to shop.users=earliest"),
        ([], ["shop.users=latest"], [], "'latest' is not TOPIC:PARTITION:OFFSET"),
        ([], ["shop.users=t:0"], [], "'t:0' is not TOPIC:PARTITION:OFFSET"),
        ([], ["shop.users=2026-13-01"], [], "month must be in 1..12"),
        ([], [], ["shop.users=x"], "'x' is not the id of a snapshot"),
    ],
)
def test_contradictory_flags_are_refused(
    accept_gap: Sequence[str], rewind_to: Sequence[str], from_snapshot: Sequence[str], message: str
) -> None:
    with pytest.raises(BadInput, match=message):
        parse_recovery_flags(accept_gap, rewind_to, from_snapshot, TABLES)


def test_single_records_may_be_skipped() -> None:
    flags = parse_recovery_flags([], [], [], TABLES, ["a.b:c:2:17"])
    assert flags.skip == {(TopicPartition("a.b:c", 2), 17)}
    with pytest.raises(BadInput, match="--skip-record a:1: 'a:1' is not TOPIC:PARTITION:OFFSET"):
        parse_recovery_flags([], [], [], TABLES, ["a:1"])
