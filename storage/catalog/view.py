"""A view: a named query, with the columns of its result.

Source: Java `view/ViewSchema.java`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from tidelake.errors import BadInput
from tidelake.storage.catalog.identifier import Identifier
from tidelake.storage.model.types import DataField
from tidelake.storage.model.types.type_json import field_from_json, field_to_json


@dataclass(frozen=True, slots=True)
class View:
    """The definition of a view. Tidelake stores it, and an engine such as Spark runs it.

    fields: the columns of the result.
    query: the query in SQL, for engines that have no entry in `dialects`.
    dialects: engine -> the query in that engine's dialect.
    """

    fields: tuple[DataField, ...]
    query: str
    dialects: Mapping[str, str] = field(default_factory=dict)
    comment: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    def query_of(self, dialect: str) -> str:
        """Return the query for an engine of this dialect."""
        return self.dialects.get(dialect, self.query)

    def to_members(self) -> dict[str, Any]:
        """Return the members of the JSON object, as Java writes it."""
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
        """Read a view from the members of a JSON object.

        where: the source of the members, for error messages.

        Raises BadInput if they don't describe a view.
        """
        try:
            return cls(
                tuple(field_from_json(column) for column in members["fields"]),
                str(members["query"]),
                dict(members.get("dialects") or {}),
                members.get("comment"),
                dict(members.get("options") or {}),
            )
        except (KeyError, TypeError, ValueError) as e:
            raise BadInput(f"{where} can't be read as a view: {e!r}") from e

    @classmethod
    def from_json(cls, text: str, where: str) -> View:
        try:
            members = json.loads(text)
        except ValueError as e:
            raise BadInput(f"{where} can't be read as a view: {e}") from e
        return cls.from_members(members, where)


class ViewStore(Protocol):
    """The views of a catalog. A table and a view can't have the same name."""

    def names(self, database: str) -> list[str]:
        """Return the names of the views, sorted."""
        ...

    def find(self, identifier: Identifier) -> View | None: ...

    def add(self, identifier: Identifier, view: View) -> bool:
        """Return False if a table or a view has this name."""
        ...

    def remove(self, identifier: Identifier) -> None:
        """Remove a view, which must exist."""
        ...

    def rename(self, old: Identifier, new: Identifier) -> bool:
        """Return False if a table or a view has the new name."""
        ...
