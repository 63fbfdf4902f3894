"""Run-length encodings, by the examples of the specification. (Against Arrow's decoder: test_timestamps.py.)"""

from __future__ import annotations

import pyarrow as pa
import pytest

from tidelake.storage.files.formats.orc.run_lengths import decode_bits, decode_integers


@pytest.mark.parametrize(
    ("data", "values"),
    [
        pytest.param("0a2710", [10000] * 5, id="short repeat"),
        pytest.param("5e035ca1ab1edeadbeef", [23713, 43806, 57005, 48879], id="direct"),
        pytest.param(
            "8e132b2107d01e00147028323c46505a646e78828c96a0aab4befce8",
            [2030, 2000, 2020, 1000000, *range(2040, 2200, 10)],
            id="patched base",
        ),
        pytest.param("c609020222424246", [2, 3, 5, 7, 11, 13, 17, 19, 23, 29], id="delta"),
    ],
)
def test_the_examples_of_the_specification_are_decoded(data: str, values: list[int]) -> None:
    assert decode_integers(bytes.fromhex(data), len(values), signed=False).tolist() == values


def test_a_truncated_integer_stream_raises() -> None:
    with pytest.raises(pa.ArrowInvalid, match="after 5 of 9 integers"):
        decode_integers(bytes.fromhex("0a2710"), 9, signed=False)


@pytest.mark.parametrize(
    ("data", "bits"),
    [
        pytest.param("6100", [False] * 800, id="a hundred zero bytes"),
        pytest.param("fe4445", [bit == "1" for bit in "0100010001000101"], id="two bytes as they are"),
        pytest.param("ff80", [True] + [False] * 7, id="the highest bit first"),
    ],
)
def test_bits_are_decoded_from_byte_runs(data: str, bits: list[bool]) -> None:
    assert decode_bits(bytes.fromhex(data), len(bits)).tolist() == bits


def test_a_truncated_bit_stream_raises() -> None:
    with pytest.raises(pa.ArrowInvalid, match="after 16 of 17 bits"):
        decode_bits(bytes.fromhex("fe4445"), 17)
