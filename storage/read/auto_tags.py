"""Tags that a schedule made: their names say for which day, hour or minute.

Source: Java `tag/TagPeriodHandler.java`.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

from storage.errors import BadInput
from storage.options import TableOptions
from storage.snapshots.snapshot import Snapshot
from storage.snapshots.tags import TagStore
from storage.table import TableContext

_DASHES: Final = "with_dashes"
_DAY: Final = {_DASHES: "%Y-%m-%d"}
_HOUR: Final = {_DASHES: "%Y-%m-%d %H", "without_dashes": "%Y%m%d %H", "without_dashes_and_spaces": "%Y%m%d%H"}
_MINUTE: Final = "%Y%m%d%H%M"


def snapshots_to_auto_tag(context: TableContext, name: str) -> tuple[Snapshot, Snapshot] | None:
    """The snapshots of the last automatic tag before this one, and of this one; None where either is missing.

    Raises BadInput for a name that no automatic tag of the table has.
    """
    tags, options = TagStore(context.io, context.paths), context.options
    end = tag_time(name, options)
    if end is None:
        raise BadInput(
            f"option incremental-to-auto-tag = {name!r}: an automatic tag of {context.name} is named like "
            f"{datetime(2026, 1, 31, 12).strftime(_format(options))} (tag.creation-period, tag.period-formatter)"
        )
    names = tags.names()
    earlier = [(time, other) for other in names if (time := tag_time(other, options)) is not None and time < end]
    if name not in names or not earlier:
        return None
    return tags.get(max(earlier)[1]), tags.get(name)


def tag_time(name: str, options: TableOptions) -> datetime | None:
    """When the period ends that an automatic tag of this name stands for; None for another tag's name."""
    text_format = _format(options)
    text = name.partition(" ")[0] if text_format in (_DAY[_DASHES], "%Y%m%d") else name
    digits = re.sub(r"%Y", r"\\d{4}", re.sub(r"%[mdHM]", r"\\d{2}", text_format))
    if not re.fullmatch(digits, text):
        return None
    try:
        return datetime.strptime(text, text_format)
    except ValueError:
        return None


def _format(options: TableOptions) -> str:
    match options.tag_period:
        case "duration":
            return _MINUTE
        case "daily":
            return _DAY.get(options.tag_period_format, "%Y%m%d")
        case "hourly":
            return _HOUR[options.tag_period_format]
        case _:
            return _HOUR[_DASHES]
