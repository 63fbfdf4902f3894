"""Compressed batches give the same bytes as in aiokafka, up to a limit, in bounded memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import aiokafka.record.default_records as parsers
import pytest
from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords

from tidelake.errors import UnsupportedFeature
from tidelake.ingest.sources.kafka import decompression as inflation
from tidelake.ingest.sources.kafka.decompression import (
    DecompressionLimitExceeded,
    decompression_limit,
    install_limited_decoders,
)

CODECS: Final = {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
VALUES: Final = [b"%d" % n * 500 for n in range(200)]
SIZE: Final = sum(map(len, VALUES))


@pytest.fixture(autouse=True)
def bounded() -> None:
    install_limited_decoders()


def batch_of(codec: str, values: list[bytes]) -> bytes:
    builder = DefaultRecordBatchBuilder(2, CODECS[codec], 0, -1, -1, 0, 1 << 30)
    for offset, value in enumerate(values):
        builder.append(offset, None, b"k", value, [])
    return bytes(builder.build())


def values_in(batch: bytes) -> list[bytes]:
    return [record.value for record in MemoryRecords(batch).next_batch()]


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_within_the_limit_is_decompressed_unchanged(codec: str) -> None:
    batch = batch_of(codec, VALUES)
    assert len(batch) < SIZE / 10
    assert values_in(batch) == VALUES
    with decompression_limit(2 * SIZE):
        assert values_in(batch) == VALUES


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_beyond_the_limit_is_refused_and_only_where_a_limit_is_set(codec: str) -> None:
    batch = batch_of(codec, VALUES)
    for limit in (1, SIZE // 2, SIZE):  # each record has some bytes besides its value
        with pytest.raises(DecompressionLimitExceeded), decompression_limit(limit):
            values_in(batch)
    assert values_in(batch) == VALUES


@pytest.mark.parametrize("codec", CODECS)
def test_damaged_bytes_are_a_corrupt_batch(codec: str) -> None:
    batch = bytearray(batch_of(codec, VALUES))
    batch[61:] = b"\xff" * (len(batch) - 61)  # what follows the header
    with pytest.raises(CorruptRecordException, match=codec), decompression_limit(1 << 20):
        values_in(bytes(batch))


# A process of its own, whose peak is that of parsing.
PARSE: Final = """
import sys
from aiokafka.record.memory_records import MemoryRecords
from tidelake.ingest.sources.kafka.decompression import (
    DecompressionLimitExceeded, decompression_limit, install_limited_decoders
)
from benchmarks.clock import peak_memory_mib
install_limited_decoders()
batch = MemoryRecords(open(sys.argv[1], "rb").read()).next_batch()
before = peak_memory_mib()
try:
    with decompression_limit(8 << 20):
        list(batch)
except DecompressionLimitExceeded:
    print(int(peak_memory_mib() - before))
"""


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
def test_a_decompression_bomb_takes_little_memory(codec: str, tmp_path: Path) -> None:
    path = tmp_path / "batch"
    path.write_bytes(batch_of(codec, [bytes(96 << 20)]))
    assert path.stat().st_size < 2 << 20
    command = [sys.executable, "-c", PARSE, str(path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=Path(__file__).parents[4])
    assert int(done.stdout) < 48


def test_a_client_release_with_another_decompression_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules[parsers.DefaultRecordBatch.__module__]
    theirs = module.gzip_decode.__wrapped__
    monkeypatch.setattr(module, "gzip_decode", theirs)
    monkeypatch.setattr(inflation, "_DECODERS", {})
    with pytest.raises(UnsupportedFeature, match="decompresses batches in a different way, without a limit"):
        install_limited_decoders()
