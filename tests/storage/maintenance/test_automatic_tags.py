"""Which snapshots get automatic tags, and the names of the tags."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest

from tests.storage.model.snapshots.tables import FakeTime, committer, make_table
from tests.support.faulty_file_io import Call, Fault, FaultyFileIO
from tidelake.errors import BadInput
from tidelake.storage.commit.commit_message import Committable
from tidelake.storage.fileio.memory import MemoryFileIO
from tidelake.storage.maintenance.automatic_tags import AutomaticTags, TagExpiry, tag_batch_write
from tidelake.storage.maintenance.maintenance_worker import MaintenanceWorker
from tidelake.storage.maintenance.tag_changes import create_tag, delete_tag
from tidelake.storage.model.snapshots.tags import TagStore
from tidelake.storage.model.table import TableContext

HOUR = {"tag.automatic-creation": "watermark", "tag.creation-period": "hourly"}
CLOCK = {"tag.automatic-creation": "process-time", "sink.process-time-zone": "UTC"}


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def new_table(**options: str) -> TableContext:
    return make_table(FaultyFileIO(MemoryFileIO()), f"memory://{uuid.uuid4()}/t", options=options)


def tags(table: TableContext) -> dict[str, int]:
    return {name: snapshot.id for name, snapshot in TagStore(table.io, table.paths).all().items()}


@dataclass(frozen=True)
class Case:
    """marks: a snapshot's watermark each, on 2026-05-01; None for one without."""

    id: str
    marks: list[str | None]
    tags: dict[str, int]
    options: dict[str, str] = field(default_factory=dict)


CASES = [
    Case("the first snapshot has the tag of the last complete hour", ["10:30"], {"2026-05-01 09": 1}),
    Case("one a period", ["10:30", "10:59", "11:00", "11:20"], {"2026-05-01 09": 1, "2026-05-01 10": 3}),
    Case("periods that nobody saw have none", ["10:30", "14:00"], {"2026-05-01 09": 1, "2026-05-01 13": 2}),
    Case(
        "completion fills them, one with each snapshot",
        ["10:30", "14:00", "14:10", "14:20", "14:30", "14:40"],
        {f"2026-05-01 {hour}": n for n, hour in enumerate(["09", "10", "11", "12", "13"], start=1)},
        {"tag.automatic-completion": "true"},
    ),
    Case(
        "a delay",
        ["10:30", "11:04", "11:05"],
        {"2026-05-01 09": 1, "2026-05-01 10": 3},
        {"tag.creation-delay": "5 min"},
    ),
    Case("snapshots without a watermark are passed over", [None, "10:30", None], {"2026-05-01 09": 2}),
    Case(
        "only the newest stay",
        ["10:30", "11:30", "12:30"],
        {"2026-05-01 10": 2, "2026-05-01 11": 3},
        {"tag.num-retained-max": "2"},
    ),
    Case(
        "a day, without dashes",
        ["10:30"],
        {"20260430": 1},
        {"tag.creation-period": "daily"} | {"tag.period-formatter": "without_dashes"},
    ),
    Case("two hours", ["10:30"], {"2026-05-01 08": 1}, {"tag.creation-period": "two-hours"}),
    Case("ten minutes", ["10:35"], {"202605011020": 1}, {"tag.creation-period-duration": "10 min"}),
    Case("another time zone", ["10:30"], {"2026-05-01 17": 1}, {"sink.watermark-time-zone": "Asia/Shanghai"}),
    Case("an offset", ["10:30"], {"2026-05-01 06": 1}, {"sink.watermark-time-zone": "GMT-3:30"}),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
@pytest.mark.parametrize("restarts", [False, True], ids=["one process", "a process for each commit"])
def test_the_schedule_decides_which_snapshot_gets_which_tag(case: Case, restarts: bool) -> None:
    table = new_table(**HOUR | case.options)
    schedule = AutomaticTags(table)
    for number, mark in enumerate(case.marks, start=1):
        watermark = None if mark is None else ms(f"2026-05-01T{mark}")
        committer(table).commit(Committable(number, watermark=watermark))
        if restarts:
            schedule = AutomaticTags(table)
        schedule.run()
    assert tags(table) == case.tags


def test_with_process_time_nothing_is_read_before_a_period_ends() -> None:
    time = FakeTime(ms("2026-05-01T10:30"))
    table = new_table(**CLOCK)
    commits, schedule = committer(table, time=time), AutomaticTags(table, now_ms=lambda: time.now_ms)
    commits.commit(Committable(1))
    schedule.run()
    commits.commit(Committable(2))
    assert isinstance(table.io, FaultyFileIO)
    table.io.calls.clear()
    assert not schedule.is_due()
    assert table.io.calls == []
    time.now_ms = ms("2026-05-02T00:00")
    assert schedule.is_due()
    commits.commit(Committable(3))
    schedule.run()
    assert tags(table) == {"2026-04-30": 1, "2026-05-01": 3}


def test_a_watermark_at_the_end_of_time_makes_no_tag() -> None:
    table = new_table(**HOUR)
    committer(table).commit(Committable(1, watermark=2**63 - 1))
    AutomaticTags(table).run()
    assert tags(table) == {}


@pytest.mark.parametrize(
    ("option", "value"),
    [("tag.creation-delay", "1 h"), ("sink.watermark-time-zone", "Mars"), ("tag.creation-period-duration", "0 s")],
)
def test_an_invalid_schedule_is_named(option: str, value: str) -> None:
    table = new_table(**HOUR | {option: value})
    with pytest.raises(BadInput, match=option):
        AutomaticTags(table)


def test_a_snapshot_has_one_tag_of_the_schedule() -> None:
    table = new_table(**HOUR)
    committer(table).commit(Committable(1, watermark=ms("2026-05-01T10:30")))
    AutomaticTags(table).run()
    with pytest.raises(BadInput, match="has the automatic tag '2026-05-01 09'"):
        create_tag(table, "2026-05-01 08", 1)
    create_tag(table, "mine", 1)


def test_a_tag_already_made_by_others_is_accepted() -> None:
    table = new_table(**HOUR)
    committer(table).commit(Committable(1, watermark=ms("2026-05-01T10:30")))
    one, other = AutomaticTags(table), AutomaticTags(table)
    one.run()
    other.run()
    assert tags(table) == {"2026-05-01 09": 1}


# ---------------------------------------------------------------- how long they stay


def test_a_tag_gets_the_default_retention_and_expires_after_it() -> None:
    time = FakeTime(ms("2026-05-01T10:30"))
    table = new_table(**HOUR, **{"tag.default-time-retained": "1 h"})
    committer(table, time=time).commit(Committable(1, watermark=time.now_ms))
    AutomaticTags(table, now_ms=lambda: time.now_ms).run()
    create_tag(table, "for ever", 1)
    assert TagStore(table.io, table.paths).tag("2026-05-01 09").retained == timedelta(hours=1)
    expiry = TagExpiry(table, now_ms=lambda: time.now_ms)
    time.now_ms += 3_599_000
    expiry.run()
    assert len(tags(table)) == 2
    assert not expiry.is_due()
    time.now_ms += 60_000
    assert expiry.is_due()
    assert isinstance(table.io, FaultyFileIO)
    table.io.calls.clear()
    expiry.run()
    assert tags(table) == {"for ever": 1}
    read = [call.file_name for call in table.io.calls if call.name == "read" and call.file_name.startswith("tag-")]
    assert "tag-for ever" not in read[: read.index("tag-2026-05-01 09")], "each was read before"


def test_tags_are_kept_if_time_expiry_is_disabled() -> None:
    table = new_table(**{"tag.time-expire-enabled": "false"})
    committer(table).commit(Committable(1))
    create_tag(table, "old", 1, timedelta(seconds=1), lambda: datetime(2020, 1, 1))
    worker = MaintenanceWorker()
    worker.watch(table)(1)
    worker.close(finish=True)
    assert tags(table) == {"old": 1}


# ---------------------------------------------------------------- during commits


def test_tags_are_made_before_snapshots_expire() -> None:
    table = new_table(**HOUR, **{"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1"})
    commits = committer(table)
    for number, mark in enumerate(["10:30", "10:40", "11:10", "11:20"], start=1):
        commits.commit(Committable(number, watermark=ms(f"2026-05-01T{mark}")))
    worker = MaintenanceWorker()
    worker.watch(table)(4)
    worker.close(finish=True)
    assert tags(table) == {"2026-05-01 09": 1, "2026-05-01 10": 3}
    assert table.snapshots.ids() == [4]


def test_a_failed_tag_does_not_block_expiry_and_is_made_later(caplog: pytest.LogCaptureFixture) -> None:
    table = new_table(**HOUR, **{"snapshot.num-retained.min": "2", "snapshot.num-retained.max": "2"})
    commits = committer(table)
    for number in range(1, 5):
        commits.commit(Committable(number, watermark=ms("2026-05-01T10:30")))
    assert isinstance(table.io, FaultyFileIO)

    def fail(call: Call) -> Fault | None:
        return Fault.BEFORE if call.name == "create_if_absent" and call.file_name.startswith("tag-") else None

    table.io.fault = fail
    worker = MaintenanceWorker()
    worker.watch(table)(4)
    worker.close(finish=True)
    assert "automatic_tags_failed" in caplog.text
    assert table.snapshots.ids() == [3, 4]
    table.io.fault = lambda _: None
    worker = MaintenanceWorker()
    worker.watch(table)(4)
    worker.close(finish=True)
    assert tags(table) == {"2026-05-01 09": 3}


# ---------------------------------------------------------------- after batch writes


def test_a_batch_write_is_tagged_with_its_day_and_the_next_one_moves_the_tag() -> None:
    time = FakeTime(ms("2026-05-01T23:30"))
    table = new_table(**{"tag.automatic-creation": "batch", "sink.process-time-zone": "+01:00"})
    commits = committer(table, time=time)
    for number in (1, 2):
        commits.commit(Committable(number))
        tag_batch_write(table, number)
        assert tags(table) == {"batch-write-2026-05-02": number}


def test_batch_tags_may_have_a_custom_name_and_a_limit() -> None:
    table = new_table(**{"tag.automatic-creation": "batch", "tag.num-retained-max": "2"})
    commits = committer(table)
    commits.commit(Committable(1))
    create_tag(table, "a", 1)
    create_tag(table, "b", 1)
    commits.commit(Committable(2))
    tag_batch_write(table.with_options({"tag.batch.customized-name": "nightly"}), 2)
    assert len(tags(table)) == 2, "of all tags, whoever made them"
    assert tags(table)["nightly"] == 2


# ---------------------------------------------------------------- success files


def test_a_success_file_is_created_and_deleted_with_the_tag() -> None:
    table = new_table(**HOUR, **{"tag.create-success-file": "true"})
    committer(table).commit(Committable(1, watermark=ms("2026-05-01T10:30")))
    AutomaticTags(table).run()
    path = f"{table.paths.tag_directory}/tag-success-file/2026-05-01 09_SUCCESS"
    content = json.loads(table.io.read(path))
    assert list(content) == ["creationTime", "modificationTime"]
    assert TagStore(table.io, table.paths).names() == ["2026-05-01 09"]
    delete_tag(table, "2026-05-01 09")
    assert not table.io.exists(path)
