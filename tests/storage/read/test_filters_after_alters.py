"""After any schema changes, a filtered scan equals filtering the whole scan."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time
from decimal import Decimal
from random import Random
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import tidelake
from tests.support.levels import rounds
from tidelake import Predicate, Table, TidelakeError, col
from tidelake.storage.catalog.filesystem import FileSystemCatalog
from tidelake.storage.fileio.memory import MemoryFileIO
from tidelake.storage.model.schema.type_changes import can_change
from tidelake.storage.model.types import DataField, arrow_field, arrow_type, parse_type

NAME: Final = "db.t"

# Values that wrap, overflow, round, lose digits or become null when their column gets another type.
VALUES: Final[Mapping[str, Sequence[Any]]] = {
    "TINYINT": [-128, 0, 7, 127],
    "SMALLINT": [-300, 5, 128, 32_767],
    "INT": [-70_000, 9, 10, 100, 2**31 - 1],
    "BIGINT": [-(2**40), 2, 300, 2**53 + 1, 2**62],
    "FLOAT": [-1.5, 0.0, 16_777_216.0, 3e38, float("inf")],
    "DOUBLE": [-1e300, -0.0, 0.125, 1e15, float("nan")],
    "DECIMAL(38, 4)": [Decimal("9" * 20), Decimal("-0.0001"), Decimal("12.3450")],
    "DECIMAL(10, 2)": [Decimal("-99999999.99"), Decimal("0.50"), Decimal("7.00")],
    "DECIMAL(5, 2)": [Decimal("-999.99"), Decimal("0.49")],
    "BOOLEAN": [True, False],
    "STRING": ["9", "10", "-300", "1e3", "true", "2024-02-29", "zebra", ""],
    "VARCHAR(3)": ["7", "ab", "abc"],
    "CHAR(2)": ["ab", "7 "],
    "BYTES": [b"", b"ab\xff", b"7"],
    "DATE": [date(1969, 12, 31), date(2024, 2, 29)],
    "TIME(3)": [time(0), time(23, 59, 59, 999_000)],
    "TIMESTAMP(0)": [datetime(1969, 12, 31, 23, 59, 59), datetime(2024, 2, 29)],
    "TIMESTAMP(3)": [datetime(1969, 12, 31, 23, 59, 59, 999_000), datetime(2024, 2, 29, 1, 2, 3, 4000)],
    "TIMESTAMP(6)": [datetime(1970, 1, 1, 0, 0, 0, 1), datetime(2024, 2, 29, 1, 2, 3, 4)],
    "ARRAY<INT>": [[], [1, None], [300]],
    "ROW<a INT, b STRING>": [{"a": None, "b": None}, {"a": 300, "b": "x"}],
}
FORMATS: Final = ("parquet", "orc", "avro")
_COMPARE: Final = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)
_LIVES: Final = range(30, 30 + rounds(15))
_LIVES_OF_LONG_RUN: Final = range(1_000, 4_000)


@dataclass
class Life:
    """A table that is written to and altered in turns. columns: name -> type, besides `k` and the partition `p`."""

    dice: Random
    has_key: bool
    columns: dict[str, str] = field(default_factory=dict)
    rows: int = 0

    def __post_init__(self) -> None:
        self.catalog = tidelake.open_catalog(f"memory://{uuid4().hex}/lake")
        self.catalog.create_database("db")
        for number in range(self.dice.randint(1, 3)):
            self.columns[f"c{number}"] = self.dice.choice(list(VALUES))
        given = {"p": "INT", "k": "INT", **self.columns}
        options = {
            "bucket": self.dice.choice(["1", "2"]) if self.has_key else "-1",
            "file.format": self.dice.choice(FORMATS),
            "metadata.stats-mode": self.dice.choice(["truncate(16)", "full", "counts"]),
            "snapshot.num-retained.min": "1000",
            "write-only": self.dice.choice(["true", "false"]),
        }
        self.table = self.catalog.create_table(
            NAME,
            [DataField(0, name, parse_type(text)) for name, text in given.items()],
            primary_key=["p", "k"] if self.has_key else [],
            partition_by=["p"],
            options=options,
        )

    def write(self) -> None:
        """A file or two, each with few of a column's values, so that files differ."""
        schema = self.table.schema
        few = {name: self.dice.choices([*VALUES[text], None], k=2) for name, text in self.columns.items()}
        rows = []
        for _ in range(self.dice.randint(1, 4)):
            self.rows += 1
            key = self.dice.randrange(6) if self.has_key else self.rows
            rows.append({"p": self.dice.randrange(2), "k": key} | {n: self.dice.choice(v) for n, v in few.items()})
        kinds = [("p", pa.int32()), ("k", pa.int32())]
        kinds += [(name, schema.field(name).type) for name in self.columns]
        with self.table.writer() as writer:
            writer.write(pa.Table.from_pylist(rows, pa.schema(kinds)))
            writer.commit()

    def alter(self) -> None:
        name = self.dice.choice(list(self.columns))
        match self.dice.choice(["type", "type", "type", "type", "add", "drop", "rename", "swap", "move", "part"]):
            case "type":
                old = parse_type(self.columns[name])
                new = self.dice.choice([text for text in VALUES if can_change(old, parse_type(text))])
                self._apply(tidelake.UpdateColumnType(name, new))
                self.columns[name] = new
            case "add":
                added, text = f"c{len(self.columns)}{self.rows}", self.dice.choice(list(VALUES))
                self._apply(tidelake.AddColumn(added, text))
                self.columns[added] = text
            case "drop":
                text = self.dice.choice(list(VALUES))
                self._apply(tidelake.DropColumn(name), tidelake.AddColumn(name, text))
                self.columns[name] = text
            case "rename":
                self._apply(tidelake.RenameColumn(name, f"{name}x"))
                self.columns[f"{name}x"] = self.columns.pop(name)
            case "swap" if len(self.columns) > 1:
                one, other = self.dice.sample(list(self.columns), k=2)
                self._apply(
                    tidelake.RenameColumn(one, "_"),
                    tidelake.RenameColumn(other, one),
                    tidelake.RenameColumn("_", other),
                )
                self.columns[one], self.columns[other] = self.columns[other], self.columns[one]
            case "move":
                self._apply(tidelake.UpdateColumnPosition(name, first=True))
            case "part" if self.columns[name].startswith("ROW"):
                self._apply(tidelake.UpdateColumnType((name, "a"), "TINYINT"))
                self._apply(tidelake.UpdateColumnType((name, "a"), "INT"))

    def _apply(self, *changes: Any) -> None:
        self.table = self.catalog.alter_table(NAME, changes)

    # ------------------------------------------------------------ conditions

    def conditions(self, everything: pa.Table) -> list[Predicate]:
        """On every column: with values that it has, and with some that it has not."""
        simple: list[Predicate] = [col("k") >= self.dice.randrange(6), col("p") == self.dice.randrange(2)]
        for name, text in self.columns.items():
            x, kind = col(name), everything.schema.field(name).type
            simple += [x.is_null(), x.is_not_null()]
            if pa.types.is_nested(kind):
                continue
            known = [value for value in everything.column(name) if value.is_valid]
            known += [pa.scalar(value, kind) for value in VALUES[text]]
            for compare in _COMPARE:
                simple.append(compare(x, self.dice.choice(known)))
            simple.append(x.is_in(self.dice.choices(known, k=2)))
            if pa.types.is_string(kind):
                simple.append(x.starts_with(self.dice.choice(known).as_py()[:1]))
            if pa.types.is_floating(kind):
                simple.append(x.is_nan())
        pairs = [self.dice.choices(simple, k=2) for _ in range(6)]
        combined: list[Predicate] = [~one for one in simple]  # type: ignore[operator]
        combined += [one & other for one, other in pairs]  # type: ignore[operator]
        combined += [one | other for one, other in pairs]  # type: ignore[operator]
        combined += [~(one | other) for one, other in pairs]  # type: ignore[operator]
        return [*simple, *self.dice.sample(combined, k=min(12, len(combined)))]


def check_life(seed: int) -> bool:
    """False when the life ended in a change after which Java can't read the rows, either."""
    dice = Random(seed)
    life = Life(dice, has_key=dice.choice([True, False]))
    for _ in range(dice.randint(2, 5)):
        for _ in range(dice.randint(1, 2)):
            life.write()
        for _ in range(dice.randint(0, 2)):
            life.alter()
    try:
        everything = life.table.scan().to_arrow()
    except TidelakeError:  # a text that is no number, a time that nanoseconds don't reach
        return False
    for condition in life.conditions(everything):
        expected = everything.filter(condition.expression(life.table.schema))
        assert seen(life.table.scan(filter=condition).to_arrow()) == seen(expected), (seed, condition)
    return True


def seen(rows: pa.Table) -> list[str]:
    return sorted(map(repr, rows.to_pylist()))


@pytest.mark.sampled
def test_filters_are_correct_after_random_schema_changes() -> None:
    assert sum(check_life(seed) for seed in _LIVES) > len(_LIVES) / 2


@pytest.mark.long
def test_filters_are_correct_after_very_many_random_schema_changes() -> None:
    assert sum(check_life(seed) for seed in _LIVES_OF_LONG_RUN) > len(_LIVES_OF_LONG_RUN) / 2


@pytest.mark.parametrize("file_format", FORMATS)
@pytest.mark.parametrize(
    ("before", "value", "after"),
    [
        pytest.param("DECIMAL(38, 4)", Decimal("9" * 20), "DECIMAL(10, 2)", id="decimals"),
        pytest.param("BIGINT", 10**12, "DECIMAL(5, 2)", id="integers"),
        pytest.param("DOUBLE", 1e30, "DECIMAL(5, 2)", id="doubles"),
        pytest.param("STRING", "123456", "DECIMAL(5, 2)", id="texts"),
    ],
)
def test_rows_made_null_by_a_narrower_type_are_found_as_nulls(
    before: str, value: Any, after: str, file_format: str
) -> None:
    catalog = tidelake.open_catalog(f"memory://{uuid4().hex}/lake")
    catalog.create_database("db")
    columns = [DataField(0, "id", parse_type("INT")), DataField(0, "v", parse_type(before))]
    table = catalog.create_table(NAME, columns, options={"file.format": file_format})
    with table.writer() as writer:
        kind = arrow_type(parse_type(before))
        writer.write(pa.table({"id": pa.array([1, 2], pa.int32()), "v": pa.array([value, None], kind)}))
        writer.commit()
        writer.write(pa.table({"id": pa.array([3], pa.int32()), "v": pa.array([value], kind)}))
        writer.commit()
    table = catalog.alter_table(NAME, [tidelake.UpdateColumnType("v", after)])
    assert ids(table, None) == [1, 2, 3]
    assert ids(table, col("v").is_null()) == [1, 2, 3]
    assert ids(table, ~col("v").is_not_null()) == [1, 2, 3]
    assert ids(table, col("v").is_not_null()) == []
    assert ids(table, ~(col("v") >= 0)) == []


def ids(table: Table, condition: Predicate | None) -> list[int]:
    return sorted(table.scan(filter=condition).to_arrow().column("id").to_pylist())


def test_a_bucket_key_of_a_changed_type_still_finds_older_rows() -> None:
    """Java lets the type of a bucket key change, and its rows stay where the old values put them."""
    warehouse = f"memory://{uuid4().hex}/lake"
    catalog = tidelake.open_catalog(warehouse)
    catalog.create_database("db")
    columns = [DataField(0, "id", parse_type("INT")), DataField(0, "b", parse_type("INT"))]
    table = catalog.create_table(NAME, columns, options={"bucket": "7", "bucket-key": "b"})
    with table.writer() as writer:
        numbers = pa.array(range(-20, 20), pa.int32())
        writer.write(pa.table({"id": numbers, "b": numbers}))
        writer.commit()
    context = FileSystemCatalog(MemoryFileIO(), warehouse).load(NAME)
    schema = context.schema
    wider = DataField(1, "b", parse_type("BIGINT"))
    context.schemas.publish(
        type(schema)(
            1, (schema.fields[0], wider), schema.highest_field_id, options=schema.options, time_ms=schema.time_ms
        )
    )
    table = catalog.table(NAME)
    assert table.schema.field("b") == arrow_field(wider)
    for number in range(-20, 20):
        assert ids(table, col("b") == number) == [number]
    assert pc.count(table.scan().to_arrow()["id"]).as_py() == 40
