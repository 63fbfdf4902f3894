"""Any argument of a command works, or ends with our exit codes and a message that names the mistake."""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

import pyarrow as pa
import pytest

import tidelake
from tests.support.command_line import Call, Said
from tests.tidelake.cli.test_arguments import COMMANDS

LONG: Final = "x" * 300
RAW: Final = os.fsdecode(b"a\xff")  # bytes that are no UTF-8, as the shell hands them over
DEEP: Final = "ARRAY<" * 2_000 + "INT" + ">" * 2_000

ODD: Final = (
    *("", " ", "\0", RAW, LONG, "x" * 5_000, "0", "-1", "1.5", "nan", "1e400", "9" * 30, "9" * 5_000),
    *("None", ".", "..", "../..", "a/b", "\n", "\x1b[31m", "日本", "*", "`", "[1", "{", "=", "=b", "v=", "a=b"),
    *("shop", "shop.", ".orders", "shop.nope", "nope.orders", "shop.orders$branch_nope", "shop.orders$snapshots"),
    *("n=abc", f"n={'9' * 30}", f"d={LONG}", f"d={RAW}", "v", "id,", "id,id", "nope", "v FIRST", "v AFTER v"),
    *("a:", "a:NOPE", f"a:{DEEP}", "a:DECIMAL(99,1)", f"a:DECIMAL({'9' * 5_000})", "a:VECTOR<INT, x>", "v.x INT"),
    *("id = 1 and", "nope = 1", "id = 'abc'", f"id = {'9' * 5_000}", f"v = '{RAW}'", "(" * 3_000, "id like 5"),
    *("0001-01-01", "9999-12-31T23:59:59", "2024-99-99", "-1 d", f"{'9' * 20} d", "bucket=-5", f"bucket={'9' * 20}"),
    *("/dev/null", "/proc/self/mem", "/dev/zero", "s3://", "http://x", "hdfs://a/b", "file://"),
)


@dataclass(frozen=True)
class Place:
    """A warehouse with two tables, and a configuration. template: the warehouse as it is made."""

    root: Path
    template: Path

    @property
    def lake(self) -> Path:
        return self.root / "lake"

    @property
    def config(self) -> Path:
        return self.root / "shop.yaml"

    def restore(self) -> None:
        shutil.rmtree(self.lake, ignore_errors=True)
        shutil.copytree(self.template, self.lake)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    lake = tmp_path_factory.mktemp("template") / "lake"
    catalog = tidelake.open_catalog(str(lake))
    catalog.create_database("shop")
    columns = pa.schema([("id", pa.int64()), ("v", pa.string())])
    parts = pa.schema([("id", pa.int64()), ("d", pa.string()), ("n", pa.int32())])
    for table, rows in (
        (catalog.create_table("shop.orders", columns, primary_key=["id"]), {"id": [1, 2], "v": ["a", "b"]}),
        (catalog.create_table("shop.parts", parts, partition_by=["d", "n"]), {"id": [1], "d": ["a"], "n": [1]}),
    ):
        with table.writer(commit_user="etl") as writer:
            writer.write(pa.table(rows))
            writer.commit(1)
    return lake


@pytest.fixture
def place(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.chdir(tmp_path)  # where a warehouse of an odd name is made, if one is
    found = Place(tmp_path, template)
    found.restore()
    (tmp_path / "log").mkdir()
    found.config.write_text(
        f"warehouse: {found.lake}\nsource: {{type: change-log-folder, path: {tmp_path / 'log'}, until: end}}\n"
        "tables: [{name: shop.new}]\n"
    )
    return found


def usual(words: tuple[str, ...], place: Place) -> list[str]:
    """Arguments with which the command works, and ends by itself."""
    if words == ("ingest", "reload"):  # no process answers
        return [str(place.config), "--timeout", "0.1"]
    if words[0] in ("ingest", "spark"):
        return [str(place.config)]
    lake = ["-w", str(place.lake)]
    match words[-1]:
        case "create":
            return ["shop.new", *lake, "--column", "id:BIGINT"]
        case "alter":
            return ["shop.orders", *lake, "--set", "snapshot.num-retained.min=5"]
        case "list":
            return ["shop", *lake]
        case "follow":
            return ["shop.orders", *lake, "--start", "earliest", "--until", "1"]
        case "truncate" | "drop":
            return ["shop.parts", *lake, "--yes"]
    return ["shop.parts", *lake]


def with_odd(usual: list[str], action: argparse.Action, odd: str) -> list[str]:
    if not action.option_strings:
        return [odd, *usual[1:]]
    option = action.option_strings[-1]
    if option == "--warehouse":
        return [usual[0], f"--warehouse={odd}", *usual[3:]]
    if option in usual:
        at = usual.index(option)
        usual = usual[:at] + usual[at + 2 :]
    if option == "--database":  # in place of a name
        usual = usual[1:]
    if option == "--schema-from":  # in place of columns
        usual = usual[:3]
    return [*usual, f"{option}={odd}"]


def arguments_of(words: tuple[str, ...]) -> Iterator[argparse.Action]:
    for action in COMMANDS[words]._actions:
        if action.nargs != 0 and action.dest not in ("log_level", "log_format"):
            yield action


def odd_values(action: argparse.Action) -> list[str]:
    """`follow --until` a snapshot that is yet to come waits for it, rightly, as `reload --timeout` of an hour does."""
    return [odd for odd in ODD if action.dest not in ("until", "timeout") or not odd.isdecimal()]


def check(message: Said, typed: list[str]) -> None:
    assert message.code in range(5), (typed, message)
    assert "Traceback" not in message.err, typed
    assert "This is a bug" not in message.err, typed
    assert message.code == 0 or message.err.strip(), typed


# The demo and Spark start long work if an argument is valid. Their refusals are in NAMED.
TRIED: Final = [words for words in COMMANDS if words not in (("demo",), ("spark", "run"), ("spark", "submit"))]


@pytest.mark.parametrize("words", TRIED, ids=" ".join)
def test_any_argument_works_or_raises_our_error(words: tuple[str, ...], place: Place, call: Call) -> None:
    dice = Random(" ".join(words))
    for action in arguments_of(words):
        typed = [*words, *with_odd(usual(words, place), action, dice.choice(odd_values(action)))]
        check(call(*typed), typed)


@pytest.mark.long
@pytest.mark.parametrize("words", TRIED, ids=" ".join)
def test_every_odd_argument_value_works_or_raises_our_error(words: tuple[str, ...], place: Place, call: Call) -> None:
    for action in arguments_of(words):
        for odd in odd_values(action):
            typed = [*words, *with_odd(usual(words, place), action, odd)]
            check(call(*typed), typed)
            place.restore()


@dataclass(frozen=True)
class Case:
    """says: parts of the message. typed: after `{lake}` and `{config}` were put in."""

    id: str
    typed: tuple[str, ...]
    says: tuple[str, ...]
    code: int = 1


def table(verb: str, *more: str, name: str = "shop.orders") -> tuple[str, ...]:
    return ("table", verb, name, "-w", "{lake}", *more)


NAMED: Final = (
    Case("a table without its database", table("create", "--column", "a:INT", name="new"), ("'new' is not the name",)),
    Case("a table's name that is too long", table("show", name=f"shop.{LONG}"), ("table name 'xxx", "300 bytes")),
    Case("an unknown table", table("show", name="shop.nope"), ("no table shop.nope",)),
    Case("an unknown database", table("list", name="nope"), ("'nope'", "shop")),
    Case("an unknown branch", table("scan", name="shop.orders$branch_nope"), ("branch", "'nope'")),
    Case("bytes that are no text", table("scan", name=f"shop.{RAW}"), ("lone surrogate", "a\\udcff")),
    Case("a number that is huge", table("scan", "--snapshot", "9" * 30), ("--snapshot", "9" * 30), 2),
    Case("more rows than there can be", table("scan", "--limit", "9" * 20), ("--limit", "9" * 20), 2),
    Case("a number of too many digits", table("scan", "--limit", "9" * 5_000), ("--limit", "whole number"), 2),
    Case("two points in time", table("scan", "--snapshot", "1", "--tag", "t"), ("--tag", "--snapshot"), 2),
    Case("a table and a database", table("compact", "--database", "shop"), ("--database", "NAME"), 2),
    Case("an order of no columns", table("compact", "--strategy", "order", name="shop.parts"), ("--order-by",), 2),
    Case("columns twice", table("create", "--column", "a:INT", "--schema-from", "x"), ("--column", "--schema-from"), 2),
    Case("a type that is too deep", table("create", "--column", f"a:{DEEP}"), ("--column 'a:ARRAY", "200 deep"), 2),
    Case("a new column too deep", table("alter", "--add-column", f"a {DEEP}"), ("--add-column", "200 deep"), 2),
    Case("a vector of no length", table("create", "--column", "a:VECTOR<INT, x>"), ("--column 'a:VECTOR",), 2),
    Case("a length of too many digits", table("create", "--column", f"a:CHAR({'9' * 5_000})"), ("'a:CHAR(999",), 2),
    Case("a file that is not there", table("create", "--schema-from", "nope"), ("--schema-from 'nope'", "No such")),
    Case("a folder for a file", table("create", "--schema-from", "/"), ("--schema-from '/'", "directory")),
    Case("a store for a file", table("create", "--schema-from", "hdfs://a/b"), ("--schema-from 'hdfs://a/b'",)),
    Case("a file's name of raw bytes", table("create", "--schema-from", RAW), ("--schema-from 'a\\udcff'",)),
    Case("a duration of no unit", table("expire", "--retain-time", "soon"), ("--retain-time", "'soon'"), 2),
    Case("a time that is none", table("scan", "--as-of", "2024-99-99"), ("--as-of", "'2024-99-99'"), 2),
    Case("an option that is none", table("alter", "--set", "bucket=many"), ("bucket", "'many'")),
    Case(
        "a partition of another type",
        table("truncate", "--yes", "--partition", "n=x", name="shop.parts"),
        ("column n", "'x'"),
    ),
    Case("an unknown option of the store", table("show", "--catalog-option", "nope=1"), ("'nope'",)),
    Case("a configuration that is a folder", ("ingest", "plan", "/"), ("/: can't be read", "directory")),
    Case("a configuration that isn't there", ("ingest", "run", "nope.yaml"), ("nope.yaml", "No such file")),
    Case("a configuration without an end", ("ingest", "plan", "/dev/zero"), ("/dev/zero", "more than")),
    Case("a configuration named with a zero byte", ("ingest", "plan", "a\0b"), ("a\\x00b: can't be read", "null byte")),
    Case("a setting that is none", ("ingest", "plan", "{config}", "--set", "nope=1"), ("nope", "Possible:")),
    Case(
        "a setting of another kind",
        ("ingest", "plan", "{config}", "--set", "checkpoint.interval_ms=x"),
        ("interval_ms",),
    ),
    Case("a gap in no table", ("ingest", "plan", "{config}", "--accept-gap", "nope"), ("--accept-gap nope",)),
    Case(
        "a snapshot that is a word",
        ("ingest", "plan", "{config}", "--from-snapshot", "shop.new=x"),
        ("--from-snapshot",),
    ),
    Case("a place that is none", ("ingest", "plan", "{config}", "--rewind-to", "shop.new=x"), ("--rewind-to",)),
    Case("Spark without its configuration", ("spark", "run", "nope.yaml"), ("nope.yaml", "No such file")),
    Case("a Spark setting that is no pair", ("spark", "run", "{config}", "--conf", "x"), ("--conf", "KEY=VALUE"), 2),
    Case("a demo of no records", ("demo", "--records", "0"), ("--records", "less than 1"), 2),
    Case("a demo of an unknown engine", ("demo", "--engine", "flink"), ("--engine", "'flink'"), 2),
    Case("a demo at no pace", ("demo", "--pace", "-1"), ("--pace", "-1"), 2),
    Case("a demo at a pace that is no number", ("demo", "--pace", "nan"), ("--pace", "nan"), 2),
    Case("a demo in a file", ("demo", "--engine", "asyncio", "--directory", "{config}"), ("shop.yaml",)),
)


@pytest.mark.parametrize("case", NAMED, ids=lambda case: case.id)
def test_an_odd_argument_is_named(case: Case, place: Place, call: Call) -> None:
    known = {"{lake}": str(place.lake), "{config}": str(place.config)}
    result = call(*(known.get(word, word) for word in case.typed))
    check(result, list(case.typed))
    assert result.code == case.code, result
    for part in case.says:
        assert part in result.err
    assert sorted(path.name for path in place.lake.iterdir()) == ["shop.db"], "nothing was made"
    assert sorted(path.name for path in (place.lake / "shop.db").iterdir()) == ["orders", "parts"]
