"""Converts a column's default, a text in the schema, to a value.

Source: Java `utils/DefaultValueUtils.java`.
"""

from __future__ import annotations

import pyarrow as pa

from tidelake.errors import BadInput, UnsupportedFeature
from tidelake.storage.ddl.nested_texts import can_read_text, value_of_text
from tidelake.storage.model.types import DataField, arrow_type


def default_value(field: DataField) -> pa.Scalar:
    """Return the default in the in-memory form of the column's type; null without a default.

    Times without a zone are in UTC.

    Raises BadInput if the text is no value of that type, UnsupportedFeature for VARIANT, VECTOR and MULTISET.
    """
    if field.default is None:
        return pa.scalar(None, arrow_type(field.type))
    if not can_read_text(field.type):
        raise UnsupportedFeature(
            f"column {field.name!r}: default {field.default!r}",
            f"a string can't be converted to {field.type}",
            "Remove the default, and write the value in each row",
        )
    try:
        value = value_of_text(_unquoted(field.default), field.type)[0]
    except BadInput:
        value = None
    if value is None or not value.is_valid:  # null: a DECIMAL with too many digits
        raise BadInput(
            f"column {field.name!r}: its default {field.default!r} is not a valid {field.type}; write the value as in "
            "SQL, an ARRAY as [1, 2], a MAP as {a -> 1}, a ROW as {1, b}"
        )
    return value


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text.startswith("'") and text.endswith("'") else text
