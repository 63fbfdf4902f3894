"""The lock of a table: a row in `paimon_distributed_locks`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import tidelake
from tests.storage.catalog.jdbc.catalogs import SCHEMA, catalog, options, rows, write
from tidelake.errors import CommitConflict
from tidelake.storage.catalog.identifier import Identifier
from tidelake.storage.catalog.jdbc.database_address import DatabaseAddress
from tidelake.storage.catalog.jdbc.database_lock import LockSettings, LockTable
from tidelake.storage.catalog.jdbc.jdbc_catalog import JdbcSettings
from tidelake.storage.catalog.jdbc.paimon_tables import make_tables

TABLE = Identifier("shop", "t")
IDS = "SELECT lock_id FROM paimon_distributed_locks"


def locks(folder: Path, **settings: int) -> LockTable:
    address = DatabaseAddress.of(options(folder))
    make_tables(address, 255)
    return LockTable(address, "jdbc", LockSettings(**settings))


def hold(folder: Path, lock_id: str, since: str = "0 seconds", seconds: int = 480) -> None:
    sql = f"INSERT INTO paimon_distributed_locks VALUES ('{lock_id}', datetime('now', '{since}'), {seconds})"
    rows(folder, sql)


def test_the_lock_is_a_row_while_it_is_held(tmp_path: Path) -> None:
    table_locks = locks(tmp_path, timeout_ms=90_000)
    with table_locks.held(TABLE), table_locks.held(Identifier("shop", "t", "dev")):
        assert rows(tmp_path, IDS + " ORDER BY 1") == [("jdbc.shop.t",), ("jdbc.shop.t$branch_dev",)]
        assert rows(tmp_path, "SELECT DISTINCT expire_time_seconds FROM paimon_distributed_locks") == [(90,)]
    assert rows(tmp_path, IDS) == []


def test_the_lock_is_released_when_the_work_fails(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), locks(tmp_path).held(TABLE):
        raise ZeroDivisionError
    assert rows(tmp_path, IDS) == []


def test_only_one_process_holds_the_lock(tmp_path: Path) -> None:
    table_locks, inside, most = locks(tmp_path, sleep_ms_max=20), 0, 0
    guard = threading.Lock()

    def work(_: int) -> None:
        nonlocal inside, most
        with table_locks.held(TABLE):
            with guard:
                inside += 1
                most = max(most, inside)
            with guard:
                inside -= 1

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(20)))
    assert most == 1


def test_the_lock_of_a_crashed_holder_expires(tmp_path: Path) -> None:
    table_locks = locks(tmp_path)
    hold(tmp_path, "jdbc.shop.t", since="-11 seconds", seconds=10)
    with table_locks.held(TABLE):
        assert rows(tmp_path, "SELECT expire_time_seconds FROM paimon_distributed_locks") == [(480,)]


def test_an_expired_lock_held_by_another_is_not_released(tmp_path: Path) -> None:
    with locks(tmp_path).held(TABLE):
        rows(tmp_path, "DELETE FROM paimon_distributed_locks")
        hold(tmp_path, "jdbc.shop.t", since="+1 second")
    assert rows(tmp_path, IDS) == [("jdbc.shop.t",)]


def test_a_lock_timeout_names_the_lock_and_its_option(tmp_path: Path) -> None:
    table_locks = locks(tmp_path, timeout_ms=1_000, sleep_ms_max=300)
    hold(tmp_path, "jdbc.shop.t")
    slept: list[float] = []
    with (
        pytest.raises(
            CommitConflict, match=r"shop\.t: other writers held the lock 'jdbc\.shop\.t' for 1 s.*lock-acquire-"
        ),
        table_locks.held(TABLE, sleep_ms=slept.append, monotonic_ms=lambda: float(sum(slept))),
    ):
        pytest.fail("entered")
    assert sum(slept) > 1_000
    assert max(slept) <= 300


@pytest.mark.parametrize("enabled", ["true", "false"])
def test_commits_and_changes_wait_for_the_lock(enabled: str, tmp_path: Path) -> None:
    lock = {"lock.enabled": enabled, "lock-acquire-timeout": "50 ms", "lock-check-max-sleep": "10 ms"}
    lake = catalog(tmp_path, **{**lock, "lock.enabled": "true"})
    lake.create_table("shop.t", SCHEMA, primary_key=["id"], options={"bucket": "1"})
    hold(tmp_path, "jdbc.shop.t")
    lake = catalog(tmp_path, **lock)
    acts: list[Callable[[], object]] = [
        lambda: write(lake.table("shop.t"), 1),
        lambda: lake.alter_table("shop.t", [tidelake.SetOption("comment", "x")]),
        lambda: lake.drop_table("shop.t"),
    ]
    for act in acts:
        if enabled == "true":
            with pytest.raises(tidelake.CommitConflict, match="other writers held the lock"):
                act()
        else:
            act()


def test_options_decide_how_long_a_process_waits_for_a_lock(tmp_path: Path) -> None:
    waits = {"lock-acquire-timeout": "50 s", "lock-check-max-sleep": "3 s"}
    given = {"uri": f"jdbc:sqlite:{tmp_path}/catalog.db", "lock.enabled": "true", **waits}
    table_locks = JdbcSettings.of(given, is_object_store=False).locks
    assert table_locks is not None
    assert (table_locks.settings.timeout_ms, table_locks.settings.sleep_ms_max) == (50_000, 3_000)


def test_a_lock_name_is_cut_to_the_configured_length(tmp_path: Path) -> None:
    catalog(tmp_path, **{"lock.enabled": "true", "lock-key-max-length": "400"})
    types = dict(rows(tmp_path, "SELECT name, type FROM pragma_table_info('paimon_distributed_locks')"))
    assert types["lock_id"] == "VARCHAR(400)"
