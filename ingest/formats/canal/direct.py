"""Many messages of Canal of one table and one `mysqlType`, decoded at once, their rows included."""

from __future__ import annotations

from itertools import chain
from typing import Any, Literal

import msgspec

from ingest.formats.envelopes.envelope import Op, RowImages

_OPS = {"INSERT": Op.INSERT, "ROW": Op.INSERT, "UPDATE": Op.UPDATE, "DELETE": Op.DELETE}


class CanalDirectReader:
    """database, table, mysql_type: of all messages; another makes the reader refuse.
    image: the struct of a row.
    """

    def __init__(self, database: str | None, table: str | None, mysql_type: msgspec.Raw, image: Any) -> None:
        self._mysql_type = bytes(mysql_type)
        message = msgspec.defstruct(
            "Message",
            [
                ("type", Literal["INSERT", "ROW", "UPDATE", "DELETE"]),
                ("data", list[image]),
                ("old", list[image] | None, None),
                ("is_ddl", bool | None, msgspec.field(default=False, name="isDdl")),
                ("database", *_only(database)),
                ("table", *_only(table)),
                ("mysql_type", msgspec.Raw, msgspec.field(default=msgspec.Raw(b"null"), name="mysqlType")),
            ],
            gc=False,
            kw_only=True,
        )
        self._decode = msgspec.json.Decoder(message, float_hook=str.encode).decode_lines

    def read(self, messages: bytes | memoryview, n: int) -> RowImages:
        found: list[Any] = self._decode(messages)
        if len(found) != n:
            raise ValueError("not one record each")
        if any(message.is_ddl for message in found) or not all(message.data for message in found):
            raise ValueError("messages without rows")
        if {bytes(message.mysql_type) for message in found} != {self._mysql_type}:
            raise ValueError("another schema")
        counts = [len(message.data) for message in found]
        old_counts = [len(message.old or ()) if message.type == "UPDATE" else -1 for message in found]
        if any(0 <= given != count for given, count in zip(old_counts, counts, strict=True)):
            raise ValueError("more old rows than new ones, or fewer")
        if max(counts) == 1:
            new = [message.data[0] for message in found]
            old = [message.old[0] if message.type == "UPDATE" else None for message in found]
            return new, old, [_OPS[message.type] for message in found], counts
        new = [*chain.from_iterable([message.data for message in found])]
        old = []
        ops: list[Op] = []
        for message, count in zip(found, counts, strict=True):
            old += message.old if message.type == "UPDATE" else [None] * count
            ops += [_OPS[message.type]] * count
        return new, old, ops, counts


def _only(name: str | None) -> tuple[Any, Any]:
    """(type, default) of a member that says exactly this."""
    return (str | None, None) if not name else (Literal[name], msgspec.NODEFAULT)
