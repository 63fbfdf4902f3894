"""Spark's Python workers, some of which die or sleep after a task has written its files.

Whoever wants that gives a lot; the next task that has written draws it. One that sleeps does so until a copy of it, on
another host, has written the same rows: then both hand over what they wrote. Only a first attempt does: Spark copies a
task to no host where it failed, and there are two.
Run as a module it is PySpark's daemon, from which workers fork.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, Final

FOLDER: Final = "UNLUCKY_WORKERS"
DIES, SLEEPS = "dies", "sleeps"
_DONE: Final = {DIES: "died", SLEEPS: "copied"}
_PATIENCE_S: Final = 240.0
_REPOSITORY: Final = Path(__file__).parents[2]


class UnluckyWorkers:
    """What a test holds of them. folder: on the machine of the workers."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()
        self._numbers = count()

    @property
    def settings(self) -> Mapping[str, str]:
        """Of the Spark session. A task is taken for slow after a second, and is copied to another host."""
        return {
            "spark.python.daemon.module": __name__,
            "spark.executorEnv.PYTHONPATH": str(_REPOSITORY),
            f"spark.executorEnv.{FOLDER}": str(self._folder),
            "spark.speculation": "true",
            "spark.speculation.interval": "100ms",
            "spark.speculation.multiplier": "2",
            "spark.speculation.quantile": "0.5",
            "spark.speculation.task.duration.threshold": "1s",
        }

    def give(self, lot: str) -> None:
        (self._folder / f"{lot}-{next(self._numbers)}").touch()

    def done(self, lot: str) -> int:
        """How often a task has died of it; or slept until a copy of it had written, too."""
        return len(list(self._folder.glob(f"{_DONE[lot]}-*")))


def _after_writing(folder: Path) -> None:
    """Called in a task that has written its files and not reported them."""
    from pyspark import TaskContext  # noqa: PLC0415 - of a worker

    task = TaskContext.get()
    assert task is not None
    application = Path.cwd().parent.name  # an executor's directory is in that of its application
    name = f"{application}-{task.stageId()}-{task.partitionId()}"
    mine = f"{name}-{task.taskAttemptId()}"
    if _drawn(folder, DIES):
        (folder / f"{_DONE[DIES]}-{mine}").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    for asleep in folder.glob(f"asleep-{name}-*"):
        if Path(f"/proc/{asleep.read_text()}").exists():
            (folder / f"{_DONE[SLEEPS]}-{name}").touch()
            return
    if task.attemptNumber() == 0 and _drawn(folder, SLEEPS):
        unfinished = folder / f"falls-asleep-{mine}"
        unfinished.write_text(str(os.getpid()))
        unfinished.rename(folder / f"asleep-{mine}")
        deadline = time.monotonic() + _PATIENCE_S
        while not (folder / f"{_DONE[SLEEPS]}-{name}").exists() and time.monotonic() < deadline:
            time.sleep(0.01)


def _drawn(folder: Path, lot: str) -> bool:
    for path in folder.glob(f"{lot}-*"):
        with suppress(FileNotFoundError):
            path.unlink()
            return True
    return False


def _unlucky(task: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    def work(*given: Any) -> Iterator[Any]:
        written = list(task(*given))
        _after_writing(Path(os.environ[FOLDER]))
        yield from written

    return work


if __name__ == "__main__":
    from pyspark.daemon import manager

    from tidelake.ingest.spark.bucket_task import BucketTask

    BucketTask.__call__ = _unlucky(BucketTask.__call__)  # type: ignore[method-assign]
    manager()
