"""Which table a change record says it comes from, before any routing.

A topic normally carries one table, but nothing promises it: a router at the connector may merge topics, and two schemas
of one database may hold tables of one name. So the names come from each record, and a pattern may match any spelling.
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
    """What `source` of a record names; None for what it leaves out. `topic` is where the record lay."""

    topic: str
    database: str | None = None
    schema: str | None = None
    table: str | None = None

    def __str__(self) -> str:
        return self.spellings[0]

    @property
    def spellings(self) -> Sequence[str]:
        """Every way to write the name, longest first: `shop.public.orders`, `public.orders`, `orders`, the topic."""
        parts = [part for part in (self.database, self.schema, self.table) if part]
        dotted = [".".join(parts[i:]) for i in range(len(parts))] if self.table else []
        return (*dotted, self.topic)

    @property
    def is_shadow(self) -> bool:
        """Whether gh-ost or pt-online-schema-change copies rows through it: they are those of another table."""
        return self.table is not None and _SHADOW.fullmatch(self.table) is not None

    def matches(self, pattern: str) -> bool:
        """Whether a shell pattern (`*`, `?`, `[abc]`; case counts) fits one of the spellings whole."""
        return any(fnmatchcase(spelling, pattern) for spelling in self.spellings)
