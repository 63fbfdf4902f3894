"""What a column's default, kept as text in the schema, is as a value.

Source: Java `utils/DefaultValueUtils.java`, `casting/StringTo*CastRule.java`; they read more spellings (`yes`).
"""

from __future__ import annotations

from datetime import time
from typing import Final

import pyarrow as pa

from storage.errors import BadInput, UnsupportedFeature
from storage.types import CONSTRUCTED_ROOTS, DataField, Root, arrow_type

_NOT_FROM_TEXT: Final = CONSTRUCTED_ROOTS | {Root.VARIANT, Root.BLOB}


def default_value(field: DataField) -> pa.Scalar:
    """In the in-memory form of the column's type; null when it has no default. Times without a zone are in UTC.

    Raises BadInput when the text is no value of that type, UnsupportedFeature for nested types, VARIANT and BLOB.
    """
    target = arrow_type(field.type)
    if field.default is None:
        return pa.scalar(None, target)
    if field.type.root in _NOT_FROM_TEXT:
        raise UnsupportedFeature(
            f"column {field.name!r}: default {field.default!r}",
            f"a text can't be made a {field.type}",
            "Remove the default, and write the value",
        )
    text = _unquoted(field.default)
    try:
        return _parsed(text, field.type.root, target)
    except (pa.ArrowInvalid, ValueError):
        raise BadInput(
            f"column {field.name!r}: its default {field.default!r} is not a {field.type}; write it as SQL does"
        ) from None


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text.startswith("'") and text.endswith("'") else text


def _parsed(text: str, root: Root, target: pa.DataType) -> pa.Scalar:
    if root is Root.TIME:
        at = time.fromisoformat(text)
        return pa.scalar(at.replace(microsecond=at.microsecond // 1000 * 1000), target)
    if root is Root.TIMESTAMP_LTZ:
        try:
            return pa.scalar(text).cast(pa.timestamp(target.unit)).cast(target)
        except pa.ArrowInvalid:  # it names its zone
            return pa.scalar(text).cast(target)
    return pa.scalar(text).cast(target)
