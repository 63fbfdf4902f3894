"""The demo's pipeline on Spark, in a separate JVM."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyspark
from pyspark.sql import SparkSession

from tidelake.errors import TidelakeError
from tidelake.ingest.settings import Config
from tidelake.spark.pipeline_query import PipelineQuery, start_query
from tidelake.spark.session import start_session

_MASTER: Final = "local[2]"


class SparkEngine:
    """Runs the pipeline on Spark.

    scratch: an empty folder for all files that Spark writes, its log `spark.log` included.
    """

    def __init__(self, config: Config, scratch: Path) -> None:
        self._config = config
        self._scratch = scratch
        self._session: SparkSession | None = None
        self._streams: PipelineQuery | None = None

    @property
    def name(self) -> str:
        return f"Spark {pyspark.__version__}, {_MASTER}"

    def start(self) -> None:
        settings = {
            "spark.local.dir": str(self._scratch / "local"),
            "spark.sql.warehouse.dir": str(self._scratch / "warehouse"),
            "spark.driver.memory": "1g",
            "spark.log.level": "WARN",
        }
        try:
            with _standard_error_into(self._scratch / "spark.log"):
                self._session = start_session("tidelake demo", _MASTER, settings)
        except TidelakeError as error:
            raise TidelakeError(f"{error}{self._log_tail()}") from None
        self._streams = start_query(self._session, self._config, str(self._scratch / "checkpoint"))

    def check(self) -> None:
        if self._streams is not None and self._streams.has_ended():
            raise TidelakeError("the query ended before the source did")

    def stop(self) -> None:
        if self._streams is not None:
            self._streams.stop()
        if self._session is not None:
            self._session.stop()

    def _log_tail(self) -> str:
        lines = (self._scratch / "spark.log").read_text(errors="replace").splitlines()
        return "".join(f"\n  {line}" for line in lines[-5:])


@contextmanager
def _standard_error_into(path: Path) -> Iterator[None]:
    """Redirect standard error to a file, for a process started inside: it keeps the file as its standard error."""
    own = os.dup(2)
    with path.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(own, 2)
        os.close(own)
