"""Limits of a streaming source's batches, if PySpark supports them."""

from __future__ import annotations

try:  # PySpark 4.2 and later
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
except ImportError:  # PySpark 4.1 passes a source neither the start of a batch nor a limit
    HAS_LIMITS = False

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        pass

    class ReadLimit:  # type: ignore[no-redef]
        """A class for type hints only: older releases have no limits."""

    ReadAllAvailable = ReadMaxRows = ReadLimit  # type: ignore[misc,assignment]
else:
    HAS_LIMITS = True

__all__ = ["HAS_LIMITS", "ReadAllAvailable", "ReadLimit", "ReadMaxRows", "SupportsTriggerAvailableNow"]
