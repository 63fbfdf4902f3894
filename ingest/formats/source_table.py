"""The source table that a change record names, before any routing.

A topic usually contains one table, but this is not guaranteed: a router at the connector may merge topics, and two
schemas of one database may contain tables of the same name. So the names are read from each record, and a pattern may
match any spelling of the table's name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

_SHADOW: Final = re.compile(r"_.+_(gho|ghc|del|new|old)")


@dataclass(frozen=True, slots=True)
class SourceTable:
    """The table that `source` of a record names; None for names that the record lacks.

    topic: the topic that contains the record.
    """

    topic: str
    database: str | None = None
    schema: str | None = None
    table: str | None = None

    def __str__(self) -> str:
        return self.spellings[0]

    @property
    def spellings(self) -> Sequence[str]:
        """All spellings of the name, longest first: `shop.public.orders`, `public.orders`, `orders`, the topic."""
        parts = [part for part in (self.database, self.schema, self.table) if part]
        dotted = [".".join(parts[i:]) for i in range(len(parts))] if self.table else []
        return (*dotted, self.topic)

    @property
    def is_shadow(self) -> bool:
        """Whether this is a working table of gh-ost or pt-online-schema-change: its rows are copies of another's."""
        return self.table is not None and _SHADOW.fullmatch(self.table) is not None

    def matches(self, pattern: str) -> bool:
        """Return whether a shell pattern (`*`, `?`, `[abc]`; case-sensitive) matches a whole spelling of the name."""
        return any(fnmatchcase(spelling, pattern) for spelling in self.spellings)
