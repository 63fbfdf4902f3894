"""Converts a column's default, a text in the schema, to a value.

Source: Java `utils/DefaultValueUtils.java`.
"""

from __future__ import annotations

import pyarrow as pa

from tidelake.errors import BadInput, UnsupportedFeature
from tidelake.storage.files.casting import cast
from tidelake.storage.model.types import STRING, AtomicType, DataField, Root, arrow_type


def default_value(field: DataField) -> pa.Scalar:
    """Return the default in the in-memory form of the column's type; null without a default.

    Times without a zone are in UTC.

    Raises BadInput if the text is no value of that type, UnsupportedFeature for nested types and VARIANT.
    """
    if field.default is None:
        return pa.scalar(None, arrow_type(field.type))
    if not isinstance(field.type, AtomicType) or field.type.root is Root.VARIANT:
        raise UnsupportedFeature(
            f"column {field.name!r}: default {field.default!r}",
            f"a string can't be converted to {field.type}",
            "Remove the default, and write the value in each row",
        )
    try:
        value = cast(pa.array([_unquoted(field.default)]), STRING, field.type)[0]
    except BadInput:
        value = None
    if value is None or not value.is_valid:  # null: a DECIMAL with too many digits
        raise BadInput(
            f"column {field.name!r}: its default {field.default!r} is not a valid {field.type}; write the value as in "
            "SQL"
        )
    return value


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text.startswith("'") and text.endswith("'") else text
