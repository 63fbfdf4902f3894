"""The same commits under the same schedule give the same tags in Java and Tidelake."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

import tidelake
from tests.support.java_oracle import JavaOracle

COLUMNS = pa.schema([pa.field("k", pa.int32(), nullable=False), pa.field("v", pa.int32())])
NOON_MS = 1_777_636_800_000  # 2026-05-01T12:00:00Z
COMMITS = 12

SCHEDULES = [
    pytest.param({}, id="daily"),
    pytest.param({"tag.creation-period": "hourly", "tag.period-formatter": "without_dashes"}, id="hourly"),
    pytest.param(
        {"tag.creation-period": "two-hours", "tag.automatic-completion": "true", "tag.creation-delay": "20 min"},
        id="two hours, filled up, delayed",
    ),
    pytest.param(
        {"tag.creation-period-duration": "45 min", "tag.num-retained-max": "3", "sink.watermark-time-zone": "+05:30"},
        id="45 minutes, the newest three, of another zone",
    ),
    pytest.param(
        {"tag.creation-period": "hourly", "tag.period-formatter": "without_dashes_and_spaces"}
        | {"tag.default-time-retained": "90 d", "tag.create-success-file": "true"},
        id="with a retention and success files",
    ),
]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.interop
def test_java_and_tidelake_make_the_same_tags(
    schedule: dict[str, str], java_oracle: JavaOracle, tmp_path: Path
) -> None:
    random = Random(str(schedule))
    mark, marks = NOON_MS, []
    for _ in range(COMMITS):
        mark += random.choice([60_000, 1_800_000, 3_600_000, 7_200_000, 90_000_000])
        marks.append(mark)
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("db")
    options = {"bucket": "1", "num-sorted-run.compaction-trigger": "100"}
    options |= {"tag.automatic-creation": "watermark", **schedule}
    java, ours = (
        catalog.create_table(f"db.{n}", COLUMNS, primary_key=["k"], options=options) for n in ("java", "ours")
    )
    for number, watermark in enumerate(marks, start=1):
        step = {"op": "write", "rows": [{"k": number, "v": number}], "id": number, "watermark": watermark}
        java_oracle.step(tmp_path, "db.java", step)
        with ours.writer(commit_user="golden") as writer:
            writer.write(pa.table({"k": [number], "v": [number]}, COLUMNS))
            writer.commit(number, watermark=watermark)

    def tags(table: tidelake.Table) -> dict[str, int | None]:
        return {name: snapshot.watermark for name, snapshot in table.tags().items()}

    assert tags(ours) == tags(java) != {}
    files = {name: sorted(p.name for p in (tmp_path / f"db.db/{name}/tag").rglob("*")) for name in ("java", "ours")}
    assert files["ours"] == files["java"]
    for of_java, of_ours in zip(
        java_oracle.system(tmp_path, "db.java", "tags"), java_oracle.system(tmp_path, "db.ours", "tags"), strict=True
    ):
        for row in (of_java, of_ours):
            assert isinstance(row, dict)
            del row["commit_time"], row["create_time"]
        assert of_ours == of_java
