"""A filtered scan with indexes gives the same rows as without, and reads less."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from functools import reduce
from operator import and_, or_
from pathlib import Path
from random import Random
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
import pytest

import tidelake
from tests.support.cases import unpack_golden
from tests.support.levels import rounds, sample
from tidelake import Table, col
from tidelake.storage.files.bucket_directory import bucket_directory, data_file_path
from tidelake.storage.files.file_index.kinds import KINDS
from tidelake.storage.model.types import AtomicType, arrow_type, parse_type
from tidelake.storage.read.predicate import Column, Predicate
from tidelake.storage.read.scan import TableScan
from tidelake.storage.read.skipping.file_index_predicate import FileIndexPredicate

NAME: Final = "db.t"
WITHOUT: Final = {"file-index.read.enabled": "false"}

VALUES: Final[Mapping[str, Sequence[Any]]] = {
    "BOOLEAN": [True, False],
    "TINYINT": [-128, -1, 0, 7, 127],
    "SMALLINT": [-300, 0, 5, 32_767],
    "INT": [-(2**31), -5, 0, 9, 100, 2**31 - 1],
    "BIGINT": [-(2**63) + 1, -7, 0, 300, 2**53 + 1, 2**63 - 1],
    "FLOAT": [-1.5, 0.0, -0.0, 16_777_216.0, math.inf, -math.inf, math.nan],
    "DOUBLE": [-1e300, -0.0, 0.0, 0.125, 1e15, math.nan, math.inf],
    "DECIMAL(10, 2)": [Decimal("-99999999.99"), Decimal("-0.50"), Decimal("0.00"), Decimal("7.00")],
    "STRING": ["", "a", "ab", "abc", "b", "湖", "湖仓", "\U0001f30a", "z" * 300],
    "VARCHAR(3)": ["7", "ab", "abc"],
    "CHAR(2)": ["ab", "7 "],
    "BYTES": [b"", b"ab\xff", b"7"],
    "DATE": [date(1969, 12, 31), date(1970, 1, 1), date(2024, 2, 29)],
    "TIME(3)": [time(0), time(23, 59, 59, 999_000)],
    "TIMESTAMP(0)": [datetime(1969, 12, 31, 23, 59, 59), datetime(2024, 2, 29)],
    "TIMESTAMP(3)": [datetime(1969, 12, 31, 23, 59, 59), datetime(2024, 2, 29, 1, 2, 3, 4000)],
    "TIMESTAMP(6)": [datetime(1970, 1, 1, 0, 0, 0, 1), datetime(2024, 2, 29, 1, 2, 3, 4), datetime(1900, 1, 1)],
    "TIMESTAMP(9)": [1, 1001, 1002, 1_709_168_523_000_004_001, -1_000_000],
    "TIMESTAMP(6) WITH LOCAL TIME ZONE": [0, 1, -1000, 1_709_168_523_000_004],
}
FORMATS: Final = ("parquet", "orc", "avro")
PLAIN: Final = ("==", "!=", "<", "<=", ">", ">=")


def kinds_of(type_text: str) -> list[str]:
    return [name for name, kind in KINDS.items() if kind.supports(parse_type(type_text))]


def asked(name: str) -> Column:
    """`c1`, or of a map one key: `m[a]`."""
    column, _, key = name.removesuffix("]").partition("[")
    return col(column)[key] if key else col(column)


def one_condition(dice: Random, name: str, type_text: str) -> Predicate:
    column = asked(name)
    kind = arrow_type(parse_type(type_text))
    values = [pa.scalar(value, kind) for value in VALUES[type_text]]
    value = dice.choice(values)
    choices: list[Any] = [
        column == value,
        column != value,
        column.is_null(),
        column.is_not_null(),
        column.is_in(dice.choices(values, k=dice.randint(0, 3))),
        ~column.is_in(dice.choices(values, k=dice.randint(1, 3))),
    ]
    if type_text != "BOOLEAN":
        choices += [column < value, column <= value, column > value, column >= value, ~(column < value)]
    if pa.types.is_string(kind):
        choices += [column.starts_with(dice.choice(VALUES[type_text])[:1])]
    if pa.types.is_floating(kind):
        choices += [column.is_nan(), ~column.is_nan()]
    condition: Predicate = dice.choice(choices)
    return condition


def condition_of(dice: Random, columns: Mapping[str, str]) -> Predicate:
    parts = [one_condition(dice, name, columns[name]) for name in dice.choices(list(columns), k=dice.randint(1, 3))]
    joined: Any = reduce(dice.choice([and_, or_]), parts)
    condition: Predicate = ~joined if dice.random() < 0.2 else joined
    return condition


def indexed_table(lake: str, dice: Random, *, has_key: bool) -> tuple[Table, dict[str, str]]:
    """Several columns of any types, and values of a map, with all the indexes that they can have."""
    columns = {f"c{i}": dice.choice(list(VALUES)) for i in range(3)}
    columns["m[a]"] = dice.choice(list(VALUES))
    options = {
        "bucket": "1" if has_key else "-1",
        "file.format": dice.choice(FORMATS),
        "metadata.stats-mode": "none",
        "file-index.in-manifest-threshold": dice.choice(["1 b", "1 mb"]),
        "file.block-size": "1 kb",
    }
    if options["file.format"] == "avro":
        columns = {name: "BIGINT" if text == "TIMESTAMP(9)" else text for name, text in columns.items()}
    for kind in KINDS:
        if names := [name for name, text in columns.items() if kind in kinds_of(text)]:
            options[f"file-index.{kind}.columns"] = ",".join(names)
            if kind == "bloom-filter":
                options |= {f"file-index.bloom-filter.{name}.items": "100" for name in names}
            if kind == "bitmap":
                options |= {f"file-index.bitmap.{name}.version": dice.choice("12") for name in names}
                options |= {f"file-index.bitmap.{name}.index-block-size": "40 b" for name in names}
            if kind == "range-bitmap":
                options |= {
                    f"file-index.range-bitmap.{name}.chunk-size": dice.choice(["0 b", "20 b"]) for name in names
                }
    types = columns | {"m": f"MAP<STRING, {columns['m[a]']}>"}
    columns["m[b]"] = columns["m[a]"]  # without an index
    catalog = tidelake.open_catalog(lake)
    catalog.create_database("db")
    fields = [pa.field("k", pa.int32(), nullable=False)]
    table = catalog.create_table(
        NAME, pa.schema(fields), primary_key=["k"] if has_key else [], options={"bucket": options["bucket"]}
    )
    catalog.alter_table(NAME, [tidelake.AddColumn(name, text) for name, text in types.items() if name != "m[a]"])
    catalog.alter_table(NAME, [tidelake.SetOption(key, value) for key, value in options.items() if key != "bucket"])
    table = catalog.table(NAME)
    with table.writer() as writer:
        for _ in range(3):
            writer.write(rows_of(dice, table, columns))
            writer.commit()
    return table, columns


def rows_of(dice: Random, table: Table, columns: Mapping[str, str]) -> pa.Table:
    keys = sorted(dice.sample(range(60), 30))
    data: dict[str, list[Any]] = {"k": keys}
    for name, text in columns.items():
        few = dice.sample(VALUES[text], dice.randint(1, len(VALUES[text])))
        data[name] = [None if dice.random() < 0.2 else dice.choice(few) for _ in keys]
    data["m"] = [
        None if dice.random() < 0.1 else [(k, data[f"m[{k}]"][at]) for k in "ab" if dice.random() < 0.8]
        for at, _ in enumerate(keys)
    ]
    return pa.table([pa.array(data[f.name], f.type) for f in table.schema], schema=table.schema)


def shown(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


@pytest.mark.sampled
@pytest.mark.parametrize("has_key", [False, True], ids=["append table", "primary key"])
def test_conditions_find_the_same_rows_with_indexes_as_without(has_key: bool) -> None:
    for seed in range(rounds(30)):
        dice = Random(seed)
        table, columns = indexed_table(f"memory://{uuid4().hex}/lake", dice, has_key=has_key)
        plain = Table(table.context.with_options(WITHOUT))
        for _ in range(12):
            condition = condition_of(dice, columns)
            wanted = shown(plain.scan(filter=condition).to_arrow())
            assert shown(table.scan(filter=condition).to_arrow()) == wanted, (seed, columns, condition)


GOLDEN_VALUES: Final[Mapping[str, Sequence[Any]]] = {
    "id": [0, 7, 19, 50, 99],
    "s": ["s0", "s2", "s7", "s9", ""],
    "n": [-10, -8, 0, 7, 8, 47, 99],
    "d": ["2024-01-01", "2024-01-20", "2024-07-07", "2025-01-01"],
    "x": [Decimal("0.25"), Decimal("7.77"), Decimal("19.25"), Decimal("3")],
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["file_index_embedded", "file_index_sidecar"])
def test_javas_indexes_find_the_same_rows_as_a_read_without_them(name: str, tmp_path: Path) -> None:
    warehouse = unpack_golden(f"java/{name}", tmp_path)
    catalog = tidelake.open_catalog(str(warehouse))
    table, plain = (catalog.table(f"golden.{name}", options) for options in ({}, WITHOUT))
    conditions: list[Any] = [col("s").starts_with("s1")]
    for column, values in GOLDEN_VALUES.items():
        asked = col(column)
        conditions += [asked.is_null(), asked.is_not_null(), asked.is_in(values[:2]), ~asked.is_in(values[1:])]
        for value in values:
            conditions += [asked == value, asked != value, (asked < value) | (col("n") == 8), asked >= value]
    for condition in sample(conditions):
        expected = shown(plain.scan(filter=condition).to_arrow())
        assert shown(table.scan(filter=condition).to_arrow()) == expected, condition


@pytest.mark.parametrize(
    ("name", "condition", "positions"),
    [
        ("file_index_embedded", col("s") == "s9", []),
        ("file_index_embedded", col("s") == "s2", [2, 6, 10, 14, 18]),
        ("file_index_embedded", col("n") < -4, [0, 1]),
        ("file_index_embedded", (col("d") > "2024-01-18") & (col("x") < 19), [18]),
        ("file_index_embedded", col("d").is_null(), [20]),
        ("file_index_embedded", col("m").is_null(), None),
        ("file_index_sidecar", col("n") == 46, []),
        ("file_index_sidecar", col("d") == "2024-07-07", [7]),
        ("file_index_sidecar", (col("d") == "2024-01-01") | (col("n") > 46), [0, 19]),
        ("file_index_sidecar", (col("d") == "2024-01-01") | (col("id") == 3), None),
    ],
    ids=str,
)
def test_javas_indexes_select_rows(
    name: str, condition: Predicate, positions: list[int] | None, tmp_path: Path
) -> None:
    """Of the file that holds most rows."""
    warehouse = unpack_golden(f"java/{name}", tmp_path)
    context = tidelake.open_catalog(str(warehouse)).table(f"golden.{name}").context
    files = [
        (file, data_file_path(bucket_directory(context, split.partition, split.bucket), file))
        for split in TableScan(context).plan(context.snapshots.latest())
        for file in split.files
    ]
    file, path = max(files, key=lambda found: found[0].row_count)
    found = FileIndexPredicate(context, condition).selected_rows(file, path)
    assert (None if found is None else list(found)) == positions


@pytest.mark.parametrize(
    ("condition", "rows"),
    [
        pytest.param(col("m")["env"] == "prod", [0, 3], id="a value"),
        pytest.param(col("m")["env"] == "none", [], id="a value that is nowhere"),
        pytest.param(col("m")["env"] != "prod", [1], id="another value"),
        pytest.param(col("m")["env"].is_in(["dev", "prod"]), [0, 1, 3], id="one of some"),
        pytest.param(~col("m")["env"].is_in(["dev"]), [0, 3], id="none of some"),
        pytest.param(col("m")["env"].is_null(), [2, 4, 5], id="no such key, a null or no map"),
        pytest.param(col("m")["zone"] == "1", [2], id="a key without an index"),
        pytest.param((col("m")["env"] == "prod") & (col("m")["zone"] == "2"), [3], id="two keys"),
        pytest.param(col("m")["it's"].starts_with("o"), [5], id="a key with a quote"),
    ],
)
@pytest.mark.parametrize("kind", ["bloom-filter", "bitmap"])
def test_one_map_key_can_be_used_in_a_condition(kind: str, condition: Any, rows: list[int]) -> None:
    catalog = tidelake.open_catalog(f"memory://{uuid4().hex}/lake")
    catalog.create_database("db")
    schema = pa.schema([("id", pa.int32()), ("m", pa.map_(pa.string(), pa.string()))])
    options = {f"file-index.{kind}.columns": "m[env],m[it's]", "file-index.in-manifest-threshold": "1 mb"}
    options |= {"file-index.bloom-filter.m.items": "100"} if kind == "bloom-filter" else {}
    table = catalog.create_table(NAME, schema, options=options)
    maps = [
        {"env": "prod"},
        {"env": "dev", "zone": "2"},
        {"zone": "1"},
        {"env": "prod", "zone": "2"},
        None,
        {"env": None, "it's": "odd"},
    ]
    with table.writer() as writer:
        for number, one in enumerate(maps):
            writer.write(pa.table({"id": [number], "m": [None if one is None else list(one.items())]}, schema))
        writer.commit()
    assert table.scan(filter=condition, columns=["id"]).to_arrow()["id"].to_pylist() == rows
    nowhere = table.scan(filter=col("m")["env"] == "nowhere")
    assert (nowhere.splits(), nowhere.explain()[0].reason) == ([], "left out by its index: no row may match")


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        pytest.param(lambda: col("id")["a"] == 1, "not a MAP with string keys", id="no map"),
        pytest.param(lambda: col("n")[1] == 1, r"the key of n\[…\]", id="a number for a key"),  # type: ignore[index]
        pytest.param(lambda: col("n")["1"] == 1, "not a MAP with string keys", id="a map with numbers for keys"),
        pytest.param(lambda: col("m")["a"]["b"] == "x", "a key of a map within a map", id="a map in a map"),
        pytest.param(lambda: col("m")["a"] == 3, r"m\['a'\]", id="another type"),
        pytest.param(lambda: col("x")["a"] == "y", "the filter names column 'x'", id="no column"),
    ],
)
def test_an_invalid_map_key_is_refused(condition: Callable[[], Any], message: str) -> None:
    catalog = tidelake.open_catalog(f"memory://{uuid4().hex}/lake")
    catalog.create_database("db")
    maps = [("m", pa.map_(pa.string(), pa.string())), ("n", pa.map_(pa.int32(), pa.int32()))]
    table = catalog.create_table(NAME, pa.schema([("id", pa.int32()), *maps]))
    with pytest.raises(tidelake.BadInput, match=message):
        table.scan(filter=condition())


def test_indexed_types_are_atomic() -> None:
    assert {name for text in VALUES for name in kinds_of(text)} == KINDS.keys()
    assert all(isinstance(parse_type(text), AtomicType) for text in VALUES)
