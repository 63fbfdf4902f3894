"""Chunks are read back from a store unchanged, in memory and spilled."""

from __future__ import annotations

import gc
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelake.errors import TidelakeError
from tidelake.ingest.spark.chunk_store import ChunkStore
from tidelake.ingest.spark.shuffling.shuffle import to_ipc


@given(
    chunks=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(0, 500)), max_size=20),
    held_bytes_max=st.sampled_from([0, 3_000, 1 << 30]),
)
def test_chunks_are_returned_by_table_and_shuffle_partition_in_order(
    chunks: list[tuple[int, int, int]], held_bytes_max: int
) -> None:
    expected: dict[tuple[int, int], list[list[int]]] = {}
    with ChunkStore(held_bytes_max) as store:
        for number, (table, shuffle_partition, size) in enumerate(chunks):
            rows = pa.record_batch({"n": pa.array([number] * size, pa.int64())})
            store.add(table, shuffle_partition, pa.py_buffer(to_ipc(rows)))
            expected.setdefault((table, shuffle_partition), []).append([number] * size)
        found = {
            (table, shuffle_partition): [rows.column("n").to_pylist() for rows in parts]
            for table, shuffle_partitions in store.chunks().items()
            for shuffle_partition, parts in shuffle_partitions.items()
        }
        assert found == expected


def test_a_full_disk_raises_with_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    chunk = pa.py_buffer(to_ipc(pa.record_batch({"n": [1]})))
    with ChunkStore(0) as store:
        store.add(0, 0, chunk)
        assert len(list(tmp_path.iterdir())) == 1
        monkeypatch.setattr(store._file, "write", _full)
        with pytest.raises(TidelakeError, match=r"No space left.*spark\.local\.dir"):
            store.add(0, 0, chunk)
    gc.collect()
    assert list(tmp_path.iterdir()) == []


def _full(data: object) -> int:
    raise OSError(28, "No space left on device")
