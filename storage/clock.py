"""What time it is, in milliseconds."""

from __future__ import annotations

import time
from datetime import UTC, datetime


def epoch_ms() -> int:
    return time.time_ns() // 1_000_000


def local_time_as_utc_ms() -> int:
    """The local wall clock, taken as if it were UTC. So Java writes when a data file was made; see
    `DataFileMeta.created_epoch_ms` for the way back.
    """
    return int(datetime.now().replace(tzinfo=UTC).timestamp() * 1000)
