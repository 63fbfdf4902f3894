from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.files.stats_truncation import truncate_bounds
from storage.types import arrow_type, parse_type
from tests.support.cases import Case, vectors


@pytest.mark.parametrize("case", vectors("stats_truncation"))
def test_bounds_are_cut_as_java_cuts_them(case: Case) -> None:
    mode = re.fullmatch(r"truncate\((\d+)\)", case["mode"])
    assert mode
    kind = arrow_type(parse_type(case["type"]))
    value = case_value(case["value_utf8_hex" if kind == pa.string() else "value_hex"], kind)
    expected = tuple(case_value(case[member], kind) for member in ("min_hex", "max_hex"))
    assert truncate_bounds(value, value, int(mode[1])) == expected


def case_value(digits: str | None, kind: pa.DataType) -> pa.Scalar:
    data = None if digits is None else bytes.fromhex(digits)
    return pa.scalar(data.decode() if data is not None and kind == pa.string() else data, kind)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param("abc", ("ab", "ac"), id="one too long"),
        pytest.param("ab", ("ab", "ab"), id="just as long"),
        pytest.param("", ("", ""), id="empty"),
        pytest.param("a\U0010ffffx", ("a\U0010ffff", "b"), id="the one before the last possible is raised"),
        pytest.param("\U0010ffff" * 3, (None, None), id="nothing can be raised"),
        pytest.param("a\ud7ffx", ("a\ud7ff", "a\ue000"), id="surrogates are skipped"),
        pytest.param("a\x7fx", ("a\x7f", "a\x80"), id="the raised character takes more bytes"),
        pytest.param(b"a\xffx", (b"a\xff", b"b"), id="bytes: 0xFF can't be raised, the one before it can"),
        pytest.param(b"\xff\xff\xff", (None, None), id="bytes: nothing can be raised"),
    ],
)
def test_two_characters_are_kept(value: str | bytes, expected: tuple[Any, Any]) -> None:
    lower, upper = truncate_bounds(pa.scalar(value), pa.scalar(value), 2)
    assert (lower.as_py(), upper.as_py()) == expected
    assert lower.type == upper.type == pa.scalar(value).type


@pytest.mark.parametrize(
    "value",
    [pa.scalar(123456), pa.scalar(1.5), pa.scalar(None, pa.date32()), pa.scalar(7, pa.timestamp("us"))],
    ids=str,
)
def test_other_types_stay_as_they_are(value: pa.Scalar) -> None:
    assert truncate_bounds(value, value, 1) == (value, value)


@pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.int64()], ids=str)
def test_an_unknown_bound_leaves_both_unknown(kind: pa.DataType) -> None:
    unknown = pa.scalar(None, kind)
    known = pa.scalar(1, kind) if kind == pa.int64() else pa.scalar("a", kind)
    assert truncate_bounds(unknown, known, 4) == (unknown, unknown)
    assert truncate_bounds(known, unknown, 4) == (unknown, unknown)


EDGES = "ab\x7f\ud7ff\ue000\uffff\U0010ffff"
NEAR_EDGES = st.text(st.sampled_from(EDGES) | st.characters(codec="utf-8"), max_size=8)


@given(NEAR_EDGES, st.integers(1, 6))
def test_text_stays_between_its_cut_bounds(text: str, length: int) -> None:
    lower, upper = truncate_bounds(pa.scalar(text), pa.scalar(text), length)
    if not upper.is_valid:
        assert text[:length] == "\U0010ffff" * length
    else:
        assert lower.as_py().encode() <= text.encode() <= upper.as_py().encode()
        assert len(lower.as_py()) <= length
        assert len(upper.as_py()) <= length


@given(st.binary(max_size=8) | st.lists(st.sampled_from([0, 0xFE, 0xFF]), max_size=8).map(bytes), st.integers(1, 6))
def test_bytes_stay_between_their_cut_bounds(value: bytes, length: int) -> None:
    lower, upper = truncate_bounds(pa.scalar(value), pa.scalar(value), length)
    if not upper.is_valid:
        assert value[:length] == b"\xff" * length
    else:
        assert lower.as_py() <= value <= upper.as_py()
        assert len(lower.as_py()) <= length
        assert len(upper.as_py()) <= length
