"""Every option, setting and page that a message names exists, so that its remedy can be typed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

import pytest

from tests.tidelake.cli.test_named_commands import ROOT, SOURCES, messages
from tidelake.ingest.config.config_schema import config_schema
from tidelake.storage.model.options.registry import CATALOG_REGISTRY, find_option

SENTENCE: Final = 25  # shorter texts are no messages
# a.b-c = value, or 'a.b-c' = 'value'
OPTION: Final = re.compile(r"(?<![\w./:@$-])([a-z][a-z0-9]*(?:[-.](?:[a-z0-9]+|<[a-z]+>|…))+)'? = '?([a-z0-9-]*)")
SETTING: Final = re.compile(r"`([a-z]+(?:_[a-z]+)+|[a-z_]+(?:\.[a-z_]+)+)(?::[^`]*)?`")
PAGE: Final = re.compile(r"docs/[\w/-]+\.md")
OTHERS: Final = ("s3.", "fs.", "token.", "spark.")  # of stores, of REST catalogs and of Spark itself
OF_FORMATS: Final = re.compile(r"^\| (?:`\w+`, )*`(\w+)`", re.MULTILINE)  # the tables of docs/formats.md
OF_PRODUCERS: Final = frozenset(  # members of their records, and settings of Debezium's converters
    {
        "data.serializer.type",
        "extension.attributes.enable",
        "metadata.operation",
        "op_type",
        "payload.op",
        "source.sequence",
        "use.latest.version",
    }
)


def texts() -> Iterator[tuple[str, str]]:
    """Texts with their modules. Definitions of options say what is refused, which is no remedy."""
    for path in SOURCES:
        where = str(path.relative_to(ROOT))
        if "options/definitions" not in where:
            yield from ((where, text) for text in messages(path) if len(text) >= SENTENCE and " " in text)


TEXTS: Final = list(texts())


def named(pattern: re.Pattern[str]) -> list[tuple[Any, ...]]:
    """Places and what is named there, each once, in a stable order."""
    found = {(where, match) for where, text in TEXTS for match in pattern.findall(text)}
    return sorted((where, *((match,) if isinstance(match, str) else match)) for where, match in found)


@cache
def settings_of_pipelines() -> set[str]:
    definitions = config_schema()["$defs"]
    names = {name for definition in definitions.values() for name in definition.get("properties", ())}
    return names | set(OF_FORMATS.findall((ROOT / "docs" / "formats.md").read_text(encoding="utf-8")))


def is_supported(key: str, value: str) -> bool:
    option = find_option(re.sub("<[a-z]+>|…", "column", key)) or CATALOG_REGISTRY.find(key)
    return option is not None and (bool(option.acts_on) or value == option.default or not option.refusals)


@pytest.mark.parametrize(("where", "key", "value"), [case for case in named(OPTION) if not case[1].startswith(OTHERS)])
def test_an_option_that_a_message_names_acts(where: str, key: str, value: str) -> None:
    assert is_supported(key, value)


@pytest.mark.parametrize(("where", "setting"), named(SETTING))
def test_a_setting_that_a_message_names_exists(where: str, setting: str) -> None:
    known = settings_of_pipelines()
    assert setting in OF_PRODUCERS or find_option(setting) or set(setting.split(".")) <= known


@pytest.mark.parametrize(("where", "page"), named(PAGE))
def test_a_page_that_a_message_names_exists(where: str, page: str) -> None:
    assert (ROOT / page).is_file()


def test_a_misspelt_name_is_detected() -> None:
    assert OPTION.findall("Set 'sequence.feild' = 'true'") == [("sequence.feild", "true")]
    assert not is_supported("sequence.feild", "true")
    assert SETTING.findall("set `errors.tolerence: none`") == ["errors.tolerence"]
    assert "tolerence" not in settings_of_pipelines()
