"""The answers of the server: refusals with the status that clients expect, pages of lists, patterns of names.

Source: Java `rest/responses/ErrorResponse.java`, `rest/DefaultErrorHandler.java`, `rest/RESTUtil.java`
(validatePrefixSqlPattern); the order of pages is that of `RESTCatalogServer.java` in Java's tests.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any, Final, TypeVar

from tidelake.errors import BadInput, CommitConflict, SnapshotExpired, UnsupportedFeature

T = TypeVar("T")
Members = dict[str, Any]

PAGE_SIZE_MAX: Final = 100


class Resource(StrEnum):
    """The kind of a missing or an existing thing: clients make different errors of them."""

    DATABASE = "DATABASE"
    TABLE = "TABLE"
    COLUMN = "COLUMN"
    PARTITION = "PARTITION"
    SNAPSHOT = "SNAPSHOT"
    BRANCH = "BRANCH"
    TAG = "TAG"
    VIEW = "VIEW"
    FUNCTION = "FUNCTION"


class Refusal(Exception):
    """The server did not do what was requested, and changed nothing.

    status: HTTP status. 400 bad request, 401 no valid token, 403 forbidden, 404 missing, 409 existing, 501 not offered.
    kind, name: of the missing or existing thing.
    """

    def __init__(self, status: int, message: str, kind: Resource | None = None, name: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.name = name

    @property
    def members(self) -> Members:
        return {
            "message": str(self),
            "code": self.status,
            "resourceType": None if self.kind is None else str(self.kind),
            "resourceName": self.name,
        }


def missing(kind: Resource, name: str, message: str) -> Refusal:
    return Refusal(404, message, kind, name)


def taken(kind: Resource, name: str, message: str) -> Refusal:
    return Refusal(409, message, kind, name)


def not_offered(what: str, reason: str, remedy: str) -> Refusal:
    return Refusal(501, str(UnsupportedFeature(what, reason, remedy)))


def refusal_of(error: Exception) -> Refusal | None:
    """Return the refusal for an error that surely changed nothing; None for one that may have."""
    match error:
        case Refusal():
            return error
        case SnapshotExpired():
            return missing(Resource.SNAPSHOT, str(error.snapshot_id), str(error))
        case UnsupportedFeature():
            return Refusal(501, str(error))
        case BadInput():
            return Refusal(400, str(error))
        case CommitConflict():
            return Refusal(503, str(error))  # clients try again
    return None


def page(
    member: str, items: Iterable[T], key: Callable[[T], str], query: Mapping[str, str], show: Callable[[T], Any]
) -> Members:
    """Return one page of a list, sorted by key, and the key of its last item if there may be more.

    query: `maxResults` and `pageToken`, the last key of the page before.
    show: makes the member of an item; called for the items of the page only.
    """
    after = query.get("pageToken")
    rest = sorted((item for item in items if after is None or key(item) > after), key=key)
    size = _page_size(query)
    shown = rest[:size]
    return {member: [show(item) for item in shown], "nextPageToken": key(shown[-1]) if len(rest) > size else None}


def _page_size(query: Mapping[str, str]) -> int:
    text = query.get("maxResults")
    if text is None:
        return PAGE_SIZE_MAX
    try:
        size = int(text)
    except ValueError:
        raise Refusal(400, f"maxResults = {text!r} is not a whole number") from None
    return min(size, PAGE_SIZE_MAX) if size > 0 else PAGE_SIZE_MAX


def name_filter(pattern: str | None) -> Callable[[str], bool]:
    r"""Return a filter of names by a pattern of SQL's LIKE: `%` at the end is any text, `\` escapes.

    Raises Refusal for `%` elsewhere. `_` is an ordinary character, as in Java.
    """
    if not pattern:
        return lambda name: True
    parts = re.findall(r"\\.|[^\\]|\\$", pattern, re.DOTALL)
    prefix = next((i for i, part in enumerate(parts) if part == "%"), len(parts))
    if any(part != "%" for part in parts[prefix:]):
        raise Refusal(400, f"pattern {pattern!r}: only a % at the end is possible; write a prefix and %")
    text = "".join(part[-1] if len(part) > 1 else part for part in parts[:prefix])
    return (lambda name: name == text) if prefix == len(parts) else (lambda name: name.startswith(text))
