"""`tidelake dead-letters`: lists, shows and replays dead letters."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.ingest.replay.test_replay import BAD, Shop, line
from tests.support.command_line import Call


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path / "shop")


@pytest.fixture
def config(shop: Shop) -> Path:
    path = shop.path / "shop.yaml"
    path.write_text(
        f"warehouse: {shop.path}/lake\n"
        f"source: {{type: change-log-folder, path: {shop.path}/in, until: end}}\n"
        "tables: [{name: shop.orders}]\n"
        "errors: {tolerance: all, dead_letters: {table: ops.dead_letters}}\n"
    )
    return path


def test_dead_letters_are_listed_shown_and_replayed(shop: Shop, config: Path, call: Call) -> None:
    shop.add((1, 5), (2, BAD), (3, BAD))
    result = call("ingest", "run", config)
    assert result.code == 0
    assert BAD not in result.out + result.err  # what records hold is not logged
    found = call("dead-letters", "list", config, "--json").lines
    assert [(letter["offset"], letter["error_code"]) for letter in found] == [(1, "BAD_RECORD"), (2, "BAD_RECORD")]
    assert {"key", "value", "headers"}.isdisjoint(found[0])
    assert "2 dead letters, 2 of them not replayed" in call("dead-letters", "list", config).err
    (letter,) = call("dead-letters", "show", config, "--where", "offset = 2", "--json").lines
    assert json.loads(letter["key"]) == {"id": 3}
    assert "BAD_RECORD" in call("dead-letters", "show", config).out

    shop.fix()
    planned = call("dead-letters", "replay", config, "--where", "offset = 1", "--dry-run")
    assert "1 would be replayed" in planned.err
    (report,) = call("dead-letters", "replay", config, "--where", "offset = 1", "--json").document["replays"]
    assert (report["outcomes"], report["rows"]) == ({"replayed": 1}, {"shop.orders": 1})
    assert shop.rows() == {1: "5", 2: BAD}
    assert "1 was replayed" in call("dead-letters", "replay", config).err
    assert "there are no dead letters to replay" in call("dead-letters", "replay", config).err


def test_the_log_contains_the_reason_if_configured(shop: Shop, config: Path, call: Call) -> None:
    shop.add((2, BAD))
    result = call("ingest", "run", config, "--set", "errors.log_include_messages=true", "--log-format", "json")
    (event,) = [e for e in map(json.loads, result.err.splitlines()) if e["event"] == "a record becomes a dead letter"]
    assert (event["code"], BAD in event["reason"]) == ("BAD_RECORD", True)


def test_a_record_with_an_out_of_range_year_does_not_block_other_dead_letters(
    shop: Shop, config: Path, call: Call
) -> None:
    """A producer may send any time. Python's datetimes end with the year 9999."""
    times = [1_700_000_000_123, 253_402_300_800_000, 2**63 - 1]
    lines = [
        json.dumps({**json.loads(line(offset, (offset, BAD))), "timestamp_ms": time_ms}) + "\n"
        for offset, time_ms in enumerate(times)
    ]
    (shop.path / "in" / "far.jsonl").write_text("".join(lines))
    assert call("ingest", "run", config).code == 0
    shown = ["2023-11-14T22:13:20.123Z", "253402300800000 ms", "9223372036854775807 ms"]
    for command in ("list", "show"):
        found = call("dead-letters", command, config, "--json").lines
        assert [letter["timestamp"] for letter in found] == shown
        assert shown[2].split()[0] in "".join(call("dead-letters", command, config).out.split())
    shop.fix()
    assert "3 were replayed" in call("dead-letters", "replay", config).err
    assert shop.rows() == dict.fromkeys(range(3), BAD)


def test_for_file_dead_letters_the_location_is_printed(shop: Shop, config: Path, call: Call) -> None:
    result = call("dead-letters", "list", config, "--set", "errors.dead_letters=letters")
    assert result.code == 1
    assert "are files in letters" in result.err
