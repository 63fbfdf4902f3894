"""The differences between the configuration of a running pipeline and a changed one: which of them it can take live."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from tidelake.errors import ReloadRefused
from tidelake.ingest.settings import Config, TableSettings

LIVE: Final = frozenset(
    {
        "source.topics",
        "source.topic_pattern",
        "source.start",
        "format_options",
        "schema_evolution",
        "checkpoint",
        "freshness",
        "errors",
        "moved_rows",
        "quarantine",
        "request_prices",
    }
)
"""Settings outside of `tables` that a running pipeline takes, with all below them."""

NOT_LIVE: Final = frozenset({"errors.dead_letters", "quarantine.location"})
"""Exceptions: folders in which a running pipeline already keeps records."""


@dataclass(frozen=True, slots=True)
class ConfigChanges:
    """The changes from one configuration to another. Names of tables are those of their entries.

    added: tables with a new entry.
    removed: tables whose entry is gone.
    changed: tables whose entry differs, each with the names of the settings that do.
    settings: other settings that a running pipeline takes.
    refused: settings that need a restart.
    """

    added: Sequence[str] = field(default_factory=list)
    removed: Sequence[str] = field(default_factory=list)
    changed: Mapping[str, Sequence[str]] = field(default_factory=dict)
    settings: Sequence[str] = field(default_factory=list)
    refused: Sequence[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed or self.settings or self.refused)

    def check(self) -> None:
        """Raise ReloadRefused if a setting needs a restart. It names all of them."""
        if self.refused:
            raise ReloadRefused(
                f"a running pipeline can't take a change of {', '.join(f'`{name}`' for name in self.refused)}. Nothing "
                "was changed, also nothing else in the file. Undo these changes, or restart the pipeline"
            )

    def document(self) -> dict[str, Any]:
        """Return the changes for programs, and for the log."""
        return {
            "added": list(self.added),
            "removed": list(self.removed),
            "changed": {name: list(settings) for name, settings in self.changed.items()},
            "settings": list(self.settings),
        }

    def lines(self) -> list[str]:
        """Return the changes for people, a line each."""
        return [
            *(f"added: {name}" for name in self.added),
            *(f"removed: {name}" for name in self.removed),
            *(f"changed: {name} ({', '.join(settings)})" for name, settings in self.changed.items()),
            *(f"changed: {name}" for name in self.settings),
        ]


def config_changes(before: Config, after: Config) -> ConfigChanges:
    """Return the changes between two valid configurations. The order of tables is no change."""
    old, new = ({table.name: table for table in config.tables} for config in (before, after))
    both = {name: list(_differing(old[name], new[name])) for name in new if name in old}
    settings = [
        path
        for name in _names(before)
        if name != "tables"
        for path in _paths(name, getattr(before, name), getattr(after, name))
    ]
    return ConfigChanges(
        added=[name for name in new if name not in old],
        removed=[name for name in old if name not in new],
        changed={name: differing for name, differing in both.items() if differing},
        settings=[path for path in settings if _is_live(path)],
        refused=[path for path in settings if not _is_live(path)],
    )


def _differing(before: TableSettings, after: TableSettings) -> Iterator[str]:
    for name in _names(after):
        if getattr(before, name) != getattr(after, name):
            yield name


def _paths(path: str, before: Any, after: Any) -> Iterator[str]:
    """Yield the dotted names of the settings that differ: those of a section, if both have one of the same kind."""
    if before == after:
        return
    if isinstance(before, msgspec.Struct) and type(before) is type(after):
        for name in _names(before):
            yield from _paths(f"{path}.{name}", getattr(before, name), getattr(after, name))
    else:
        yield path


def _names(settings: msgspec.Struct) -> Sequence[str]:
    return settings.__struct_fields__


def _is_live(path: str) -> bool:
    return _is_below(path, LIVE) and not _is_below(path, NOT_LIVE)


def _is_below(path: str, settings: Collection[str]) -> bool:
    return any(path == name or path.startswith(f"{name}.") for name in settings)
