"""Positions survive being written into a snapshot, stay short, and are never guessed from a broken text."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoint.offsets import OffsetRange, SourceIdentity, SourcePosition, TopicPartition
from checkpoint.position_text import position_from_text, position_to_text
from storage.errors import CorruptFile, UnsupportedFeature

OFFSETS = st.integers(0, 2**63 - 1)
TOPICS = st.text(min_size=1, max_size=8)
PARTITIONS = st.builds(TopicPartition, TOPICS, st.integers(0, 2**31 - 1))
RANGES = st.tuples(OFFSETS, OFFSETS).map(lambda pair: OffsetRange(min(pair), max(pair)))
IDENTITIES = st.builds(SourceIdentity, st.none() | TOPICS, st.dictionaries(TOPICS, TOPICS, max_size=3))
POSITIONS = st.builds(SourcePosition, IDENTITIES, st.dictionaries(PARTITIONS, RANGES, max_size=20))


@given(POSITIONS)
def test_reading_undoes_writing(position: SourcePosition) -> None:
    assert position_from_text(position_to_text(position), "snapshot-1") == position


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
    assert len(position_to_text(SourcePosition(SourceIdentity("c"), busy))) < 20_000


def test_partitions_at_rest_cost_no_second_number() -> None:
    ends = [9_000_000_000 + n * 7_919 for n in range(1000)]
    resting = {TopicPartition("t", n): OffsetRange(end, end) for n, end in enumerate(ends)}
    assert len(position_to_text(SourcePosition(SourceIdentity("c"), resting))) < 11_200


BROKEN = {
    "no JSON": "{",
    "another JSON": "[]",
    "a member is missing": '{"version":1,"cluster":null}',
    "unequal columns": '{"version":1,"cluster":null,"topics":{"t":{"end":[1,2],"read":[1]}}}',
    "more partitions": '{"version":1,"cluster":null,"topics":{"t":{"partitions":[0,1],"end":[1],"read":[1]}}}',
    "more read than there is": '{"version":1,"cluster":null,"topics":{"t":{"end":[1],"read":[2]}}}',
    "text for a number": '{"version":1,"cluster":null,"topics":{"t":{"end":["1"],"read":[1]}}}',
}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN)
def test_a_broken_position_is_an_error_that_names_the_file(text: str) -> None:
    with pytest.raises(CorruptFile, match="snapshot-7"):
        position_from_text(text, "/table/snapshot/snapshot-7")


def test_an_unknown_version_is_refused() -> None:
    with pytest.raises(UnsupportedFeature, match=r"version 2 in snapshot-7.*Use the release"):
        position_from_text('{"version":2}', "snapshot-7")
