"""The moved rows stored in a snapshot are read back, or refused."""

from __future__ import annotations

import pytest

from tidelake.checkpoint.moved_rows_state import MOVED_ROWS_PROPERTY, MovedRowsState, moved_rows_of
from tidelake.checkpoint.offsets import TopicPartition
from tidelake.errors import CorruptFile, UnsupportedFeature


@pytest.mark.parametrize(
    "state",
    [
        MovedRowsState(),
        MovedRowsState("docs-0.arrow", 2, 8_123, 1_795_196_040_376, 1),
        MovedRowsState("docs-0.arrow", dropped=3),
        MovedRowsState(read_again={TopicPartition("a.b", 0): 12, TopicPartition("ü", 7): 1 << 40}),
        MovedRowsState("docs-0.arrow", 1, 2, 3, 4, {TopicPartition("t", 1): 5}),
    ],
)
def test_a_written_state_is_read_back(state: MovedRowsState) -> None:
    assert moved_rows_of(state.to_properties(), "here") == state


def test_a_snapshot_without_moved_rows_has_no_property_for_them() -> None:
    assert MovedRowsState().to_properties() == {}


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version":1,"file":"f"}', '{"version":1,"read_again":{"t":[1]}}'])
def test_an_invalid_state_is_reported_as_corrupt(text: str) -> None:
    with pytest.raises(CorruptFile, match="snapshot-7"):
        moved_rows_of({MOVED_ROWS_PROPERTY: text}, "snapshot-7")


def test_a_newer_version_is_refused() -> None:
    with pytest.raises(UnsupportedFeature, match="version 2 in snapshot-7"):
        moved_rows_of({MOVED_ROWS_PROPERTY: '{"version":2}'}, "snapshot-7")
