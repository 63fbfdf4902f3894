"""Views of a REST catalog.

Source: Java `rest/RESTApi.java` (view methods), `rest/requests/CreateViewRequest.java`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidelake.errors import BadInput
from tidelake.storage.catalog.identifier import Identifier
from tidelake.storage.catalog.rest.rest_client import Refused, RestClient
from tidelake.storage.catalog.view import View

_NOT_FOUND, _EXISTS = 404, 409


@dataclass(frozen=True, slots=True)
class RestViews:
    """See `ViewStore`."""

    client: RestClient

    def names(self, database: str) -> list[str]:
        return sorted(self.client.pages("views", "databases", database, "views"))

    def find(self, identifier: Identifier) -> View | None:
        try:
            answer = self.client.get("databases", identifier.database, "views", identifier.table)
        except Refused as e:
            if e.status == _NOT_FOUND:
                return None
            raise BadInput(str(e)) from e
        return View.from_members(answer.get("schema") or {}, f"what the server says of view {identifier}")

    def add(self, identifier: Identifier, view: View) -> bool:
        body = {"identifier": _request_members(identifier), "schema": view.to_members()}
        return self._post_unless_name_taken(body, "databases", identifier.database, "views")

    def remove(self, identifier: Identifier) -> None:
        try:
            self.client.delete("databases", identifier.database, "views", identifier.table)
        except Refused as e:
            raise BadInput(f"view {identifier} can't be dropped: {e}") from e

    def rename(self, old: Identifier, new: Identifier) -> bool:
        return self._post_unless_name_taken(
            {"source": _request_members(old), "destination": _request_members(new)}, "views", "rename"
        )

    def _post_unless_name_taken(self, body: Mapping[str, object], *resource: str) -> bool:
        """Post a request, and return whether it succeeded: False if the name is taken."""
        try:
            self.client.post(body, *resource)
        except Refused as e:
            if e.status == _EXISTS:
                return False
            raise BadInput(str(e)) from e
        return True


def _request_members(identifier: Identifier) -> dict[str, str]:
    return {"database": identifier.database, "object": identifier.table}
