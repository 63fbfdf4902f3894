"""The engines that can run the demo's pipeline."""

from __future__ import annotations

import asyncio
from typing import Protocol

from tidelake.errors import TidelakeError
from tidelake.ingest.pipeline.builder import build_pipeline
from tidelake.ingest.pipeline.pipeline import Pipeline
from tidelake.ingest.settings import Config
from tidelake.storage.base import env


class DemoEngine(Protocol):
    """Runs the demo's pipeline in the background: start, check as often as you like, stop in any case."""

    @property
    def name(self) -> str:
        """The name of the engine, for people."""
        ...

    def start(self) -> None:
        """Start the pipeline. Returns when it reads, or is about to. Raises TidelakeError if it can't start."""
        ...

    def check(self) -> None:
        """Raise the error of the pipeline, if it failed."""
        ...

    def stop(self) -> None: ...


class AsyncioEngine:
    """Runs the pipeline like `ingest run`, in a thread of this process."""

    name = "asyncio, in this process"

    def __init__(self, config: Config) -> None:
        self._config = config
        self._error: Exception | None = None
        self._pipeline: Pipeline | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_ready = env.Event()
        self._thread = env.Thread(target=self._run, name="pipeline", daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._is_ready.wait()
        self.check()

    def check(self) -> None:
        if self._error is not None:
            raise self._error
        if self._is_ready.is_set() and not self._thread.is_alive():
            raise TidelakeError("the pipeline ended before the source did")

    def stop(self) -> None:
        if self._loop is not None and self._pipeline is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._pipeline.stop)
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            asyncio.run(self._run_pipeline())
        except Exception as error:
            self._error = error
        finally:
            self._is_ready.set()

    async def _run_pipeline(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._pipeline = await asyncio.to_thread(build_pipeline, self._config)
        self._is_ready.set()
        await self._pipeline.run()
