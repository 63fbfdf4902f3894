"""The parts of requests: paths as Java's and Python's clients encode them, and bodies that nobody should send."""

from __future__ import annotations

import json
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelake.rest_server.answers import Refusal
from tidelake.rest_server.requests import (
    AlterTable,
    Commit,
    CreateTable,
    Request,
    Rollback,
    SnapshotInstant,
    TagInstant,
)

names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


@given(names, names)
def test_names_of_any_text_are_parts_of_a_path_for_each_way_to_encode_them(database: str, table: str) -> None:
    for encode in (quote_plus, lambda text: quote(text, safe="")):
        target = f"/v1/lake/databases/{encode(database)}/tables/{encode(table)}?pageToken={encode(table)}"
        request = Request.of("GET", target)
        assert request.path == ("v1", "lake", "databases", database, "tables", table)
        assert request.query == {"pageToken": table}


@pytest.mark.parametrize("target", ["/v1/%ff", "/v1/x?a=%ff"], ids=["path", "query"])
def test_bytes_that_are_no_text_are_refused(target: str) -> None:
    with pytest.raises(Refusal, match="not encoded as UTF-8"):
        Request.of("GET", target)


def request(body: bytes) -> Request:
    return Request("POST", (), {}, body)


BAD_BODIES = {
    "nothing": b"",
    "no JSON": b"{",
    "a list": b"[]",
    "not UTF-8": b'{"snapshot": {"a": "\xff"}}',
    "a member of another type": b'{"snapshot": 3}',
    "nested too deeply": b'{"snapshot": ' + b"[" * 100_000,
    "a lone surrogate": b'{"snapshot": {}, "tableId": "\\ud800"}',
}


@pytest.mark.parametrize("body", BAD_BODIES.values(), ids=BAD_BODIES)
def test_a_body_that_is_no_message_is_refused(body: bytes) -> None:
    with pytest.raises(Refusal, match="can't be read") as refused:
        request(body).message(Commit)
    assert refused.value.status == 400


def test_the_refusal_names_the_member() -> None:
    with pytest.raises(Refusal, match=r"\$\.changes\[0\]"):
        request(b'{"changes": ["x"]}').message(AlterTable)
    with pytest.raises(Refusal, match="missing required field `schema`"):
        request(b'{"identifier": {"database": "d", "object": "t"}}').message(CreateTable)


def test_members_that_newer_clients_send_are_ignored() -> None:
    assert request(b'{"snapshot": {}, "new": 1}').message(Commit).snapshot == {}


def test_a_rollback_goes_to_a_snapshot_or_to_a_tag() -> None:
    def instant(**members: object) -> SnapshotInstant | TagInstant:
        return request(json.dumps({"instant": members}).encode()).message(Rollback).instant

    assert instant(type="snapshot", snapshotId=3) == SnapshotInstant(3)
    assert instant(type="tag", tagName="t") == TagInstant("t")
