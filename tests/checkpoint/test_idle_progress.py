"""The text of the progress file."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidelake.checkpoint.idle_progress import IdleProgress, ProgressEntry
from tidelake.checkpoint.offsets import OffsetRange, SourceIdentity, SourcePosition, TopicPartition
from tidelake.checkpoint.routing import Routing
from tidelake.checkpoint.table_state import TableState
from tidelake.errors import CorruptFile, UnsupportedFeature

REACHED = SourcePosition(SourceIdentity("c", {"t": "id"}), {TopicPartition("t", 0): OffsetRange(7, 7)})
PROGRESS = IdleProgress(
    REACHED,
    {"a.b": ProgressEntry(111, 9, "manifest-list-x-0", Routing.of("f", ["b"], ["*"])), "a.new": ProgressEntry()},
    41,
    3,
    {"a.c": ProgressEntry(112, 7, "manifest-list-y-0")},
)


def test_the_stored_form_is_fixed() -> None:
    assert PROGRESS.to_text() == (
        '{"version":1,"identifier":41,"epoch":3,'
        '"reached":{"version":1,"cluster":"c","topics":{"t":{"id":"id","end":[7],"read":[0]}}},'
        '"tables":{"a.b":{"created":111,"snapshot":9,"list":"manifest-list-x-0",'
        '"routing":{"version":1,"format":"f","match":["b"],"topics":["*"]}},'
        '"a.new":{"created":null,"snapshot":null,"list":null,"routing":null}},'
        '"struck":{"a.c":{"created":112,"snapshot":7,"list":"manifest-list-y-0","routing":null}}}'
    )


def test_a_written_state_is_read_back() -> None:
    assert IdleProgress.from_text(PROGRESS.to_text().encode(), "here") == PROGRESS


def test_the_form_of_an_older_release_is_read() -> None:
    """It removed entries that were struck out."""
    text, _, active = PROGRESS.to_text().rpartition(',"struck":')
    assert active
    assert IdleProgress.from_text(f"{text}}}".encode(), "here") == replace(PROGRESS, active={})


def test_a_truncated_file_raises() -> None:
    """A torn file is distinguished from a complete one."""
    data = PROGRESS.to_text().encode()
    for length in range(len(data)):
        with pytest.raises(CorruptFile, match="here"):
            IdleProgress.from_text(data[:length], "here")


@pytest.mark.parametrize(
    "text",
    ["[]", '{"version":1}', PROGRESS.to_text().replace("111", '"x"'), PROGRESS.to_text().replace("[7]", "[7,8]")],
)
def test_invalid_content_raises(text: str) -> None:
    with pytest.raises(CorruptFile, match="here"):
        IdleProgress.from_text(text.encode(), "here")


def test_another_version_raises() -> None:
    with pytest.raises(UnsupportedFeature, match="progress version 2"):
        IdleProgress.from_text(b'{"version":2}', "here")


@pytest.mark.parametrize(("created_ms", "is_meant"), [(111, True), (112, False), (None, False)])
def test_an_entry_does_not_apply_to_a_recreated_table(created_ms: int | None, is_meant: bool) -> None:
    assert (PROGRESS.entry("a.b", TableState(created_ms)) is not None) is is_meant
    assert PROGRESS.entry("a.new", TableState(created_ms)) == ProgressEntry()


@pytest.mark.parametrize(("created_ms", "is_meant"), [(112, True), (113, False), (None, False)])
def test_a_removed_entry_does_not_apply_to_a_recreated_table(created_ms: int | None, is_meant: bool) -> None:
    assert (PROGRESS.active_entry("a.c", TableState(created_ms)) is not None) is is_meant


def test_the_file_stays_small() -> None:
    ranges = {TopicPartition("shop.public.orders", n): OffsetRange(10**9 + n, 10**9 + n) for n in range(1_000)}
    routing = Routing.of("debezium-json", ["public.table"], ["*"])
    idle = ProgressEntry(1_795_196_040_376, 10**6, f"manifest-list-{'0' * 36}-0", routing)
    tables = {f"shop.table_{n}": idle for n in range(200)}
    assert len(IdleProgress(SourcePosition(ranges=ranges), tables).to_text()) < 64_000
