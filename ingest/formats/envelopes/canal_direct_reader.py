"""Decodes many Canal messages of one table and one `mysqlType` at once, with their rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, Final, Literal

import msgspec
import numpy as np

from tidelake.ingest.formats.envelopes.envelope import ImageTypes, Op, RowImages

_OPS: Final = {"INSERT": Op.INSERT, "ROW": Op.INSERT, "UPDATE": Op.UPDATE, "DELETE": Op.DELETE}
_CODES: Final = {type_: int(op) for type_, op in _OPS.items()}


class CanalDirectReader:
    """A reader of messages of one table. It refuses messages of another table or with another `mysqlType`.

    database: the database in all messages.
    table: the table in all messages.
    mysql_type: the `mysqlType` in all messages.
    images: the structs into which rows are decoded.
    """

    def __init__(self, database: str | None, table: str | None, mysql_type: msgspec.Raw, images: ImageTypes) -> None:
        self._mysql_type = msgspec.Raw(bytes(mysql_type))

        def decoder(image: Any) -> Callable[[bytes | memoryview], list[Any]]:
            message = msgspec.defstruct(
                "Message",
                [
                    ("type", Literal["INSERT", "ROW", "UPDATE", "DELETE"]),
                    ("data", list[image]),
                    ("old", list[images.old] | None, None),  # type: ignore[name-defined]
                    ("is_ddl", bool | None, msgspec.field(default=False, name="isDdl")),
                    ("database", *_exact_member(database)),
                    ("table", *_exact_member(table)),
                    ("mysql_type", msgspec.Raw, msgspec.field(default=msgspec.Raw(b"null"), name="mysqlType")),
                ],
                gc=False,
                kw_only=True,
            )
            return msgspec.json.Decoder(message, float_hook=str.encode).decode_lines

        self._decode, self._decode_partial = decoder(images.whole), decoder(images.partial)

    def read(self, messages: bytes | memoryview, n: int) -> RowImages:
        try:
            found = self._decode(messages)
        except msgspec.ValidationError:  # some or all messages lack a column of the table
            found = self._decode_partial(messages)
            self._decode = self._decode_partial
        # Each loop is short and reads one field: any access to a message in Python costs more than parsing it.
        if len(found) != n:
            raise ValueError("not one record each")
        rows: list[Sequence[Any]] = [message.data for message in found]
        counts = [*map(len, rows)]
        if True in [message.is_ddl for message in found] or not min(counts):
            raise ValueError("messages without rows")
        if [message.mysql_type for message in found].count(self._mysql_type) != n:
            raise ValueError("another schema")
        types = [message.type for message in found]
        codes = np.frombuffer(bytes([*map(_CODES.__getitem__, types)]), np.int8)
        old_rows = [message.old if message.type == "UPDATE" else None for message in found]
        if old_rows.count(None) != n - types.count("UPDATE"):
            raise ValueError("an update without old rows")
        if max(counts) == 1:
            if not {len(old) for old in old_rows if old is not None} <= {1}:
                raise ValueError("more old rows than new ones, or fewer")
            return [row for (row,) in rows], [None if old is None else old[0] for old in old_rows], codes, counts
        if any(old is not None and len(old) != count for old, count in zip(old_rows, counts, strict=True)):
            raise ValueError("more old rows than new ones, or fewer")
        old_images: list[Any] = []
        for old, count in zip(old_rows, counts, strict=True):
            old_images += [None] * count if old is None else old
        return [*chain.from_iterable(rows)], old_images, np.repeat(codes, counts), counts


def _exact_member(name: str | None) -> tuple[Any, Any]:
    """Return (type, default) of a struct's member that accepts exactly this name."""
    return (str | None, None) if not name else (Literal[name], msgspec.NODEFAULT)
