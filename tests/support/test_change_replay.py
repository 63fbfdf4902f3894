"""The model of a decoder follows truncates, and rows whose keys change, through the partitions of a topic."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import zstandard

from tests.support.change_replay import fold_recording, target_of
from tests.support.recorded_truth import differences, format_options_for, recorded_tables
from tidelake.ingest.formats.debezium.debezium_envelope import NEW_KEY_HEADER, OLD_KEY_HEADER
from tidelake.ingest.formats.registry import open_format

_UNCHANGED: Final = "__debezium_unavailable_value"
_COLUMNS: Final = (("id", "integer", False), ("body", "text", True))


class _Capture:
    """A capture of one keyed table in a topic of two partitions.

    connector: the records' connector. has_times: whether each change has its own timestamp.
    """

    def __init__(self, connector: str, *, has_times: bool) -> None:
        self._connector = connector
        self._has_times = has_times
        self._position = 0
        self._offsets = {0: 100, 1: 0}  # so that by offset, partition 1 is before partition 0
        self.lines: list[dict[str, Any]] = []

    def change(
        self, partition: int, op: str, before: Any, after: Any, headers: Any = (), *, is_half: bool = False
    ) -> None:
        """Add a change. is_half: it has the position of the change before."""
        self._position += not is_half
        row = after or before
        key = None if row is None else json.dumps({"id": row["id"]})
        value = {"op": op, "before": before, "after": after, "source": self._source()}
        self._line(partition, key, json.dumps(value), headers)
        if op == "d":
            self._line(partition, key, None)

    def key_change(self, old: tuple[int, Mapping[str, Any]], new: tuple[int, Mapping[str, Any]]) -> None:
        """Add both halves of a key change. old, new: (partition, row)."""
        (old_partition, old_row), (new_partition, new_row) = old, new
        keys = [json.dumps({"id": row["id"]}) for row in (old_row, new_row)]
        self.change(old_partition, "d", {**old_row, "body": None}, None, [[NEW_KEY_HEADER, keys[1]]])
        self.change(new_partition, "c", None, new_row, [[OLD_KEY_HEADER, keys[0]]], is_half=True)

    def _source(self) -> dict[str, Any]:
        source: dict[str, Any] = {"connector": self._connector, "db": "shop", "schema": "public", "table": "notes"}
        if self._connector == "postgresql":
            return {**source, "sequence": json.dumps([str(10 * self._position - 1), str(10 * self._position)])}
        if self._connector == "mariadb":
            return {**source, "schema": None, "file": "binlog.000001", "pos": 10 * self._position, "row": 0}
        return source

    def _line(self, partition: int, key: str | None, value: str | None, headers: Any = ()) -> None:
        time = 1_000 + (self._position if self._has_times else 0)
        line = {"topic": "shop.public.notes", "partition": partition, "offset": self._offsets[partition]}
        self.lines.append({**line, "timestamp_ms": time, "key": key, "value": value, "headers": list(headers)})
        self._offsets[partition] += 1

    def write(self, folder: Path, rows: list[list[str]]) -> None:
        (folder / "json-plain").mkdir(parents=True)
        lines = sorted(self.lines, key=lambda line: (line["timestamp_ms"], line["offset"]))
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / "json-plain" / "shop.public.notes.jsonl.zst").write_bytes(zstandard.compress(text.encode()))
        columns = [{"name": name, "type": type_, "nullable": nullable} for name, type_, nullable in _COLUMNS]
        table = {"primary_key": ["id"], "columns": columns, "rows": rows}
        (folder / "expected.json").write_text(json.dumps({"tables": {"public.notes": table}}))


def _capture_with_a_truncate_and_moved_keys(folder: Path, connector: str, *, has_times: bool) -> None:
    capture = _Capture(connector, has_times=has_times)
    capture.change(0, "c", None, {"id": 1, "body": "one"})
    capture.change(1, "c", None, {"id": 2, "body": "two"})
    capture.key_change((0, {"id": 1}), (1, {"id": 3, "body": _UNCHANGED}))
    capture.change(0, "t", None, None)  # rows 2 and 3 are in the other partition
    capture.change(1, "c", None, {"id": 4, "body": "four"})
    capture.change(0, "c", None, {"id": 1, "body": "again"})
    capture.key_change((0, {"id": 1}), (1, {"id": 6, "body": _UNCHANGED}))
    capture.key_change((1, {"id": 4}), (0, {"id": 5, "body": _UNCHANGED}))
    capture.key_change((0, {"id": 5}), (1, {"id": 4, "body": _UNCHANGED}))
    capture.write(folder, [["4", "four"], ["6", "again"]])


@pytest.mark.parametrize(
    ("connector", "has_times"),
    [
        pytest.param("postgresql", False, id="PostgreSQL tells the order of one millisecond"),
        pytest.param("mariadb", False, id="MariaDB tells the order of one millisecond"),
        pytest.param("sqlserver", True, id="only times tell the order"),
    ],
)
def test_truncates_and_moved_keys_end_as_the_database_did(tmp_path: Path, connector: str, has_times: bool) -> None:
    _capture_with_a_truncate_and_moved_keys(tmp_path / "moves", connector, has_times=has_times)
    (recorded,) = recorded_tables(tmp_path)
    target = target_of(recorded)
    with format_options_for(recorded) as options:
        decoder = open_format(recorded.format, options).decoder(lambda source: target)
        folded = fold_recording(recorded, decoder, target)
    assert recorded.truncates
    assert differences(recorded, folded.table()) == []
    assert folded.filled_cells == 4
