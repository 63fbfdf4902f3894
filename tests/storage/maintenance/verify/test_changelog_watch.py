"""A watch compares each new snapshot with the changes since the last check, and rests in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import tidelake
from tests.support.command_line import Call
from tidelake.errors import CorruptFile, SnapshotExpired
from tidelake.storage.maintenance.verify import changelog_check, changelog_watch
from tidelake.storage.maintenance.verify.changelog_watch import WatchedCheck, watch_changelog

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])


@pytest.fixture
def table(tmp_path: Path) -> tidelake.Table:
    catalog = tidelake.open_catalog(str(tmp_path / "lake"))
    catalog.create_database("shop")
    options = {"bucket": "2", "changelog-producer": "input", "num-sorted-run.compaction-trigger": "100"}
    return catalog.create_table("shop.t", SCHEMA, primary_key=["id"], options=options)


def commit(table: tidelake.Table, *rows: tuple[int, int]) -> None:
    with table.writer() as writer:
        writer.write(pa.table({"id": [key for key, _ in rows], "v": [value for _, value in rows]}, SCHEMA))
        writer.commit()


def watched(table: tidelake.Table, *between: Callable[[], object]) -> Iterator[WatchedCheck]:
    """Watch, and do one thing of `between` in each wait."""
    left = iter(between)

    def wait(_: float) -> bool:
        action = next(left, None)
        if action is not None:
            action()
        return action is not None

    return watch_changelog(lambda: table.context, wait)


def test_each_check_folds_only_the_changes_since_the_last_one(table: tidelake.Table) -> None:
    commit(table, *((key, 0) for key in range(50)))
    checks = list(watched(table, lambda: commit(table, (1, 1)), lambda: None, lambda: commit(table, (2, 2), (3, 3))))
    assert [check.report.is_sound for check in checks] == [True, True, True]
    assert [(check.report.start, check.report.changes) for check in checks] == [(None, 50), (1, 1), (2, 2)]


def test_a_bucket_that_no_commit_touched_is_not_read(table: tidelake.Table) -> None:
    commit(table, *((key, 0) for key in range(50)))
    first, second = watched(table, lambda: commit(table, (1, 1)))
    in_bucket = next(split.row_count for split in table.scan(snapshot=1).splits() if split.bucket == _bucket(table, 1))
    assert (first.report.keys, second.report.keys) == (50, in_bucket)
    assert in_bucket < 50


def _bucket(table: tidelake.Table, key: int) -> int:
    rows = [
        (split.bucket, table.scan(snapshot=1).to_arrow(splits=[split])) for split in table.scan(snapshot=1).splits()
    ]
    return next(bucket for bucket, found in rows if key in found["id"].to_pylist())


def test_snapshots_that_expired_unchecked_are_named(table: tidelake.Table) -> None:
    def fall_behind() -> None:
        for value in range(3):
            commit(table, (1, value))
        table.expire(retain_min=1, retain_max=1, retain_ms=0)
        commit(table, (2, 2))

    commit(table, (1, 0))
    first, second = watched(table, fall_behind)
    assert (first.unchecked, second.unchecked) == (None, (2, 4))
    assert (second.report.start, second.report.end, second.report.is_sound) == (4, 5, True)


def test_a_snapshot_that_expires_while_it_is_checked_is_not_a_difference(
    table: tidelake.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    right, calls = changelog_check.check_changelog, []

    def expired_once(*arguments: object, **named: object) -> object:
        calls.append(arguments)
        if len(calls) == 1:
            raise SnapshotExpired("shop.t", 1, "none")
        return right(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(changelog_watch, "check_changelog", expired_once)
    commit(table, (1, 0))
    (check,) = watched(table, lambda: None)
    assert check.report.is_sound


def test_a_lost_file_ends_the_watch(table: tidelake.Table) -> None:
    commit(table, (1, 0))
    (lost,) = Path(table.location).rglob("data-*")
    lost.unlink()
    with pytest.raises(CorruptFile, match=lost.name):
        next(watched(table))


def test_a_rollback_is_named_and_the_table_is_checked_again(table: tidelake.Table) -> None:
    def roll_back() -> None:
        table.rollback(snapshot=1)

    commit(table, (1, 0))
    commit(table, (2, 0))
    first, second = watched(table, roll_back)
    assert (first.rolled_back, second.rolled_back) == (None, 2)
    assert (second.report.end, second.report.is_sound) == (1, True)


def test_checks_take_at_most_a_tenth_of_the_time(table: tidelake.Table) -> None:
    waits: list[float] = []
    commit(table, (1, 0))

    def wait(wait_s: float) -> bool:
        waits.append(wait_s)
        return False

    (check,) = watch_changelog(lambda: table.context, wait)
    assert check.duration_s / (check.duration_s + waits[0]) <= changelog_watch.TIME_SHARE_MAX + 1e-9


def test_the_command_ends_with_the_first_difference(
    table: tidelake.Table, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(table, (1, 0))
    right = changelog_check.check_changelog

    def wrong(*arguments: object, **named: object) -> object:
        return replace(right(*arguments, **named), differing=1)  # type: ignore[arg-type]

    monkeypatch.setattr(changelog_watch, "check_changelog", wrong)
    metrics = tmp_path / "changelog.prom"
    result = call("table", "verify", "shop.t", "-w", tmp_path / "lake", "--watch", "--metrics-file", metrics)
    assert result.code == 1
    assert "WRONG  1 keys whose row differs" in result.out
    text = metrics.read_text()
    assert 'tidelake_changelog_check_differing_keys{table="shop.t"} 1\n' in text
    assert 'tidelake_changelog_check_snapshot{table="shop.t"} 1\n' in text


@pytest.mark.parametrize("other", [["--watch", "--deep"], ["--watch", "--end", "1"], ["--metrics-file", "x.prom"]])
def test_options_that_contradict_the_watch_are_refused(
    table: tidelake.Table, call: Call, tmp_path: Path, other: list[str]
) -> None:
    result = call("table", "verify", "shop.t", "-w", tmp_path / "lake", *other)
    assert result.code == 2
    assert "--watch" in result.err
