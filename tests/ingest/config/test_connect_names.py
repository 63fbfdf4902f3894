"""Kafka Connect's names of settings: each acts, has no effect, or is refused with a remedy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from tidelake.errors import ConfigError
from tidelake.ingest.config.config import parse_config
from tidelake.ingest.config.connect_names import CONNECT_NAMES
from tidelake.ingest.settings import ErrorSettings

BASE = "warehouse: /lake\nsource: {type: change-log-folder, path: /in}\ntables: [{name: shop.orders}]\n"


def errors(text: str = "", flags: Sequence[str] = (), **environment: str) -> ErrorSettings:
    return parse_config(BASE + text, "shop.yaml", flags, environment, "shop").errors


@dataclass(frozen=True)
class Case:
    """expected: the resulting settings, or the message of the refusal."""

    name: str
    value: str
    expected: ErrorSettings | tuple[str, str]

    @property
    def id(self) -> str:
        return f"{self.name} {self.value}"


NOTHING, TO_TABLE = ErrorSettings(), "Set `errors.dead_letters: {table: database.table}`"
CASES = (
    Case("errors.tolerance", "none", NOTHING),
    Case("errors.tolerance", "all", ErrorSettings(tolerance="all")),
    Case("errors.log.include.messages", "true", ErrorSettings(log_include_messages=True)),
    Case("errors.log.include.messages", "false", NOTHING),
    Case("errors.log.enable", "true", NOTHING),
    Case("errors.log.enable", "false", ("the log always reports dead letters", "Leave it out")),
    Case("errors.deadletterqueue.topic.name", "dlq", ("go into a table, not into a topic", TO_TABLE)),
    Case("errors.deadletterqueue.topic.replication.factor", "3", ("which has no replication factor", TO_TABLE)),
    Case("errors.deadletterqueue.context.headers.enable", "true", NOTHING),
    Case("errors.deadletterqueue.context.headers.enable", "false", ("always has its topic", "Leave it out")),
    Case("errors.retry.timeout", "0", NOTHING),
    Case("errors.retry.timeout", "-1", ("is not tried again", "`source.unreachable_after_ms`")),
    Case("errors.retry.delay.max.ms", "60000", ("is not tried again", "`quarantine.retry_ms_max`")),
)


def test_every_supported_connect_name_is_tested() -> None:
    assert {case.name for case in CASES} == CONNECT_NAMES


def _nested(name: str, value: str) -> str:
    first, _, rest = name.partition(".")
    return f"{first}: {{{_nested(rest, value)}}}" if rest else f"{first}: {value}"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
@pytest.mark.parametrize("way", ["whole", "quoted", "below errors", "nested", "a flag", "a variable"])
def test_a_connect_name_acts_or_is_refused_in_every_place(case: Case, way: str) -> None:
    flags: list[str] = []
    environment: dict[str, str] = {}
    text, below = "", case.name.removeprefix("errors.")
    match way:
        case "whole":
            text = f"{case.name}: {case.value}"
        case "quoted":  # as in a connector's JSON
            text = f'"{case.name}": "{case.value}"'
        case "below errors":
            text = f"errors: {{{below}: {case.value}}}"
        case "nested":
            text = _nested(case.name, case.value)
        case "a flag":
            flags = [f"{case.name}={case.value}"]
        case _:
            environment = {f"TIDELAKE_{case.name.upper().replace('.', '__')}": case.value}
    if isinstance(case.expected, ErrorSettings):
        assert errors(text, flags, **environment) == case.expected
        return
    reason, remedy = case.expected
    with pytest.raises(ConfigError) as refusal:
        errors(text, flags, **environment)
    assert f"`{case.name}" in str(refusal.value)
    assert reason in str(refusal.value)
    assert remedy in str(refusal.value)
    place = {"a flag": f"flag {case.name}", "a variable": "environment variable TIDELAKE_ERRORS__"}
    assert str(refusal.value).startswith(place.get(way, "shop.yaml:4: "))


def test_later_layers_win_under_either_name() -> None:
    reported, unreported = "errors: {log_include_messages: true}", "errors.log.include.messages: false"
    assert not errors(reported, ["errors.log.include.messages=false"]).log_include_messages
    assert errors(unreported, ["errors.log_include_messages=true"]).log_include_messages
    variable = {"TIDELAKE_ERRORS__LOG__INCLUDE__MESSAGES": "false"}
    assert not errors(reported, **variable).log_include_messages
    assert errors(reported, ["errors.log_include_messages=true"], **variable).log_include_messages


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        pytest.param("errors: {log_include_messages: true, log.include.messages: false}", [], id="one group"),
        pytest.param("errors.tolerance: all\nerrors: {tolerance: none}", [], id="whole, and in the group"),
        pytest.param("", ["errors.log_include_messages=1", "errors.log.include.messages=0"], id="flags"),
    ],
)
def test_both_names_in_one_place_are_refused(text: str, flags: list[str]) -> None:
    with pytest.raises(ConfigError, match=r"which is also given(.|\n)*Keep one of them"):
        errors(text, flags)


def test_connect_names_are_extracted_next_to_our_own_settings() -> None:
    found = errors("errors: {tolerance: 3, log: {enable: true, include.messages: true}, waiting_ms_max: 5}")
    assert found == ErrorSettings(tolerance=3, log_include_messages=True, waiting_ms_max=5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("errors: {log: {enable: true, loud: true}}", "no setting `log` in `errors`"),
        ("errors: 3\nerrors.log.include.messages: true", "`errors` is not a group of settings"),
        ("errors.log.include.messages: loud", "`errors.log_include_messages`: expected `bool`"),
        ("errors.tolerance: some", "`errors.tolerance` can't be `some`"),
        ("errors.deadletterqueue: 3", "no setting `errors.deadletterqueue`"),
    ],
)
def test_an_unknown_name_is_refused_as_written(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        errors(text)
