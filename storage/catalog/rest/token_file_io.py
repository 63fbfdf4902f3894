"""Accesses the files of one table with credentials from the server, which expire.

The first call requests the credentials. They are requested again when they expire in one hour, or in half of their
lifetime if that is shorter. If the server does not answer then, the old credentials are used while they are valid, and
the next call requests new ones.

Source: Java `rest/RESTTokenFileIO.java`, `rest/responses/GetTableTokenResponse.java`. Java requests new credentials one
hour before the old ones expire. With a lifetime of less than an hour, it requests new ones at every call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa

from tidelake.errors import BadInput
from tidelake.storage.base import env
from tidelake.storage.base.clock import epoch_ms
from tidelake.storage.base.logs import get_logger
from tidelake.storage.catalog.rest.rest_client import Refused, RestClient
from tidelake.storage.fileio import FileIO, open_file_io, uncached
from tidelake.storage.fileio.base import FileStatus, Output

_REFRESH_AT_MS: Final = 3_600_000  # remaining lifetime

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Credentials:
    """Credentials from the server.

    io: the file access that uses them.
    refresh_at_ms: when to request new ones, as epoch milliseconds.
    expires_at_ms: when they expire, as epoch milliseconds.
    """

    io: FileIO
    refresh_at_ms: int
    expires_at_ms: int


@dataclass(slots=True)
class TokenFileIO:
    """A `FileIO` with credentials from the server. It is pickled without them: each process requests its own.

    resource: the server's resource of the table.
    location: the location of the table.
    store_options: options of the store. The credentials override them.
    now_ms: the clock, in epoch milliseconds.
    is_cached: see `tidelake.storage.fileio.uncached`.
    """

    client: RestClient
    resource: tuple[str, ...]
    location: str
    store_options: Mapping[str, str] = field(repr=False)
    now_ms: Callable[[], int] = field(default=epoch_ms, repr=False)
    is_cached: bool = field(default=True, repr=False)
    _given: _Credentials | None = field(default=None, init=False, repr=False)
    _lock: Any = field(default_factory=lambda: env.Lock(), init=False, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return TokenFileIO, (
            self.client,
            self.resource,
            self.location,
            self.store_options,
            self.now_ms,
            self.is_cached,
        )

    def _io(self) -> FileIO:
        given = self._given
        if given is None or self.now_ms() >= given.refresh_at_ms:
            with self._lock:
                if self._given is given:  # no other thread has renewed them in the meantime
                    self._given = self._request_credentials(given)
                given = self._given
        assert given is not None
        return given.io

    def _request_credentials(self, before: _Credentials | None) -> _Credentials:
        try:
            answer = self.client.get(*self.resource, "token")
        except Refused as e:
            raise BadInput(f"the files of {'.'.join(self.resource[1::2])} can't be reached: {e}") from e
        except OSError as error:  # the server can't be reached, or refuses for now
            if before is None or self.now_ms() >= before.expires_at_ms:
                raise
            _log.warning("credentials are not renewed yet", location=self.location, why=str(error))
            return before
        now_ms, token = self.now_ms(), answer.get("token") or {}
        expires_at_ms = int(answer.get("expiresAtMillis") or 0)
        ahead_ms = min(_REFRESH_AT_MS, max(0, expires_at_ms - now_ms) // 2)
        options = {**self.store_options, **{str(key): str(value) for key, value in token.items()}}
        _log.info("credentials given", location=self.location, expires_at_ms=expires_at_ms)
        io = open_file_io(self.location, options)
        return _Credentials(io if self.is_cached else uncached(io), expires_at_ms - ahead_ms, expires_at_ms)

    def uncached(self) -> TokenFileIO:
        """See `tidelake.storage.fileio.uncached`."""
        return replace(self, is_cached=False)

    # ------------------------------------------------------------ FileIO

    def read(self, path: str) -> bytes:
        return self._io().read(path)

    def open_input(self, path: str) -> pa.NativeFile:
        return self._io().open_input(path)

    def open_output(self, path: str) -> Output:
        return self._io().open_output(path)

    def write(self, path: str, data: bytes, *, durable: bool = True) -> None:
        self._io().write(path, data, durable=durable)

    def create_if_absent(self, path: str, data: bytes) -> bool:
        return self._io().create_if_absent(path, data)

    def exists(self, path: str) -> bool:
        return self._io().exists(path)

    def size_bytes(self, path: str) -> int:
        return self._io().size_bytes(path)

    def list_directory(self, path: str) -> list[FileStatus]:
        return self._io().list_directory(path)

    def make_directory(self, path: str) -> None:
        self._io().make_directory(path)

    def delete(self, path: str) -> None:
        self._io().delete(path)

    def delete_all(self, paths: Iterable[str]) -> None:
        self._io().delete_all(paths)

    def delete_directory(self, path: str) -> None:
        self._io().delete_directory(path)

    def delete_empty_directory(self, path: str) -> bool:
        return self._io().delete_empty_directory(path)

    def rename_directory(self, source: str, target: str) -> None:
        self._io().rename_directory(source, target)
