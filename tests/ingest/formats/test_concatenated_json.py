from __future__ import annotations

import json
from itertools import product
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidelake.ingest.formats.concatenated_json import concatenate_objects, split_rows

VALUES = [b"{1}", None, b"{22}", b"", b" {}", b'{"s":{}}', b'{"s":{7}}']


def _values(kind: pa.DataType) -> pa.Array:
    """A slice in the middle of something longer, as a batch's values are."""
    return pa.array([b"{before}", *VALUES, b"{behind}"], kind)[1:-1]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()], ids=str)
@pytest.mark.parametrize(
    ("rows", "found"),
    [
        ([0], b"{1}"),
        ([0, 2], b"{1}{22}"),
        ([2, 0], b"{22}{1}"),
        ([0, 5, 6], b'{1}{"s":{}}{"s":{7}}'),
    ],
)
def test_concatenated_objects_are_parsed(kind: pa.DataType, rows: list[int], found: bytes) -> None:
    assert bytes(concatenate_objects(_values(kind), np.array(rows))) == found


def test_concatenation_does_not_copy_values() -> None:
    values = _values(pa.binary())
    assert isinstance(concatenate_objects(values, np.array([0, 2])), memoryview), "a null takes no room between them"


@pytest.mark.parametrize("row", [3, 4], ids=["empty", "blank in front"])
def test_a_value_without_its_braces_is_refused(row: int) -> None:
    with pytest.raises(ValueError, match="not one JSON object each"):
        concatenate_objects(_values(pa.binary()), np.array([0, row]))


@pytest.mark.parametrize(
    "values",
    [
        [b'{"n":1}{"n":2}', b'{"t":"}', b'{","n":3}'],
        [b'{"n":1}{"n":2}', b'{"t":"\\"}', b'{","n":3}'],
        [b'{"n":1}{"n":2}', b'{"t":"\\\\","u":"}', b'{","n":3}'],
    ],
    ids=["plain", "behind an escaped quote", "behind an escaped backslash"],
)
def test_texts_that_run_into_the_next_value_are_refused(values: list[bytes]) -> None:
    """Concatenated, these are as many objects as values, but none of them equals a value."""
    assert len(msgspec.json.Decoder().decode_lines(b"".join(values))) == len(values)
    with pytest.raises(ValueError, match="a text that its value does not close"):
        concatenate_objects(pa.array(values, pa.binary()), np.arange(len(values)))


@given(st.lists(st.dictionaries(st.text(), st.text()), min_size=1), st.data())
def test_random_objects_are_accepted(objects: list[dict[str, str]], data: st.DataObject) -> None:
    values = [json.dumps(one, ensure_ascii=data.draw(st.booleans()), separators=(",", ":")).encode() for one in objects]
    rows = np.array(data.draw(st.permutations(range(len(values)))))
    found = msgspec.json.Decoder().decode_lines(concatenate_objects(pa.array(values, pa.binary()), rows))
    assert found == [objects[row] for row in rows]


class Skipping(msgspec.Struct):
    """A parser that passes over what it doesn't know."""

    a: Any = None


_PARSERS = [msgspec.json.Decoder(), msgspec.json.Decoder(Skipping)]
_PIECES = st.sampled_from(
    ['{"a":', '{"', '"', '":"', "{", "}", "}{", '\\"', "\\", "a", ",", ":", "1", " ", '"}', '"a"', "{}"]
)


@pytest.mark.parametrize("parser", _PARSERS, ids=["strict", "skipping"])
@given(st.lists(st.lists(_PIECES, max_size=6).map("".join), min_size=2, max_size=4))
@example(['"a":"}{"', '"}', '"a":1}{"a":2'])
@example(['"a":"}', '"a":""', '"a":1}{"a":2'])
def test_as_many_objects_as_values_are_the_values(parser: Any, insides: list[str]) -> None:
    values = [f"{{{inside}}}".encode() for inside in insides]
    try:
        found = parser.decode_lines(concatenate_objects(pa.array(values, pa.binary()), np.arange(len(values))))
    except ValueError:  # msgspec's errors are some
        return
    if len(found) == len(values):
        assert found == [parser.decode(value) for value in values]


_TEXTS = ["", "}{", "}{a", '}{"a', "}{\\", "\\}{", '"}{"', '{"a":1}{"a":2}', '}{"a":']
_DOCUMENTS = [
    json.dumps(one, separators=(",", ":")) for text in _TEXTS for one in ({"a": text}, {text: 1}, {"b": [text], "a": 1})
]


@pytest.mark.parametrize("parser", _PARSERS, ids=["strict", "skipping"])
def test_for_any_cut_only_complete_records_are_as_many_as_values(parser: Any) -> None:
    """Two records, cut once wherever both parts are framed by braces."""
    taken = refused = 0
    for records in product(_DOCUMENTS, repeat=2):
        stream = "".join(records).encode()
        cuts = [place + 1 for place in range(len(stream) - 1) if stream[place : place + 2] == b"}{"]
        for cut in cuts:
            values = [stream[:cut], stream[cut:]]
            try:
                found = parser.decode_lines(concatenate_objects(pa.array(values, pa.binary()), np.arange(2)))
            except ValueError:
                refused += 1
                continue
            assert len(found) == 2
            assert found == [parser.decode(value) for value in values]
            taken += 1
    assert taken >= len(_DOCUMENTS) ** 2, "records that are cut between them are taken"
    assert refused


def test_a_common_beginning_is_taken_off() -> None:
    assert concatenate_objects(_values(pa.binary()), np.array([5, 6]), b'{"s":') == b"{}{7}"


def test_another_beginning_is_refused() -> None:
    with pytest.raises(ValueError, match="another beginning"):
        concatenate_objects(_values(pa.binary()), np.array([5, 0]), b'{"s":')


@pytest.mark.parametrize(
    ("rows_max", "bytes_max", "runs"),
    [
        (10, 100, [[0, 2, 3, 4]]),
        (2, 100, [[0, 2], [3, 4]]),
        (3, 100, [[0, 2], [3, 4]]),
        (1, 100, [[0], [2], [3], [4]]),
        (10, 7, [[0, 2, 3], [4]]),
        (10, 6, [[0], [2, 3], [4]]),
        (10, 0, [[0], [2], [3], [4]]),
    ],
)
def test_rows_are_cut_into_equal_runs_by_number_and_by_bytes(
    rows_max: int, bytes_max: int, runs: list[list[int]]
) -> None:
    found = split_rows(_values(pa.binary()), np.array([0, 2, 3, 4]), rows_max, bytes_max)
    assert [run.tolist() for run in found] == runs


def test_no_rows_are_no_runs() -> None:
    assert list(split_rows(pa.array([], pa.binary()), np.array([], np.int64), 5, 5)) == []
