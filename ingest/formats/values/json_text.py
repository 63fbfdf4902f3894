"""Raw JSON values: finds their kind, and reads texts, lists and objects without loss."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Final, TypeAlias

import msgspec

from tidelake.storage.model.types import DataType

ValueDecoder: TypeAlias = Callable[[bytes], object]


class BadValue(ValueError):
    """A value that its column can't hold. The message gives the reason. It does not name the column."""


class TooNarrow(BadValue):
    """A valid value that the type of its column, or of a member of the column, can't hold exactly.

    reason: the message, with the value.
    target: the type that is too narrow.
    fits: a type that holds the value.
    can_round: whether rounding digits off would make the value fit.
    path: the path from the column to the member, without the column (see `nested.UnknownField`).
    is_in_key: whether the member is a key of a MAP, or part of one. It is never rounded, and its type never changes.
    """

    def __init__(
        self,
        reason: str,
        target: DataType,
        fits: DataType,
        *,
        can_round: bool = False,
        path: tuple[str, ...] = (),
        is_in_key: bool = False,
    ) -> None:
        super().__init__(reason)
        self.target = target
        self.fits = fits
        self.can_round = can_round and not is_in_key
        self.path = path
        self.is_in_key = is_in_key

    def inside(self, step: str, *, is_key: bool = False) -> TooNarrow:
        return TooNarrow(
            str(self),
            self.target,
            self.fits,
            can_round=self.can_round,
            path=(step, *self.path),
            is_in_key=is_key or self.is_in_key,
        )


class JsonKind(StrEnum):
    TEXT = "text"
    NUMBER = "number"
    BOOLEAN = "boolean"
    ARRAY = "array"
    OBJECT = "object"
    NULL = "null"


_KIND_OF_FIRST: Final = {
    ord('"'): JsonKind.TEXT,
    ord("t"): JsonKind.BOOLEAN,
    ord("f"): JsonKind.BOOLEAN,
    ord("["): JsonKind.ARRAY,
    ord("{"): JsonKind.OBJECT,
    ord("n"): JsonKind.NULL,
}
_read_text: Final = msgspec.json.Decoder(str).decode
_read_list: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode
_read_object: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def kind_of(raw: bytes) -> JsonKind:
    """Return the kind of a value by its first character. This suffices for JSON that a parser has accepted."""
    return _KIND_OF_FIRST.get(raw[0], JsonKind.NUMBER)


def read_text(raw: bytes) -> str:
    try:
        return _read_text(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError) as e:  # half a surrogate pair, or not UTF-8
        raise BadValue(f"{shown(raw)} is not readable text ({e})") from None


def read_list(raw: bytes) -> list[bytes]:
    try:
        return [bytes(item) for item in _read_list(raw)]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as e:
        raise BadValue(f"{shown(raw)} is not a readable array ({e})") from None


def read_object(raw: bytes | msgspec.Raw) -> dict[str, bytes]:
    """Return the members of an object in order. Of members with the same name, the last one is returned."""
    try:
        return {name: bytes(value) for name, value in _read_object(raw).items()}
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as e:
        raise BadValue(f"{shown(bytes(raw))} is not a readable object ({e})") from None


def compact(raw: bytes) -> bytes:
    """Return the JSON without white space between its tokens."""
    return msgspec.json.format(raw, indent=-1)


def shown(raw: bytes) -> str:
    """Return a value for an error message: at most 80 characters, with its quotes."""
    text = raw.decode("utf-8", "backslashreplace")
    return text if len(text) <= 80 else f"{text[:77]}..."


def wrong_kind_error(raw: bytes, wanted: str) -> BadValue:
    return BadValue(f"{kind_of(raw)} {shown(raw)} is not a valid {wanted}")
