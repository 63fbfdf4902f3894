"""Returns the current time in milliseconds."""

from __future__ import annotations

import time
from datetime import UTC, datetime


def epoch_ms() -> int:
    return time.time_ns() // 1_000_000


def local_time_as_utc_ms() -> int:
    """Return the local wall clock as if it were UTC. Java records the creation time of data files like this.
    `DataFileMeta.created_epoch_ms` reverses it.
    """
    return int(datetime.now().replace(tzinfo=UTC).timestamp() * 1000)
