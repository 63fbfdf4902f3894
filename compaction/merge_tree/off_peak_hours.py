"""Hours of the day in which larger compactions are allowed.

Source: Java `mergetree/compact/OffPeakHours.java`; vectors `offpeak_hours.json`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OffPeakHours:
    """A range of local hours, 0 to 23, without the end, which may be after midnight.

    Equal hours, or a -1, mean never.
    """

    start_hour: int = -1
    end_hour: int = -1
    ratio_percent: int = 0

    @property
    def is_enabled(self) -> bool:
        return -1 not in (self.start_hour, self.end_hour) and self.start_hour != self.end_hour

    def ratio_at(self, hour: int) -> int:
        """Return the addition to the size ratio, in percent."""
        if not self.is_enabled:
            return 0
        if self.start_hour <= self.end_hour:
            is_inside = self.start_hour <= hour < self.end_hour
        else:
            is_inside = hour >= self.start_hour or hour < self.end_hour
        return self.ratio_percent if is_inside else 0
