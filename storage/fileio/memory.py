"""Files in the memory of this process, for tests: `memory://name/...`. All users of a name share the files."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from obstore.store import MemoryStore

from tidelake.errors import BadInput, UnsupportedFeature
from tidelake.storage.base import env
from tidelake.storage.fileio.location import MEMORY_SCHEME
from tidelake.storage.fileio.object_store import ObjectStoreFileIO

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_STORES: Final[dict[str, MemoryStore]] = {}
# Added to the process id: a forked child has the same value, and a process of another machine may have the same id.
_START: Final = env.new_uuid().hex


class MemoryFileIO(ObjectStoreFileIO):
    """Can be pickled within the process. Any other process is rejected: it would find no files and report them lost."""

    def __init__(self) -> None:
        super().__init__(is_cached=False)

    def _open(self, scheme: str, authority: str) -> ObjectStore:
        if scheme != MEMORY_SCHEME:
            raise BadInput(f"{scheme}://{authority} is not in memory; open it with open_file_io")
        return _STORES.setdefault(authority, MemoryStore())

    def __reduce__(self) -> tuple[object, ...]:
        return _reopen, (_process(),)


def _process() -> str:
    return f"{_START}-{os.getpid()}"


def _reopen(process: str) -> MemoryFileIO:
    if process != _process():
        raise UnsupportedFeature(
            "memory://",
            "its files exist only in the process that created them, and this is another process",
            "Use a path on disk, or an object store",
        )
    return MemoryFileIO()
