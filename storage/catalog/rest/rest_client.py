"""Sends requests to a catalog's server, and interprets its answers.

Source: Java `rest/RESTApi.java`, `rest/HttpClient.java`, `rest/ResourcePaths.java`, `rest/DefaultErrorHandler.java`.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final
from urllib.parse import quote_plus, urlencode

import urllib3

from tidelake.errors import AccessDenied, BadInput

_HEADER: Final = "header."
_TIMEOUT: Final = urllib3.Timeout(connect=30, read=180)
_READ_RETRIES: Final = urllib3.Retry(
    5, backoff_factor=0.1, status_forcelist=(429, 502, 503, 504), allowed_methods=("GET",), raise_on_status=False
)


class Refused(Exception):
    """The server refused the request (4xx) and changed nothing.

    status: the HTTP status; 404 means that the thing does not exist, 409 that it already exists.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class RestClient:
    """The client of one catalog on a server. It can be pickled; a copy opens its own connections.

    uri: the address of the server, without a slash at the end.
    prefix: the prefix of the catalog's resources, from the server's configuration.
    headers: the HTTP headers of each request, including the token.
    """

    uri: str
    prefix: str = ""
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, options: Mapping[str, str]) -> RestClient:
        """Make a client from the options of the catalog.

        options: `uri`, `token`, `token.provider`, `header.…`, `prefix`.

        Raises BadInput for a missing address or token.
        """
        uri = options.get("uri", "").strip().rstrip("/")
        if not uri:
            raise BadInput("catalog option uri is missing: metastore = rest needs it; write http://host:port")
        if "://" not in uri:
            uri = f"http://{uri}"
        if not uri.startswith(("http://", "https://")) or "@" in uri:
            raise BadInput(
                "catalog option uri is not the address of a REST catalog; use http://host, and pass the token as an "
                "option"
            )
        headers = {key.removeprefix(_HEADER): value for key, value in options.items() if key.startswith(_HEADER)}
        provider = options.get("token.provider", "").strip().lower()
        if "token" in options:
            headers["Authorization"] = f"Bearer {options['token']}"
        elif provider:
            raise BadInput("catalog option token is missing: token.provider = bear needs it")
        return cls(uri, options.get("prefix", ""), tuple(sorted(headers.items())))

    def with_server_options(self, options: Mapping[str, str]) -> RestClient:
        """Return a client that also uses the options of the server's configuration."""
        headers = {k.removeprefix(_HEADER): v for k, v in options.items() if k.startswith(_HEADER)}
        merged = {**headers, **dict(self.headers)}
        return replace(self, prefix=options.get("prefix", self.prefix), headers=tuple(sorted(merged.items())))

    # ------------------------------------------------------------ requests

    def config(self, warehouse: str) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """Return the server's options for its clients: defaults, and overrides of the clients' own options."""
        answer = self._request("GET", f"/v1/config?{urlencode({'warehouse': warehouse})}", None)
        return answer.get("defaults") or {}, answer.get("overrides") or {}

    def get(self, *resource: str) -> dict[str, Any]:
        return self._request("GET", self._path(resource), None)

    def pages(self, member: str, *resource: str) -> Iterator[Any]:
        """Yield all items of a list that the server returns in pages."""
        token: str | None = None
        while True:
            query = f"?{urlencode({'pageToken': token})}" if token else ""
            answer = self._request("GET", self._path(resource) + query, None)
            yield from answer.get(member) or ()
            token = answer.get("nextPageToken")
            if not token:
                return

    def post(self, body: Mapping[str, Any], *resource: str) -> dict[str, Any]:
        """Send a request only once. After a ConnectionError the server may have executed it."""
        return self._request("POST", self._path(resource), body)

    def delete(self, *resource: str) -> None:
        self._request("DELETE", self._path(resource), None)

    def _path(self, resource: tuple[str, ...]) -> str:
        return "/v1/" + "/".join(quote_plus(part) for part in (self.prefix, *resource) if part)

    def _request(self, method: str, path: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
        """Send a request, and return the JSON object of the answer.

        Raises Refused, AccessDenied, or ConnectionError. Only a ConnectionError may be temporary.
        """
        data = None if body is None else json.dumps(body, ensure_ascii=False).encode()
        headers = {**dict(self.headers), "Content-Type": "application/json"}
        try:
            answer = _pool(os.getpid()).request(
                method,
                self.uri + path,
                body=data,
                headers=headers,
                timeout=_TIMEOUT,
                retries=_READ_RETRIES if method == "GET" else urllib3.Retry(0, redirect=3),
            )
        except urllib3.exceptions.HTTPError as e:
            raise ConnectionError(f"REST catalog {self.uri}: {e}") from e
        if answer.status < 300:
            return _json_object(answer.data)
        detail = _json_object(answer.data).get("message") or answer.reason or "no reason given"
        message = f"REST catalog {self.uri}: {method} {path.partition('?')[0]}: {detail} (status {answer.status})"
        if answer.status in (401, 403):
            raise AccessDenied(
                errno.EACCES, f"{detail} (status {answer.status}); check the catalog's token", self.uri + path
            )
        if answer.status < 500 and answer.status not in (408, 425, 429):
            raise Refused(answer.status, message)
        raise ConnectionError(message)


def _json_object(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data) if data else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


@lru_cache(maxsize=4)
def _pool(process_id: int) -> urllib3.PoolManager:
    """Return the pool of this process: connections don't survive a fork."""
    return urllib3.PoolManager(num_pools=16, maxsize=8)
