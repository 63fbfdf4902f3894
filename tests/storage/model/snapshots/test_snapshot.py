"""Snapshot files, and the search for the newest, the oldest, and the one at a time."""

from __future__ import annotations

import json
import threading
from dataclasses import replace

import pytest

from tests.support.faulty_file_io import FaultyFileIO
from tidelake.errors import CorruptFile
from tidelake.storage.base import env
from tidelake.storage.fileio.memory import MemoryFileIO
from tidelake.storage.model.format import CommitKind
from tidelake.storage.model.paths import TablePaths
from tidelake.storage.model.snapshots.change_history import ChangelogStore
from tidelake.storage.model.snapshots.snapshot import Snapshot, SnapshotStore

PLAIN = Snapshot(
    id=3,
    schema_id=1,
    base_manifest_list="manifest-list-b",
    delta_manifest_list="manifest-list-d",
    commit_user="etl",
    commit_identifier=7,
    commit_kind=CommitKind.APPEND,
    time_ms=1_700_000_000_000,
    total_record_count=10,
    delta_record_count=-2,
)
FULL = replace(
    PLAIN,
    base_manifest_list_size=1006,
    delta_manifest_list_size=1109,
    changelog_manifest_list="manifest-list-c",
    changelog_manifest_list_size=5,
    index_manifest="index-manifest-i",
    changelog_record_count=4,
    watermark=-(2**63),
    statistics="stat-s",
    properties={"note": "é \\ \u2028 \u0001", "empty": ""},
    next_row_id=0,
    operation="WRITE",
    uuid="u-1",
    writer_version="tidelake-1",
)


@pytest.mark.parametrize("snapshot", [PLAIN, FULL], ids=["few members", "every member"])
def test_a_snapshot_is_read_back(snapshot: Snapshot) -> None:
    assert Snapshot.from_json(snapshot.to_json().encode(), "s") == snapshot


def test_members_are_in_javas_order_and_nulls_are_omitted() -> None:
    assert PLAIN.to_json() == (
        '{\n  "version" : 3,\n  "id" : 3,\n  "schemaId" : 1,\n  "baseManifestList" : "manifest-list-b",\n'
        '  "deltaManifestList" : "manifest-list-d",\n  "commitUser" : "etl",\n  "commitIdentifier" : 7,\n'
        '  "commitKind" : "APPEND",\n  "timeMillis" : 1700000000000,\n  "totalRecordCount" : 10,\n'
        '  "deltaRecordCount" : -2\n}'
    )
    order = (
        "version uuid id schemaId baseManifestList baseManifestListSize deltaManifestList deltaManifestListSize "
        "changelogManifestList changelogManifestListSize indexManifest commitUser writerVersion commitIdentifier "
        "commitKind timeMillis totalRecordCount deltaRecordCount changelogRecordCount watermark statistics properties "
        "nextRowId operation"
    )
    assert " ".join(json.loads(FULL.to_json())) == order


def test_unknown_members_are_ignored() -> None:
    members = {**json.loads(FULL.to_json()), "logOffsets": {"0": 12}, "future": [1]}
    assert Snapshot.from_json(json.dumps(members).encode(), "s") == FULL


GOOD = PLAIN.to_json().encode()


@pytest.mark.parametrize(
    ("data", "offset"),
    [
        pytest.param(b"", 0, id="empty, as after a power cut"),
        pytest.param(bytes(100), 0, id="zeros"),
        pytest.param(GOOD[:13], 13, id="cut in the middle"),
        pytest.param('{"é" : x}'.encode(), 8, id="the place is counted in bytes"),
        pytest.param(b'{"a": "\xff"}', 7, id="not UTF-8"),
        pytest.param(b"[]", None, id="a list"),
        pytest.param(GOOD.replace(b"APPEND", b"MERGE"), None, id="a kind nobody knows"),
        pytest.param(GOOD.replace(b'"commitUser"', b'"user"'), None, id="a member is missing"),
        pytest.param(GOOD.replace(b": 3,", b": 4,", 1), None, id="a version from the future"),
    ],
)
def test_a_broken_snapshot_is_named_with_the_location(data: bytes, offset: int | None) -> None:
    with pytest.raises(CorruptFile, match=r"^t/snapshot/snapshot-3") as caught:
        Snapshot.from_json(data, "t/snapshot/snapshot-3")
    assert caught.value.offset == offset


# ---------------------------------------------------------------- finding them


def store_with(name: str, ids: range, *, latest: str | None = None, earliest: str | None = None) -> SnapshotStore:
    """Snapshot n is of time 100 n. The directory contains other files too."""
    io = FaultyFileIO(MemoryFileIO())
    paths = TablePaths(f"memory://{name}/t")
    for snapshot_id in ids:
        data = replace(PLAIN, id=snapshot_id, time_ms=100 * snapshot_id).to_json().encode()
        io.write(paths.snapshot(snapshot_id), data)
    for hint, text in ((paths.latest_hint, latest), (paths.earliest_hint, earliest)):
        if text is not None:
            io.write(hint, text.encode())
    for other in ("snapshot-x", ".snapshot-99.tmp", "snapshot-007", "snapshot-5.tmp"):
        io.write(f"{paths.snapshot_directory}/{other}", b"")
    return SnapshotStore(io, paths)


@pytest.mark.parametrize(
    ("ids", "hint", "expected"),
    [
        pytest.param(range(1, 1), None, None, id="no snapshots"),
        pytest.param(range(3, 8), None, 7, id="no hint"),
        pytest.param(range(3, 8), "7", 7, id="a hint that is right"),
        pytest.param(range(3, 8), "5", 7, id="a hint that lags"),
        pytest.param(range(3, 8), "", 7, id="an empty hint"),
        pytest.param(range(3, 8), "7x", 7, id="a torn hint"),
        pytest.param(range(3, 8), "-1", 7, id="a hint that says none"),
        pytest.param(range(50, 52), "7", 51, id="a hint so old that its snapshot has expired"),
        pytest.param(range(3, 8), "99", 7, id="a hint beyond the end"),
        pytest.param(range(1, 1), "99", None, id="a hint, and no snapshots"),
    ],
)
def test_the_latest_snapshot_is_found(
    request: pytest.FixtureRequest, ids: range, hint: str | None, expected: int | None
) -> None:
    store = store_with(str(abs(hash(request.node.name))), ids, latest=hint)
    latest = store.latest()
    assert store.latest_id() == expected
    assert (latest.id if latest is not None else None) == expected


def test_a_correct_hint_avoids_listing_the_directory() -> None:
    store_with("hinted", range(1, 2_000), latest="1999")
    io = FaultyFileIO(MemoryFileIO())
    store = SnapshotStore(io, TablePaths("memory://hinted/t"))
    assert store.latest_id() == 1999
    assert [call.name for call in io.calls] == ["read", "exists", "exists"]


@pytest.mark.parametrize(
    ("ids", "known", "expected", "asks_once"),
    [
        pytest.param(range(3, 8), 7, 7, True, id="still the newest"),
        pytest.param(range(3, 8), 5, 7, False, id="followed"),
        pytest.param(range(3, 8), 9, 7, False, id="rolled back"),
        pytest.param(range(50, 52), 7, 51, False, id="expired"),
        pytest.param(range(1, 1), 7, None, False, id="the table is empty now"),
    ],
)
def test_the_newest_snapshot_is_found_from_a_known_one(
    request: pytest.FixtureRequest, ids: range, known: int, expected: int | None, asks_once: bool
) -> None:
    store = store_with(f"since-{abs(hash(request.node.name))}", ids, latest="7")
    latest = store.latest_since(replace(PLAIN, id=known, time_ms=100 * known))
    io: FaultyFileIO = store._io  # type: ignore[assignment]
    asked = [(call.name, call.file_name) for call in io.calls if call.name in ("read", "exists")]
    assert (latest.id if latest is not None else None) == expected
    assert set(asked[:2]) == {("exists", f"snapshot-{known + 1}"), ("read", f"snapshot-{known}")}
    assert (len(asked) == 2) is asks_once


def test_a_known_snapshot_that_was_replaced_is_not_the_newest() -> None:
    store = store_with("replaced", range(3, 8), latest="7")
    assert store.latest_since(replace(PLAIN, id=7, time_ms=700, commit_user="another")) == store.get(7)


def test_a_reader_that_sleeps_while_snapshots_expire_finds_the_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has read snapshot 7, sleeps, and asks for snapshot 8 when both are gone."""
    store = store_with("asleep", range(3, 8), latest="7")
    io: FaultyFileIO = store._io  # type: ignore[assignment]
    paths, was_read, now_s = TablePaths("memory://asleep/t"), threading.Event(), [1_000.0]
    monkeypatch.setattr(env, "monotonic_s", lambda: now_s[0])

    class Sleeping(FaultyFileIO):
        def read(self, path: str) -> bytes:
            try:
                return super().read(path)
            finally:
                if path == paths.snapshot(7):
                    was_read.set()

        def exists(self, path: str) -> bool:
            if path == paths.snapshot(8) and not was_read.is_set():
                assert was_read.wait(30)
                now_s[0] += 3_600
                for snapshot_id in range(3, 12):
                    self.inner.delete(paths.snapshot(snapshot_id))
                self.inner.write(paths.snapshot(12), replace(PLAIN, id=12).to_json().encode())
            return super().exists(path)

    latest = SnapshotStore(Sleeping(io.inner), paths).latest_since(replace(PLAIN, id=7, time_ms=700))
    assert latest == replace(PLAIN, id=12)


@pytest.mark.parametrize("listed", [range(1, 1), range(3, 5), range(3, 8)], ids=["nothing", "some", "all"])
def test_a_stale_listing_does_not_hide_the_latest(listed: range) -> None:
    """Ids are consecutive, so checks of single files find the end."""
    store = store_with(f"lagging-{listed.stop}", range(1 if not listed else 3, 8))
    store.ids = lambda: list(listed)  # type: ignore[method-assign]
    assert store.latest_id() == 7


@pytest.mark.parametrize(
    ("ids", "hint", "expected"),
    [
        pytest.param(range(1, 1), None, None, id="no snapshots"),
        pytest.param(range(3, 8), None, 3, id="no hint"),
        pytest.param(range(3, 8), "3", 3, id="a hint that is right"),
        pytest.param(range(3, 8), "2", 3, id="a hint that lags"),
        pytest.param(range(3, 8), "?", 3, id="a torn hint"),
        pytest.param(range(3, 8), "5", 5, id="a hint that is ahead: expiry has begun with what is below"),
        pytest.param(range(3, 8), "99", 3, id="a hint beyond the end"),
        pytest.param(range(1, 8), "1", 1, id="the first of all"),
    ],
)
def test_the_earliest_snapshot_is_found(
    request: pytest.FixtureRequest, ids: range, hint: str | None, expected: int | None
) -> None:
    store = store_with(str(abs(hash(request.node.name))), ids, earliest=hint)
    assert store.earliest_id() == expected
    earliest = store.earliest()
    assert (earliest.id if earliest is not None else None) == expected


@pytest.mark.parametrize(
    ("time_ms", "expected"),
    [(299, None), (300, 3), (301, 3), (499, 4), (700, 7), (10**15, 7)],
    ids=["before the first", "at the first", "after the first", "just before another", "at the last", "long after"],
)
def test_the_snapshot_at_a_time_is_found(time_ms: int, expected: int | None) -> None:
    found = store_with(f"as-of-{time_ms}", range(3, 8)).as_of(time_ms)
    assert (found.id if found is not None else None) == expected


@pytest.mark.parametrize("gone", range(3, 8))
def test_a_time_is_found_while_snapshots_expire(gone: int) -> None:
    """All snapshots up to `gone` expire after the range was determined."""
    store = store_with(f"expiring-{gone}", range(3, 8))
    store.earliest_id = lambda: 3  # type: ignore[method-assign]
    store.latest_id = lambda: 7  # type: ignore[method-assign]
    for snapshot_id in range(3, gone + 1):
        store.delete_snapshot_file(snapshot_id)
    found = store.as_of(10**9)
    assert (found.id if found is not None else None) == (7 if gone < 7 else None)


def test_a_missing_snapshot_is_a_missing_file() -> None:
    store = store_with("gone", range(2, 4))
    with pytest.raises(FileNotFoundError):
        store.get(1)
    assert store.find(1) is None
    assert not store.exists(1)
    assert [snapshot.id for snapshot in store.all()] == [2, 3]
    assert [snapshot.id for snapshot in store.range(1, 3)] == [2, 3]


def test_a_snapshot_file_that_holds_another_snapshot_is_corrupt() -> None:
    io, paths = MemoryFileIO(), TablePaths("memory://snapshot-of-another-id")
    store = SnapshotStore(io, paths)
    for snapshot_id in (2, 3):
        store.publish(replace(PLAIN, id=snapshot_id))
    io.write(paths.snapshot(2), io.read(paths.snapshot(3)))
    with pytest.raises(CorruptFile, match=r"snapshot/snapshot-2: expected snapshot 2, found snapshot 3"):
        store.get(2)
    changelogs = ChangelogStore(io, paths)
    io.write(paths.changelog(1), io.read(paths.snapshot(3)))
    with pytest.raises(CorruptFile, match=r"changelog-1: expected snapshot 1, found snapshot 3"):
        changelogs.find(1)
