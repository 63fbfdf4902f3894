"""Positions are read back from snapshots, stay short, and are never guessed from a broken text."""

from __future__ import annotations

import json
import sys
from base64 import b64encode
from dataclasses import replace
from random import Random
from zlib import compress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelake.checkpoint.idle_progress import IdleProgress
from tidelake.checkpoint.offsets import (
    PACKED_FROM,
    POSITION_PROPERTY,
    OffsetRange,
    SourceIdentity,
    SourcePosition,
    TopicPartition,
    chain_breaks,
    position_from_text,
    position_to_text,
)
from tidelake.checkpoint.recovery import recover_table
from tidelake.checkpoint.table_state import SnapshotSummary, TableState
from tidelake.errors import CorruptFile, UnsupportedFeature

OFFSETS = st.integers(0, 2**63 - 1)
TOPICS = st.text(min_size=1, max_size=8)
PARTITIONS = st.builds(TopicPartition, TOPICS, st.integers(0, 2**31 - 1))
RANGES = st.tuples(OFFSETS, OFFSETS).map(lambda pair: OffsetRange(min(pair), max(pair)))
IDENTITIES = st.builds(SourceIdentity, st.none() | TOPICS, st.dictionaries(TOPICS, TOPICS, max_size=3))
POSITIONS = st.builds(SourcePosition, IDENTITIES, st.dictionaries(PARTITIONS, RANGES, max_size=20))


@given(POSITIONS, st.sampled_from([0, PACKED_FROM, sys.maxsize]))
def test_reading_undoes_writing(position: SourcePosition, packed_from: int) -> None:
    assert position_from_text(position_to_text(position, packed_from), "snapshot-1") == position


def _moves(draw: st.DrawFn, position: SourcePosition) -> SourcePosition:
    """The next one, as a pipeline would make it; now and then with a fault."""
    partitions = sorted(position.ranges)
    chosen = st.sampled_from(partitions or [TopicPartition("t", 0)])
    moved = draw(st.dictionaries(chosen, st.integers(0, 2**40), max_size=4))
    following = position.advanced_to(moved).with_partitions(
        draw(st.dictionaries(PARTITIONS, st.integers(0, 9), max_size=2))
    )
    has_fault = draw(st.booleans())
    if partitions and has_fault:
        fault = draw(chosen)
        ranges = dict(following.ranges)
        del ranges[fault]
        following = replace(following, ranges=ranges)
    return following


@st.composite
def histories(draw: st.DrawFn) -> list[SourcePosition]:
    history = [draw(POSITIONS)]
    for _ in range(draw(st.integers(1, 4))):
        history.append(_moves(draw, history[-1]))
    return history


@given(histories())
@settings(deadline=None)
def test_the_chain_check_and_recovery_do_not_depend_on_the_text_version(history: list[SourcePosition]) -> None:
    def found(packed_from: int) -> object:
        texts = [position_to_text(position, packed_from) for position in history]
        seen = [
            SnapshotSummary(n, f"snapshot-{n}", "shop", n, f"list-{n}", {POSITION_PROPERTY: text})
            for n, text in enumerate(texts, start=1)
        ]
        table_state = TableState(1, own=seen[::-1], earliest_id=1, latest_id=len(seen))
        chain = [(n, position_from_text(text, "here")) for n, text in enumerate(texts)]
        return chain_breaks(chain), recover_table("shop.t", table_state, IdleProgress(), None)

    assert found(0) == found(sys.maxsize)


def test_a_history_may_change_from_the_older_to_the_newer_version() -> None:
    many = SourcePosition(ranges={TopicPartition(f"topic-{n}", 0): OffsetRange(n, n + 5) for n in range(100)})
    later = many.advanced_to({TopicPartition("topic-7", 0): 50})
    texts = [position_to_text(many, sys.maxsize), position_to_text(later)]
    assert [json.loads(text)["version"] for text in texts] == [1, 2]
    assert chain_breaks((n, position_from_text(text, "here")) for n, text in enumerate(texts)) == []


def test_a_position_of_a_hundred_topics_stays_below_four_kilobytes() -> None:
    """Every snapshot of each of a hundred tables holds one. Ids are random, so they are most of what is left."""
    random = Random(7)
    ids = {f"shop.public.table_{n:03}": b64encode(random.randbytes(16)).decode()[:22] for n in range(100)}
    ranges = {TopicPartition(topic, 0): OffsetRange(n * 7_919, n * 7_919 + 1) for n, topic in enumerate(ids)}
    position = SourcePosition(SourceIdentity("Fs1K5w7QRE2fM-XKQIT0Hw", ids), ranges)
    assert len(position_to_text(position, sys.maxsize)) > 7_500
    assert len(position_to_text(position)) < 4_096


def test_the_text_is_what_the_documentation_shows() -> None:
    position = SourcePosition(
        SourceIdentity("Fs1K5w7QRE2fM-XKQIT0Hw", {"shop.orders": "1IRhBplySE6TLTCrzVKVTg"}),
        {
            **{TopicPartition("shop.orders", number): OffsetRange(0, 0) for number in range(6)},
            TopicPartition("shop.orders", 1): OffsetRange(100, 120),
            TopicPartition("shop.users", 3): OffsetRange(7, 9),
        },
    )
    assert json.loads(position_to_text(position)) == {
        "version": 1,
        "cluster": "Fs1K5w7QRE2fM-XKQIT0Hw",
        "topics": {
            "shop.orders": {"id": "1IRhBplySE6TLTCrzVKVTg", "end": [0, 120, [0, 4]], "read": [0, 20, [0, 4]]},
            "shop.users": {"partitions": [3], "end": [9], "read": [2]},
        },
    }


def test_a_thousand_partitions_stay_below_twenty_kilobytes() -> None:
    busy = {
        TopicPartition("t", n): OffsetRange(9_000_000_000 + n * 7_919, 9_000_500_000 + n * 7_877) for n in range(1000)
    }
    position = SourcePosition(SourceIdentity("c"), busy)
    assert len(position_to_text(position, sys.maxsize)) < 20_000
    assert len(position_to_text(position)) < 11_000


def test_an_idle_partition_is_written_as_one_number() -> None:
    ends = [9_000_000_000 + n * 7_919 for n in range(1000)]
    resting = {TopicPartition("t", n): OffsetRange(end, end) for n, end in enumerate(ends)}
    assert len(position_to_text(SourcePosition(SourceIdentity("c"), resting), sys.maxsize)) < 11_200


BROKEN = {
    "no JSON": "{",
    "another JSON": "[]",
    "a member is missing": '{"version":1,"cluster":null}',
    "unequal columns": '{"version":1,"cluster":null,"topics":{"t":{"end":[1,2],"read":[1]}}}',
    "more partitions": '{"version":1,"cluster":null,"topics":{"t":{"partitions":[0,1],"end":[1],"read":[1]}}}',
    "more read than there is": '{"version":1,"cluster":null,"topics":{"t":{"end":[1],"read":[2]}}}',
    "nothing compressed": '{"version":2}',
    "no base64": '{"version":2,"zlib":"?"}',
    "nothing that zlib knows": '{"version":2,"zlib":"AAAA"}',
    "cut off": json.dumps({"version": 2, "zlib": b64encode(compress(b"{}" * 99)[:9]).decode()}),
    "a position within another": json.dumps({"version": 2, "zlib": b64encode(compress(b'{"version":2}')).decode()}),
    "a bomb": json.dumps({"version": 2, "zlib": b64encode(compress(b" " * (65 << 20))).decode()}),
    "text for a number": '{"version":1,"cluster":null,"topics":{"t":{"end":["1"],"read":[1]}}}',
}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN)
def test_a_broken_position_is_an_error_that_names_the_file(text: str) -> None:
    with pytest.raises(CorruptFile, match="snapshot-7"):
        position_from_text(text, "/table/snapshot/snapshot-7")


def test_an_unknown_version_is_refused() -> None:
    with pytest.raises(UnsupportedFeature, match=r"version 3 in snapshot-7.*Use the release"):
        position_from_text('{"version":3}', "snapshot-7")
