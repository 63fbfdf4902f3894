"""Which tags a schedule made, and for which time."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import pytest

from tidelake.storage.model.options import TableOptions
from tidelake.storage.model.snapshots.tags import TagPeriod

NOON = datetime(2026, 1, 31, 12)
DAY = datetime(2026, 1, 31)
NAMES = [
    pytest.param({}, "2026-01-31", DAY, id="a day"),
    pytest.param({}, "2026-01-31 batch", DAY, id="a day with more behind it"),
    pytest.param({}, "20260131", None, id="a day without dashes"),
    pytest.param({}, "2026-02-31", None, id="no day"),
    pytest.param({}, "release", None, id="a name"),
    pytest.param({"tag.period-formatter": "without_dashes"}, "20260131", DAY, id="a day without dashes, as asked"),
    pytest.param({"tag.creation-period": "hourly"}, "2026-01-31 12", NOON, id="an hour"),
    pytest.param({"tag.creation-period": "hourly"}, "2026-01-31", None, id="a day among hours"),
    pytest.param(
        {"tag.creation-period": "hourly", "tag.period-formatter": "without_dashes"}, "20260131 12", NOON, id="no dashes"
    ),
    pytest.param(
        {"tag.creation-period": "hourly", "tag.period-formatter": "without_dashes_and_spaces"},
        "2026013112",
        NOON,
        id="no dashes, no spaces",
    ),
    pytest.param({"tag.creation-period": "two-hours"}, "2026-01-31 12", NOON, id="two hours"),
    pytest.param({"tag.creation-period-duration": "10 min"}, "202601311200", NOON, id="minutes"),
]


@pytest.mark.parametrize(("options", "name", "time"), NAMES)
def test_the_time_of_an_automatic_tag_is_parsed_from_its_name(
    options: Mapping[str, str], name: str, time: datetime | None
) -> None:
    assert TagPeriod.of(TableOptions(options)).time_of(name) == time
