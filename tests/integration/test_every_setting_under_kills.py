"""Tables with every setting that shapes them, in pipelines that are killed, reloaded and paused, equal their source.

The tables of one database take turns: a key that widens, renamed and left out columns, a filter, soft deletes, a
history, versions, masks, and tables that a reload takes out and brings back. Masks exclude the quarantine, so they have
a pipeline of their own. Both decode in processes.
"""

from __future__ import annotations

import hmac
import json
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from random import Random
from time import sleep
from typing import Any, Final, TypeAlias

import pytest

import tidelake
from tests.support.command_line import Call
from tests.support.service import Service
from tidelake.checkpoint.offsets import POSITION_PROPERTY, chain_breaks, position_from_text
from tidelake.storage.maintenance.verify.inspection import verify

SEED: Final = 20261128
KEYS: Final = 12  # of a table
WIDE: Final = 5_000_000_000  # is added to keys, once they are wide
SALT: Final = "pepper"
SHOWN: Final = 50  # the filter shows rows with `n` from here on
FIRST_MS: Final = 1_700_000_000_000
PARTITIONS: Final = 2
WORK_S: Final = 1.0

Row: TypeAlias = dict[str, Any]
Rows: TypeAlias = list[tuple[Any, ...]]


@dataclass
class Change:
    """A change of a row. before, after: None if there is no row."""

    at_ms: int
    offset: int
    before: Row | None
    after: Row | None


@dataclass
class SourceTable:
    """A table of the database: its rows, and all changes, oldest first."""

    number: int
    kind: str
    is_wide: bool = False
    rows: dict[int, Row] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"t{self.number}"

    def now(self) -> list[Row]:
        return list(self.rows.values())


def plain(table: SourceTable) -> Rows:
    return [(row["id"], row["n"], row["name"]) for row in table.now()]


def soft(table: SourceTable) -> Rows:
    last: dict[int, tuple[Any, ...]] = {}
    for change in table.changes:
        row = change.after or change.before
        assert row is not None
        deleted_at = None if change.after else _time(change.at_ms)
        last[row["id"]] = (row["id"], row["n"], row["name"], deleted_at)
    return list(last.values())


def history(table: SourceTable) -> Rows:
    rows: Rows = []
    for change in table.changes:
        ops = {(False, True): ["+I"], (True, True): ["-U", "+U"], (True, False): ["-D"]}
        for op in ops[change.before is not None, change.after is not None]:
            row = change.after if op[0] == "+" else change.before
            assert row is not None
            rows.append((row["id"], row["n"], row["name"], op, change.offset))
    return rows


def versions(table: SourceTable) -> Rows:
    rows: Rows = []
    open_: dict[int, tuple[Any, ...]] = {}
    for change in table.changes:
        row, at = change.after or change.before, _time(change.at_ms)
        assert row is not None
        if (ended := open_.pop(row["id"], None)) is not None:
            rows.append((*ended, at, False))
        if change.after is not None:
            open_[row["id"]] = (row["id"], row["n"], row["name"], at)
    return rows + [(*row, None, True) for row in open_.values()]


def masked(table: SourceTable) -> Rows:
    return [
        (row["id"], row["n"], hmac.digest(SALT.encode(), row["name"].encode(), "sha256").hex())
        for row in table.now()
        if row["n"] >= SHOWN
    ]


@dataclass(frozen=True)
class Kind:
    """settings: of the table's entry. columns: what is compared. truth: the rows that the table must have."""

    settings: Mapping[str, Any]
    columns: Sequence[str]
    truth: Callable[[SourceTable], Rows]


COLUMNS: Final = ("id", "n", "name")
KINDS: Final = {
    "plain": Kind({}, COLUMNS, plain),
    "renamed": Kind({"rename_columns": {"name": "label"}, "drop_columns": ["note"]}, ("id", "n", "label"), plain),
    "filtered": Kind(
        {"filter": f"n >= {SHOWN}"}, COLUMNS, lambda table: [row for row in plain(table) if row[1] >= SHOWN]
    ),
    "soft deletes": Kind({"deletes": "soft"}, (*COLUMNS, "deleted_at"), soft),
    "history": Kind({"mode": "append", "options": {"bucket": "-1"}}, (*COLUMNS, "op", "offset"), history),
    "versions": Kind({"mode": "scd2"}, (*COLUMNS, "valid_from", "valid_to", "current"), versions),
    "reloaded": Kind({}, COLUMNS, plain),
    "masked": Kind({"masks": {"name": "hash", "note": "redact"}, "filter": f"n >= {SHOWN}"}, COLUMNS, masked),
}


def _time(at_ms: int) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=at_ms)


def _sorted(rows: Iterable[tuple[Any, ...]]) -> list[str]:
    in_utc = ([v.astimezone(UTC) if isinstance(v, datetime) else v for v in row] for row in rows)
    return sorted(map(repr, in_utc))


class Database:
    """The tables, and the files of their changes."""

    def __init__(self, tables: int, folder: Path, random: Random) -> None:
        kinds = list(KINDS)
        self.tables = [SourceTable(number, kinds[number % len(kinds)]) for number in range(tables)]
        self._folder, self._random = folder, random
        self._files, self._at_ms, self._offsets = 0, FIRST_MS, [0] * PARTITIONS

    def change(self, count: int) -> None:
        """Change rows, and write the records into one more file."""
        lines = []
        for _ in range(count):
            table = self._random.choice(self.tables)
            table.is_wide = table.is_wide or self._random.random() < 0.01
            lines.append(json.dumps(self._record(table)))
        path = self._folder / f"{self._files:06}.jsonl"
        path.with_suffix(".new").write_text("\n".join(lines) + "\n")
        path.with_suffix(".new").rename(path)
        self._files += 1

    def _record(self, table: SourceTable) -> Row:
        id_ = self._random.randrange(KEYS) + (WIDE if table.is_wide and self._random.random() < 0.5 else 0)
        before = table.rows.get(id_)
        after: Row | None = None
        if before is None or self._random.random() < 0.75:
            name = self._random.choice(["", "Zoë", "\U0001f40b", f"name {self._random.random()}"])
            after = {"id": id_, "n": self._random.randrange(100), "name": name, "note": "x" * 60}
            table.rows[id_] = after
        else:
            del table.rows[id_]
        self._at_ms += 1
        partition = table.number % PARTITIONS
        offset = self._offsets[partition]
        self._offsets[partition] += 1
        table.changes.append(Change(self._at_ms, offset, before, after))
        op = "d" if after is None else "c" if before is None else "u"
        source = {"connector": "mysql", "db": "shop", "table": table.name, "ts_ms": self._at_ms}
        value = {"before": before, "after": after, "source": source, "op": op, "ts_ms": self._at_ms}
        key = json.dumps({"id": id_})
        return {"topic": "shop", "partition": partition, "offset": offset, "key": key, "value": json.dumps(value)}


class Lake:
    """Two pipelines over the folder: one whose tables have masks, and one with all others."""

    def __init__(self, home: Path, tables: int, random: Random) -> None:
        (home / "changes").mkdir()
        self.home, self._random = home, random
        self.database = Database(tables, home / "changes", random)
        self.catalog = tidelake.open_catalog(str(home / "lake"))
        self.left_out: set[str] = set()
        self.services: dict[str, Service] = {}
        for name in ("rows", "people"):
            (home / name).mkdir()
            self.services[name] = Service(home / name, ["ingest", "run"], self.configuration(name))

    def configuration(self, pipeline: str) -> dict[str, Any]:
        entries = []
        for table in self.database.tables:
            if (table.kind == "masked") == (pipeline == "people") and table.name not in self.left_out:
                settings = KINDS[table.kind].settings
                options = {"snapshot.num-retained.min": "100000", "bucket": "1", **settings.get("options", {})}
                entry = {"name": f"shop.{table.name}", "columns": {"id": "INT", "n": "INT", "name": "STRING"}}
                entries.append({**entry, **settings, "options": options})
        return {
            "pipeline": pipeline,
            "warehouse": str(self.home / "lake"),
            "source": {
                "type": "change-log-folder",
                "path": str(self.home / "changes"),
                "poll_interval_ms": 20,
                "decode_processes": 2,
            },
            "tables": entries,
            "checkpoint": {"interval_ms": 100},
            "mask_salt": SALT,
            "quarantine": {"retry_ms_min": 100, "retry_ms_max": 1_000} if pipeline == "rows" else {},
        }

    def reload(self) -> None:
        """Take tables out of the configuration, or bring them back."""
        candidates = [table.name for table in self.database.tables if table.kind == "reloaded"]
        self.left_out = {name for name in candidates if self._random.random() < 0.5}
        self.services["rows"].configure(self.configuration("rows"))
        self.services["rows"].send(signal.SIGHUP)

    def paths_of(self, pipeline: str) -> Path:
        return self.home / pipeline / "service.json"

    def pausable(self) -> list[str]:
        return [table.name for table in self.database.tables if table.kind not in ("masked", "reloaded")]

    def check(self, table: SourceTable) -> None:
        kind, found = KINDS[table.kind], self.catalog.table(f"shop.{table.name}")
        rows = found.scan(columns=list(kind.columns)).to_arrow().select(list(kind.columns)).to_pylist()
        assert _sorted(tuple(row.values()) for row in rows) == _sorted(kind.truth(table)), f"{table.name}: {table.kind}"
        assert verify(found.context) == [], table.name
        user = "people" if table.kind == "masked" else "rows"
        chain = [
            (s.commit_identifier, position_from_text(s.properties[POSITION_PROPERTY], table.name))
            for s in found.snapshots()
            if s.commit_user == user
        ]
        assert list(chain_breaks(chain)) == [], table.name


def happenings(rounds: int, random: Random) -> list[str]:
    """Return what happens in each round: each of it about equally often, and a pause before the first resume."""
    found = ["pause"]
    while len(found) < rounds:
        found += random.sample(["rows", "people", "both", "reload", "pause", "resume"], 6)
    return found[:rounds]


@pytest.mark.parametrize(
    ("tables", "rounds", "changes"),
    [
        pytest.param(24, 7, 600, id="24 tables", marks=[pytest.mark.interop, pytest.mark.timeout(3_600)]),
        pytest.param(200, 30, 4_000, id="200 tables", marks=[pytest.mark.long, pytest.mark.timeout(7_200)]),
    ],
)
def test_each_table_has_what_its_settings_make_of_the_database(
    tables: int, rounds: int, changes: int, tmp_path: Path, call: Call
) -> None:
    random = Random(SEED)
    lake = Lake(tmp_path, tables, random)
    config, paused = lake.paths_of("rows"), set[str]()
    with lake.services["rows"] as rows, lake.services["people"] as people:
        lake.database.change(changes)
        rows.start()
        people.start()
        for happening in happenings(rounds, random):
            lake.database.change(changes)
            sleep(random.uniform(0, WORK_S))
            if happening in ("reload", "pause", "resume") and random.random() < 0.7:
                rows.wait_until(lambda: rows.has_said("reading begins"))
            if happening == "reload" and rows.has_said("reading begins"):
                lake.reload()
            for table in random.sample(lake.pausable(), 2) if happening == "pause" else ():
                assert call("ingest", "pause", config, f"shop.{table}").code == 0
                paused.add(table)
            for table in sorted(paused) if happening == "resume" else ():
                assert call("ingest", "resume", config, f"shop.{table}").code == 0
                paused.discard(table)
            for name, service in (("rows", rows), ("people", people)):
                if happening in (name, "both"):
                    if random.random() < 0.6:
                        service.wait_until(partial(service.has_said, '"event": "checkpoint"'))
                    service.kill()
                    service.start()
        lake.database.change(changes)
        for table in sorted(paused):
            assert call("ingest", "resume", config, f"shop.{table}").code == 0
        for service in (rows, people):
            service.kill()
        lake.left_out = set()
        rows.configure(lake.configuration("rows"))
        rows.run_to_the_end()
        people.run_to_the_end()
    for source in lake.database.tables:
        lake.check(source)
    assert any(table.is_wide for table in lake.database.tables)
