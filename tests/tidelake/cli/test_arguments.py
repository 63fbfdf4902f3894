"""The arguments of the command line, and the cost of its help."""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.command_line import Call
from tidelake.cli.commands.init import InitArguments, init
from tidelake.cli.commands.sync import sync_database, sync_table
from tidelake.cli.parser import build_parser, parse
from tidelake.ingest.config.sync_database import SyncDatabaseArguments
from tidelake.ingest.config.sync_table import SyncTableArguments


def leaves(parser: argparse.ArgumentParser, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command with its parser."""
    nested = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not nested:
        yield words, parser
    for action in nested:
        for name, inner in action.choices.items():
            yield from leaves(inner, (*words, name))


ARGUMENTS_OF: dict[Callable[..., Any], type] = {
    init: InitArguments,
    sync_database: SyncDatabaseArguments,
    sync_table: SyncTableArguments,
}
COMMANDS = dict(leaves(build_parser()))


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_command_s_options_are_its_function_s_parameters(words: tuple[str, ...]) -> None:
    parser = COMMANDS[words]
    function = parser.get_default("command")
    parameters = set(inspect.signature(function).parameters) - {"out"}
    if function in ARGUMENTS_OF:  # they come as **arguments, the fields of a class
        parameters = parameters - {"arguments"} | {field.name for field in dataclasses.fields(ARGUMENTS_OF[function])}
    common = {"help", "json", "debug", "log_level", "log_format"}
    options = {action.dest for action in parser._actions} - common
    options |= {"passed_on"} & parser._defaults.keys()
    if "catalog_options" in options:
        options = options - {"warehouse", "catalog_options"} | {"catalog"}
    assert options == parameters


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_has_json_and_a_description(words: tuple[str, ...]) -> None:
    text = COMMANDS[words].format_help()
    assert "--json" in text
    assert COMMANDS[words].description


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_ends_its_help_with_an_example_that_is_a_command_line_of_it(words: tuple[str, ...]) -> None:
    _, _, examples = COMMANDS[words].format_help().partition("\nexample:\n")
    lines = examples.replace("\\\n", "").splitlines()
    assert lines
    for line in lines:
        program, *arguments = shlex.split(line)
        if ">" in arguments:  # into a file
            arguments = arguments[: arguments.index(">")]
        assert (program, *arguments[: len(words)]) == ("tidelake", *words)
        assert parse(arguments).command is COMMANDS[words].get_default("command")


def test_help_lists_the_commands_by_task_before_the_options(call: Call) -> None:
    shown = call("table", "--help").out
    titles = re.findall(r"^(\S.*):$", shown, re.MULTILINE)
    assert titles == [
        "create and change tables",
        "look at tables",
        "read rows",
        "write rows",
        "keep tables fast and small",
        "history",
        "check and repair",
        "options",
    ]
    read_rows = shown.partition("read rows:\n")[2].partition("\n\n")[0]
    assert re.findall(r"^  (\S+)", read_rows, re.MULTILINE) == ["scan", "changes", "follow"]


def imported_by_help(*arguments: str) -> set[str]:
    """The modules that are imported when a new process answers these words, which end with --help."""
    program = (
        "import json, runpy, sys\n"
        "sys.argv = ['tidelake', *json.loads(sys.argv[1])]\n"
        "try:\n    runpy.run_module('tidelake', run_name='__main__')\n"
        "except SystemExit:\n    pass\n"
        "print(json.dumps(sorted(sys.modules)), file=sys.stderr)"
    )
    command = [sys.executable, "-c", program, json.dumps(arguments)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert run.stdout.startswith("usage: ")
    return set(json.loads(run.stderr))


def test_help_imports_nothing_heavy() -> None:
    clients = {"aiokafka", "obstore", "pyspark"}
    slow = {"asyncio", "fastavro", "msgspec", "numpy", "pyarrow", "rich", "structlog"}
    for arguments in (["--help"], ["table", "--help"], ["table", "scan", "--help"], ["demo", "--help"]):
        assert imported_by_help(*arguments) & (clients | slow) == set()


def test_a_noun_imports_no_commands_of_others() -> None:
    """Top-level commands, which have no noun, are imported for the list in the help."""
    commands = {name for name in imported_by_help("view", "list", "--help") if ".cli.commands." in name}
    assert {name.rpartition(".")[2] for name in commands} == {"demo", "doctor", "help", "init", "sql", "sync", "views"}


def test_a_noun_without_a_verb_shows_the_verbs_and_is_a_usage_error(call: Call) -> None:
    result = call("table")
    assert (result.code, result.out) == (2, "")
    assert "snapshots" in result.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(["tabel"], "invalid choice: 'tabel'", id="no such noun"),
        pytest.param(["table", "scan", "a.b"], "required: -w/--warehouse", id="no warehouse"),
        pytest.param(["table", "scan", "a.b", "-w", "x", "--limit", "0"], "0 is less than 1", id="limit 0"),
        pytest.param(["table", "scan", "a.b", "-w", "x", "--limit", "x"], "invalid whole number", id="limit x"),
        pytest.param(["table", "scan", "a.b", "-w", "x", "--columns", "a,,b"], "empty name", id="a name is empty"),
        pytest.param(
            ["table", "scan", "a.b", "-w", "x", "--tag", "t", "--snapshot", "1"], "not allowed with", id="two times"
        ),
        pytest.param(["table", "create", "a.b", "-w", "x", "--option", "bucket"], "write KEY=VALUE", id="no value"),
        pytest.param(["table", "follow", "a.b", "-w", "x", "--start", "now"], "invalid start", id="start now"),
        pytest.param(["table", "scan", "a.b", "-w", "x", "--lim", "3"], "unrecognized", id="options are written out"),
        pytest.param(["table", "changes", "a.b", "-w", "x", "-n"], "usage: tidelake table changes", id="whose usage"),
    ],
)
def test_wrong_usage_exits_with_2(call: Call, arguments: list[str], message: str) -> None:
    result = call(*arguments)
    assert (result.code, result.out) == (2, "")
    assert message in result.err


def test_the_warehouse_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDELAKE_WAREHOUSE", "/lake")
    assert parse(["table", "show", "a.b"]).options["catalog"].warehouse == "/lake"
    assert parse(["table", "show", "a.b", "-w", "/other"]).options["catalog"].warehouse == "/other"


def test_the_version_is_printed(call: Call) -> None:
    result = call("--version")
    assert (result.code, result.out) == (0, "tidelake 0.1.0\n")


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        pytest.param(["tabel", "list"], "did you mean table?", id="a noun"),
        pytest.param(["ingest", "rn"], "did you mean run?", id="a verb"),
        pytest.param(["ingest", "run", "x.yaml", "--untl", "latest"], "did you mean --until?", id="an option"),
        pytest.param(["ingest", "run", "x.yaml", "--untl=latest"], "did you mean --until?", id="an option with ="),
        pytest.param(["ingest", "run", "x.yaml", "--until", "lastest"], "did you mean latest?", id="a choice"),
    ],
)
def test_a_misspelt_word_is_answered_with_the_one_that_is_meant(call: Call, arguments: list[str], meant: str) -> None:
    result = call(*arguments)
    assert result.code == 2
    assert result.err.rstrip().endswith(meant)
