"""Errors that tasks raise on purpose arrive in the driver with their type and message."""

from __future__ import annotations

import pytest

import tidelake
from tidelake.errors import CorruptFile, TidelakeError, UnsupportedFeature
from tidelake.ingest.spark.task_errors import explained_task_errors

TRACEBACK = (
    "Job aborted due to stage failure: Task 0 failed 1 times: org.apache.spark.api.python.PythonException: "
    'Traceback (most recent call last):\n  File "/env/bucket_task.py", line 107, in __call__\n    work()\n'
    "{error}\n\n\tat org.apache.spark.api.python.BasePythonRunner.read(PythonRunner.scala:1)\n\n"
    "Driver stacktrace:\n\tat org.apache.spark.scheduler"
)


@pytest.mark.parametrize(
    ("raised", "found"),
    [
        pytest.param(tidelake.BadInput("shop.t: no: «ü»"), tidelake.BadInput("shop.t: no: «ü»"), id="a message"),
        pytest.param(tidelake.CommitConflict("again"), tidelake.CommitConflict("again"), id="another type"),
        pytest.param(
            tidelake.PositionRefused("shop.t: read already", ["start anew", "leave it"]),
            tidelake.PositionRefused("shop.t: read already", ["start anew", "leave it"]),
            id="a position with ways out",
        ),
        pytest.param(
            CorruptFile("a.parquet", "rows", "none"),
            TidelakeError("a.parquet: expected rows, found none"),
            id="a type that needs more than a message",
        ),
        pytest.param(
            UnsupportedFeature("rows", "no", "Go"), TidelakeError("rows: no. Go"), id="another that needs more"
        ),
    ],
)
def test_an_error_of_a_task_keeps_its_type_and_message(raised: Exception, found: TidelakeError) -> None:
    text = TRACEBACK.format(error=f"{type(raised).__module__}.{type(raised).__qualname__}: {raised}")
    with pytest.raises(TidelakeError) as caught, explained_task_errors():
        raise RuntimeError(text)
    assert type(caught.value) is type(found)
    assert str(caught.value) == str(found)
    assert vars(caught.value) == vars(found)


def test_of_errors_that_caused_one_another_the_last_is_raised() -> None:
    chain = "tidelake.errors.CommitConflict: inner\n\nDuring handling of it:\n\ntidelake.errors.BadInput: outer"
    with pytest.raises(tidelake.BadInput, match="outer"), explained_task_errors():
        raise RuntimeError(TRACEBACK.format(error=chain))


@pytest.mark.parametrize(
    "error", ["KeyError: 'tidelake.errors.BadInput: x'", "other.errors.BadInput: x", "tidelake.errors.Sequence: x"]
)
def test_an_error_that_is_not_ours_stays(error: str) -> None:
    with pytest.raises(RuntimeError, match="Job aborted"), explained_task_errors():
        raise RuntimeError(TRACEBACK.format(error=error))
