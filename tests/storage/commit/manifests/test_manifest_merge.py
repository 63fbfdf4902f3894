"""Which manifests are merged, and that merging does not change what a reader sees."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.storage.model.snapshots.tables import committer, data_file, latest, make_table, partition, snapshots
from tests.support.levels import examples
from tidelake.storage.commit.commit_increment import CommitIncrement, CompactResult
from tidelake.storage.commit.commit_message import CommitMessage, Committable
from tidelake.storage.commit.manifests.manifest_entry import ManifestEntry, merge_entries
from tidelake.storage.commit.manifests.manifest_file_meta import ManifestFileMeta, describe_manifest
from tidelake.storage.commit.manifests.manifest_merge import MergeLimits, first_to_merge, merge_manifests
from tidelake.storage.commit.manifests.manifest_store import ManifestStore
from tidelake.storage.commit.manifests.partition_stats import partition_stats
from tidelake.storage.commit.manifests.snapshot_files import base_list, live_entries, merged, table_manifests
from tidelake.storage.fileio.memory import MemoryFileIO
from tidelake.storage.files.data_file import EMPTY_STATS
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.format import FileKind

LIMITS = MergeLimits(target_bytes=1000, full_bytes=10**9, min_count=3)


def metas(text: str) -> list[ManifestFileMeta]:
    """`7x250`: 7 entries in 250 bytes."""
    pairs = [word.split("x") for word in text.replace("|", "").split()]
    return [ManifestFileMeta(f"m{i}", int(size), int(n), 0, EMPTY_STATS, 0) for i, (n, size) in enumerate(pairs)]


@pytest.mark.parametrize(
    "picture",
    [
        pytest.param("", id="none"),
        pytest.param("1x9 1x9 |", id="too few"),
        pytest.param("| 1x9 1x9 1x9", id="three small ones"),
        pytest.param("500x90 | 1x9 1x9 1x9", id="a large one rests"),
        pytest.param("| 90x90 1x9 1x9", id="one of few entries is always joined"),
        pytest.param("| 400x90 200x80 100x70 100x9", id="each has no more than the newer ones together"),
        pytest.param("401x90 | 200x80 100x70 100x9", id="a larger one before them rests"),
        pytest.param("900x99 700x90 500x80 1x9 |", id="larger and larger ones rest while they are few"),
        pytest.param("1x9 1x9 1x9 5x1000 1x9 |", id="what reached the target is a wall"),
        pytest.param("5x2000 | 1x9 1x9 1x9", id="what lies behind the wall is joined"),
        pytest.param("1x400 | 1x400 1x400 1x400", id="enough for one manifest of the target's size"),
        pytest.param(
            "| " + " ".join(f"{2000 - 150 * i}x50" for i in range(12)), id="a crowd is joined whatever it holds"
        ),
        pytest.param(" ".join(f"{2000 - 150 * i}x50" for i in range(11)) + " |", id="not yet a crowd"),
    ],
)
def test_joined_manifests_start_at_the_bar(picture: str) -> None:
    before, _, _ = picture.partition("|")
    assert first_to_merge(metas(picture), LIMITS) == len(before.split())


# ---------------------------------------------------------------- in a table

SMALL = {
    "manifest.target-file-size": "12 kb",
    "manifest.merge-min-count": "3",
    "manifest.full-compaction-threshold-size": "30 kb",
    "manifest.compression": "null",
}


def identities(entries: Sequence[ManifestEntry]) -> set[object]:
    assert all(entry.kind is FileKind.ADD for entry in entries)
    return {entry.identity for entry in entries}


COMMITS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.sampled_from("xyz"), st.integers(0, 3)),
        st.tuples(st.just("compact"), st.sampled_from("xyz"), st.integers(1, 4)),
        st.tuples(st.just("overwrite"), st.sampled_from("xyz"), st.integers(0, 2)),
    ),
    min_size=1,
    max_size=40,
)


@settings(deadline=None, max_examples=examples(60))
@given(COMMITS, st.sampled_from([2, 3, 6]), st.sampled_from([6, 9, 30]))
def test_each_state_equals_the_previous_one_and_its_changes(
    commits: list[tuple[str, str, int]], min_count: int, full_kb: int
) -> None:
    """The model is a dict: partition -> names. Limits are so small that merges of both kinds happen all the time."""
    options = {
        **SMALL,
        "manifest.merge-min-count": str(min_count),
        "manifest.full-compaction-threshold-size": f"{full_kb} kb",
    }
    context = make_table(MemoryFileIO(), f"memory://{uuid.uuid4()}/t", partitioned=True, options=options)
    commit = committer(context)
    fresh = (f"file-{i}" for i in itertools.count())
    model: dict[str, list[str]] = {"x": [], "y": [], "z": []}
    for number, (what, where, count) in enumerate(commits):
        files = tuple(data_file(next(fresh), rows=2) for _ in range(count))
        names = [file.file_name for file in files]
        if what == "append":
            commit.commit(
                Committable(number, [CommitMessage(BucketId(partition(where), 0), CommitIncrement(new_files=files))])
            )
            model[where] += names
        elif what == "compact":
            before = tuple(data_file(name, rows=2) for name in model[where])
            compaction = CommitMessage(
                BucketId(partition(where), 0), CommitIncrement(compacted=CompactResult(before=before, after=files[:1]))
            )
            commit.commit(Committable(number, [compaction]))
            model[where] = names[:1]
        else:
            message = CommitMessage(BucketId(partition(where), 0), CommitIncrement(new_files=files))
            commit.overwrite(Committable(number, [message]), {"p": where})
            model[where] = names
        newest = latest(context)
        live = live_entries(context, newest)
        found = {name: sorted(e.file.file_name for e in live if e.partition == partition(name)) for name in model}
        assert found == {name: sorted(files) for name, files in model.items()}
        assert newest.total_record_count == 2 * sum(map(len, model.values()))
    check_chain(context)


def check_chain(context: object) -> None:
    """base(n) merged is base(n-1) and delta(n-1) merged; manifest lists agree with their manifests; ids are
    consecutive."""
    store = ManifestStore(context)  # type: ignore[arg-type]
    all_snapshots = snapshots(context)  # type: ignore[arg-type]
    assert [s.id for s in all_snapshots] == list(range(1, len(all_snapshots) + 1))
    for before, after in itertools.pairwise(all_snapshots):
        state_before = identities(merged(store, table_manifests(store, before), "before"))
        assert identities(merged(store, store.read_list(base_list(after)), "after")) == state_before
        for meta in table_manifests(store, after):
            entries = store.read(meta)
            stats = partition_stats([entry.partition for entry in entries], store.partition_types)
            assert describe_manifest(meta.file_name, meta.file_size, entries, stats) == meta


def test_both_kinds_of_merge_occur_with_small_limits() -> None:
    """So that the property above is about something."""
    context = make_table(MemoryFileIO(), "memory://both-kinds/t", partitioned=True, options=SMALL)
    store, limits = ManifestStore(context), MergeLimits.of(context.options)
    live = [ManifestEntry(FileKind.ADD, partition("x"), 0, -1, data_file(f"file-{i}")) for i in range(60)]
    small = [meta for entry in live[:4] for meta in store.write([entry])]
    (joined,) = merge_manifests(store, small, limits, "t")
    assert joined.num_added_files == 4
    many = [meta for entry in live for meta in store.write([entry])]
    gone = store.write([entry.as_delete() for entry in live[::2]])
    rewritten = merge_manifests(store, [*many, *gone], limits, "t")
    assert sum(meta.num_deleted_files for meta in rewritten) == 0
    assert identities(merged(store, rewritten, "t")) == identities(live[1::2])


def test_a_full_merge_does_not_rewrite_large_manifests_of_other_partitions() -> None:
    context = make_table(MemoryFileIO(), "memory://full-merge/t", partitioned=True, options=SMALL)
    store, limits = ManifestStore(context), MergeLimits.of(context.options)

    def files(where: str, count: int) -> list[ManifestEntry]:
        return [ManifestEntry(FileKind.ADD, partition(where), 0, -1, data_file(f"{where}-{i}")) for i in range(count)]

    (large_x,), (large_y,) = store.write(files("x", 90)), store.write(files("y", 90))
    assert min(large_x.file_size, large_y.file_size) > limits.target_bytes
    (other_x,) = store.write(
        replace(e, file=replace(e.file, file_name=f"other-{e.file.file_name}")) for e in files("x", 90)
    )
    small = [meta for entry in files("z", 15) for meta in store.write([entry])]
    gone = store.write([entry.as_delete() for entry in files("x", 1)])
    rewritten = merge_manifests(store, [large_x, large_y, other_x, *small, *gone], limits, "t")
    assert rewritten[:2] == [large_y, other_x]
    assert large_x not in rewritten
    expected = {e.identity for e in [*files("x", 90)[1:], *files("y", 90), *files("z", 15), *store.read(other_x)]}
    assert {e.identity for meta in rewritten for e in store.read(meta)} == expected


def test_a_delete_of_a_file_in_an_older_manifest_is_kept() -> None:
    context = make_table(MemoryFileIO(), "memory://kept-delete/t", options=SMALL)
    store, limits = ManifestStore(context), MergeLimits.of(context.options)
    base = [ManifestEntry(FileKind.ADD, bytes(12), 0, -1, data_file(f"file-{i}")) for i in range(90)]
    (large,) = store.write(base)
    assert large.file_size > limits.target_bytes
    small = [
        *store.write([base[0].as_delete()]),
        *store.write([ManifestEntry(FileKind.ADD, bytes(12), 0, -1, data_file("a"))]),
    ]
    small += store.write([ManifestEntry(FileKind.DELETE, bytes(12), 0, -1, data_file("a"))])
    kept, joined = merge_manifests(store, [large, *small], limits, "t")
    assert kept == large
    assert [(entry.kind, entry.file.file_name) for entry in store.read(joined)] == [(FileKind.DELETE, "file-0")]
    assert len(merge_entries([*store.read(kept), *store.read(joined)])) == 89


def test_manifests_whose_entries_cancel_out_are_dropped() -> None:
    context = make_table(MemoryFileIO(), "memory://vanish/t", options=SMALL)
    store = ManifestStore(context)
    files = [ManifestEntry(FileKind.ADD, bytes(12), 0, -1, data_file(name)) for name in "ab"]
    written = [meta for entry in [*files, *(f.as_delete() for f in files)] for meta in store.write([entry])]
    assert merge_manifests(store, written, MergeLimits.of(context.options), "t") == []
