"""The log of Spark's Python workers: lines of JSON that name their task, as the driver of a session logs."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tidelake.errors import BadInput
from tidelake.ingest.spark.task_start import log_as_configured

_DRIVER = """
from tidelake.ingest.spark.task_start import begin_task, package_version
from tidelake.spark.session import start_session
from tidelake.storage.base.log_output import LogFormat, set_up_logging

set_up_logging("info", LogFormat("{form}"))

def work(batches, version=package_version()):
    from tidelake.storage.base.logs import get_logger
    begin_task(version)
    for batch in batches:
        get_logger("tidelake.work").info("in a task", table="shop.orders", name="Zoë")
        yield batch

spark = start_session("logs", "local[1]", {{}})
spark.range(1).coalesce(1).mapInArrow(work, "id long").collect()
spark.stop()
"""


@pytest.mark.interop
@pytest.mark.needs("Spark")
@pytest.mark.parametrize("form", ["json", "text"])
def test_workers_of_our_sessions_log_as_the_driver_does(form: str) -> None:
    run = subprocess.run([sys.executable, "-c", _DRIVER.format(form=form)], capture_output=True, text=True, check=True)
    (line,) = [line for line in run.stderr.splitlines() if "in a task" in line]
    if form == "text":
        assert not line.startswith("{")
        return
    event = json.loads(line)
    assert {name: event[name] for name in ("event", "table", "name", "level", "logger", "partition")} == {
        "event": "in a task",
        "table": "shop.orders",
        "name": "Zoë",
        "level": "info",
        "logger": "tidelake.work",
        "partition": 0,
    }
    assert event.keys() >= {"stage", "task", "timestamp"}


@pytest.mark.parametrize(
    ("variable", "value"), [("TIDELAKE_LOG_FORMAT", "xml"), ("TIDELAKE_LOG_LEVEL", "loud"), ("TIDELAKE_LOG_LEVEL", "")]
)
def test_other_values_are_refused_with_the_setting(monkeypatch: pytest.MonkeyPatch, variable: str, value: str) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(BadInput, match=rf"{variable} = '{value}' .* setting spark\.executorEnv\.{variable}"):
        log_as_configured.__wrapped__()


def test_without_the_variables_nothing_is_set_up() -> None:
    program = (
        "from tidelake.ingest.spark.task_start import log_as_configured; import logging; log_as_configured(); "
        "print(logging.getLogger().handlers)"
    )
    environment = {name: text for name, text in os.environ.items() if not name.startswith("TIDELAKE_LOG")}
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    assert run.stdout == "[]\n"
