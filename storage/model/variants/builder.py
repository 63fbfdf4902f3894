"""Builds a variant, byte for byte as Java does: from JSON, or from parts of other variants.

Source: Java `data/variant/GenericVariantBuilder.java`.
"""

from __future__ import annotations

import json
import re
import struct
from decimal import Decimal
from typing import Any, Final

from tidelake.errors import BadInput
from tidelake.storage.model.variants.variant_layout import (
    SIZE_MAX,
    VERSION,
    Basic,
    Primitive,
    basic_type,
    elements_of,
    fields_of,
    size_of,
)

_SHORT_TEXT_MAX: Final = 63
_PLAIN_NUMBER: Final = re.compile(r"-?[0-9]+(\.[0-9]+)?")
_DIGITS_MAX: Final = ((9, 4, Primitive.DECIMAL4), (18, 8, Primitive.DECIMAL8), (38, 16, Primitive.DECIMAL16))


class VariantBuilder:
    """Builds one variant: append one value, then call `result`.

    The methods for values return bytes, of which objects and arrays are built.
    """

    def __init__(self) -> None:
        self._names: dict[str, int] = {}

    def metadata(self) -> bytes:
        names = [name.encode() for name in self._names]
        width = _width(max(sum(map(len, names)), len(names)))
        offsets, at = [], 0
        for name in names:
            offsets.append(at)
            at += len(name)
        numbers = b"".join(number.to_bytes(width, "little") for number in (len(names), *offsets, at))
        return bytes([VERSION | (width - 1) << 6]) + numbers + b"".join(names)

    def name(self, name: str) -> int:
        return self._names.setdefault(name, len(self._names))

    def object(self, fields: list[tuple[str, bytes]]) -> bytes:
        """Return the bytes of an object.

        fields: name and value, in the order in which they were named. Each name was passed to `name` before.

        Raises BadInput for a repeated name.
        """
        offsets, at = {}, 0
        for name, value in fields:
            if name in offsets:
                raise BadInput(f"a variant object names {name!r} twice")
            offsets[name] = at
            at += len(value)
        ordered = sorted(offsets, key=lambda name: name.encode("utf-16-be", "surrogatepass"))
        ids = [self._names[name] for name in ordered]
        large, id_bytes, width = len(ids) > 0xFF, _width(max(ids, default=0)), _width(at)
        header = bytes([Basic.OBJECT | (large << 4 | (id_bytes - 1) << 2 | width - 1) << 2])
        return b"".join(
            (
                *(header, len(ids).to_bytes(4 if large else 1, "little")),
                *(number.to_bytes(id_bytes, "little") for number in ids),
                *(offsets[name].to_bytes(width, "little") for name in ordered),
                at.to_bytes(width, "little"),
                *(value for _, value in fields),
            )
        )

    def array(self, elements: list[bytes]) -> bytes:
        offsets, at = [], 0
        for element in elements:
            offsets.append(at)
            at += len(element)
        large, width = len(elements) > 0xFF, _width(at)
        header = bytes([Basic.ARRAY | (large << 2 | width - 1) << 2])
        numbers = b"".join(number.to_bytes(width, "little") for number in (*offsets, at))
        return header + len(elements).to_bytes(4 if large else 1, "little") + numbers + b"".join(elements)

    def copied(self, value: bytes, metadata: bytes, at: int = 0) -> bytes:
        """Return the bytes of another variant's value, with its names added to this variant."""
        match basic_type(value, at):
            case Basic.OBJECT:
                fields = []
                for name, place in fields_of(value, metadata, at):
                    self.name(name)
                    fields.append((name, self.copied(value, metadata, place)))
                return self.object(fields)
            case Basic.ARRAY:
                return self.array([self.copied(value, metadata, place) for place in elements_of(value, at)])
            case _:
                return value[at : at + size_of(value, at)]

    def json(self, value: Any) -> bytes:
        """Return the bytes of a JSON value.

        value: as `variant_of_json` parses it.
        """
        match value:
            case None:
                return primitive(Primitive.NULL)
            case bool():
                return primitive(Primitive.TRUE if value else Primitive.FALSE)
            case _Number():
                return _number(value)
            case str():
                return text(value)
            case int():
                return integer(value) if -(2**63) <= value < 2**63 else _number(str(value))
            case _Object():
                fields = []
                for name, part in value.fields:
                    self.name(name)
                    fields.append((name, self.json(part)))
                return self.object(fields)
            case _:
                return self.array([self.json(part) for part in value])


def variant_of_json(document: str) -> tuple[bytes, bytes]:
    """Return (value, metadata). Raises BadInput for a text that is not JSON, or that repeats a field."""
    try:
        parsed = json.loads(document, parse_float=_Number, object_pairs_hook=_Object, parse_constant=_no_constant)
    except (ValueError, RecursionError) as e:
        raise BadInput(f"a variant is made from JSON, but {document[:60]!r} is not JSON: {e}") from None
    builder = VariantBuilder()
    value = builder.json(parsed)
    if len(value) > SIZE_MAX:
        raise BadInput(f"a variant of {len(value)} bytes; it has at most {SIZE_MAX}")
    return value, builder.metadata()


def primitive(kind: Primitive, content: bytes = b"") -> bytes:
    return bytes([kind << 2]) + content


def text(value: str) -> bytes:
    data = value.encode()
    if len(data) <= _SHORT_TEXT_MAX:
        return bytes([Basic.SHORT_TEXT | len(data) << 2]) + data
    return primitive(Primitive.LONG_TEXT, len(data).to_bytes(4, "little") + data)


def integer(value: int) -> bytes:
    """Return the bytes of an integer, in the smallest type that holds it."""
    for kind, size in ((Primitive.INT1, 1), (Primitive.INT2, 2), (Primitive.INT4, 4)):
        if -(1 << 8 * size - 1) <= value < 1 << 8 * size - 1:
            return primitive(kind, value.to_bytes(size, "little", signed=True))
    return primitive(Primitive.INT8, value.to_bytes(8, "little", signed=True))


def decimal(value: Decimal) -> bytes:
    """Return the bytes of a decimal of at most 38 digits, of which up to 38 may be after the point."""
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    number = int("".join(map(str, digits))) * (-1 if sign else 1)
    scale = -exponent
    if scale < 0:
        number, scale = number * 10**-scale, 0
    length = max(scale, len(str(abs(number))))
    for most, size, kind in _DIGITS_MAX:
        if length <= most:
            return primitive(kind, bytes([scale]) + number.to_bytes(size, "little", signed=True))
    raise BadInput(f"a variant holds decimals of 38 digits, and {value} has {length}")


class _Number(str):
    """A JSON number with a point or an exponent, as its text."""


class _Object:
    def __init__(self, fields: list[tuple[str, Any]]) -> None:
        self.fields = fields


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _number(digits: str) -> bytes:
    if _PLAIN_NUMBER.fullmatch(digits):
        value = Decimal(digits)
        exponent = value.as_tuple().exponent
        assert isinstance(exponent, int)
        if -exponent <= 38 and len(digits.strip("-").replace(".", "").lstrip("0")) <= 38:
            return decimal(value)
    return primitive(Primitive.DOUBLE, struct.pack("<d", float(digits)))


def _width(value: int) -> int:
    """Return the number of bytes of an unsigned number: 1 to 4."""
    return max(1, (value.bit_length() + 7) // 8)
