"""A fault in any call of the life of a table with Iceberg metadata: the next commit makes up for it, and what remains
is found as an orphan.
"""

from __future__ import annotations

import json
from contextlib import suppress
from uuid import uuid4

import pytest

from tests.crash.points import Points
from tests.crash.table_life import COMPACT_AT_TWO, EXPIRE_ALL_BUT_ONE, Life, TableKind
from tests.crash.troubles import Trouble, every_point, some_points
from tests.support.faulty_file_io import Call, FaultyFileIO, FaultyIOError, ProcessDied
from tests.support.levels import random_half, sample
from tidelake.errors import BadInput, CommitConflict, TidelakeError
from tidelake.storage.commit.iceberg.manifest_files import IcebergManifests, is_live
from tidelake.storage.fileio.base import FileIO
from tidelake.storage.fileio.memory import MemoryFileIO
from tidelake.storage.maintenance.orphans import clean_orphans
from tidelake.storage.maintenance.verify import verify
from tidelake.storage.model.table import TableContext
from tidelake.table import Table

ICEBERG = {"metadata.iceberg.storage": "table-location"}
KINDS = [
    TableKind("append", False, {"bucket": "-1", **ICEBERG}),
    TableKind("expiring", False, {"bucket": "-1", **EXPIRE_ALL_BUT_ONE, **ICEBERG}),
    TableKind("compacting", True, {"bucket": "1", **COMPACT_AT_TWO, **ICEBERG}),
]
OLD_ENOUGH_MS = 0
LATER_MS = 2**45


def calls_of_a_life(kind: TableKind) -> list[Call]:
    io = FaultyFileIO(MemoryFileIO())
    Life(io, f"memory://{uuid4()}/lake", kind).run()
    return io.calls


def live_through(kind: TableKind, number: int, trouble: Trouble) -> None:
    """A life with a fault in its number-th call, the next life, and one more commit."""
    warehouse, store = f"memory://{uuid4()}/lake", MemoryFileIO()
    io = FaultyFileIO(store)
    trouble.await_in(io, number)
    with suppress(TidelakeError, FaultyIOError, ProcessDied):
        Life(io, warehouse, kind).run()
    where = f"{kind.id}: {trouble.id}, call {number}: {io.calls[number : number + 1]}"

    after = FaultyFileIO(store)
    trouble.continue_in(after, io)
    try:
        Life(after, warehouse, kind).run()
    except (CommitConflict, BadInput):  # a late commit of the dead process
        Life(after, warehouse, kind).run()
    io.land()
    last = Life(store, warehouse, kind)
    last.rival_commits()
    context = last.open()
    check_metadata(store, context, where)
    cleaned = clean_orphans(context, older_than_ms=OLD_ENOUGH_MS, now_ms=LATER_MS)
    assert "version-hint.text" not in " ".join(cleaned.paths)
    check_metadata(store, context, where)
    assert not verify(context, deep=True), where
    again = clean_orphans(context, older_than_ms=OLD_ENOUGH_MS, now_ms=LATER_MS)
    assert again.paths == (), where


def check_metadata(store: FileIO, context: TableContext, where: str) -> None:
    """The newest metadata shows the latest snapshot: all files that it names exist, and its data files are ours."""
    directory = f"{context.location}/metadata"
    version = int(store.read(f"{directory}/version-hint.text"))
    latest = context.snapshots.latest()
    assert latest is not None
    assert version == latest.id, where
    found = json.loads(store.read(f"{directory}/v{version}.metadata.json"))
    manifests = IcebergManifests(context, directory)
    live: set[str] = set()
    for snapshot in found["snapshots"]:
        metas = manifests.read_list(snapshot["manifest-list"])
        entries = [entry for meta in metas for entry in manifests.read(meta)]
        live = {entry["data_file"]["file_path"].rpartition("/")[2] for entry in entries if is_live(entry)}
    files = [file for split in Table(context).scan().splits() for file in split.files]
    highest = context.options.num_levels - 1
    shown = {f.file_name for f in files if not context.schema.has_primary_key or f.level == highest}
    assert live == shown, where


@pytest.mark.sampled
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.id)
def test_after_a_fault_in_any_call_the_next_commit_publishes_and_orphans_are_found(
    kind: TableKind, points: Points
) -> None:
    tried = list(some_points(calls_of_a_life(kind), KINDS.index(kind)))
    for number, trouble in sample(random_half(tried)):
        live_through(kind, number, trouble)
        points.tried(f"Iceberg metadata: {trouble.kind}")


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.id)
def test_every_fault_at_every_call_is_made_up_for(kind: TableKind, points: Points) -> None:
    for number, trouble in every_point(calls_of_a_life(kind)):
        live_through(kind, number, trouble)
        points.tried(f"Iceberg metadata: {trouble.kind}")
