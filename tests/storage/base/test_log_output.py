"""The library logs nothing by default; a program chooses where it logs."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tidelake.storage.base.logs import FIELDS, get_logger

USE = """
import logging
from tidelake.storage.base.logs import get_logger
log = get_logger("tidelake.storage.here")
log.info("unheard")
log.warning("option unknown: 100%", option="bukket", effect=None)
"""

SPEAK = """
import logging, warnings
from tidelake.storage.base.log_output import LogFormat, set_up_logging
set_up_logging({level!r}, LogFormat({form!r}))
log.info("checkpoint", identifier=7)
log.debug("detail")
logging.getLogger("aiokafka").info("chatter")
logging.getLogger("aiokafka").warning("group %s", "g")
warnings.warn("old", stacklevel=1)
password = "hush"
try:
    raise ValueError("no")
except ValueError:
    log.exception("died")
"""


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)


def test_without_logging_setup_warnings_go_to_standard_error_only() -> None:
    result = run(USE)
    assert result.stdout == ""
    assert result.stderr == "option unknown: 100% option='bukket' effect=None\n"


def test_the_logging_of_a_program_receives_event_and_fields(caplog: pytest.LogCaptureFixture) -> None:
    get_logger("storage.there").bind(table="a.b").warning("odd", count=3)
    (record,) = caplog.records
    assert record.name == "storage.there"
    assert record.getMessage() == "odd table='a.b' count=3"
    assert getattr(record, FIELDS) == {"event": "odd", "table": "a.b", "count": 3}


def test_json_lines_hold_fields_and_no_local_variables() -> None:
    result = run(USE + SPEAK.format(level="info", form="json"))
    events = [json.loads(line) for line in result.stderr.splitlines()[1:]]
    assert result.stdout == ""
    assert [event["event"].split("\n")[0] for event in events][:2] == ["checkpoint", "group g"]
    assert {key: events[0][key] for key in ("identifier", "level", "logger")} == {
        "identifier": 7, "level": "info", "logger": "tidelake.storage.here",
    }  # fmt: skip
    assert "old" in events[2]["event"]
    assert "ValueError: no" in events[3]["exception"]
    assert "hush" not in result.stderr


def test_auto_is_text_on_a_terminal_and_json_otherwise() -> None:
    text = run(USE + SPEAK.format(level="debug", form="text")).stderr
    assert "checkpoint" in text
    assert "identifier=7" in text
    assert "detail" in text
    assert "chatter" in text
    assert "\x1b" not in text
    auto = run(USE + SPEAK.format(level="warning", form="auto")).stderr.splitlines()[1:]
    assert json.loads(auto[0])["event"] == "group g"


UNHANDLED = """
import gc, logging, threading, warnings
from tidelake.storage.base.log_output import LogFormat, log_always, set_up_logging
set_up_logging("error", LogFormat.JSON)
logging.getLogger("aiokafka").error("two\\nlines \\udc80 %s", object())
logging.getLogger("tidelake.x").error("fields", extra={"event_fields": {"event": "fields", "value": {1: {2}}}})
warnings.warn("old", DeprecationWarning)
log_always(logging.INFO, "a note", rows=3)
threading.Thread(target=lambda: 1 / 0).start()
class Dies:
    def __del__(self):
        raise KeyError("in a destructor")
Dies()
raise ValueError("at the end")
"""


def test_every_line_is_json_also_of_other_libraries_and_of_errors_that_nobody_handles() -> None:
    program = [sys.executable, "-W", "always", "-c", UNHANDLED]
    result = subprocess.run(program, capture_output=True, text=True, check=False)
    events = [json.loads(line) for line in result.stderr.splitlines()]
    texts = [event["event"] + event.get("exception", "") for event in events]
    expected = ["two\nlines", "fields", "a note", "ZeroDivisionError", "in a destructor", "at the end"]
    assert [text for text, part in zip(texts, expected, strict=True) if part not in text] == []
    assert (events[2]["rows"], events[2]["level"]) == (3, "info")
