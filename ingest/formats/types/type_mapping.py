"""Paimon's option `type_mapping`: changes the column types that are inferred from the source's types.

Source: Paimon `cdc/TypeMapping.java`, `cdc/mysql/MySqlTypeUtils.java`. Paimon's documentation spells two of the words
with underscores, its code spells them with dashes. Both are accepted here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Self

from tidelake.errors import BadInput
from tidelake.ingest.formats.connect_schema import SourceType
from tidelake.storage.model.messages import did_you_mean
from tidelake.storage.model.types import BIGINT, BYTES, STRING, STRING_ROOTS, TINYINT, DataType

TO_NULLABLE: Final = "to-nullable"  # no effect: columns outside the key are always nullable
TO_STRING: Final = "to-string"
TINYINT1_NOT_BOOL: Final = "tinyint1-not-bool"
CHAR_TO_STRING: Final = "char-to-string"
LONGTEXT_TO_BYTES: Final = "longtext-to-bytes"
BIGINT_UNSIGNED_TO_BIGINT: Final = "bigint-unsigned-to-bigint"
DECIMAL_NO_CHANGE: Final = "decimal-no-change"
ALLOW_NON_STRING_TO_STRING: Final = "allow-non-string-to-string"
WORDS: Final = (
    TINYINT1_NOT_BOOL,
    TO_NULLABLE,
    TO_STRING,
    CHAR_TO_STRING,
    LONGTEXT_TO_BYTES,
    BIGINT_UNSIGNED_TO_BIGINT,
    DECIMAL_NO_CHANGE,
    ALLOW_NON_STRING_TO_STRING,
)
_UNSIGNED: Final = re.compile(r"bigint(\(\d+\))? unsigned.*|serial")


@dataclass(frozen=True, slots=True)
class TypeMapping:
    """A value of the option `type_mapping`. words: some of WORDS."""

    words: frozenset[str] = frozenset()

    @classmethod
    def parse(cls, words: Iterable[str]) -> Self:
        """Return the type mapping of these words. Raises BadInput for an unknown word."""
        spelled = [word.strip().lower().replace("_", "-") for word in words]
        for word in spelled:
            if word not in WORDS:
                hint = did_you_mean(word, WORDS) or "."
                raise BadInput(f"{word!r} is not a type mapping{hint} The type mappings are {', '.join(WORDS)}")
        return cls(frozenset(spelled))

    def column_type(self, source: SourceType | None, inferred: DataType) -> DataType:
        """Return the type of a new column.

        source: the type that the records declare; None if they declare none.
        inferred: the column type without any mapping.
        """
        word = "" if source is None else source.word
        if TO_STRING in self.words:
            return STRING
        if TINYINT1_NOT_BOOL in self.words and word == "tinyint(1)":
            return TINYINT
        if LONGTEXT_TO_BYTES in self.words and word == "longtext":
            return BYTES
        if BIGINT_UNSIGNED_TO_BIGINT in self.words and _UNSIGNED.fullmatch(word):
            return BIGINT
        if CHAR_TO_STRING in self.words and inferred.root in STRING_ROOTS:
            return STRING
        return inferred
