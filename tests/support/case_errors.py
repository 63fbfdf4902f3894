"""`expect_error` of a vector: a Tidelake error with the same meaning."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest

from tests.support.cases import NotUnderstood
from tidelake.errors import BadInput, UnsupportedFeature

# What a case may say, and one of what ours says then. A case may say several.
_MEANINGS: Final = (
    (r"overflow|out of range", r"overflows at"),
    (r"retract|\bdeletes?\b|update.?before|-[ud]\b", r"retract values|does not support deletes"),
    (r"zero", r"zero|\b0\b"),
    (r"terminat|exact|rounding", r"quotient|digits|without end"),
    (r"null.*key|key.*null", r"null in its key"),
    (r"not.?null|be null|nullable", r"NOT NULL|null"),
    (r"\btypes?\b|incomparable", r"takes |is no |can't be|make it|compares times"),
    (
        r"unknown|no such|not (be )?f[io]u?nd|not exist|factory|undefined",
        r"does not exist|there is no|no column|names '",
    ),
    (r"exclusive|conflict|both|together|same time", r"both|unset|can't be combined|drops"),
    (r"sequence.?group", r"sequence.?group"),
    (r"nested.?key", r"nested-key"),
)


@contextmanager
def refused_as(reported: Any) -> Iterator[None]:
    """Checks that the block raises the error of the case. told: its `expect_error`; True if the case does not say which
    error.
    """
    with pytest.raises((BadInput, UnsupportedFeature)) as caught:
        yield
    check_meaning(reported, str(caught.value))


def check_meaning(reported: Any, message: str) -> None:
    if reported is True:
        return
    text = str(reported).lower()
    meanings = [ours for words, ours in _MEANINGS if re.search(words, text)]
    shared = [word for word in re.findall(r"[a-z_]{5,}", text) if word in message.lower()]
    if not (meanings or shared):
        raise NotUnderstood(f"expect_error {reported!r} of a case; we say: {message}")
    assert shared or any(re.search(ours, message) for ours in meanings), f"expected {reported!r}, got: {message}"
