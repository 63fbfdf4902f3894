"""What the metadata cache keeps, and what it evicts."""

from __future__ import annotations

import gc
import random
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from tests.storage.model.snapshots.tables import data_file, make_table
from tidelake.storage.commit.manifests.manifest_entry import ManifestEntry
from tidelake.storage.commit.manifests.manifest_store import ManifestStore
from tidelake.storage.fileio.memory import MemoryFileIO
from tidelake.storage.files.data_file import EMPTY_ROW, SimpleStats
from tidelake.storage.model.format import FileKind
from tidelake.storage.model.metadata_cache import CacheBudget, MetadataCache


def test_a_cache_evicts_the_least_recently_used_entry() -> None:
    cache = MetadataCache(4, CacheBudget(100))
    cache.put("a", (1, 2), 2)
    cache.put("b", (3, 4), 2)
    assert cache.get("a") == (1, 2)
    cache.put("c", (5, 6), 2)
    assert cache.get("b") is None
    assert cache.get("a") == (1, 2)
    cache.put("too heavy", (0,) * 5, 5)
    assert cache.get("too heavy") is None
    assert cache.get("c") == (5, 6)


def test_eviction_is_least_recently_used_across_caches() -> None:
    budget = CacheBudget(6)
    idle, busy, new = (MetadataCache(6, budget) for _ in range(3))
    busy.put("x", ("busy",), 2)
    idle.put("x", ("idle",), 2)
    new.put("x", ("new",), 2)
    assert busy.get("x") == ("busy",)
    new.put("y", ("newer",), 2)
    assert idle.get("x") is None
    assert [busy.get("x"), new.get("x"), new.get("y")] == [("busy",), ("new",), ("newer",)]
    new.put("z", ("large",), 6)
    assert [busy.get("x"), new.get("y"), new.get("z")] == [None, None, ("large",)]


def test_a_deleted_cache_frees_its_share_for_others() -> None:
    budget = CacheBudget(4)
    old, staying = MetadataCache(4, budget), MetadataCache(4, budget)
    staying.put("a", ("kept",), 2)
    old.put("a", ("gone",), 2)
    del old
    gc.collect()
    staying.put("b", ("more",), 2)
    assert [staying.get("a"), staying.get("b")] == [("kept",), ("more",)]


def test_concurrent_threads_stay_within_the_budget() -> None:
    budget = CacheBudget(50)
    caches = [MetadataCache(30, budget) for _ in range(4)]

    def work(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(3_000):
            cache, name = chance.choice(caches), chance.randrange(40)
            found = cache.get(str(name))
            assert found is None or found == (name,)
            cache.put(str(name), (name,), 1 + name % 7)
            assert sum(one.size_bytes for one in caches) <= 50 + 7 * 4  # others may be about to make room

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert sum(one.size_bytes for one in caches) <= 50
    kept = [sum(1 + name % 7 for name in range(40) if one.get(str(name))) for one in caches]
    assert kept == [one.size_bytes for one in caches]


@pytest.mark.exhaustive
@pytest.mark.parametrize("columns", [1, 10, 300])
def test_a_cached_manifest_counts_with_its_memory_size(columns: int) -> None:
    file = replace(
        data_file("of a real table"),
        file_size=1_000_000,
        row_count=100_000,
        min_key=bytes(20),
        max_key=bytes(20),
        key_stats=SimpleStats(bytes(20), bytes(20), (0,)),
        value_stats=SimpleStats(bytes(12 * columns), bytes(12 * columns), (7,) * columns),
        min_sequence_number=1_000_000,
        max_sequence_number=1_100_000,
        creation_time_ms=1_800_000_000_000,
    )
    names = [f"data-{number:0>36}-0.parquet" for number in range(1_000)]
    many = [ManifestEntry(FileKind.ADD, EMPTY_ROW, 300, 300, replace(file, file_name=name)) for name in names]
    context = make_table(MemoryFileIO(), "memory://sizes/t")
    metas = ManifestStore(context).write(many)
    cache = MetadataCache()
    store = ManifestStore(context.with_cache(cache))
    gc.collect()
    tracemalloc.start()
    try:
        for meta in metas:
            store.read(meta)
        gc.collect()
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert 0.7 * taken < cache.size_bytes < 1.4 * taken
