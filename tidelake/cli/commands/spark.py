"""`tidelake spark …`: a pipeline's configuration on Spark."""

from __future__ import annotations

import signal
import threading
from collections.abc import Sequence
from pathlib import Path

from ingest.config.config import load_config
from ingest.settings import Config
from storage.errors import BadInput, UnsupportedFeature
from tidelake.cli.output import CommandOutput
from tidelake.prerequisites import missing_for_spark

_POLL_SECONDS = 0.2


def run(
    out: CommandOutput,
    *,
    config: str,
    settings: Sequence[str],
    master: str,
    conf: Sequence[tuple[str, str]],
    checkpoint: str | None,
) -> None:
    """Until the source ends, or SIGINT or SIGTERM arrives."""
    loaded = load_config(Path(config), settings)
    if (missing := missing_for_spark()) is not None:
        raise UnsupportedFeature("tidelake spark run", "Spark can't run here", missing)
    from tidelake.spark.pipeline_query import start_query
    from tidelake.spark.session import start_session

    stop = threading.Event()
    spark = start_session(f"tidelake {loaded.pipeline}", master, dict(conf))
    try:
        streams = start_query(spark, loaded, checkpoint or _checkpoint(loaded))
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stop.set())
        out.note(f"query {streams.query.name} runs, id {streams.query.id}")
        while not streams.has_ended() and not stop.wait(_POLL_SECONDS):
            pass
        streams.stop()
        ended = "stopped" if stop.is_set() else "end of source"
    finally:
        spark.stop()
    if out.is_json:
        out.document({"ended": ended, "query_id": str(streams.query.id)})
    else:
        out.note(ended)


def _checkpoint(config: Config) -> str:
    """Beside the tables; where that is no directory of this machine, Spark may not have the means to write there."""
    if "://" in config.warehouse:
        raise BadInput(f"warehouse {config.warehouse}: pass --checkpoint with a place that Spark can write to")
    return str(Path(config.warehouse, f"{config.pipeline}.spark").absolute())
