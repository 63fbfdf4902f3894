"""The decoder of ORC timestamps against Arrow's, where both can read them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from pyarrow import orc

from tidelake.errors import UnsupportedFeature
from tidelake.storage.files.formats.orc.timestamps import OrcTail
from tidelake.storage.model.types import arrow_type, timestamp

CODECS = ("uncompressed", "snappy", "zlib", "lz4", "zstd")


def stored(values: pa.Array, codec: str = "zstd") -> tuple[pa.BufferReader, OrcTail]:
    stream = pa.BufferOutputStream()
    orc.write_table(pa.table({"before": values, "t": values}), stream, compression=codec, stripe_size=8192)
    source = pa.BufferReader(stream.getvalue())
    return source, OrcTail(orc.ORCFile(source).reader.serialized_file_tail())


def decoded(source: pa.BufferReader, tail: OrcTail, target: pa.DataType) -> pa.Array:
    return pa.concat_arrays([tail.read_times(source, stripe, "t", target) for stripe in tail.stripes])


SHAPES: dict[str, Callable[[np.random.Generator, int], NDArray[np.int64]]] = {
    "noise": lambda rng, n: rng.integers(-(2**62), 2**62, n),
    "rising": lambda rng, n: np.sort(rng.integers(0, 2**60, n)),
    "one second again and again": lambda rng, n: np.full(n, 1_700_000_000 * 10**9),
    "steady steps": lambda rng, n: 10**18 + np.arange(n) * 10**9,
    "steps back": lambda rng, n: 10**18 - np.arange(n) * 7 * 10**9,
    "few far out": lambda rng, n: (rng.integers(0, 1000, n) + rng.choice([0, 10**9], n, p=[0.98, 0.02])) * 10**9,
    "milliseconds": lambda rng, n: rng.integers(-(10**12), 10**12, n) * 10**6,
    "around 1970": lambda rng, n: rng.integers(-(10**10), 10**10, n) // 10**6 * 10**6,
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("nulls", [0.0, 0.1, 0.9, 1.0])
def test_timestamps_equal_those_decoded_by_arrow(shape: str, nulls: float) -> None:
    rng = np.random.default_rng(len(shape))
    for n in (1, 2, 3, 511, 512, 513, 5000):
        values = pa.array(SHAPES[shape](rng, n), mask=rng.random(n) < nulls).cast(pa.timestamp("ns"))
        source, tail = stored(values)
        arrow = orc.ORCFile(source).read(["t"]).column("t").combine_chunks()
        assert decoded(source, tail, pa.timestamp("ns")).equals(arrow)


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_is_decompressed(codec: str) -> None:
    values = pa.array(np.arange(70_000) * 10**9).cast(pa.timestamp("ns"))
    source, tail = stored(values, codec)
    assert decoded(source, tail, pa.timestamp("ns")).equals(values)


@given(st.lists(st.one_of(st.none(), st.integers(-62_135_596_800_000, 253_402_300_799_999)), min_size=1, max_size=700))
def test_every_millisecond_of_paimons_years_survives(ticks: Sequence[int | None]) -> None:
    values = pa.array(ticks, pa.int64()).cast(arrow_type(timestamp(3)))
    source, tail = stored(values)
    assert decoded(source, tail, values.type).equals(values)


@pytest.mark.parametrize(
    ("year", "beyond"),
    [(1, True), (1676, True), (1700, False), (1970, False), (2262, True), (2261, False), (9999, True)],
)
def test_footer_bounds_decide_which_columns_exceed_nanoseconds(year: int, beyond: bool) -> None:
    values = pa.array([f"{year:04}-12-31T00:00:00", None]).cast(pa.timestamp("ms"))
    _, tail = stored(values)
    assert tail.columns_beyond_nanoseconds() == ((["before", "t"], []) if beyond else ([], []))


def test_a_column_of_nulls_does_not_exceed_nanoseconds() -> None:
    assert stored(pa.nulls(9, pa.timestamp("ms")))[1].columns_beyond_nanoseconds() == ([], [])


def test_another_time_zone_of_the_writer_is_refused() -> None:
    """Arrow writes none but GMT: the footer of a stripe is patched."""
    stream = pa.BufferOutputStream()
    values = pa.array(["9999-12-31T00:00:00"]).cast(pa.timestamp("ms"))
    orc.write_table(pa.table({"t": values}), stream, compression="uncompressed")
    data = stream.getvalue().to_pybytes()
    assert data.count(b"\x1a\x03GMT") == 1
    source = pa.BufferReader(data.replace(b"\x1a\x03GMT", b"\x1a\x03CET"))
    tail = OrcTail(orc.ORCFile(source).reader.serialized_file_tail())
    with pytest.raises(UnsupportedFeature, match="time zone CET"):
        tail.read_times(source, tail.stripes[0], "t", pa.timestamp("ms"))
