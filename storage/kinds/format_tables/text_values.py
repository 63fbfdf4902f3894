"""Converts values of columns to the texts in csv and json files, and back.

Like in Java, the texts are SQL's casts to and from STRING. Bytes are encoded in base64.

Source: Java `format/csv/CsvParser.java`, `CsvFormatWriter.java`, `format/json/JsonFileReader.java`.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidelake.errors import BadInput
from tidelake.storage.files.string_casts import from_text, text_of
from tidelake.storage.model.types import BINARY_ROOTS, INTEGER_ROOTS, STRING_ROOTS, AtomicType, Root, arrow_type

_WHOLE: Final = r"^[+-]?[0-9]+$"
_PLAIN_FLOAT: Final = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
_PLAIN_DATE: Final = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"


def texts_of(column: pa.Array, data_type: AtomicType) -> pa.Array:
    """(n,): the values as strings; null stays null."""
    root = data_type.root
    if root in STRING_ROOTS:
        return column.cast(pa.string())
    if root in INTEGER_ROOTS or root in (Root.BOOLEAN, Root.DATE):
        return column.cast(pa.string())
    if root in BINARY_ROOTS:
        return pa.array([None if v is None else base64.b64encode(v).decode() for v in column.to_pylist()], pa.string())
    encoded = column.dictionary_encode()
    texts = text_of(encoded.dictionary, data_type)
    assert texts is not None, data_type
    return texts.take(encoded.indices)


def values_of(texts: pa.Array, data_type: AtomicType) -> tuple[pa.Array, NDArray[np.bool_] | None]:
    """Parse texts. Returns the values, and which texts are invalid; None if all are valid.

    The value of an invalid text is null.
    """
    if data_type.root in STRING_ROOTS:
        return texts, None
    quick = _VECTORIZED.get(data_type.root)
    if quick is not None and (found := _at_once(texts, data_type, quick)) is not None:
        return found, None
    encoded = texts.dictionary_encode()
    values, bad = _one_by_one(encoded.dictionary, data_type)
    rows = values.take(encoded.indices)
    if not bad.any():
        return rows, None
    indices = encoded.indices.fill_null(0).to_numpy(zero_copy_only=False)
    return rows, bad[indices] & texts.is_valid().to_numpy(zero_copy_only=False)


def _at_once(texts: pa.Array, data_type: AtomicType, pattern: str) -> pa.Array | None:
    """Parse all texts at once. None if a text does not match the pattern, or is not a value of the type."""
    if not pc.all(pc.match_substring_regex(texts, pattern), min_count=0).as_py():
        return None
    plain = pc.utf8_ltrim(texts, "+") if data_type.root in INTEGER_ROOTS else texts
    try:
        return plain.cast(arrow_type(data_type))
    except pa.ArrowInvalid:
        return None


def _one_by_one(texts: pa.Array, data_type: AtomicType) -> tuple[pa.Array, NDArray[np.bool_]]:
    parse = _PARSERS.get(data_type.root)
    if parse is None:
        return _cast(texts, data_type)
    values: list[Any] = []
    bad = np.zeros(len(texts), bool)
    for i, text in enumerate(texts.to_pylist()):
        values.append(None if text is None else parse(text))
        bad[i] = text is not None and values[i] is None
    return pa.array(values, arrow_type(data_type)), bad


def _cast(texts: pa.Array, data_type: AtomicType) -> tuple[pa.Array, NDArray[np.bool_]]:
    """Cast all texts at once, as in SQL. If a text is invalid, casts both halves separately."""
    try:
        values = from_text(texts, data_type)
    except BadInput:
        if len(texts) == 1:
            return pa.nulls(1, arrow_type(data_type)), np.ones(1, bool)
        middle = len(texts) // 2
        parts = [_cast(part, data_type) for part in (texts[:middle], texts[middle:])]
        return pa.concat_arrays([values for values, _ in parts]), np.concatenate([bad for _, bad in parts])
    return values, pc.and_(values.is_null(), texts.is_valid()).to_numpy(zero_copy_only=False)


def _truth(text: str) -> bool | None:
    return {"true": True, "false": False}.get(text.lower())


def _bytes(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None


def _whole_number_parser(bits: int) -> Callable[[str], int | None]:
    def parse(text: str) -> int | None:
        number = int(text) if _WHOLE_NUMBER.fullmatch(text) else None
        return number if number is not None and -(1 << bits - 1) <= number < 1 << bits - 1 else None

    return parse


_WHOLE_NUMBER: Final = re.compile(_WHOLE.strip("^$"))
_VECTORIZED: Final = {
    **dict.fromkeys(INTEGER_ROOTS, _WHOLE),
    Root.FLOAT: _PLAIN_FLOAT,
    Root.DOUBLE: _PLAIN_FLOAT,
    Root.DATE: _PLAIN_DATE,
}
_PARSERS: Final[dict[Root, Callable[[str], Any]]] = {
    **{root: _whole_number_parser(8 << n) for n, root in enumerate(INTEGER_ROOTS)},
    **dict.fromkeys(BINARY_ROOTS, _bytes),
    Root.BOOLEAN: _truth,
}
