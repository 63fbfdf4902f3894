"""Pages of lists, patterns of names, and the status of each error."""

from __future__ import annotations

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelake.errors import BadInput, CommitConflict, CommitOutcomeUnknown, SnapshotExpired, UnsupportedFeature
from tidelake.rest_server.answers import PAGE_SIZE_MAX, Refusal, name_filter, page, refusal_of


@given(st.sets(st.text()), st.integers(min_value=1, max_value=5))
def test_pages_together_are_the_list_in_order(items: set[str], size: int) -> None:
    seen: list[str] = []
    query = {"maxResults": str(size)}
    for _ in range(len(items) + 1):
        answer = page("names", items, str, query, str)
        seen += answer["names"]
        assert len(answer["names"]) <= size
        if answer["nextPageToken"] is None:
            break
        query = {**query, "pageToken": answer["nextPageToken"]}
    assert seen == sorted(items)


def test_a_page_has_at_most_a_hundred_items() -> None:
    items = [f"{n:03}" for n in range(PAGE_SIZE_MAX + 1)]
    for query in ({}, {"maxResults": "0"}, {"maxResults": "-1"}, {"maxResults": "100000"}):
        answer = page("names", items, str, query, str)
        assert (len(answer["names"]), answer["nextPageToken"]) == (PAGE_SIZE_MAX, items[PAGE_SIZE_MAX - 1])


def test_only_the_items_of_the_page_are_described() -> None:
    described: list[str] = []
    page("names", "abcdef", str, {"maxResults": "2"}, described.append)
    assert described == ["a", "b"]


def test_a_size_that_is_no_number_is_refused() -> None:
    with pytest.raises(Refusal, match="maxResults = 'ten' is not a whole number"):
        page("names", [], str, {"maxResults": "ten"}, str)


PATTERNS = [
    ("", ["", "a", "ab"]),
    ("a", ["a"]),
    ("a%", ["a", "ab", "a%", "a_b", "axb"]),
    ("a%%", ["a", "ab", "a%", "a_b", "axb"]),
    (r"a\%", ["a%"]),
    ("a_b", ["a_b"]),
    ("%", ["", "a", "ab", "a%", "a_b", "axb"]),
]


@pytest.mark.parametrize(("pattern", "matching"), PATTERNS)
def test_a_pattern_is_a_prefix(pattern: str, matching: list[str]) -> None:
    texts = ["", "a", "ab", "a%", "a_b", "axb"]
    found = list(filter(name_filter(pattern), texts))
    assert found == (texts if not pattern else matching)


def test_other_patterns_are_refused_as_by_java() -> None:
    with pytest.raises(Refusal, match="only a % at the end is possible"):
        name_filter("%b")


STATUS = [
    (BadInput("no"), 400),
    (UnsupportedFeature("a", "b", "c"), 501),
    (CommitConflict("others won"), 503),
    (SnapshotExpired("t", 3, "none"), 404),
    (Refusal(409, "there is one"), 409),
    (CommitOutcomeUnknown("who knows"), None),
    (OSError("the disk is gone"), None),
    (ZeroDivisionError(), None),
]


@pytest.mark.parametrize(("error", "status"), STATUS, ids=lambda part: type(part).__name__)
def test_only_errors_that_changed_nothing_are_refusals(error: Exception, status: int | None) -> None:
    found = refusal_of(error)
    assert (None if found is None else found.status) == status
    assert list(islice(found.members if found else [], 4)) == (
        ["message", "code", "resourceType", "resourceName"] if found else []
    )
