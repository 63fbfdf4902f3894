"""One process of a chaos trial: `python -m tidelake.doctor.chaos.pipeline_process TASK.json`.

It runs the pipeline, or compacts its tables, and is killed at any moment. Its last words go to standard error.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec

from tidelake.catalog import Catalog
from tidelake.doctor.chaos.lossy_file_io import LossyFileIO
from tidelake.doctor.chaos.scratch_lake import ScratchPipeline, check_scratch
from tidelake.errors import TidelakeError, WriterFenced
from tidelake.ingest.pipeline.builder import build_pipeline
from tidelake.ingest.settings import Config
from tidelake.storage.base import env
from tidelake.storage.base.log_output import LogFormat, set_up_logging
from tidelake.storage.fileio import FileIO
from tidelake.storage.fileio.retrying import RetryingFileIO

FENCED: Final = 4  # exit code: another process took over


class Work(StrEnum):
    RUN = "run"  # until stopped
    FINISH = "finish"  # until the records end
    COMPACT = "compact"


class Task(msgspec.Struct, frozen=True):
    """What the process does.

    started: file that is created when the pipeline is built, and begins to read.
    mishaps: file that counts lost requests and answers; None: none are lost.
    """

    pipeline: ScratchPipeline
    work: Work
    seed: int
    started: str
    mishaps: str | None = None


def main(arguments: Sequence[str]) -> int:
    task = msgspec.json.decode(Path(arguments[0]).read_bytes(), type=Task)
    check_scratch(task.pipeline.warehouse.rstrip("/").rpartition("/")[0])
    env.Thread(target=_end_with_parent, daemon=True).start()
    set_up_logging("error", LogFormat.TEXT)
    try:
        _work(task)
    except Exception as error:
        if any(isinstance(one, WriterFenced) for one in _single_errors(error)):
            return FENCED
        for one in _single_errors(error):
            if not isinstance(one, TidelakeError | OSError):
                raise
            sys.stderr.write(f"error: {one}\n")
        return 1
    return 0


def _end_with_parent() -> None:
    """End when the parent does, also by a kill: nobody would stop this process then. The parent never writes."""
    os.read(0, 1)  # not by `sys.stdin`, whose lock would be held when this process ends
    os._exit(1)


def _single_errors(error: Exception) -> Iterator[Exception]:
    if isinstance(error, ExceptionGroup):
        for inner in error.exceptions:
            yield from _single_errors(inner)
    else:
        yield error


def _work(task: Task) -> None:
    io: FileIO = task.pipeline.file_io()
    if task.mishaps is not None:
        io = RetryingFileIO(LossyFileIO(io, task.seed, Path(task.mishaps)))
    if task.work is Work.COMPACT:
        catalog = Catalog(task.pipeline.catalog(io))
        for name in task.pipeline.table_names():
            catalog.table(name).compact(full=task.seed % 2 == 0)
    else:
        config = task.pipeline.settings_of_run(until_end=task.work is Work.FINISH)
        asyncio.run(_run(config, io, Path(task.started)))


async def _run(config: Config, io: FileIO, started: Path) -> None:
    """Run the pipeline until its source ends, or SIGTERM. A fenced process ends at once; a service would stay away."""
    pipeline = await asyncio.to_thread(build_pipeline, config, io=io)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, pipeline.stop)
    await asyncio.to_thread(started.touch)
    await pipeline.run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
