"""The routing decides which records become rows of a table. The table's snapshots record it.

A position says "all records of the table below these offsets are in the table". That is true only for the patterns of
that time: with other patterns, records that the old ones skipped are missing. So a changed routing is detected.
Settings that only change when or how fast rows arrive, or how a value is converted, are not part of the routing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final

from tidelake.errors import CorruptFile

ROUTING_PROPERTY: Final = "tidelake.routing"  # key in Snapshot.properties
ROUTING_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Routing:
    """The settings that decide which records become rows of a table.

    format: the format of the records
    match: the table's patterns of source tables (`tables[].match`), sorted
    topics: the table's patterns of topics (`tables[].topics`), sorted
    """

    format: str
    match: Sequence[str]
    topics: Sequence[str]

    @classmethod
    def of(cls, format: str, match: Sequence[str], topics: Sequence[str]) -> Routing:
        return cls(format, tuple(sorted(set(match))), tuple(sorted(set(topics))))

    def to_members(self) -> dict[str, Any]:
        """Return the routing as JSON members."""
        return {
            "version": ROUTING_VERSION,
            "format": self.format,
            "match": list(self.match),
            "topics": list(self.topics),
        }

    @classmethod
    def from_members(cls, members: Mapping[str, Any]) -> Routing | None:
        """Return the routing; None for a version that this release doesn't know.

        Raises KeyError or TypeError for members that are no routing.
        """
        if members["version"] != ROUTING_VERSION:
            return None
        return cls.of(str(members["format"]), members["match"], members["topics"])

    def to_text(self) -> str:
        """Return the text of the snapshot property."""
        return json.dumps(self.to_members(), ensure_ascii=False, separators=(",", ":"))

    def changes_from(self, before: Routing) -> list[str]:
        """Return the differences from an older routing, one phrase each."""
        return [
            f"{setting} is now {_shown(now)}, but was {_shown(then)}"
            for setting, then, now in (
                ("`format`", before.format, self.format),
                ("`match`", before.match, self.match),
                ("`topics`", before.topics, self.topics),
            )
            if then != now
        ]


def takes_topic(patterns: Iterable[str], topic: str) -> bool:
    """Return whether a topic may hold records for a table with these patterns (`tables[].topics`).

    Records in the topic may still belong to other tables.
    """
    return any(fnmatchcase(topic, pattern) for pattern in patterns)


def routing_of(properties: Mapping[str, str], where: str) -> Routing | None:
    """Return the routing of a snapshot. None if it has none, or has a version that this release doesn't know.

    where: the snapshot's name in messages.

    Raises CorruptFile for text that is no routing.
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
