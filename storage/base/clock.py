"""Returns the current time in milliseconds."""

from __future__ import annotations

from datetime import UTC

from tidelake.storage.base import env


def epoch_ms() -> int:
    return env.wall_ns() // 1_000_000


def local_time_as_utc_ms() -> int:
    """Return the local wall clock as if it were UTC. Java records the creation time of data files like this.
    `DataFileMeta.created_epoch_ms` reverses it.
    """
    return int(env.local_now().replace(tzinfo=UTC).timestamp() * 1000)
