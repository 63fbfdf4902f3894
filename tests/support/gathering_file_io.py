"""A FileIO that answers requests of a kind only when a number of them wait: those that must go out side by side."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from tests.support.faulty_file_io import Call, Fault, FaultyFileIO
from tidelake.storage.fileio.base import FileIO

_PATIENCE_S = 30


class GatheringFileIO(FaultyFileIO):
    """together: by kind of file (`kind_of`), how many requests must wait together. Other kinds are answered at once.

    A group that doesn't come together within half a minute fails. `round_trips` is exact if all requests that go out
    side by side are gathered.
    """

    def __init__(self, inner: FileIO, together: Mapping[str, int]) -> None:
        super().__init__(inner, self._wait)
        self._groups: dict[str, threading.Barrier] = {}
        self.round_trips = 0  # the longest chain of requests, each sent after an answer to the one before
        for kind, count in together.items():
            self.gather(count, kind)

    def gather(self, count: int, *kinds: str) -> None:
        """From now on, requests of these kinds are answered when `count` of them wait."""
        self._groups.update(dict.fromkeys(kinds, threading.Barrier(count, timeout=_PATIENCE_S)))

    def _wait(self, call: Call) -> Fault | None:
        own = self.round_trips + 1
        if (group := self._groups.get(kind_of(call))) is not None:
            group.wait()
        self.round_trips = max(self.round_trips, own)
        return None

    def kinds(self) -> list[str]:
        return [kind_of(call) for call in self.calls]


def kind_of(call: Call) -> str:
    """Return the beginning of a file's name up to its number or its uuid: `manifest-list`, `data`, `LATEST`."""
    if call.name == "exists":
        return f"is there a {call.file_name.rpartition('-')[0]}"
    if call.name == "list_directory":
        return f"list {call.file_name}"
    if call.file_name.endswith(".index"):
        return "file index"
    for kind in ("manifest-list", "index-manifest", "manifest", "snapshot", "schema", "data", "index"):
        if call.file_name.startswith(f"{kind}-"):
            return kind
    return call.file_name
