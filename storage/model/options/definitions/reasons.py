"""Reasons and remedies that options of several subjects share."""

from __future__ import annotations

from typing import Final

USE_JAVA: Final = "Use Java Paimon for it"
PERFORMANCE_ONLY: Final = "it only changes how fast, in how much memory or in how many pieces work is done"
LAYOUT: Final = "it only changes the layout of rows in files"
FLINK: Final = "only Flink jobs use it"
