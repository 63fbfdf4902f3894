"""Errors in a configuration file are reported with their place, for any content. None ends in a traceback."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.command_line import Call
from tests.support.levels import examples
from tidelake.errors import ConfigError
from tidelake.ingest.config.config import parse_config
from tidelake.ingest.config.yaml_settings import read_settings
from tidelake.ingest.settings import Config

DEEP = 5_000
BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12)
)
MERGE_BOMB = "a0: &a0 {k: v}\n" + "".join(
    f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 10)}], k{n}: v}}\n" for n in range(1, 40)
)


@dataclass(frozen=True)
class Case:
    id: str
    text: str
    message: str


CASES = [
    Case(
        "a list that nobody closes, on the last line",
        "a: [b",
        """\
        c.yaml:1:6: not YAML: expected ',' or ']', but got the end of the file (the flow sequence began at 1:4)
            a: [b
        Close it.""",
    ),
    Case(
        "a list that nobody closes, before an empty line",
        "pipeline: shop\nsource: {type: kafka\n",
        """\
        c.yaml:3:1: not YAML: expected ',' or '}', but got the end of the file (the flow mapping began at 2:9)
            source: {type: kafka
        Close it.""",
    ),
    Case(
        "a tab where YAML wants spaces",
        "source:\n\ttype: kafka\n",
        """\
        c.yaml:2:1: not YAML: found character '\\t' that cannot start any token
            type: kafka
        Indent with spaces, not with tabs.""",
    ),
    Case(
        "bytes of something else",
        "PK\x03\x04",
        """\
        c.yaml:1:3: not YAML: the character U+0003 can't be part of text
        Use a UTF-8 text file.""",
    ),
    Case("a list", "- a\n", "c.yaml:1: this is not a group of settings\nBegin with settings such as `pipeline: …`."),
    Case("a text", "hello", "c.yaml:1: this is not a group of settings\nBegin with settings such as `pipeline: …`."),
    Case("nothing", "", "c.yaml: `pipeline` is missing\nAdd `pipeline: …`."),
    Case("a comment", "# later\n", "c.yaml: `pipeline` is missing\nAdd `pipeline: …`."),
    Case(
        "one name twice",
        "pipeline: a\npipeline: b\n",
        "c.yaml:2: `pipeline` is given twice\n    pipeline: b\nKeep one of them.",
    ),
    Case(
        "a list of which it is itself a part",
        "pipeline: &a [*a]",
        "c.yaml:1: an alias refers to a node that contains it\n    pipeline: &a [*a]\nWrite the settings without "
        "aliases.",
    ),
    Case(
        "a mapping into which it is merged itself",
        "pipeline: &a {<<: *a}",
        "c.yaml:1: an alias refers to a node that contains it\n    pipeline: &a {<<: *a}\nWrite the settings without "
        "aliases.",
    ),
    Case(
        "an alias of nothing",
        "pipeline: *nowhere",
        "c.yaml:1:11: not YAML: found undefined alias 'nowhere'\n    pipeline: *nowhere\nCorrect the line.",
    ),
    Case(
        "a day that no month has",
        "pipeline: 2026-13-45",
        "c.yaml:1: `2026-13-45` is not a valid `!!timestamp`\n    pipeline: 2026-13-45\n"
        "Put it in quotes if it is text.",
    ),
    Case(
        "a number that is none",
        "pipeline: !!int abc",
        "c.yaml:1: `abc` is not a valid `!!int`\n    pipeline: !!int abc\nPut it in quotes if it is text.",
    ),
    Case(
        "an object of Python's",
        "pipeline: !!python/object:os.system {}",
        "c.yaml:1: the tag `!!python/object:os.system` is not allowed here\n    pipeline: !!python/object:os.system "
        "{}\nLeave it out.",
    ),
    Case(
        "half of a character",
        'pipeline: "\\ud800"',
        'c.yaml:1: the character U+D800 can\'t be part of a setting\n    pipeline: "\\ud800"\nLeave it out.',
    ),
    Case(
        "a name that YAML takes for true",
        "yes: 1",
        "c.yaml:1: `yes` can't be a name\n    yes: 1\nNames are text or whole numbers.",
    ),
    Case(
        "levels without end",
        "pipeline: " + "[" * DEEP,
        "c.yaml: lists and mappings are nested too deeply\nUse fewer levels.",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_an_invalid_configuration_raises_with_its_place_and_the_expected_value(case: Case) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_config(case.text, "c.yaml")
    assert str(raised.value) == dedent(case.message)


@pytest.mark.parametrize("text", [BOMB, MERGE_BOMB], ids=["lists of lists of aliases", "merges of merges"])
def test_aliases_that_expand_without_end_are_refused_before_memory_is_gone(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_config(text, "c.yaml")


def test_merged_members_are_overridden_and_the_first_merge_wins() -> None:
    text = "a: &a {x: 1, y: 1}\nb: &b {y: 2, z: 2}\nc: {<<: [*a, *b], x: 3}"
    assert read_settings(text, "c.yaml")[0]["c"] == {"y": 1, "x": 3, "z": 2}


@pytest.mark.parametrize("content", [b"a: [b", b"\xff\xfe\x00", b"\x00\x01\x02", b"- a", b"a: &a [*a]", None])
def test_the_command_line_reports_no_file_as_a_bug(tmp_path: Path, call: Call, content: bytes | None) -> None:
    path = tmp_path / "c.yaml"
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    result = call("ingest", "plan", path)
    assert result.code == 1
    assert str(path) in result.err
    assert "bug" not in result.err
    assert "Traceback" not in result.err


CHARACTERS = st.sampled_from(list("ab:-[]{},&*!|>'\"%@`#?<= \t\n\r\x85\u2028\0\ufeff0.~e_")) | st.characters()
NAMES = st.sampled_from([*Config.__struct_fields__, "name", "type", "path", "topics", "offsets", "kafka", "x"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.dates() | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES | st.integers(), inner, max_size=4),
    max_leaves=12,
)


@given(st.text(CHARACTERS, max_size=40))
@settings(max_examples=examples(150), deadline=None)
def test_random_texts_raise_only_configuration_errors(text: str) -> None:
    _configuration_or_error(text)


@given(st.dictionaries(NAMES, VALUES, max_size=6))
@settings(max_examples=examples(100), deadline=None)
def test_random_values_raise_only_configuration_errors(values: dict[str, object]) -> None:
    _configuration_or_error(yaml.safe_dump(values))


def _configuration_or_error(text: str) -> None:
    with suppress(ConfigError):
        assert isinstance(parse_config(text, "c.yaml"), Config)
    with suppress(ConfigError):
        parse_config("", "c.yaml", [f"source.path=[{text}"])
