"""File indexes compared with Java's: the same bytes for the same rows, and the same rows found with the indexes of the
other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import time
from functools import reduce
from operator import and_, or_
from pathlib import Path
from random import Random
from typing import Any, Final

import pyarrow as pa
import pytest

import tidelake
from tests.support.expected import json_values
from tests.support.java_oracle import JavaOracle
from tests.support.levels import rounds
from tidelake import Table, col
from tidelake.storage.files.file_index.bitmap import BitmapIndex
from tidelake.storage.files.file_index.container import Container
from tidelake.storage.files.file_index.kinds import KINDS
from tidelake.storage.model.types import AtomicType, parse_type

NAME: Final = "db.t"
ROWS: Final = 300
TYPES: Final[Mapping[str, str]] = {
    "b": "BOOLEAN",
    "i8": "TINYINT",
    "i16": "SMALLINT",
    "i32": "INT",
    "i64": "BIGINT",
    "f32": "FLOAT",
    "f64": "DOUBLE",
    "d": "DECIMAL(18, 4)",
    "s": "STRING",
    "c": "CHAR(4)",
    "y": "BYTES",
    "day": "DATE",
    "at": "TIME(3)",
    "t0": "TIMESTAMP(0)",
    "t3": "TIMESTAMP(3)",
    "t6": "TIMESTAMP(6)",
    "z6": "TIMESTAMP(6) WITH LOCAL TIME ZONE",
}
OPERATORS: Final = {"=": "__eq__", "<>": "__ne__", "<": "__lt__", "<=": "__le__", ">": "__gt__", ">=": "__ge__"}


def values_of(name: str, dice: Random) -> list[Any]:
    """Few distinct ones, as the oracle reads and writes them."""
    day = f"20{dice.randint(10, 40)}-0{dice.randint(1, 9)}-1{dice.randint(0, 9)}"
    texts = ["", "a", "ab", "Zebra", "湖仓", "\U0001f30a", "x" * dice.randint(4, 300), f"{dice.random()}" * 8]
    found: dict[str, Sequence[Any]] = {
        "b": [True, False],
        "i8": [-128, -1, 0, 1, 127],
        "i16": [-32768, 0, 300, 32767],
        "i32": [-(2**31), -7, 0, 7, 2**31 - 1, dice.randint(-1000, 1000)],
        "i64": [-(2**63) + 1, -1, 0, 2**40, 2**63 - 1, dice.randint(-(10**9), 10**9)],
        "f32": [-1.5, 0.25, 3.0e8],
        "f64": [-1e300, 0.125, 7.5, dice.random()],
        "d": ["-99999999999999.9999", "0.0000", "12.3450", f"{dice.randint(0, 999)}.5000"],
        "s": texts,
        "c": ["ab", "abcd"],
        "y": [{"hex": ""}, {"hex": "00ff"}, {"hex": "ab" * dice.randint(1, 90)}],
        "day": ["1969-12-31", "1970-01-01", day],
        "at": ["00:00:00", "23:59:59.999"],
        "t0": ["1969-12-31T23:59:59", f"{day}T01:02:03"],
        "t3": ["1969-12-31T23:59:59.999", f"{day}T01:02:03.004"],
        "t6": ["1969-12-31T23:59:59.999999", f"{day}T01:02:03.000004"],
        "z6": ["1970-01-01T00:00:00.000001Z", f"{day}T01:02:03.000004Z"],
    }
    return list(found[name])


def options_of(dice: Random, file_format: str, threshold: str) -> dict[str, str]:
    options = {
        "bucket": "-1",
        "file.format": file_format,
        "metadata.stats-mode": "none",
        "file-index.in-manifest-threshold": threshold,
    }
    for kind, of_kind in KINDS.items():
        names = [name for name, text in TYPES.items() if of_kind.supports(parse_type(text))]
        keys = ["m[k]", "m[l]"] if kind in ("bloom-filter", "bitmap") else []
        options[f"file-index.{kind}.columns"] = ",".join([*names, *keys])
        if kind == "bloom-filter":
            options |= {f"file-index.{kind}.{name}.items": f"{dice.randint(1, 200)}" for name in [*names, *keys]}
            options |= {f"file-index.{kind}.s.fpp": "0.01"}
        if kind == "bitmap":
            options |= {f"file-index.{kind}.{name}.version": dice.choice("12") for name in names}
            options |= {f"file-index.{kind}.s.index-block-size": "1 kb"}
        if kind == "range-bitmap":
            options |= {
                f"file-index.{kind}.{name}.chunk-size": dice.choice(["0 b", "12 b", "16 kb"]) for name in ("i32", "t6")
            }
            options |= {f"file-index.{kind}.s.chunk-size": "1 kb", f"file-index.{kind}.i64.chunk-size": "20 b"}
    return options


class Twins:
    """The same rows in a table that Java wrote and in one that we wrote."""

    def __init__(self, folder: Path, java: JavaOracle, seed: int, file_format: str, threshold: str) -> None:
        dice = Random(seed)
        self.java = java
        self.values = {name: values_of(name, dice) for name in TYPES}
        if file_format == "orc":  # the last second of 1969 is read back as another time, or not at all
            early = "1969-12-31T23:59:59."
            self.values = {n: [v for v in values if not str(v).startswith(early)] for n, values in self.values.items()}
        rows = [
            {
                "k": number,
                **{name: None if dice.random() < 0.1 else dice.choice(of) for name, of in self.values.items()},
                "m": None
                if dice.random() < 0.1
                else [[k, dice.choice(["p", "q"])] for k in "klm" if dice.random() < 0.5],
            }
            for number in range(ROWS)
        ]
        columns: list[dict[str, Any]] = [{"name": "k", "type": "INT NOT NULL"}]
        columns += [{"name": name, "type": text} for name, text in TYPES.items()]
        columns += [{"name": "m", "type": {"type": "MAP", "key": "STRING", "value": "STRING"}}]
        self.warehouses = {side: folder / side for side in ("java", "ours")}
        options = options_of(dice, file_format, threshold)
        for warehouse in self.warehouses.values():
            java.create(warehouse, NAME, columns, options=options)
        java.write(self.warehouses["java"], NAME, rows)
        ours = self.table("ours")
        with ours.writer() as writer:
            writer.write(self.table("java").scan().to_arrow().sort_by("k"))
            writer.commit()

    def table(self, side: str, options: Mapping[str, str] | None = None) -> Table:
        return tidelake.open_catalog(str(self.warehouses[side])).table(NAME, options or {})

    def indexes(self, side: str) -> dict[str, dict[str, bytes | None]]:
        (file,) = [file for split in self.table(side).scan().splits() for file in split.files]
        if file.embedded_index is not None:
            return Container.of_bytes(file.embedded_index, side).all()
        (name,) = file.extra_files
        return Container.of_bytes((self.warehouses[side] / f"db.db/t/bucket-0/{name}").read_bytes(), side).all()


def meaning(name: str, kind: str, data: bytes, values: pa.Array) -> Any:
    """Java writes bitmaps in the order of a hash map. Their sizes and answers are the same."""
    if kind != "bitmap":
        return data.hex()
    data_type = parse_type(TYPES.get(name, "STRING"))
    assert isinstance(data_type, AtomicType)
    index = BitmapIndex(data, data_type)
    answers = [index.any_of(values.slice(at, 1)) for at in range(len(values))]
    return len(data), answers, index.is_null()


@pytest.mark.sampled
@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
def test_the_same_rows_give_the_same_index_bytes_as_java(
    file_format: str, tmp_path: Path, java_oracle: JavaOracle
) -> None:
    for seed in range(rounds(10)):
        twins = Twins(tmp_path / str(seed), java_oracle, seed, file_format, "1 mb" if seed % 2 else "1 b")
        theirs, ours = twins.indexes("java"), twins.indexes("ours")
        assert {name: kinds.keys() for name, kinds in ours.items()} == {n: kinds.keys() for n, kinds in theirs.items()}
        rows = twins.table("ours").scan().to_arrow()
        for name, kinds in theirs.items():
            values = rows.column(name).unique().drop_null() if name in TYPES else pa.array(["p", "q", "-"])
            for kind, data in kinds.items():
                mine = ours[name][kind]
                assert mine is not None
                assert data is not None
                assert meaning(name, kind, mine, values) == meaning(name, kind, data, values), (seed, name, kind)


def condition_of(dice: Random, twins: Twins) -> tuple[Any, Any]:
    """(ours, Java's)"""
    parts, theirs = [], []
    for name in dice.choices([name for name in TYPES if name not in ("y", "b")], k=dice.randint(1, 3)):
        column = col(name)
        kind = twins.table("ours").schema.field(name).type
        values = [*twins.values[name], *values_of(name, dice)]
        value, others = dice.choice(values), dice.sample(values, 2)
        match dice.choice([*OPERATORS, "in", "not in", "is null", "is not null"]):
            case "in" | "not in" as negation:
                inside = column.is_in([typed(v, kind) for v in others])
                parts.append(inside if negation == "in" else ~inside)
                theirs.append([negation, name, others])
            case "is null":
                parts.append(column.is_null())
                theirs.append(["is null", name])
            case "is not null":
                parts.append(column.is_not_null())
                theirs.append(["is not null", name])
            case operator:
                parts.append(getattr(column, OPERATORS[operator])(typed(value, kind)))
                theirs.append([operator, name, value])
    if len(parts) == 1:
        return parts[0], theirs[0]
    joint, word = dice.choice([(and_, "and"), (or_, "or")])
    return reduce(joint, parts), [word, *theirs]


def typed(value: Any, kind: pa.DataType) -> Any:
    if not isinstance(value, str) or pa.types.is_string(kind):
        return value
    return time.fromisoformat(value) if pa.types.is_time(kind) else pa.scalar(value).cast(kind)


@pytest.mark.interop
@pytest.mark.sampled
@pytest.mark.parametrize("threshold", ["1 mb", "1 b"], ids=["in the manifest", "beside the file"])
def test_each_finds_the_same_rows_with_the_indexes_of_the_other(
    threshold: str, tmp_path: Path, java_oracle: JavaOracle
) -> None:
    for seed in range(rounds(5)):
        twins = Twins(tmp_path / str(seed), java_oracle, seed, "parquet", threshold)
        plain = twins.table("ours", {"file-index.read.enabled": "false"})
        dice = Random(seed)
        for _ in range(20):
            ours, theirs = condition_of(dice, twins)
            wanted = sorted(plain.scan(columns=["k"], filter=ours).to_arrow()["k"].to_pylist())
            for side in ("java", "ours"):
                found = twins.table(side).scan(columns=["k"], filter=ours).to_arrow()["k"].to_pylist()
                assert sorted(found) == wanted, (seed, side, ours)
                reported = java_oracle.read(twins.warehouses[side], NAME, where=theirs)
                assert sorted(row["k"] for row in reported) == wanted, (seed, side, theirs)


@pytest.mark.parametrize("side", ["java", "ours"])
def test_values_of_an_indexed_map_key_equal_those_of_java(side: str, tmp_path: Path, java_oracle: JavaOracle) -> None:
    """No condition of Java's names a key, though it writes such indexes: of its rows the truth is made here."""
    twins = Twins(tmp_path, java_oracle, 0, "parquet", "1 mb")
    reported = [(row["k"], dict(row["m"] or [])) for row in java_oracle.read(twins.warehouses[side], NAME)]
    table = twins.table(side)
    for key, value in [(key, value) for key in "klx" for value in "pq-"]:
        asked, of_key = col("m")[key], {k: of_row.get(key) for k, of_row in reported}
        cases: list[tuple[Any, set[Any]]] = [
            (asked == value, {value}),
            (asked != value, {"p", "q"} - {value}),
            (asked.is_in([value, "p"]), {value, "p"}),
            (asked.is_null(), {None}),
        ]
        for condition, values in cases:
            found = table.scan(columns=["k"], filter=condition).to_arrow()["k"].to_pylist()
            assert sorted(found) == sorted(k for k, found in of_key.items() if found in values), (key, condition)
    left_out = [col("m")["k"] == "-", col("m")["l"].is_in(["-", "+"])]
    assert [table.scan(filter=condition).splits() for condition in left_out] == [[], []]


def test_java_reads_through_indexes_that_were_rewritten(tmp_path: Path, java_oracle: JavaOracle) -> None:
    twins = Twins(tmp_path, java_oracle, 1, "parquet", "1 b")
    catalog = tidelake.open_catalog(str(twins.warehouses["java"]))
    catalog.alter_table(NAME, [tidelake.SetOption("file-index.bitmap.columns", "s"), *without_options("bitmap")])
    before = twins.indexes("java")
    assert catalog.table(NAME).rewrite_file_index().rewritten == 1
    after = twins.indexes("java")
    assert ["bitmap" in kinds for kinds in (before["i32"], after["i32"], after["s"])] == [True, False, True]
    (value, *_) = twins.values["s"]
    reported = java_oracle.read(twins.warehouses["java"], NAME, where=["=", "s", value])
    assert len(reported) == len(java_oracle.read(twins.warehouses["ours"], NAME, where=["=", "s", value])) > 0
    (data_file,) = twins.warehouses["java"].glob("db.db/t/bucket-0/*.parquet")
    data_file.write_bytes(b"")
    assert java_oracle.read(twins.warehouses["java"], NAME, where=["=", "s", "nowhere"]) == []


def without_options(kind: str) -> list[tidelake.RemoveOption]:
    names = [name for name, text in TYPES.items() if KINDS[kind].supports(parse_type(text)) and name != "s"]
    return [tidelake.RemoveOption(f"file-index.{kind}.{name}.version") for name in names]


def test_java_skips_files_that_our_index_rules_out(tmp_path: Path, java_oracle: JavaOracle) -> None:
    twins = Twins(tmp_path, java_oracle, 0, "parquet", "1 b")
    (data_file,) = twins.warehouses["ours"].glob("db.db/t/bucket-0/*.parquet")
    data_file.write_bytes(b"")
    assert java_oracle.read(twins.warehouses["ours"], NAME, where=["=", "s", "nowhere"]) == []
    assert json_values(twins.table("ours").scan(filter=col("s") == "nowhere").to_arrow()["k"]) == []
