"""Requests of operators that a running pipeline takes its changed configuration: files in a folder that it looks at.

    <warehouse>/<pipeline>.reload/request-<id>    a request; the pipeline deletes it when it begins
    <warehouse>/<pipeline>.reload/answer-<id>     its answer; the one who asked deletes it

All functions block.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Literal
from urllib.parse import quote

import msgspec

from tidelake.errors import CorruptFile
from tidelake.storage.base import env
from tidelake.storage.fileio.base import FileIO

_REQUEST: Final = "request-"
_ANSWER: Final = "answer-"


class ReloadRequest(msgspec.Struct, frozen=True):
    """A request.

    id: a unique name.
    digest: digest of the configuration file that is meant.
    """

    id: str
    digest: str


class ReloadAnswer(msgspec.Struct, frozen=True):
    """What came of a request.

    outcome: `refused` asks for a restart, `failed` for another file or another try.
    reason: why nothing was changed.
    lines: what was changed, for people. changes: the same for programs.
    """

    outcome: Literal["taken", "unchanged", "refused", "failed"]
    reason: str = ""
    lines: Sequence[str] = ()
    changes: Mapping[str, Any] = {}


class ReloadRequests:
    """The requests to one pipeline."""

    def __init__(self, io: FileIO, warehouse: str, pipeline: str) -> None:
        self._io = io
        self.location = f"{warehouse.rstrip('/')}/{quote(pipeline, safe='')}.reload"

    def ask(self, digest: str) -> ReloadRequest:
        """Request a reload."""
        request = ReloadRequest(env.new_uuid().hex, digest)
        self._io.write(self._path(_REQUEST, request), msgspec.json.encode(request))
        return request

    def take(self) -> list[ReloadRequest]:
        """Return the requests, and delete them. Raises CorruptFile for a file that is no request, and deletes it."""
        found = list[ReloadRequest]()
        for entry in self._io.list_directory(self.location):
            if entry.is_directory or not entry.name.startswith(_REQUEST):
                continue
            path = f"{self.location}/{entry.name}"
            with suppress(FileNotFoundError):  # withdrawn
                text = self._io.read(path)
                self._io.delete(path)
                try:
                    found.append(msgspec.json.decode(text, type=ReloadRequest))
                except msgspec.MsgspecError as error:
                    raise CorruptFile(path, "a request to reload", f"{text[:80]!r} ({error})") from None
        return found

    def answer(self, request: ReloadRequest, answer: ReloadAnswer) -> None:
        self._io.write(self._path(_ANSWER, request), msgspec.json.encode(answer))

    def read_answer(self, request: ReloadRequest) -> ReloadAnswer | None:
        """Return the answer, and delete it; None if there is none yet."""
        path = self._path(_ANSWER, request)
        try:
            found = msgspec.json.decode(self._io.read(path), type=ReloadAnswer)
        except FileNotFoundError:
            return None
        self._io.delete(path)
        return found

    def withdraw(self, request: ReloadRequest) -> bool:
        """Withdraw a request. Returns whether the pipeline had not begun it."""
        path = self._path(_REQUEST, request)
        try:
            self._io.read(path)
            self._io.delete(path)
        except FileNotFoundError:
            return False
        return True

    def _path(self, kind: str, request: ReloadRequest) -> str:
        return f"{self.location}/{kind}{request.id}"
