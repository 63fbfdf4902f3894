"""What a run says of a record that stops it: each way out that it names can be followed."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import Call


@dataclass(frozen=True)
class RefusedRecord:
    """row: the row of the second record, or its whole value. entry: settings of the table. settings: of the pipeline.

    is_altered: the message has a command that changes the table, so that the record fits.
    """

    name: str
    row: dict[str, Any] | str
    entry: str = "columns: {id: BIGINT, n: INT}"
    settings: str = ""
    is_altered: bool = False


CASES = [
    RefusedRecord("a value of another kind of type", {"id": 2, "n": 12.5}, is_altered=True),
    RefusedRecord("a value of another kind of type in the key", {"id": 4.5, "n": 2}),
    RefusedRecord(
        "a wider value", {"id": 2, "n": 1 << 40}, settings="schema_evolution: {mode: exception}", is_altered=True
    ),
    RefusedRecord(
        "an unknown column", {"id": 2, "n": 1, "m": 2}, settings="schema_evolution: {mode: exception}", is_altered=True
    ),
    RefusedRecord("no record", '{"no": 1}'),
    RefusedRecord("no JSON", "{bad"),
    RefusedRecord("a value that is no number", {"id": 2, "n": "x"}),
]


def write(folder: Path, offset: int, row: dict[str, Any] | str) -> None:
    source = {"connector": "postgresql", "db": "d", "schema": "s", "table": "a"}
    key = None if isinstance(row, str) else json.dumps({"id": row["id"]})
    value = row if isinstance(row, str) else json.dumps({"before": None, "after": row, "op": "c", "source": source})
    record = {"topic": "d.s.a", "partition": 0, "offset": offset, "timestamp_ms": 1, "key": key, "value": value}
    (folder / f"{offset}.jsonl").write_text(json.dumps({**record, "headers": []}) + "\n")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("is_json", [False, True], ids=["text", "JSON log"])
def test_each_way_out_can_be_followed(call: Call, tmp_path: Path, case: RefusedRecord, is_json: bool) -> None:
    (tmp_path / "log").mkdir()
    write(tmp_path / "log", 0, {"id": 1, "n": 1})
    write(tmp_path / "log", 1, case.row)
    config = tmp_path / "p.yaml"
    config.write_text(
        f"warehouse: {tmp_path}/lake\nsource: {{type: change-log-folder, path: {tmp_path}/log}}\n"
        f"tables: [{{name: o.a, {case.entry}}}]\n{case.settings}\n"
    )
    run = ["ingest", "run", config, "--until", "latest", *(["--log-format", "json"] if is_json else [])]
    result = call(*run)
    assert result.code == 1
    if is_json:
        events = [json.loads(line) for line in result.err.splitlines()]
        (message,) = [event["message"] for event in events if event["event"] == "the command failed"]
    else:
        message = result.err
    (skipped,) = re.findall(r"`--skip-record (\S+)`", message)
    assert skipped == "d.s.a:0:1"
    commands = re.findall(r"`tidelake (table alter .+?)`", message)
    assert bool(commands) == case.is_altered, message
    if commands:
        assert "can't be changed" not in message
        assert call(*shlex.split(commands[0])).code == 0
        assert call(*run).code == 0
    else:
        assert call(*run, "--skip-record", skipped).code == 0
