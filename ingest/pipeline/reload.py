"""Takes a changed configuration into a running pipeline, between two checkpoints: all of it, or nothing.

1. The file is read again. A setting that needs a restart refuses the whole file.
2. The pipeline of the new configuration is built while the old one runs, which makes the checks of a start.
3. The old one stops reading, and commits what it has read. Tables whose entry is gone end here.
4. The new one takes its place (`Pipeline.replace`): each table continues at the position that a start would find.
   Tables whose settings are the same keep their writers and get no snapshot. A new table begins as at a start.

*Crash at any point: the next start reads the file, and continues each table from its snapshots, as always.*
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Protocol

from tidelake.errors import ReloadRefused, TidelakeError
from tidelake.ingest.clock import Clock, wait_at_most
from tidelake.ingest.config.config_changes import ConfigChanges, config_changes
from tidelake.ingest.monitoring.observations import RunObservations
from tidelake.ingest.pipeline.handover import Handover
from tidelake.ingest.pipeline.pipeline import Pipeline, RunState
from tidelake.ingest.pipeline.reload_requests import ReloadAnswer, ReloadRequest, ReloadRequests
from tidelake.ingest.settings import Config
from tidelake.storage.base.logs import get_logger
from tidelake.storage.maintenance.maintenance_worker import MaintenanceWorker

REQUESTS_INTERVAL_MS: Final = 5_000  # time between two looks for requests of an operator
_STATE_INTERVAL_MS: Final = 100  # time between two looks whether the pipeline runs

_log = get_logger(__name__)


class ConfigFile(Protocol):
    """The file of the configuration. Methods block."""

    def load(self) -> Config:
        """Read the configuration. Raises ConfigError."""
        ...

    def digest(self) -> str:
        """Return a digest of the file's contents. Raises ConfigError."""
        ...


@dataclass(slots=True)
class Reload:
    """The reloads of one running pipeline.

    config: the configuration that it runs with.
    build: builds a pipeline with what the running one hands over. Blocks.
    """

    pipeline: Pipeline
    config: Config
    file: ConfigFile
    build: Callable[[Config, Handover], Pipeline]
    clock: Clock
    _is_busy: bool = False

    async def take(self, digest: str | None = None) -> ConfigChanges:
        """Take what changed in the file, and return it.

        digest: of the contents that are meant; None: those that the file has.

        Raises ConfigError for an invalid file, ReloadRefused for changes that need a restart, and the error for which
        the pipeline can't begin with the new configuration. Then nothing has changed, unless the pipeline ends with
        the same error.
        """
        if digest is not None and digest != await asyncio.to_thread(self.file.digest):
            raise ReloadRefused(
                f"{self.file}, as the running process sees it, has other contents than the given file, so nothing was "
                "changed. Bring the file to the machine or the container of the process, then try again"
            )
        config = await asyncio.to_thread(self.file.load)
        changes = config_changes(self.config, config)
        changes.check()
        if changes:
            await asyncio.to_thread(self._check, config)
            await self.pipeline.replace(partial(self.build, config), partial(self.build, self.config))
            self.config = config
        return changes

    def _check(self, config: Config) -> None:
        """Build the pipeline, and drop it again. Raises the errors of a start. Blocks."""
        assert self.pipeline.handover is not None
        running, maintenance = self.pipeline.handover, MaintenanceWorker()
        observed = RunObservations(config.first_interval_ms, self.clock)
        tried = self.build(config, replace(running, observed=observed, monitor=None, maintenance=maintenance))
        for name, sink in tried.sinks.items():
            if running.sinks.get(name) is not sink:
                sink.close()
        maintenance.close()

    async def follow(self, hangup: asyncio.Event, requests: ReloadRequests) -> None:
        """Take the file whenever `hangup` is set or an operator requests it, until cancelled."""
        while True:
            await wait_at_most(hangup, REQUESTS_INTERVAL_MS, self.clock)
            if self.pipeline.state is not RunState.RUNNING:
                await self.clock.sleep_ms(_STATE_INTERVAL_MS)
                continue
            if hangup.is_set():
                hangup.clear()
                await self._answered(None)
            try:
                for request in await asyncio.to_thread(requests.take):
                    answer = await self._answered(request)
                    await asyncio.to_thread(requests.answer, request, answer)
            except (OSError, TidelakeError) as error:
                _log.warning("requests to reload can't be read", location=requests.location, error=str(error))

    async def end(self, following: asyncio.Task[None]) -> None:
        """End `follow`. An answer that is about to be written is written."""
        if self._is_busy:
            await asyncio.wait({following}, timeout=1)
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)

    async def _answered(self, request: ReloadRequest | None) -> ReloadAnswer:
        """Take the file, and return and log what came of it."""
        self._is_busy = True
        try:
            changes = await self.take(None if request is None else request.digest)
        except (OSError, TidelakeError) as error:
            _log.error(
                "the changed configuration is refused",
                reason=str(error),
                effect="nothing was changed; the pipeline continues with the configuration that it had",
            )
            return ReloadAnswer("refused" if isinstance(error, ReloadRefused) else "failed", reason=str(error))
        finally:
            self._is_busy = False
        if not changes:
            _log.info("the configuration has not changed")
            return ReloadAnswer("unchanged")
        _log.info("the changed configuration is taken", **changes.document())
        return ReloadAnswer("taken", lines=changes.lines(), changes=changes.document())
