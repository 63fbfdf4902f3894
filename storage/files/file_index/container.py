"""The container of all indexes of one data file: a head with the place of each index, then the indexes.

    magic        8 bytes
    version      4 bytes, 1
    head length  4 bytes, from the magic to the first index
    columns      number of columns, 4 bytes. For each column: its name, number of indexes 4 bytes. For each index: the
                 name of its kind, start in the container 4 bytes (-1: nothing was written for the column), length
                 4 bytes
    redundant    length 4 bytes, and as many bytes, for later versions
    indexes

All numbers are big-endian. Names are in Java's modified UTF-8, after a length of 2 bytes.

Source: Java `fileindex/FileIndexFormat.java`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from tidelake.errors import CorruptFile
from tidelake.storage.model.format import FILE_INDEX_MAGIC, FILE_INDEX_VERSION

Indexes: TypeAlias = Mapping[str, Mapping[str, bytes | None]]
"""Column -> kind -> index. None means that nothing was written for the column."""

_FIXED: Final = struct.Struct(">qiii")  # magic, version, head length, number of columns
_INT: Final = struct.Struct(">i")
_PLACE: Final = struct.Struct(">ii")
_NAME_LENGTH: Final = struct.Struct(">H")
_NO_START: Final = -1
_HEAD_GUESS_BYTES: Final = 4096

ReadAt: TypeAlias = Callable[[int, int], bytes]
"""(length, offset) -> bytes; fewer bytes at the end of the file."""


def container_bytes(indexes: Indexes) -> bytes:
    """Return the container, with columns and kinds in the order given."""
    names = {column: _encoded_name(column) for column in indexes}
    kinds = {kind: _encoded_name(kind) for of_column in indexes.values() for kind in of_column}
    head_length = _FIXED.size + _INT.size
    for column, of_column in indexes.items():
        head_length += len(names[column]) + _INT.size
        head_length += sum(len(kinds[kind]) + _PLACE.size for kind in of_column)
    head = [_FIXED.pack(FILE_INDEX_MAGIC, FILE_INDEX_VERSION, head_length, len(indexes))]
    bodies: list[bytes] = []
    start = head_length
    for column, of_column in indexes.items():
        head += [names[column], _INT.pack(len(of_column))]
        for kind, body in of_column.items():
            head += [kinds[kind], _PLACE.pack(_NO_START, 0) if body is None else _PLACE.pack(start, len(body))]
            if body is not None:
                bodies.append(body)
                start += len(body)
    return b"".join([*head, _INT.pack(0), *bodies])


@dataclass(frozen=True, slots=True)
class IndexPlace:
    """The place of an index in the container.

    start: the offset; None if nothing was written for the column.
    length: the size in bytes.
    """

    start: int | None
    length: int


class Container:
    """A container that is read. The head is read immediately, and each index when it is needed.

    read_at: reads bytes of the container.
    path: the path of the container, for error messages.
    """

    def __init__(self, read_at: ReadAt, path: str) -> None:
        self._read_at = read_at
        self._path = path
        self._start = read_at(_HEAD_GUESS_BYTES, 0)
        try:
            self.places: Final = self._parsed()
        except (struct.error, UnicodeDecodeError) as error:
            raise CorruptFile(path, "the head of a file index", str(error)) from None

    @classmethod
    def of_bytes(cls, data: bytes, path: str) -> Container:
        return cls(lambda length, offset: data[offset : offset + length], path)

    def _parsed(self) -> dict[str, dict[str, IndexPlace]]:
        magic, version, head_length, columns = _FIXED.unpack_from(self._start)
        if magic != FILE_INDEX_MAGIC:
            raise CorruptFile(self._path, "the magic of a file index", self._start[:8].hex(), 0)
        if version != FILE_INDEX_VERSION:
            raise CorruptFile(self._path, f"a file index of version {FILE_INDEX_VERSION}", f"version {version}", 8)
        if head_length > len(self._start):
            self._start = self._read_at(head_length, 0)
        head, at = self._start, _FIXED.size
        places: dict[str, dict[str, IndexPlace]] = {}
        for _ in range(columns):
            column, at = _decoded_name(head, at)
            (count,) = _INT.unpack_from(head, at)
            at += _INT.size
            of_column = places.setdefault(column, {})
            for _ in range(count):
                kind, at = _decoded_name(head, at)
                start, length = _PLACE.unpack_from(head, at)
                at += _PLACE.size
                of_column[kind] = IndexPlace(None if start == _NO_START else start, length)
        return places

    def body(self, place: IndexPlace) -> bytes:
        """Return an index. Raises CorruptFile if the file ends before the index does."""
        if place.start is None:
            return b""
        end = place.start + place.length
        body = self._start[place.start : end] if end <= len(self._start) else self._read_at(place.length, place.start)
        if len(body) != place.length:
            raise CorruptFile(self._path, f"an index of {place.length} bytes", f"{len(body)}", place.start)
        return body

    def all(self) -> dict[str, dict[str, bytes | None]]:
        """Return all indexes, including unknown kinds."""
        return {
            column: {kind: None if place.start is None else self.body(place) for kind, place in of_column.items()}
            for column, of_column in self.places.items()
        }


def _encoded_name(name: str) -> bytes:
    """Encode a name in modified UTF-8.

    A zero becomes two bytes. Characters after U+FFFF become two surrogates of three bytes each.
    """
    units = name.encode("utf-16-be", "surrogatepass")
    letters = "".join(chr(unit) for (unit,) in struct.iter_unpack(">H", units))
    data = letters.encode("utf-8", "surrogatepass").replace(b"\0", b"\xc0\x80")
    return _NAME_LENGTH.pack(len(data)) + data


def _decoded_name(data: bytes, at: int) -> tuple[str, int]:
    (length,) = _NAME_LENGTH.unpack_from(data, at)
    start = at + _NAME_LENGTH.size
    if len(data) < start + length:
        raise struct.error(f"a name of {length} bytes where {len(data) - start} are left")
    encoded = data[start : start + length]
    if encoded.isascii():
        return encoded.decode(), start + length
    letters = encoded.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
    return letters.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "surrogatepass"), start + length
