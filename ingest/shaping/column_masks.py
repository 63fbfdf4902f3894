"""Masks: what a column keeps of personal data, such as `hash` or `keep_last(4)`. A whole column is masked at once.

A mask of null is null. The type of a column stays what it was.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Self

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import BadInput
from tidelake.ingest.secrets import Secret
from tidelake.storage.model.types import STRING_ROOTS, AtomicType, DataType, nullable

HASH: Final = "hash"
REDACTED: Final = "***"
HASH_CHARACTERS: Final = 64  # SHA-256 in hexadecimal digits
_WITHOUT_NUMBER: Final = (HASH, "redact", "null")
_WITH_NUMBER: Final = ("truncate", "keep_last")
_CALL: Final = re.compile(r"\s*(\w+)\s*(?:\(\s*(\d+)\s*\))?\s*")


@dataclass(frozen=True, slots=True)
class ColumnMask:
    """The mask of one column.

    function: `hash`, `redact`, `null`, `truncate` or `keep_last`.
    characters: how many characters remain, for the last two.
    """

    function: str
    characters: int = 0

    @classmethod
    def parse(cls, column: str, text: str) -> Self:
        """Return the mask that a configuration names. Raises BadInput for any other text."""
        found = _CALL.fullmatch(text)
        function, number = ("", None) if found is None else (found[1].lower(), found[2])
        if function in _WITHOUT_NUMBER and number is None:
            return cls(function)
        if function in _WITH_NUMBER and number is not None:
            return cls(function, int(number))
        known = ", ".join((*_WITHOUT_NUMBER, *(f"{name}(n)" for name in _WITH_NUMBER)))
        raise BadInput(f"mask of column {column}: {text!r} is none of {known}")

    def __str__(self) -> str:
        return f"{self.function}({self.characters})" if self.function in _WITH_NUMBER else self.function

    @property
    def distinguishes(self) -> bool:
        """Whether different values stay different, so that a column of the key may have the mask."""
        return self.function == HASH

    def check(self, column: str, column_type: DataType) -> None:
        """Raise BadInput for a column whose type can't hold masked values."""
        if self.function == "null":
            if not column_type.nullable:
                raise BadInput(f"column {column} is NOT NULL, so its mask can't be null. Choose another mask")
            return
        if not isinstance(column_type, AtomicType) or column_type.root not in STRING_ROOTS:
            raise BadInput(
                f"the mask {self} is for texts, but column {column} is {nullable(column_type)}. Choose the mask null, "
                "or leave the column out (`drop_columns`)"
            )
        least = HASH_CHARACTERS if self.function == HASH else len(REDACTED) if self.function == "redact" else 0
        if column_type.length < least:
            raise BadInput(
                f"the mask {self} needs {least} characters, but column {column} is {nullable(column_type)}. Make it a "
                "STRING, or choose another mask"
            )

    def applied(self, values: pa.Array, salt: Secret | None) -> pa.Array:
        """Return the masked values.

        salt: the key of the hash; only `hash` needs it.
        """
        match self.function:
            case "null":
                return pa.nulls(len(values), values.type)
            case "hash":
                assert salt is not None, "the configuration was checked"
                return _of_distinct(values, _hash_function(salt))
            case "redact":
                return pc.if_else(values.is_null(), pa.scalar(None, values.type), pa.scalar(REDACTED, values.type))
            case "truncate":
                return pc.utf8_slice_codeunits(values, 0, self.characters)
            case _:
                return _of_distinct(values, self._last_characters)

    def _last_characters(self, text: str) -> str:
        """Return the text with a star for each character but the last ones. A short text has only stars."""
        hidden = len(text) - self.characters
        return "*" * hidden + text[hidden:] if hidden > 0 else "*" * len(text)


def _hash_function(salt: Secret) -> Callable[[str], str]:
    key = salt.reveal().encode()
    return lambda text: hmac.digest(key, text.encode(), "sha256").hex()


def _of_distinct(values: pa.Array, function: Callable[[str], str]) -> pa.Array:
    """Return the function of each text. It is called once for each distinct text."""
    encoded = values.dictionary_encode()
    masked = pa.array([function(text) for text in encoded.dictionary.to_pylist()], values.type)
    return masked.take(encoded.indices)
