"""A Spark driver that is killed at any moment counts each record once in every table, and each batch id once."""

from __future__ import annotations

import json
import os
from itertools import count
from pathlib import Path
from typing import Final

import pytest

from tests.crash.points import Points
from tests.integration.ordeal import Ordeal, create_tables
from tests.integration.orders import TABLES, Line, Stream
from tests.support.service import Service

_START_S: Final = 12.0  # a JVM, and a first batch
_WORK_S: Final = 5.0
_FILE_LINES: Final = 500


@pytest.mark.interop
@pytest.mark.needs("Spark")
@pytest.mark.parametrize(
    ("kills", "stream"),
    [
        pytest.param(1, Stream(count=2_000, passes=1), id="1 kill", marks=pytest.mark.timeout(600)),
        pytest.param(
            10, Stream(count=109_551, passes=5), id="10 kills", marks=[pytest.mark.long, pytest.mark.timeout(3600)]
        ),
    ],
)
def test_a_killed_driver_counts_each_record_once(kills: int, stream: Stream, tmp_path: Path, points: Points) -> None:
    lake, log = str(tmp_path / "lake"), tmp_path / "log"
    log.mkdir()
    topics = {kind.name: f"{kind.name}-topic" for kind in TABLES}
    configuration = {
        "pipeline": "killed",
        "warehouse": lake,
        "source": {"type": "change-log-folder", "path": str(log)},
        "tables": [{"name": f"shop.{name}", "match": topic, "topics": topic} for name, topic in topics.items()],
        "checkpoint": {"interval_ms": 100},
    }
    numbers = count()

    def send(lines: list[Line]) -> None:
        for start in range(0, len(lines), _FILE_LINES):
            part = lines[start : start + _FILE_LINES]
            text = "".join(json.dumps({**line, "topic": t}) + "\n" for t in topics.values() for line in part)
            number = next(numbers)
            unfinished = log / f"{number:06}.tmp"
            unfinished.write_text(text)
            os.utime(unfinished, (number, number))  # Spark reads files in the order of their times
            unfinished.rename(unfinished.with_suffix(".jsonl"))

    driver = Service(tmp_path, ["spark", "run", "--master", "local[2]"], configuration)
    tables = create_tables(lake, {})
    Ordeal("Spark", driver, tables, stream, points, send, lambda _: None, _START_S, _WORK_S).go_through(kills)
