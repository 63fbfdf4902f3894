"""Periods of automatic tags, and the names of tags for periods.

Source: Java `tag/TagPeriodHandler.java`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Self

from tidelake.storage.model.options import TableOptions

_WITH_DASHES: Final = "with_dashes"
_DAY: Final = {_WITH_DASHES: "%Y-%m-%d"}
_HOUR: Final = {_WITH_DASHES: "%Y-%m-%d %H", "without_dashes": "%Y%m%d %H", "without_dashes_and_spaces": "%Y%m%d%H"}
_MINUTE: Final = "%Y%m%d%H%M"
_DAYS: Final = (_DAY[_WITH_DASHES], "%Y%m%d")
_EPOCH: Final = datetime(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class TagPeriod:
    """A period of automatic tags.

    length: length of a period. Periods are counted from the start of 1970, in the time zone of the tags.
    text_format: format of a tag name for `strftime`; it names the start of a period.
    """

    length: timedelta
    text_format: str

    @classmethod
    def of(cls, options: TableOptions) -> Self:
        match options.tag_period:
            case "duration":
                return cls(timedelta(milliseconds=options.tag_period_duration_ms or 0), _MINUTE)
            case "daily":
                return cls(timedelta(days=1), _DAY.get(options.tag_period_format, "%Y%m%d"))
            case "hourly":
                return cls(timedelta(hours=1), _HOUR[options.tag_period_format])
            case _:
                return cls(timedelta(hours=2), _HOUR[_WITH_DASHES])

    def time_of(self, name: str) -> datetime | None:
        """Returns the start of the period; None for a name that no automatic tag can have."""
        text = name.partition(" ")[0] if self.text_format in _DAYS else name
        digits = re.sub(r"%Y", r"\\d{4}", re.sub(r"%[mdHM]", r"\\d{2}", self.text_format))
        if not re.fullmatch(digits, text):
            return None
        try:
            return datetime.strptime(text, self.text_format)
        except ValueError:
            return None

    def name_of(self, start: datetime) -> str:
        return start.strftime(self.text_format)

    def last_complete(self, time: datetime) -> datetime:
        """Returns the start of the period before the one that contains `time`."""
        return _EPOCH + (time - _EPOCH) // self.length * self.length - self.length

    @property
    def example(self) -> str:
        """An example of a tag name."""
        return self.name_of(datetime(2026, 1, 31, 12))
