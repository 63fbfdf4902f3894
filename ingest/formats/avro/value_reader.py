"""Converts one value of Avro's binary form to JSON as Connect's JSON converter writes it.

So the value decoders for JSON also read Avro. The conversions:

- Bytes become base64, also those of a decimal.
- A 32-bit float becomes its shortest text.
- NaN and the infinities become texts.
- A map whose keys are no texts becomes a list of pairs.
- A record of a union of several records becomes an object with one member, which has the record's full name, as in
  Avro's own JSON. Otherwise nobody could tell records with equal fields apart.
"""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

import msgspec
import numpy as np

from tidelake.ingest.formats.avro.writer_schema import is_pairs
from tidelake.ingest.formats.values.json_text import BadValue
from tidelake.storage.model.avro.avro_type import AvroType
from tidelake.storage.model.avro.decoded_columns import DecodedColumn

_T = TypeVar("_T")
_NESTING_MAX: Final = 200
_VARINT_BYTES_MAX: Final = 10
_EMPTY_ITEMS_MAX: Final = 1_000_000  # for arrays whose items take no bytes

_float: Final = struct.Struct("<f")
_double: Final = struct.Struct("<d")


def read_record(data: bytes, type_: AvroType) -> dict[str, bytes]:
    """Return a record's fields as raw JSON. Raises BadValue unless `data` is exactly one record of that type."""
    reader = _Reader(data, 0)
    try:
        fields = {name: reader.json(inner, 1) for name, inner in type_.fields.items()}
    except (IndexError, struct.error):
        raise BadValue("the Avro record ends too early, or has another schema") from None
    if reader.at != len(data):
        raise BadValue(f"{len(data) - reader.at} bytes follow the Avro record, or it has another schema")
    return fields


def read_value(data: bytes, type_: AvroType) -> bytes:
    """Return the value at the beginning of `data` as raw JSON. Raises BadValue for an invalid value."""
    try:
        return _Reader(data, 0).json(type_, 1)
    except (IndexError, struct.error):
        raise BadValue("the Avro value ends too early") from None


def values_as_json(column: DecodedColumn) -> list[bytes | None]:
    """Return each value of a column as raw JSON; None for null. Raises BadValue for an invalid value."""
    raws: list[bytes | None] = [None] * len(column)
    octets = column.octets
    spans = zip(column.starts.tolist(), column.ends.tolist(), strict=True)
    for row, (start, end) in zip(np.flatnonzero(column.valid).tolist(), spans, strict=True):
        raws[row] = read_value(octets[start:end].tobytes(), column.type)
    return raws


def object_of(members: Mapping[str, bytes]) -> bytes:
    """Return a raw JSON object with these raw members."""
    return b"{" + b",".join(msgspec.json.encode(name) + b":" + raw for name, raw in members.items()) + b"}"


def float32_json(value: float) -> bytes:
    """Return the shortest text that distinguishes a 32-bit float from all others."""
    return str(np.float32(value)).encode() if math.isfinite(value) else float64_json(value)


def float64_json(value: float) -> bytes:
    if math.isfinite(value):
        return repr(value).encode()
    return b'"NaN"' if math.isnan(value) else b'"Infinity"' if value > 0 else b'"-Infinity"'


def bytes_json(value: bytes) -> bytes:
    return b'"' + base64.b64encode(value) + b'"'


class _Reader:
    """A reader of consecutive values.

    at: position of the next byte.

    Its methods raise BadValue, IndexError or struct.error for bytes that are no value of the type.
    """

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self.at = at

    def long(self) -> int:
        value = shift = 0
        for _ in range(_VARINT_BYTES_MAX):
            octet = self._data[self.at]
            self.at += 1
            value |= (octet & 0x7F) << shift
            if octet < 0x80:
                if value >> 64:
                    break
                return (value >> 1) ^ -(value & 1)
            shift += 7
        raise BadValue("an integer of more than 64 bits in the Avro record")

    def octets(self, length: int) -> bytes:
        if not 0 <= length <= len(self._data) - self.at:
            raise BadValue(f"a length of {length} where the Avro record has {len(self._data) - self.at} bytes left")
        self.at += length
        return self._data[self.at - length : self.at]

    def json(self, type_: AvroType, depth: int) -> bytes:
        if depth > _NESTING_MAX:
            raise BadValue(f"the Avro record is nested more than {_NESTING_MAX} deep")
        match type_.kind:
            case "null":
                return b"null"
            case "boolean":
                octet = self.octets(1)[0]
                if octet > 1:
                    raise BadValue(f"{octet} is not a boolean of Avro")
                return b"true" if octet else b"false"
            case "int" | "long":
                return str(self.long()).encode()
            case "float":
                return float32_json(_float.unpack(self.octets(4))[0])
            case "double":
                return float64_json(_double.unpack(self.octets(8))[0])
            case "bytes":
                return bytes_json(self.octets(self.long()))
            case "fixed":
                return bytes_json(self.octets(type_.size))
            case "string":
                return self._text(self.octets(self.long()))
            case "enum":
                return msgspec.json.encode(self._one_of(type_.symbols))
            case "union":
                branch = self._one_of(type_.branches)
                raw = self.json(branch, depth)
                if branch.kind == "record" and type_.is_of_records:
                    return object_of({str(branch.properties["name"]): raw})
                return raw
            case "record":
                return object_of({name: self.json(inner, depth + 1) for name, inner in type_.fields.items()})
            case _:
                return self._collection(type_, depth + 1)

    def _one_of(self, choices: Sequence[_T]) -> _T:
        number = self.long()
        if not 0 <= number < len(choices):
            raise BadValue(f"{number} is not the number of one of {len(choices)} branches or symbols of Avro")
        return choices[number]

    def _text(self, data: bytes) -> bytes:
        try:
            return msgspec.json.encode(data.decode())
        except UnicodeDecodeError as e:
            raise BadValue(f"a string of the Avro record is not UTF-8 ({e})") from None

    def _collection(self, type_: AvroType, depth: int) -> bytes:
        """Return an array or a map. It consists of blocks of items, and an empty block is the last one."""
        assert type_.items is not None
        found: list[bytes] = []
        while count := self.long():
            if count < 0:
                count = -count
                self.long()  # the block's size in bytes
            if count > len(self._data) - self.at and (type_.kind == "map" or count > _EMPTY_ITEMS_MAX):
                raise BadValue(f"a block of {count} items where the Avro record has {len(self._data) - self.at} bytes")
            for _ in range(count):
                if type_.kind == "map":
                    key = self._text(self.octets(self.long()))
                    found.append(key + b":" + self.json(type_.items, depth))
                elif is_pairs(type_):
                    pair = [self.json(inner, depth) for inner in type_.items.fields.values()]
                    found.append(b"[" + b",".join(pair) + b"]")
                else:
                    found.append(self.json(type_.items, depth))
                if len(found) > _EMPTY_ITEMS_MAX + len(self._data):
                    raise BadValue("more items than the Avro record has bytes")
        both = b",".join(found)
        return b"{" + both + b"}" if type_.kind == "map" else b"[" + both + b"]"
