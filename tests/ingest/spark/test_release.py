"""What doesn't fit is said before a task runs, or in place of Spark's error: both versions, and the remedy."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tidelake.errors import UnsupportedFeature
from tidelake.ingest.spark import release
from tidelake.ingest.spark.release import check_data_sources, check_session
from tidelake.ingest.spark.task_errors import explained_task_errors


def session(master: str, program: Path | str) -> SimpleNamespace:
    return SimpleNamespace(sparkContext=SimpleNamespace(master=master, pythonExec=str(program)))


def interpreter(path: Path, answer: str) -> Path:
    """An interpreter that gives this answer."""
    path.write_text(f"#!/bin/sh\necho {answer}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        pytest.param("3.9 True", "which is Python 3.9: this process runs", id="another Python"),
        pytest.param("{} False", "and has no package tidelake: this process runs", id="no package"),
        pytest.param("{} True", None, id="fits"),
    ],
)
def test_workers_of_another_environment_are_named_before_they_run(
    tmp_path: Path, answer: str, message: str | None
) -> None:
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    program = interpreter(tmp_path / "python3", answer.format(own))
    if message is None:
        check_session(session("local[2]", program))
        return
    with pytest.raises(UnsupportedFeature, match=message) as refused:
        check_session(session("local[2]", program))
    assert str(program) in str(refused.value)
    assert f"Python {own}, with tidelake" in str(refused.value)
    assert 'os.environ["PYSPARK_PYTHON"] = sys.executable' in str(refused.value)
    check_session(session("spark://host:7077", program))  # the program is one of other machines


def test_the_interpreter_of_the_driver_and_one_that_does_not_run_are_left_to_spark(tmp_path: Path) -> None:
    check_session(session("local", sys.executable))
    check_session(session("local[*]", tmp_path / "missing"))
    check_session(object())  # Spark Connect has no context


def test_an_old_release_is_named_with_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "RELEASE", (3, 4))
    with pytest.raises(UnsupportedFeature, match=r"tidelake needs PySpark 3\.5 or newer"):
        check_session(object())
    monkeypatch.setattr(release, "HAS_DATA_SOURCES", False)
    with pytest.raises(UnsupportedFeature, match=r"a Python data source.*4\.1 or newer.*tidelake.spark.read"):
        check_data_sources("format")


@pytest.mark.parametrize(
    ("said", "message"),
    [
        pytest.param(
            "Python in worker has different version: 3.9 than that in driver: 3.11, PySpark cannot run",
            "executors with Python 3.9: the driver runs Python 3.11",
            id="another Python",
        ),
        pytest.param(
            "Python in worker has different version (3, 9) than that in driver 3.11, PySpark cannot run",
            "executors with Python 3.9: the driver runs Python 3.11",
            id="another Python, in the words of PySpark 3.5",
        ),
        pytest.param(
            "ModuleNotFoundError: No module named 'tidelake'", "their Python has no module tidelake", id="no package"
        ),
    ],
)
def test_errors_of_executors_become_one_sentence(said: str, message: str) -> None:
    with pytest.raises(UnsupportedFeature, match=message), explained_task_errors():
        raise RuntimeError(f"Job aborted: {said}")


def test_other_errors_stay() -> None:
    with pytest.raises(RuntimeError, match="disk full"), explained_task_errors():
        raise RuntimeError("disk full")
