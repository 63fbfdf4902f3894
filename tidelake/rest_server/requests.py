"""The messages that clients send. Members that are not listed are ignored, as Java's server does.

Source: Java `rest/requests/*.java`, `table/Instant.java`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import parse_qsl, unquote_to_bytes

import msgspec

from tidelake.rest_server.answers import Refusal

M = TypeVar("M")


@dataclass(frozen=True, slots=True)
class Request:
    """A request to the server, without its headers.

    path: the parts of the path, decoded; a part may contain a slash.
    """

    method: str
    path: tuple[str, ...]
    query: Mapping[str, str]
    body: bytes

    @classmethod
    def of(cls, method: str, target: str, body: bytes = b"") -> Request:
        """Parse a request target, as `/v1/lake/databases/shop?maxResults=10`.

        Clients encode parts as HTML forms do: a space is `+`.
        """
        path, _, query = target.partition("?")
        parts = tuple(_decoded(part) for part in path.split("/") if part)
        try:
            values = dict(parse_qsl(query, keep_blank_values=True, errors="strict"))
        except ValueError:
            raise Refusal(400, "the query is not encoded as UTF-8") from None
        return cls(method, parts, values, body)

    def message(self, kind: type[M]) -> M:
        """Decode the body. Raises Refusal, naming the member, for anything else than this kind of message."""
        try:
            return msgspec.json.decode(self.body, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as e:
            raise Refusal(400, f"the body of the request can't be read: {e}") from None


def _decoded(part: str) -> str:
    try:
        return unquote_to_bytes(part.replace("+", " ")).decode()
    except UnicodeDecodeError:
        raise Refusal(400, f"{part!r} in the path is not encoded as UTF-8") from None


class _Message(msgspec.Struct, rename="camel"):
    pass


class Named(_Message):
    """A name. object: the table's or the view's, maybe with a branch: `orders$branch_dev`."""

    database: str
    object: str


class CreateDatabase(_Message):
    name: str
    options: dict[str, str] | None = None


class NewSchema(_Message):
    fields: list[dict[str, Any]]
    partition_keys: list[str] = []
    primary_keys: list[str] = []
    options: dict[str, str] = {}
    comment: str | None = None


class CreateTable(_Message):
    identifier: Named
    schema: NewSchema


class CreateView(_Message):
    identifier: Named
    schema: dict[str, Any]


class AlterTable(_Message):
    changes: list[dict[str, Any]]


class Rename(_Message):
    source: Named
    destination: Named


class Commit(_Message):
    """table_id, base_snapshot_uuid: None from clients and for snapshots that have none."""

    snapshot: dict[str, Any]
    table_id: str | None = None
    base_snapshot_uuid: str | None = None


class SnapshotInstant(_Message, tag_field="type", tag="snapshot"):
    snapshot_id: int


class TagInstant(_Message, tag_field="type", tag="tag"):
    tag_name: str


class Rollback(_Message):
    """from_snapshot: the snapshot that must be the latest one; None: any."""

    instant: SnapshotInstant | TagInstant
    from_snapshot: int | None = None


class CreateTag(_Message):
    """snapshot_id: None is the latest. time_retained: a duration, as `1 d`; None is for ever."""

    tag_name: str
    snapshot_id: int | None = None
    time_retained: str | None = None


class CreateBranch(_Message):
    branch: str
    from_tag: str | None = None


class ResetConsumer(_Message):
    """next_snapshot_id: None deletes the consumer."""

    consumer_id: str
    next_snapshot_id: int | None = None


class ListPartitions(_Message):
    specs: list[dict[str, str]]


class CreatePartitions(_Message):
    partition_specs: list[dict[str, str]]
