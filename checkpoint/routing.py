"""Which records become rows of a table, kept in its snapshots: what was passed over stays passed over.

A position says "everything below is in the table". That is true for the records that were meant for it then; with
other patterns it would be a lie about those that the old ones left out. Settings that change when or how fast rows
arrive, or what a value looks like, are no part of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final

from storage.errors import CorruptFile

ROUTING_PROPERTY: Final = "tidelake.routing"  # key in Snapshot.properties
ROUTING_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Routing:
    """The settings that decide which records become rows of a table.

    format: of the records
    match, topics: the table's patterns (`tables[].match`, `tables[].topics`), sorted
    """

    format: str
    match: Sequence[str]
    topics: Sequence[str]

    @classmethod
    def of(cls, format: str, match: Sequence[str], topics: Sequence[str]) -> Routing:
        return cls(format, tuple(sorted(set(match))), tuple(sorted(set(topics))))

    def to_members(self) -> dict[str, Any]:
        """The routing as JSON members."""
        return {
            "version": ROUTING_VERSION,
            "format": self.format,
            "match": list(self.match),
            "topics": list(self.topics),
        }

    @classmethod
    def from_members(cls, members: Mapping[str, Any]) -> Routing | None:
        """None for a version that this release doesn't know. Raises KeyError or TypeError for what is no routing."""
        if members["version"] != ROUTING_VERSION:
            return None
        return cls.of(str(members["format"]), members["match"], members["topics"])

    def to_text(self) -> str:
        """The text in a snapshot's property."""
        return json.dumps(self.to_members(), ensure_ascii=False, separators=(",", ":"))

    def changes_from(self, before: Routing) -> list[str]:
        """The differences from an older routing, a phrase each."""
        return [
            f"{setting} is {_shown(now)}, it was {_shown(then)}"
            for setting, then, now in (
                ("`format`", before.format, self.format),
                ("`match`", before.match, self.match),
                ("`topics`", before.topics, self.topics),
            )
            if then != now
        ]


def takes_topic(patterns: Iterable[str], topic: str) -> bool:
    """Whether a topic may hold records for a table with these patterns (`tables[].topics`); the records themselves may
    still be another table's.
    """
    return any(fnmatchcase(topic, pattern) for pattern in patterns)


def routing_of(properties: Mapping[str, str], where: str) -> Routing | None:
    """None where the snapshot doesn't say, or says it in a version that this release doesn't know.

    Raises CorruptFile for text that is no routing.
    where: the snapshot, for messages.
    """
    text = properties.get(ROUTING_PROPERTY)
    if text is None:
        return None
    try:
        return Routing.from_members(json.loads(text))
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptFile(where, f"a routing as property {ROUTING_PROPERTY}", f"{text[:200]!r} ({error})") from error


def _shown(value: str | Sequence[str]) -> str:
    return value if isinstance(value, str) else ", ".join(value)
