"""Queries with state (windows, sessions, duplicates, joins, groups) whose driver is killed at each step of a batch."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest

import tidelake
from tests.support.stateful_queries import BATCH_OF_STEP, STEPS, TABLES

_START: Final = datetime(2026, 1, 1, tzinfo=UTC)
_FILES: Final = 6
_ROWS: Final = 40


@pytest.mark.interop
@pytest.mark.needs("Spark")
@pytest.mark.timeout(900)
def test_a_killed_query_with_state_ends_with_the_rows_of_a_query_that_ran_through(tmp_path: Path) -> None:
    catalog = tidelake.open_catalog(str(tmp_path / "lake"))
    catalog.create_database("d")
    for name, (columns, key) in TABLES.items():
        catalog.create_table(f"d.{name}", columns, primary_key=key, options={"bucket": "2"} if key else {})
    events = _put_events(tmp_path / "in")

    for step in STEPS:
        assert _run(tmp_path, step) == -signal.SIGKILL, _said(tmp_path)
        for name in TABLES:
            reached = [snapshot.commit_identifier for snapshot in catalog.table(f"d.{name}").snapshots()]
            assert max(reached, default=-1) <= BATCH_OF_STEP[step], name
    assert _run(tmp_path, "-") == 0, _said(tmp_path)

    for name, expected in _expected(events).items():
        table = catalog.table(f"d.{name}")
        assert Counter(tuple(row.values()) for row in table.scan().to_arrow().to_pylist()) == expected, name
        rows_of = [s.commit_identifier for s in table.snapshots() if s.commit_kind == "APPEND"]
        assert len(rows_of) == len(set(rows_of)), (name, rows_of)


def _run(home: Path, step: str) -> int:
    """Return the exit code."""
    command = [sys.executable, "-m", "tests.support.stateful_queries", str(home), step]
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        return process.wait(600)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise


def _said(home: Path) -> str:
    return (home / "log").read_text()[-4000:]


def _put_events(folder: Path) -> list[dict[str, Any]]:
    """Each file's events are a minute apart and later than those of the file before; ids come again in later files."""
    folder.mkdir()
    events = []
    for number in range(_FILES):
        of_file = [
            {
                "t": _START + timedelta(hours=number, seconds=number * 7 + row * 40),
                "id": number * _ROWS // 2 + row,
                "k": "ab"[row % 2 ^ number % 2],
                "amount": number * 1000 + row,
            }
            for row in range(_ROWS)
        ]
        path = folder / f"{number}.json"
        path.write_text("".join(json.dumps({**event, "t": str(event["t"])}) + "\n" for event in of_file))
        os.utime(path, (number, number))  # Spark reads files in the order of their times
        events += of_file
    return events


def _expected(events: list[dict[str, Any]]) -> dict[str, Counter[tuple[Any, ...]]]:
    windows = Counter((_floor(event["t"]), event["k"]) for event in events)
    totals: Counter[str] = Counter()
    first: dict[int, int] = {}
    of_ids: dict[str, dict[int, list[int]]] = {"a": defaultdict(list), "b": defaultdict(list)}
    for event in events:
        totals[event["k"]] += event["amount"]
        first.setdefault(event["id"], event["amount"])
        of_ids[event["k"]][event["id"]].append(event["amount"])
    return {
        "windows": Counter((start, k, n) for (start, k), n in windows.items()),
        "sessions": Counter(_sessions(events)),
        "duplicates": Counter(first.items()),
        "joined": Counter(
            (number, one, two) for number, ones in of_ids["a"].items() for one in ones for two in of_ids["b"][number]
        ),
        "totals": Counter(totals.items()),
    }


def _floor(at: datetime) -> datetime:
    return at - timedelta(minutes=at.minute % 10, seconds=at.second)


def _sessions(events: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """A session of each file and key: an hour lies between files. The last ones are still open at the end."""
    found = []
    for number in range(_FILES - 1):
        for k in "ab":
            of_session = [event for event in events[number * _ROWS : (number + 1) * _ROWS] if event["k"] == k]
            found.append((min(event["t"] for event in of_session), k, len(of_session)))
    return found
