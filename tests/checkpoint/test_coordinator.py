"""When a checkpoint is due, and what each table publishes in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from tidelake.checkpoint.coordinator import CheckpointCoordinator, CheckpointPolicy
from tidelake.checkpoint.epoch import Epoch, epoch_of
from tidelake.checkpoint.offsets import (
    POSITION_PROPERTY,
    OffsetRange,
    SourceIdentity,
    SourcePosition,
    TopicPartition,
    chain_breaks,
    position_from_text,
)
from tidelake.checkpoint.states import CheckpointState, IllegalTransition
from tidelake.errors import BadInput
from tidelake.storage.commit.commit_message import CommitMessage
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.format import BATCH_COMMIT_IDENTIFIER

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
IDENTITY = SourceIdentity("c1", {"t": "id"})
FILES = [CommitMessage(BucketId(b"", 0))]


def at(end: int, start: int | None = None) -> SourcePosition:
    return SourcePosition(IDENTITY, {P0: OffsetRange(end if start is None else start, end)})


EPOCH = Epoch(3, "we")


def coordinator(*, last_identifier: int = 0, **positions: SourcePosition) -> CheckpointCoordinator:
    return CheckpointCoordinator(
        positions or {"a": at(0)}, last_identifier, CheckpointPolicy(interval_ms=1_000, bytes_max=100), EPOCH
    )


@dataclass(frozen=True)
class DueCase:
    id: str
    writes: tuple[tuple[int, int], ...]  # (at ms, bytes)
    now_ms: int
    due_in_ms: int | None


@pytest.mark.parametrize(
    "case",
    [
        DueCase("nothing was written", (), 5_000, None),
        DueCase("only offsets moved", ((0, 0),), 5_000, None),
        DueCase("the interval counts from the first record", ((100, 10), (900, 10)), 900, 200),
        DueCase("the interval is over", ((100, 10),), 1_100, 0),
        DueCase("the interval is long over", ((100, 10),), 99_000, 0),
        DueCase("many bytes come before the interval", ((100, 60), (200, 40)), 201, 0),
    ],
    ids=lambda case: case.id,
)
def test_when_a_checkpoint_is_due(case: DueCase) -> None:
    subject = coordinator()
    for offset, (now_ms, nbytes) in enumerate(case.writes, start=1):
        subject.record_write(P0, offset, nbytes=nbytes, now_ms=now_ms)
    assert subject.due_in_ms(case.now_ms) == case.due_in_ms


@pytest.mark.parametrize(
    ("begun_ms", "first_record_ms", "due_at_ms"),
    [
        pytest.param(1_000, 1_050, 2_000, id="an interval from begin to begin, not from what a commit left"),
        pytest.param(1_000, 1_500, 2_000, id="half of the interval is left"),
        pytest.param(1_000, 1_900, 2_400, id="a checkpoint that takes long leaves half an interval to records"),
        pytest.param(1_000, 2_000, 2_500, id="one that takes all of the interval, too"),
        pytest.param(1_000, 2_001, 3_001, id="after a pause the interval counts from the first record"),
    ],
)
def test_a_continuous_stream_is_published_one_interval_after_the_last_checkpoint_began(
    begun_ms: int, first_record_ms: int, due_at_ms: int
) -> None:
    subject = coordinator()
    subject.record_write(P0, 1, nbytes=10, now_ms=0)
    checkpoint(subject, "a", now_ms=begun_ms)
    subject.record_write(P0, 2, nbytes=10, now_ms=first_record_ms)
    assert subject.due_in_ms(first_record_ms) == due_at_ms - first_record_ms


def checkpoint(
    subject: CheckpointCoordinator, *tables: str, always_publish: tuple[str, ...] = (), now_ms: int = 0
) -> dict[str, SourcePosition]:
    subject.begin(now_ms)
    messages = {table: FILES if table in tables else [] for table in subject.positions}
    committables = subject.prepared(messages, IDENTITY, always_publish)
    for committable in committables:
        subject.committed(committable.table)
    subject.completed()
    return {committable.table: committable.position for committable in committables}


def test_a_table_without_rows_gets_no_snapshot_and_continues_its_position_later() -> None:
    subject = coordinator(a=at(0), b=at(0))
    subject.record_write(P0, 10, nbytes=1, now_ms=0)
    assert checkpoint(subject, "a") == {"a": at(10, start=0)}
    subject.record_write(P0, 20, nbytes=1, now_ms=0)
    assert checkpoint(subject, "a", "b") == {"a": at(20, start=10), "b": at(20, start=0)}


def test_after_a_checkpoint_nothing_is_due() -> None:
    subject = coordinator()
    subject.record_write(P0, 10, nbytes=1_000, now_ms=0)
    checkpoint(subject, "a")
    assert subject.due_in_ms(10_000) is None


def test_a_pinned_table_publishes_its_position_without_rows() -> None:
    subject = coordinator(a=at(7), b=at(7))
    assert checkpoint(subject, always_publish=("b",)) == {"b": at(7, start=7)}


def test_a_table_ahead_of_the_others_does_not_fall_back() -> None:
    subject = coordinator(a=at(50), b=at(10))
    subject.record_write(P0, 30, nbytes=1, now_ms=0)
    assert checkpoint(subject, "a", "b") == {"a": at(50), "b": at(30, start=10)}


def test_tables_with_the_same_position_share_it_and_others_keep_their_own() -> None:
    subject = coordinator(a=at(5), b=at(5), c=at(7), d=at(9))
    for reached in (10, 20):
        subject.record_write(P0, reached, nbytes=1, now_ms=0)
        checkpoint(subject, "a", "b", "c", "d")
    position = subject.positions
    assert position["a"] is position["b"] is position["c"] is position["d"]
    subject.record_write(P0, 30, nbytes=1, now_ms=0)
    checkpoint(subject, "a", "b")  # c and d have no rows: their next range is longer
    subject.record_write(P0, 40, nbytes=1, now_ms=0)
    checkpoint(subject, "a", "b", "c", "d")
    ranges = {table: position.ranges[P0] for table, position in subject.positions.items()}
    assert ranges == {"a": (30, 40), "b": (30, 40), "c": (20, 40), "d": (20, 40)}
    assert subject.positions["c"] is subject.positions["d"]


def test_identifiers_continue_above_the_largest_of_all_tables() -> None:
    subject = coordinator(last_identifier=41)
    assert [subject.begin(now_ms=0), subject.identifier] == [42, 42]


def test_a_pipeline_name_whose_identifiers_are_exhausted_is_refused() -> None:
    with pytest.raises(BadInput, match="another name"):
        coordinator(last_identifier=BATCH_COMMIT_IDENTIFIER)


def test_a_partition_with_an_unknown_start_is_not_written() -> None:
    subject = coordinator()
    with pytest.raises(KeyError):
        subject.record_write(P1, 5, nbytes=1, now_ms=0)
    subject.add_partition(["a"], P1, 3)
    subject.record_write(P1, 5, nbytes=1, now_ms=0)
    assert checkpoint(subject, "a")["a"].ranges[P1] == OffsetRange(3, 5)


def test_a_rediscovered_partition_keeps_its_position() -> None:
    subject = coordinator()
    subject.record_write(P0, 9, nbytes=1, now_ms=0)
    subject.add_partition(["a"], P0, 0)
    assert checkpoint(subject, "a") == {"a": at(9, start=0)}


def test_the_snapshot_names_checkpoint_position_and_epoch() -> None:
    subject = coordinator()
    subject.record_write(P0, 10, nbytes=1, now_ms=0)
    subject.begin(now_ms=0)
    (committable,) = subject.prepared({"a": FILES}, IDENTITY)
    stored = committable.to_storage()
    assert (stored.identifier, list(stored.messages)) == (1, FILES)
    assert position_from_text(stored.properties[POSITION_PROPERTY], "here") == at(10, start=0)
    assert epoch_of(stored.properties, "here") == EPOCH


def test_many_checkpoints_form_an_unbroken_chain() -> None:
    subject = coordinator(a=at(0), b=at(0))
    history: dict[str, list[tuple[int, SourcePosition]]] = {"a": [], "b": []}
    for round_ in range(1, 20):
        if round_ == 5:
            subject.add_partition(["a", "b"], P1, 0)
        subject.record_write(P0, round_ * 3, nbytes=1, now_ms=0)
        for table, position in checkpoint(subject, "a", *(["b"] if round_ % 4 == 0 else [])).items():
            history[table].append((subject.identifier, position))
    assert [len(history["a"]), len(history["b"])] == [19, 4]
    assert chain_breaks(history["a"]) == chain_breaks(history["b"]) == []


def test_steps_out_of_order_raise_and_change_nothing() -> None:
    subject = coordinator()
    with pytest.raises(IllegalTransition):
        subject.prepared({"a": FILES}, IDENTITY)
    assert (subject.state, subject.identifier) == (CheckpointState.WRITING, 0)
    subject.begin(now_ms=0)
    with pytest.raises(IllegalTransition):
        subject.begin(now_ms=0)
    assert subject.identifier == 1


def test_after_a_failure_no_checkpoint_follows() -> None:
    subject = coordinator()
    subject.failed()
    with pytest.raises(IllegalTransition):
        subject.begin(now_ms=0)


@pytest.mark.parametrize("is_due_again", [True, False], ids=["until a compaction ends", "until its bootstrap ends"])
def test_a_table_that_is_held_back_has_its_records_only_up_to_the_checkpoint_before(is_due_again: bool) -> None:
    """If it fails then, they are read again from there, however many checkpoints the others have had."""
    subject = coordinator(a=at(0), b=at(0))

    def checkpoint_at(now_ms: int, messages: dict[str, list[CommitMessage]], held_back: Sequence[str] = ()) -> None:
        subject.begin(now_ms)
        complete = subject.complete_up_to("a")
        committables = subject.prepared(messages, IDENTITY)
        assert subject.complete_up_to("a") == complete  # its commit may fail
        for committable in committables:
            subject.committed(committable.table)
        subject.completed(held_back, is_due_again=is_due_again and bool(held_back))

    subject.record_write(P0, 5, nbytes=1, now_ms=0)
    checkpoint_at(0, {"a": FILES, "b": FILES})
    for end, now_ms in ((7, 2_000), (9, 4_000)):
        subject.record_write(P0, end, nbytes=1, now_ms=now_ms)
        checkpoint_at(now_ms, {"b": FILES}, held_back=["a"])
        assert subject.due_in_ms(now_ms) == (1_000 if is_due_again else None)  # without a record, too
        assert subject.complete_up_to("a") == {P0: 5}
        assert subject.complete_up_to("b") == {P0: end}
        assert subject.complete_ends(["b"]) == {P0: end}
        assert subject.complete_ends(["a", "b"]) == {P0: 5}
    checkpoint_at(5_000, {"a": FILES, "b": []})
    assert subject.positions["a"].ranges == {P0: OffsetRange(5, 9)}
    assert subject.complete_up_to("a") == {P0: 9}
    assert subject.due_in_ms(5_000) is None


def test_a_table_without_records_does_not_hold_back_the_offsets_below_which_nothing_is_missing() -> None:
    subject = coordinator(idle=at(3), busy=at(0))
    for end, now_ms in ((5, 0), (9, 2_000)):
        subject.record_write(P0, end, nbytes=1, now_ms=now_ms)
        subject.begin(now_ms)
        subject.prepared({"idle": [], "busy": FILES}, IDENTITY)
        assert subject.complete_ends(["idle", "busy"]) == {P0: 0 if end == 5 else 5}  # the checkpoint may fail
        subject.committed("busy")
        subject.completed()
        assert subject.complete_ends(["idle", "busy"]) == {P0: end}
    subject.detach("busy", subject.positions["busy"], {P0: 9})  # after a quarantine: it is read apart
    subject.record_write(P0, 12, nbytes=1, now_ms=4_000)
    subject.begin(4_000)
    subject.prepared({"idle": []}, IDENTITY)
    subject.completed()
    assert subject.complete_ends(["idle"]) == {P0: 12}
    assert subject.complete_ends(["idle", "busy"]) == {P0: 9}
