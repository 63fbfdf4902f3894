"""Exit codes for scripts, and messages for people."""

from __future__ import annotations

import json

import pytest

from tests.support.command_line import Call
from tidelake.cli.commands import tables
from tidelake.cli.exits import CommandRefused, UsageError
from tidelake.errors import (
    BadInput,
    CommitConflict,
    CommitOutcomeUnknown,
    CorruptFile,
    PositionRefused,
    UnsupportedFeature,
    WriterFenced,
)

REFUSED = PositionRefused("shop.orders: offset 7 is gone", ["start again", "restore the topic"])


def fail_with(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def command(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(tables, "list_tables", command)


@pytest.mark.parametrize(
    ("error", "code", "reported"),
    [
        pytest.param(BadInput("no table a.b"), 1, "error: no table a.b\n", id="bad input"),
        pytest.param(
            BadInput("no value 'a\x1b[31m\x9b'\nin t"), 1, "error: no value 'a\\x1b[31m\\x9b'\nin t\n", id="escapes"
        ),
        pytest.param(CommitConflict("lost"), 1, "error: lost\nMore: tidelake help CommitConflict\n", id="conflict"),
        pytest.param(
            CommitOutcomeUnknown("who knows"),
            1,
            "error: who knows\nMore: tidelake help CommitOutcomeUnknown\n",
            id="unknown outcome",
        ),
        pytest.param(
            CorruptFile("/t/snapshot-3", "JSON", "nothing", 0),
            1,
            "error: /t/snapshot-3 at byte 0: expected JSON, found nothing\nMore: tidelake help CorruptFile\n",
            id="corrupt file",
        ),
        pytest.param(
            UnsupportedFeature("type = view", "not a table", "Use Java"),
            1,
            "error: type = view: not a table. Use Java\n",
        ),
        pytest.param(
            OSError(28, "No space left on device", "/t/f"), 1, "error: [Errno 28] No space left on device: '/t/f'\n"
        ),
        pytest.param(UsageError("give one"), 2, "usage: give one\n", id="usage"),
        pytest.param(
            REFUSED,
            3,
            "refused: shop.orders: offset 7 is gone\nOptions:\n  start again\n  restore the topic\n"
            "More: tidelake help PositionRefused\n",
            id="position refused",
        ),
        pytest.param(CommandRefused("pass --yes"), 3, "refused: pass --yes\n", id="refused"),
        pytest.param(
            WriterFenced("epoch 4 owns it"),
            4,
            "fenced: epoch 4 owns it\nMore: tidelake help WriterFenced\n",
            id="fenced",
        ),
        pytest.param(
            ExceptionGroup("two", [BadInput("a"), ExceptionGroup("inner", [WriterFenced("b")])]),
            4,
            "error: a\nfenced: b\nMore: tidelake help WriterFenced\n",
            id="of several the gravest decides",
        ),
    ],
)
def test_an_expected_error_is_printed_without_a_traceback(
    call: Call, monkeypatch: pytest.MonkeyPatch, error: Exception, code: int, reported: str
) -> None:
    fail_with(monkeypatch, error)
    result = call("table", "list", "-w", "lake")
    assert (result.code, result.out, result.err) == (code, "", reported)


def test_debug_shows_the_traceback_of_an_error(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_with(monkeypatch, BadInput("no table a.b"))
    result = call("table", "list", "-w", "lake", "--debug")
    assert result.err.startswith("Traceback")
    assert result.err.endswith("error: no table a.b\n")


def test_an_unexpected_error_is_printed_as_a_bug_with_its_traceback(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_with(monkeypatch, KeyError("x"))
    result = call("table", "list", "-w", "lake")
    assert result.code == 1
    assert "Traceback" in result.err
    assert "This is a bug in tidelake." in result.err


def test_with_json_an_error_is_an_object_on_standard_error(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_with(monkeypatch, REFUSED)
    result = call("table", "list", "-w", "lake", "--json")
    assert (result.code, result.out) == (3, "")
    assert json.loads(result.err) == {
        "error": "PositionRefused",
        "message": str(REFUSED),
        "exit_code": 3,
        "help": "tidelake help PositionRefused",
    }


@pytest.mark.parametrize("flags", [[], ["--json"], ["--debug"]], ids=" ".join)
@pytest.mark.parametrize(
    ("error", "errors"),
    [
        pytest.param(REFUSED, [("PositionRefused", 3, False)], id="expected"),
        pytest.param(KeyError("x"), [("KeyError", 1, True)], id="a bug"),
        pytest.param(
            ExceptionGroup("two", [BadInput("a"), WriterFenced("b")]),
            [("BadInput", 1, False), ("WriterFenced", 4, False)],
            id="several",
        ),
    ],
)
def test_in_a_json_log_an_error_is_an_event(
    call: Call, monkeypatch: pytest.MonkeyPatch, error: Exception, errors: list[tuple[str, int, bool]], flags: list[str]
) -> None:
    fail_with(monkeypatch, error)
    result = call("table", "list", "-w", "lake", "--log-format", "json", *flags)
    events = [json.loads(line) for line in result.err.splitlines()]
    assert {event["event"] for event in events} == {"the command failed"}
    found = [(event["error"], event["exit_code"], "exception" in event) for event in events]
    assert found == [(name, code, is_bug or flags == ["--debug"]) for name, code, is_bug in errors]
    assert all(event["level"] == "error" and event["message"] for event in events)


def test_ctrl_c_prints_no_error(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_with(monkeypatch, KeyboardInterrupt())
    result = call("table", "list", "-w", "lake")
    assert (result.code, result.out, result.err) == (130, "", "")
