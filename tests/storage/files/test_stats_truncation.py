from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.case_values import column_of
from tests.support.cases import Case, NotUnderstood, case_id, check_members, vectors
from tidelake.storage.files.stats_collection import truncate_bounds
from tidelake.storage.model.types import STRING_ROOTS, DataType, parse_type


@pytest.mark.parametrize("case", vectors("stats_truncation"), ids=case_id)
def test_bounds_are_truncated_as_in_java(case: Case) -> None:
    check_members(case, {"mode", "type", "value_utf8_hex", "value_hex", "value", "min_hex", "max_hex", "min", "max"})
    mode = re.fullmatch(r"truncate\((\d+)\)", case["mode"])
    if mode is None:
        raise NotUnderstood(f"mode {case['mode']!r} of a case")
    data_type = parse_type(case["type"])
    value, *expected = (case_value(case, member, data_type) for member in ("value", "min", "max"))
    assert truncate_bounds(value, value, int(mode[1])) == tuple(expected)


def case_value(case: Case, member: str, data_type: DataType) -> pa.Scalar:
    """Texts and bytes are given by their bytes, other values as they are."""
    spelled = next((name for name in (f"{member}_utf8_hex", f"{member}_hex", member) if name in case), None)
    if spelled is None:
        raise NotUnderstood(f"a case without {member}: it has {', '.join(sorted(case))}")
    value = case[spelled]
    if value is not None and spelled != member:
        value = bytes.fromhex(value).decode() if data_type.root in STRING_ROOTS else {"hex": value}
    return column_of([value], data_type)[0]


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
def test_two_characters_of_a_bound_are_kept(value: str | bytes, expected: tuple[Any, Any]) -> None:
    lower, upper = truncate_bounds(pa.scalar(value), pa.scalar(value), 2)
    assert (lower.as_py(), upper.as_py()) == expected
    assert lower.type == upper.type == pa.scalar(value).type


@pytest.mark.parametrize(
    "value",
    [pa.scalar(123456), pa.scalar(1.5), pa.scalar(None, pa.date32()), pa.scalar(7, pa.timestamp("us"))],
    ids=str,
)
def test_other_types_are_not_truncated(value: pa.Scalar) -> None:
    assert truncate_bounds(value, value, 1) == (value, value)


@pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.int64()], ids=str)
def test_one_unknown_bound_makes_both_unknown(kind: pa.DataType) -> None:
    unknown = pa.scalar(None, kind)
    known = pa.scalar(1, kind) if kind == pa.int64() else pa.scalar("a", kind)
    assert truncate_bounds(unknown, known, 4) == (unknown, unknown)
    assert truncate_bounds(known, unknown, 4) == (unknown, unknown)


EDGES = "ab\x7f\ud7ff\ue000\uffff\U0010ffff"
NEAR_EDGES = st.text(st.sampled_from(EDGES) | st.characters(codec="utf-8"), max_size=8)


@given(NEAR_EDGES, st.integers(1, 6))
def test_strings_stay_within_their_truncated_bounds(text: str, length: int) -> None:
    lower, upper = truncate_bounds(pa.scalar(text), pa.scalar(text), length)
    if not upper.is_valid:
        assert text[:length] == "\U0010ffff" * length
    else:
        assert lower.as_py().encode() <= text.encode() <= upper.as_py().encode()
        assert len(lower.as_py()) <= length
        assert len(upper.as_py()) <= length


@given(st.binary(max_size=8) | st.lists(st.sampled_from([0, 0xFE, 0xFF]), max_size=8).map(bytes), st.integers(1, 6))
def test_bytes_stay_within_their_truncated_bounds(value: bytes, length: int) -> None:
    lower, upper = truncate_bounds(pa.scalar(value), pa.scalar(value), length)
    if not upper.is_valid:
        assert value[:length] == b"\xff" * length
    else:
        assert lower.as_py() <= value <= upper.as_py()
        assert len(lower.as_py()) <= length
        assert len(upper.as_py()) <= length
