"""All settings of a table together, while its columns change: the table is what SQL gives on the source's rows.

A history of a source table is written as Debezium records, in several runs of the pipeline that may fail at any call.
DuckDB holds the same history as a table of row images, and a query says what the settings mean.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from random import Random
from typing import Any, Final

import duckdb
import pytest

from tests.ingest.evolution.world import TOPIC, EvolvingWorld, connect_type
from tests.ingest.formats.debezium.changes import as_json, change
from tests.support.changelog_fold import check_changelog
from tests.support.faulty_file_io import Fault, FaultyFileIO, FaultyIOError
from tidelake.table import Table

SEEDS: Final = 4  # of a case
FIRST_MS: Final = 1_700_000_000_000
TEXTS: Final = ("", "x", "Abc", "äöüz", "a@x.org", "%_", "null", "o'k")
NUMBERS: Final = {"INT": (0, 1, 50, 51, -3, 99), "BIGINT": (0, 50, 2**40, -(2**35))}
SQL_TYPES: Final = {"id": "INT", "moment": "TIMESTAMPTZ", "n": "BIGINT", "turn": "INT", "extra": "INT"}


@dataclass
class Source:
    """A table of the source. Its columns change: one is added, one gets wider, one is dropped.

    images: a row of each change, as (turn, kind, time, values)
    """

    dice: Random
    columns: dict[str, str] = field(
        default_factory=lambda: {"id": "INT", "grp": "STRING", "n": "INT", "name": "STRING", "note": "STRING"}
    )
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)
    images: list[tuple[int, str, int, dict[str, Any]]] = field(default_factory=list)
    turn: int = 0

    def row(self, key: int) -> dict[str, Any]:
        return {name: key if name == "id" else self._value(name) for name in self.columns}

    def _value(self, name: str) -> Any:
        if name == "grp":
            return self.dice.choice(("a", "b", "é"))
        values = NUMBERS.get(self.columns[name], TEXTS)
        return self.dice.choice((None, *values))

    def step(self, world: EvolvingWorld) -> None:
        """Change a row, and send the record."""
        self.turn += 1
        alteration = self.dice.random()
        if alteration < 0.04:
            self.columns.setdefault("extra", "INT")
        elif alteration < 0.08:
            self.columns["n"] = "BIGINT"
        elif alteration < 0.1:
            self.columns.pop("note", None)
        key = self.dice.randrange(6)
        before = self.rows.pop(key, None)
        before = None if before is None else {name: before.get(name) for name in self.columns}
        after: dict[str, Any] | None = self.row(key)
        if before is not None and self.dice.random() < 0.3:
            after = None
        if after is not None:
            self.rows[key] = after
        kinds = {(False, True): ("+I",), (True, True): ("-U", "+U"), (True, False): ("-D",)}
        at_ms = FIRST_MS + self.turn * 7
        for kind in kinds[before is not None, after is not None]:
            image = after if kind[0] == "+" else before
            assert image is not None
            self.images.append((self.turn, kind, at_ms, image))
        self._send(world, key, before, after, at_ms)

    def _send(self, world: EvolvingWorld, key: int, before: Mapping[str, Any] | None, after: Any, at_ms: int) -> None:
        op = "c" if before is None else "d" if after is None else "u"
        source = {"connector": "postgresql", "db": "x", "schema": "public", "table": "orders", "ts_ms": at_ms}
        record = change(op, before, after, key={"id": key}, source=source)
        fields = [{**connect_type(t), "field": name, "optional": name != "id"} for name, t in self.columns.items()]
        image = {"type": "struct", "optional": True, "fields": fields}
        schema = {"type": "struct", "fields": [{**image, "field": name} for name in ("before", "after")]}
        value = b'{"schema":' + as_json(schema) + b',"payload":' + (record.value or b"") + b"}"
        world.log.append(TOPIC, value, record.key)
        if op == "d" and self.dice.random() < 0.5:
            world.log.append(TOPIC, None, record.key)

    def in_duckdb(self) -> duckdb.DuckDBPyConnection:
        """Return a database whose table `images` has the history. Columns that an image lacks are null."""
        connection = duckdb.connect()
        connection.execute("set timezone = 'UTC'")
        names = ["turn", "op", "moment", "id", "grp", "n", "name", "note", "extra"]
        columns = ", ".join(f"{name} {SQL_TYPES.get(name, 'VARCHAR')}" for name in names)
        connection.execute(f"create table images ({columns})")
        rows = [
            [turn, kind, datetime.fromtimestamp(at_ms / 1000, UTC), *(image.get(name) for name in names[3:])]
            for turn, kind, at_ms, image in self.images
        ]
        connection.executemany(f"insert into images values ({', '.join('?' * len(names))})", rows)
        return connection


MASKS: Final = {
    "redact": "case when {0} is not null then '***' end",
    "truncate(2)": "left({0}, 2)",
    "keep_last(2)": "case when length({0}) <= 2 then repeat('*', length({0})) "
    "else repeat('*', length({0}) - 2) || right({0}, 2) end",
    "null": "null",
}
FILTERS: Final = (
    "{grp} <> 'b'",
    "{n} >= 50",
    "{n} >= 50 or {n} is null",
    "{name} like '%x%'",
    "not ({n} between 0 and 60)",
)
LAST: Final = "select * from images qualify row_number() over (partition by id order by turn desc, op) = 1"
# "+U" comes before "-U" in ASCII, so the last image of an update is the new one
ROWS: Final = {
    "apply": f"select * from ({LAST}) where op <> '-D'",
    "soft": f"select *, case when op = '-D' then moment end as deleted_at from ({LAST})",
    "append": "select *, moment as op_ts from images",
    "scd2": "select * exclude op, moment as valid_from, lead(moment) over w as valid_to, valid_to is null as current "
    "from (from images where op <> '-U') window w as (partition by id order by turn) qualify op <> '-D'",
}
OF_MODE: Final = {
    "apply": (),
    "soft": ("deleted_at",),
    "append": ("op", "op_ts"),
    "scd2": ("valid_from", "valid_to", "current"),
}


@dataclass(frozen=True)
class Settings:
    """Settings of a table, and the query that says what they mean."""

    mode: str
    settings: Mapping[str, Any]
    options: Mapping[str, str]
    condition: str
    expressions: Mapping[str, str]

    @classmethod
    def of(cls, dice: Random) -> Settings:
        mode = dice.choice(("apply", "apply", "soft", "append", "scd2"))
        names = {name: name for name in ("id", "grp", "n", "name", "note", "extra")}
        settings: dict[str, Any] = {}
        left_out: tuple[str, ...] = dice.choice(((), (), ("note",), ("extra",)))
        if left_out:
            settings["drop_columns"] = list(left_out)
        elif dice.random() < 0.4:
            settings["keep_columns"] = ["id", "grp", "n", "name"]
            left_out = ("note", "extra")
        for name in left_out:
            del names[name]
        renamed = dice.choice(({}, {"n": "num"}, {"name": "label", "n": "num"}, {"note": "name", "name": "note2"}))
        if renamed := {old: new for old, new in renamed.items() if old in names}:
            settings["rename_columns"] = renamed
            names |= renamed
        condition = "true"
        if mode == "apply" and dice.random() < 0.6:
            condition = dice.choice(FILTERS)
            settings["filter"] = condition.format(**names)
        expressions = {new: f'"{old}"' for old, new in names.items()}
        masks = {names[n]: dice.choice(tuple(MASKS)) for n in ("grp", "name") if dice.random() < 0.3}
        if masks:
            settings["masks"] = masks
            expressions |= {name: MASKS[mask].format(expressions[name]) for name, mask in masks.items()}
        if dice.random() < 0.3:
            kind = dice.choice(("BIGINT", "STRING", "DECIMAL(20, 3)"))
            if kind != "STRING" or "filter" not in settings:
                settings["columns"] = {names["n"]: kind}
                expressions[names["n"]] = f"cast(n as {'VARCHAR' if kind == 'STRING' else kind})"
        if dice.random() < 0.3 and mode != "append":
            settings["computed_columns"] = {"up": f"upper({names['name']})"}
            expressions["up"] = f"upper({expressions[names['name']]})"
        options = {"bucket": dice.choice("12")}
        match mode:
            case "append":
                options = {"bucket": "-1"}
                settings["mode"] = mode
            case "scd2":
                settings["mode"] = mode
            case "soft":
                settings["deletes"] = mode
        if mode != "append":
            options["changelog-producer"] = dice.choice(("none", "lookup", "full-compaction"))
            if options["changelog-producer"] != "full-compaction" and dice.random() < 0.3:
                options["deletion-vectors.enabled"] = "true"
        return cls(mode, settings, options, condition, expressions)

    def expected(self, connection: duckdb.DuckDBPyConnection, columns: Sequence[str]) -> list[tuple[Any, ...]]:
        """Return what SQL says the table must have."""
        chosen = ", ".join(self.expressions.get(name, f'"{name}"') for name in columns)
        of_source = {name: name for name in ("grp", "n", "name")}
        condition = self.condition.format(**of_source)
        query = f"select {chosen} from ({ROWS[self.mode]}) where {condition}"
        rows: list[tuple[Any, ...]] = connection.execute(query).fetchall()
        return rows


def runs(world: EvolvingWorld, dice: Random) -> None:
    """Run the pipeline to the end of the log. Some runs before lose a call of their store."""
    for _ in range(dice.choice((0, 0, 1, 2))):
        io = FaultyFileIO(world.store)
        io.fail_call(dice.randrange(5, 200), dice.choice((Fault.BEFORE, Fault.AFTER)))
        with suppress(FaultyIOError):
            world.run(io=io, batch_records=dice.randrange(1, 9))
    world.run(batch_records=dice.randrange(1, 9))


@pytest.mark.exhaustive
@pytest.mark.parametrize("first", range(0, 100, SEEDS))
def test_a_table_is_what_sql_gives_on_the_rows_of_its_source(first: int) -> None:
    for seed in range(first, first + SEEDS):
        dice = Random(seed)
        given, source = Settings.of(dice), Source(dice)
        world = EvolvingWorld("mask_salt: pepper", as_yaml(given.settings), f"options: {json.dumps(given.options)}")
        for _ in range(dice.randrange(1, 4)):
            for _ in range(dice.randrange(3, 25)):
                source.step(world)
            runs(world, dice)
        table = Table(world.table)
        columns = [name for name in table.schema.names if name not in ("topic", "partition", "offset")]
        rows = table.scan(columns=columns).to_arrow().to_pylist()
        expected = source_rows(given.expected(source.in_duckdb(), columns))
        assert source_rows(tuple(row.values()) for row in rows) == expected, (seed, world.table_settings, given.options)
        assert not world.breaks()
        if given.options.get("changelog-producer", "none") != "none":
            check_changelog(table)


def as_yaml(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in settings.items())


def source_rows(rows: Iterable[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    """Return the rows as a multiset, in which 1 is 1.000, and a time is an instant."""
    return Counter(tuple(map(_plain, row)) for row in rows)


def _plain(value: Any) -> Any:
    match value:
        case datetime():
            return value.astimezone(UTC)
        case Decimal() | int():
            return Decimal(value).normalize()
        case _:
            return value
