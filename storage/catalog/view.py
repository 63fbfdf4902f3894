"""A view: a query under a name, with the columns it gives.

Source: Java `view/ViewSchema.java`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from storage.catalog.identifier import Identifier
from storage.errors import BadInput
from storage.types import DataField
from storage.types.type_json import field_from_json, field_to_json


@dataclass(frozen=True, slots=True)
class View:
    """Nothing here runs it: an engine does.

    fields: its columns.
    query: as SQL of no dialect in particular.
    dialects: engine -> the query as that engine writes it.
    """

    fields: tuple[DataField, ...]
    query: str
    dialects: Mapping[str, str] = field(default_factory=dict)
    comment: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    def query_of(self, dialect: str) -> str:
        """What an engine of this dialect runs."""
        return self.dialects.get(dialect, self.query)

    def to_members(self) -> dict[str, Any]:
        """As JSON, the way Java writes it."""
        members: dict[str, Any] = {
            "fields": [field_to_json(column) for column in self.fields],
            "query": self.query,
            "dialects": dict(self.dialects),
        }
        if self.comment is not None:
            members["comment"] = self.comment
        return {**members, "options": dict(self.options)}

    @classmethod
    def from_members(cls, members: Mapping[str, Any], where: str) -> View:
        """where: for messages. Raises BadInput for what is no view."""
        try:
            return cls(
                tuple(field_from_json(column) for column in members["fields"]),
                str(members["query"]),
                dict(members.get("dialects") or {}),
                members.get("comment"),
                dict(members.get("options") or {}),
            )
        except (KeyError, TypeError, ValueError) as e:
            raise BadInput(f"{where} is no view that can be read: {e!r}") from e

    @classmethod
    def from_json(cls, text: str, where: str) -> View:
        try:
            members = json.loads(text)
        except ValueError as e:
            raise BadInput(f"{where} is no view that can be read: {e}") from e
        return cls.from_members(members, where)


class ViewStore(Protocol):
    """Where a catalog keeps its views. A name is that of one table or one view."""

    def names(self, database: str) -> list[str]:
        """Sorted."""
        ...

    def find(self, identifier: Identifier) -> View | None: ...

    def add(self, identifier: Identifier, view: View) -> bool:
        """False when there is a table or a view of this name."""
        ...

    def remove(self, identifier: Identifier) -> None:
        """Of a view that is there."""
        ...

    def rename(self, old: Identifier, new: Identifier) -> bool:
        """False when there is a table or a view of the new name."""
        ...
