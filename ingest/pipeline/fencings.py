"""How often processes of a pipeline were fenced lately, and how long the next one stays away before it ends.

If two supervisors restart their processes, each start fences the other's process, and the pipeline only starts. So a
process that is fenced again and again waits longer and longer before it ends, and its supervisor can't restart it
meanwhile. The count is a file in the warehouse, because each process is a new one:

    <warehouse>/<pipeline>.fenced    {"count", "at_ms", "wait_ms"}

The first fencing is a usual take-over, of a new release for example: that process ends at once.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

import msgspec

from tidelake.errors import TidelakeError
from tidelake.storage.base.backoff import ExponentialBackoff
from tidelake.storage.base.clock import epoch_ms
from tidelake.storage.base.logs import get_logger
from tidelake.storage.fileio.base import FileIO

BACKOFF: Final = ExponentialBackoff(5_000, 600_000)
FORGET_MS: Final = 1_800_000  # after this time without a fencing, the next one is a usual take-over again

_log = get_logger(__name__)


class Fencing(msgspec.Struct, frozen=True):
    """The newest fencing.

    count: number of fencings without a long pause between two.
    at_ms: its time (epoch).
    wait_ms: how long its process stays away.
    """

    count: int
    at_ms: int
    wait_ms: int

    def next(self, now_ms: int) -> Fencing:
        """Return the fencing after this one. A clock that is behind counts as no time."""
        is_forgotten = now_ms - self.at_ms > self.wait_ms + FORGET_MS
        count = 1 if is_forgotten else self.count + 1
        return Fencing(count, now_ms, int(BACKOFF.wait_ms(count - 2)) if count > 1 else 0)


def add_fencing(io: FileIO, warehouse: str, pipeline: str) -> Fencing:
    """Record that this process was fenced, and return it. Blocks.

    If the file can't be read or written, this is logged, and the process stays away for the shortest time.
    """
    path = f"{warehouse.rstrip('/')}/{quote(pipeline, safe='')}.fenced"
    now_ms = epoch_ms()
    try:
        try:
            found = msgspec.json.decode(io.read(path), type=Fencing).next(now_ms)
        except FileNotFoundError:
            found = Fencing(1, now_ms, 0)
        io.write(path, msgspec.json.encode(found))
        return found
    except (OSError, TidelakeError, msgspec.MsgspecError) as error:
        _log.warning("it is unknown how often the pipeline was fenced lately", path=path, error=str(error))
        _forget(io, path)
        return Fencing(2, now_ms, int(BACKOFF.wait_ms(0)))


def _forget(io: FileIO, path: str) -> None:
    """Delete a file that can't be read, so that the next fencing begins a new one."""
    try:
        io.delete(path)
    except (OSError, TidelakeError):
        _log.debug("the file stays", path=path)
