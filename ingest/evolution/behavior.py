"""The configured behaviour for schema changes of the source.

Names as in Flink CDC: `schema.change.behavior`, `include.schema.changes`, `exclude.schema.changes`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import Final

from tidelake.ingest.settings import SchemaEvolutionSettings


class ChangeKind(StrEnum):
    ADD_COLUMN = "add.column"
    ALTER_COLUMN_TYPE = "alter.column.type"
    RENAME_COLUMN = "rename.column"
    DROP_COLUMN = "drop.column"

    def is_named_by(self, word: str) -> bool:
        """Return whether the word names this kind. `add` and `column` name `add.column`, too."""
        return word == self or word in self.split(".")


class Action(Enum):
    """What to do with a change.

    STOP: the pipeline stops.
    APPLY: the table is altered. If this is impossible, the pipeline stops.
    TRY: the table is altered. If this is impossible, the change is ignored as with IGNORE.
    IGNORE: the table is not altered. Records are read as far as they fit the table.
    """

    STOP = auto()
    APPLY = auto()
    TRY = auto()
    IGNORE = auto()


_LOSES_COLUMNS: Final = frozenset({ChangeKind.RENAME_COLUMN, ChangeKind.DROP_COLUMN})


@dataclass(frozen=True, slots=True)
class SchemaBehavior:
    """The behaviour of one table."""

    settings: SchemaEvolutionSettings

    def action(self, kind: ChangeKind) -> Action:
        mode = self.settings.mode
        if mode == "exception":
            return Action.STOP
        is_included = any(kind.is_named_by(word) for word in self.settings.include)
        is_excluded = any(kind.is_named_by(word) for word in self.settings.exclude)
        if mode == "ignore" or not is_included or is_excluded or (mode == "lenient" and kind in _LOSES_COLUMNS):
            return Action.IGNORE
        return Action.TRY if mode == "try_evolve" else Action.APPLY

    @property
    def follows_types(self) -> bool:
        return self.action(ChangeKind.ALTER_COLUMN_TYPE) in (Action.APPLY, Action.TRY)

    @property
    def drops_columns(self) -> bool:
        return self.action(ChangeKind.DROP_COLUMN) in (Action.APPLY, Action.TRY)

    def __str__(self) -> str:
        """Return the text that `plan` prints, for example `evolve: add.column, alter.column.type`."""
        applied = [kind.value for kind in ChangeKind if self.action(kind) in (Action.APPLY, Action.TRY)]
        if self.settings.mode == "exception":
            return "exception: stops at the first change"
        return f"{self.settings.mode}: {', '.join(applied) or 'no change is made'}"
