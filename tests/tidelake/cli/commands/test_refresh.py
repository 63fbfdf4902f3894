"""`tidelake table refresh`."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest

import tidelake
from tests.support.command_line import Call
from tests.tidelake.materialized.orders import LARGE, LARGE_QUERY, materialized, new_lake, order, reread


def test_a_refresh_reports_its_method_and_reason(tmp_path: Path, call: Call) -> None:
    lake = new_lake(tmp_path)
    materialized(lake, "large", LARGE_QUERY, LARGE)
    order(lake, (1, "mon", None, 5))
    arguments = ("table", "refresh", "shop.large", "-w", tmp_path / "lake")
    assert call(*arguments).out == "shop.large: snapshot 1, all rows, because it is the first refresh\n"
    order(lake, (2, "mon", None, 6))
    assert call(*arguments).out == "shop.large: snapshot 2, rows that changed: 1\n"
    assert call(*arguments).out == "shop.large was not refreshed: its source has not changed\n"
    assert "younger than 1 day" in call(*arguments, "--when-due").out
    assert call(*arguments, "--full", "--json").document == {
        "table": "shop.large",
        "kind": "full",
        "reason": "a full refresh was requested",
        "snapshot_id": 3,
    }


def test_create_accepts_the_query_and_the_freshness(tmp_path: Path, call: Call) -> None:
    lake = new_lake(tmp_path)
    columns = ("--column", "number:BIGINT NOT NULL", "--column", "twice:BIGINT", "-w", tmp_path / "lake")
    arguments = ("table", "create", "shop.large", *columns, "--query", LARGE_QUERY)
    assert call(*arguments, "--freshness", "3 Hours").code == 0
    definition = tidelake.MaterializedDefinition(LARGE_QUERY, 3, "hour")
    assert definition.to_options().items() <= dict(lake.table("shop.large").options).items()
    for freshness in ("soon", "3", "3 weeks", "-1 day"):
        result = call(*arguments, "--freshness", freshness)
        assert (result.code, "as in '3 hours'" in result.err) == (2, True)
    result = call("table", "create", "shop.t", *columns, "--freshness", "1 day")
    assert (result.code, "pass --query" in result.err) == (2, True)


def test_names_and_dialect_are_passed_to_the_refresh(tmp_path: Path, call: Call) -> None:
    lake = new_lake(tmp_path)
    materialized(lake, "large", "SELECT o.id AS number, 1 // 1 AS twice FROM o ORDER BY 1", LARGE)
    order(lake, (1, "mon", None, 5))
    arguments = ("table", "refresh", "shop.large", "-w", tmp_path / "lake", "--source", "o=shop.orders")
    result = call(*arguments)
    assert (result.code, "If it is DuckDB's SQL, pass dialect='duckdb'" in result.err) == (1, True)
    assert "all rows" in call(*arguments, "--dialect", "duckdb").out
    assert reread(lake, "large") == [(1, 1)]


@pytest.mark.parametrize("every", ["soon", "0 s"])
def test_an_invalid_duration_is_refused(every: str, tmp_path: Path, call: Call) -> None:
    result = call("table", "refresh", "shop.large", "-w", tmp_path / "lake", "--every", every)
    assert (result.code, "--every" in result.err) == (2, True)


def test_with_every_the_refresh_repeats_until_stopped(tmp_path: Path, call: Call) -> None:
    lake = new_lake(tmp_path)
    table = materialized(lake, "large", LARGE_QUERY, LARGE)
    order(lake, (1, "mon", None, 5))

    def change_and_stop() -> None:
        _wait_for(lambda: len(table.snapshots()) == 1)
        order(lake, (2, "mon", None, 6))
        _wait_for(lambda: len(table.snapshots()) == 2)
        os.kill(os.getpid(), signal.SIGTERM)

    other = threading.Thread(target=change_and_stop)
    other.start()
    result = call("table", "refresh", "shop.large", "-w", tmp_path / "lake", "--every", "50 ms")
    other.join()
    assert result.code == 0
    assert result.out.splitlines() == [
        "shop.large: snapshot 1, all rows, because it is the first refresh",
        "shop.large: snapshot 2, rows that changed: 1",
    ]


def _wait_for(condition: object) -> None:
    deadline = time.monotonic() + 60
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.02)
