"""The limits of a streaming source's batches, and whether this release of PySpark has them.

PySpark 4.1 passes a source neither the start of a batch nor a limit. Its classes are replaced by empty ones here.
"""

from __future__ import annotations

__all__ = ["HAS_LIMITS", "ReadAllAvailable", "ReadLimit", "ReadMaxRows", "SupportsTriggerAvailableNow"]

try:  # PySpark 4.2 and later
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
except ImportError:
    HAS_LIMITS = False

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        pass

    class ReadLimit:  # type: ignore[no-redef]
        """A class for type hints only: older releases have no limits."""

    ReadAllAvailable = ReadMaxRows = ReadLimit  # type: ignore[misc,assignment]
else:
    HAS_LIMITS = True
