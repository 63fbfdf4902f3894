"""Times in milliseconds since 1970: of now, and of a datetime."""

from __future__ import annotations

from datetime import UTC, datetime

from tidelake.errors import BadInput
from tidelake.storage.base import env


def epoch_ms() -> int:
    return env.wall_ns() // 1_000_000


def local_time_as_utc_ms() -> int:
    """Return the local wall clock as if it were UTC. Java records the creation time of data files like this.
    `DataFileMeta.created_epoch_ms` reverses it.
    """
    return int(env.local_now().replace(tzinfo=UTC).timestamp() * 1000)


def datetime_in_ms(moment: datetime) -> int:
    """Return epoch milliseconds. A datetime without a time zone is in the local one.

    Raises BadInput for a local time that has no place in UTC, such as the first hours of year 1.
    """
    try:
        return int(moment.timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise BadInput(
            f"{moment} is ambiguous in the local time zone, or does not exist; pass a datetime with a time zone"
        ) from None
