"""How much a streaming source is asked for, where PySpark asks."""

from __future__ import annotations

try:  # PySpark 4.2 and later
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
except ImportError:  # PySpark 4.1 tells a source neither where a batch begins nor how much to take
    HAS_LIMITS = False

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        pass

    class ReadLimit:  # type: ignore[no-redef]
        """A name for type hints only: older releases have no limits."""

    ReadAllAvailable = ReadMaxRows = ReadLimit  # type: ignore[misc,assignment]
else:
    HAS_LIMITS = True

__all__ = ["HAS_LIMITS", "ReadAllAvailable", "ReadLimit", "ReadMaxRows", "SupportsTriggerAvailableNow"]
