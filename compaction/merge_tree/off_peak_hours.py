"""Hours of the day in which larger compactions are welcome.

Source: Java `mergetree/compact/OffPeakHours.java`; vectors `offpeak_hours.json`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OffPeakHours:
    """Local hours 0 to 23, the end not included; it may be past midnight. Equal hours, or -1 in one: never."""

    start_hour: int = -1
    end_hour: int = -1
    ratio_percent: int = 0

    @property
    def is_enabled(self) -> bool:
        return -1 not in (self.start_hour, self.end_hour) and self.start_hour != self.end_hour

    def ratio_at(self, hour: int) -> int:
        """The addition to the size ratio, in percent."""
        if not self.is_enabled:
            return 0
        if self.start_hour <= self.end_hour:
            is_inside = self.start_hour <= hour < self.end_hour
        else:
            is_inside = hour >= self.start_hour or hour < self.end_hour
        return self.ratio_percent if is_inside else 0
