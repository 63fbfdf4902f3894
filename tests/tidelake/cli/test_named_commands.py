"""Every command that a message or a page names is accepted by the parser of the command line."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from tests.tidelake.cli.test_arguments import COMMANDS
from tidelake.cli.parser import parse
from tidelake.storage.model.messages import add_column, alter_command, set_option, set_type
from tidelake.storage.model.types import STRING

ROOT: Final = Path(__file__).parents[3]
PACKAGES: Final = ("checkpoint", "compaction", "ingest", "storage", "tidelake")
SOURCES: Final = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
TEXTS: Final = sorted(
    [
        ROOT / "README.md",
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "examples").rglob("*.md"),
        *(ROOT / "tests").rglob("*_messages.txt"),
    ]
)

LEFT_OPEN: Final = "…"
NOUNS: Final = "|".join(sorted({words[0] for words in COMMANDS}))
# Up to the end of the code or the line. What follows two blanks is no part of the command.
COMMAND: Final = re.compile(rf"(?:^|(?<=[\s`('\"]))tidelake (?:{NOUNS})\b(?:(?!  |`|\n).)*", re.MULTILINE)
OPTION: Final = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
VALUES: Final = {"--add-column": "x INT", "--set-type": "x INT", "--set": "k=v"}  # in place of what is left open

OTHER_OPTIONS: Final = frozenset(
    {
        "--version",
        "--output",
        "--quiet",
        "--master",
        "--archives",
        "--check",
        "--data",
        "--deploy-mode",
        "--descriptor",  # protoc: --descriptor_set_out
        "--files",
        "--forever",
        "--include",  # protoc: --include_imports
        "--py-files",
        "--properties-file",
        "--off",
        "--operation",
        "--operations",
        "--planted",
        "--seeds",
        "--shrink",
        "--standalone",
        "--trace",
        "--upgrade",
        "--values",
    }
)  # of tidelake itself, Maxwell, pip, spark-submit, Kafka, tools/kafka, Helm, tests.simulation, examples


@cache
def messages(path: Path) -> Sequence[str]:
    """Texts of a module; what is put into them while it runs is left open. Not its docstrings."""
    found, left_out = list[str](), set[int]()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):  # a node comes before its parts
        if id(node) in left_out:
            continue
        if isinstance(node, ast.Expr):
            left_out.add(id(node.value))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.append(node.value)
        elif isinstance(node, ast.JoinedStr):
            left_out.update(map(id, node.values))
            found.append("".join(str(v.value) if isinstance(v, ast.Constant) else LEFT_OPEN for v in node.values))
    return found


def named_in(texts: Iterator[str]) -> set[str]:
    return {found[0].strip(" .,;:") for text in texts for found in COMMAND.finditer(text)}


def all_texts() -> Iterator[tuple[str, str]]:
    """Each text with its place."""
    for path in SOURCES:
        yield from ((str(path.relative_to(ROOT)), continued(text)) for text in messages(path))
    for path in TEXTS:
        yield str(path.relative_to(ROOT)), continued(path.read_text(encoding="utf-8"))


def continued(text: str) -> str:
    """The text with lines that a backslash continues as one."""
    return re.sub(r" ?\\\n\s*", " ", text)


ALL: Final = frozenset(f"tidelake {noun} {LEFT_OPEN}" for noun in NOUNS.split("|"))  # a noun's commands together
NAMED: Final = sorted(
    {(where, command) for where, text in all_texts() for command in named_in(iter([text])) if command not in ALL}
)


def filled_in(text: str) -> list[str]:
    """The arguments, with something in place of what is left open; options in brackets are given."""
    words = shlex.split(re.sub(r"[\[\]]", " ", text), comments=True)[1:]
    words = words[: words.index(">")] if ">" in words else words
    length = next((n for n in (1, 3) if tuple(words[:n]) in COMMANDS), 2)
    verb, words = words[:length], words[length:]
    noun = verb[0]
    command = COMMANDS.get(tuple(verb))
    required = [a for a in command._actions if not a.option_strings and a.nargs is None] if command else []
    given: list[str] = []
    for word in words:
        before = given[-1] if given else ""
        if before.startswith("-") and word in (LEFT_OPEN, "N"):
            given.append(VALUES.get(before, "1"))
        elif LEFT_OPEN not in word or len(given) < max(1, len(required)) or before.startswith("-"):
            given.append(word)
    if not given and command is not None and any(not action.option_strings for action in command._actions):
        given = ["shop.orders"]  # the text contains only the name of the command
    if noun == "table" and not {"-w", "--warehouse"} & set(given):
        given += ["-w", "lake"]
    return [*verb, *given]


def test_commands_are_found_in_messages_and_on_pages() -> None:
    found = {where.partition("/")[0] for where, _ in NAMED}
    assert found >= {"README.md", "docs", "ingest", "storage", "tests", "tidelake"}
    assert {tuple(shlex.split(command)[1:3]) for _, command in NAMED} >= {("ingest", "run"), ("table", "expire")}


@pytest.mark.parametrize(("where", "command"), NAMED, ids=[f"{where}: {command}" for where, command in NAMED])
def test_a_named_command_is_valid(where: str, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        parse(filled_in(command))
    except SystemExit as end:
        pytest.fail(f"{where}: {command}: exit code {end.code}\n{capsys.readouterr().err}")


def test_a_wrong_verb_or_option_is_detected(capsys: pytest.CaptureFixture[str]) -> None:
    for wrong in ("tidelake table vacuum NAME", "tidelake table expire NAME --keep 3", "tidelake ingest run --fast x"):
        assert named_in(iter([f"Say `{wrong}`."])) == {wrong}
        with pytest.raises(SystemExit):
            parse(filled_in(wrong))


def test_a_named_option_exists() -> None:
    known = {option for parser in COMMANDS.values() for action in parser._actions for option in action.option_strings}
    named = {(option, where) for where, text in all_texts() for option in OPTION.findall(text)}
    assert len(named) > 30
    assert {(option, where) for option, where in named if option not in known | OTHER_OPTIONS} == set()


@pytest.mark.parametrize(
    "change",
    [
        add_column(("address", "city"), STRING),
        add_column("it's", STRING),
        set_type("amount", STRING),
        set_option("bucket", "4 '"),
    ],
)
def test_a_command_composed_by_a_message_is_valid(change: str) -> None:
    command = alter_command("shop.o'r", "/data/my lake/shop.db/o'r", change)
    invocation = parse(shlex.split(command)[1:])
    assert invocation.options["name"] == "shop.o'r"
