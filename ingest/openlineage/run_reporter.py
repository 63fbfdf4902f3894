"""Reports the runs of a pipeline to OpenLineage: start, progress, and how each one ended.

It observes the pipeline, and never makes it wait or fail. A run is one process that reads:

- START when reading begins, so that a process that is refused at its start reports START and FAIL.
- RUNNING after that, and then at most every `lineage.interval_ms` if there were checkpoints.
- COMPLETE when all is committed: the source ended, or the process was stopped. ABORT if it was stopped at once.
- FAIL with the error. After a kill the next run sends the FAIL of the killed one, when it has taken over.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec
from openlineage.client import OpenLineageClient
from openlineage.client.event_v2 import RunEvent, RunState

from tidelake.errors import BadInput, RecordRefused
from tidelake.ingest.clock import Clock
from tidelake.ingest.openlineage.event_sender import EventSender
from tidelake.ingest.openlineage.run_events import RunEvents
from tidelake.ingest.openlineage.run_snapshot import RunSnapshot, TableOrigins
from tidelake.ingest.openlineage.unfinished_run import UnfinishedRun, UnfinishedRunFile
from tidelake.ingest.secrets import HIDDEN, SECRET_NAME, Secret
from tidelake.ingest.settings import Config, LineageSettings
from tidelake.storage.base import env
from tidelake.storage.base.clock import epoch_ms
from tidelake.storage.base.threads import single_error
from tidelake.storage.fileio.base import FileIO
from tidelake.storage.model.table import TableContext

if TYPE_CHECKING:
    from tidelake.ingest.monitoring.observations import RunObservations

_KILLED: Final = "the process of this run ended without a word: it was killed, or its machine failed"
_SHORTEST_SECRET: Final = 4  # characters; shorter ones would hide ordinary words


class RunReporter:
    """Reports one run.

    contexts: returns the tables that exist.
    origins: returns where their rows come from. None: unknown.
    open_io: opens the warehouse; called in a thread.
    """

    def __init__(
        self,
        config: Config,
        settings: LineageSettings,
        observed: RunObservations,
        clock: Clock,
        open_io: Callable[[], FileIO],
    ) -> None:
        self._settings = settings
        self._observed = observed
        self._clock = clock
        self._open_io = open_io
        self._logs_reasons = config.errors.log_include_messages
        self._secrets = sorted(set(_secrets_of(config)), key=len, reverse=True)
        self._client = opened_client(settings)
        namespace = settings.namespace or os.environ.get("OPENLINEAGE_NAMESPACE") or "default"
        self._run = UnfinishedRun(str(env.new_uuid()), namespace, settings.name or config.pipeline)
        self._events = RunEvents(config, namespace, self._run.name, self._run.run_id)
        self._config = config
        self._sender = EventSender(
            self._client.emit,
            settings.queue_events,
            observed.lineage_events,
            self._without_secrets,
            self._client.close,
        )
        self._started_ms = epoch_ms()
        self._has_begun = False
        self._last = RunSnapshot()
        self.contexts: Callable[[], Mapping[str, TableContext]] = dict
        self.origins: Callable[[], TableOrigins | None] = lambda: None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Report the run inside the block. Call `reading_began` in it. Raises only the errors of the block."""
        watching = asyncio.create_task(self._watch(), name="openlineage")
        state, error = RunState.COMPLETE, None
        try:
            yield
        except asyncio.CancelledError:
            state = RunState.ABORT
            raise
        except BaseException as failure:
            state, error = RunState.FAIL, self._message(failure)
            raise
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            await self._end(state, error)

    def reading_began(self) -> None:
        """Report the start. This process owns the pipeline now."""
        self._has_begun = True
        self._put(RunState.START, self._started_ms)
        self._sender.put(self._begin_file)
        self._put(RunState.RUNNING)

    async def _watch(self) -> None:
        while True:
            await self._clock.sleep_ms(self._settings.interval_ms)
            if self._has_begun and self._observed.checkpoints != self._last.checkpoints:
                self._put(RunState.RUNNING)

    async def _end(self, state: RunState, error: str | None) -> None:
        if not self._has_begun:
            self._put(RunState.START, self._started_ms)
        self._put(state, error=error)
        if self._has_begun:
            self._sender.put(self._end_file)
        waiting = asyncio.create_task(asyncio.to_thread(self._sender.close, self._settings.close_ms / 1000))
        cancelled = False
        while not waiting.done():  # it ends after `close_ms`
            try:
                await asyncio.shield(waiting)
            except asyncio.CancelledError:
                cancelled = True
        if cancelled:
            raise asyncio.CancelledError

    def _put(self, state: RunState, at_ms: int | None = None, error: str | None = None) -> None:
        snapshot = self._last = RunSnapshot.of(self.contexts(), self._observed, self.origins())
        at_ms = epoch_ms() if at_ms is None else at_ms
        self._sender.put(lambda: self._events.event(state, at_ms, snapshot, error))

    # ------------------------------------------------------------ in the thread

    def _file(self) -> UnfinishedRunFile:
        return UnfinishedRunFile(self._open_io(), self._config.warehouse, self._config.pipeline)

    def _begin_file(self) -> RunEvent | None:
        """Return the failure of the run before this one, if it did not end."""
        before = self._file().begin(self._run)
        if before is None:
            return None
        events = RunEvents(self._config, before.namespace, before.name, before.run_id)
        return events.event(RunState.FAIL, epoch_ms(), RunSnapshot(), _KILLED)

    def _end_file(self) -> None:
        self._file().end(self._run)

    # ------------------------------------------------------------ errors

    def _message(self, failure: BaseException) -> str:
        """Return the text of an error, without secrets, and without values of records."""
        if isinstance(failure, BaseExceptionGroup):
            failure = single_error(failure)
        if isinstance(failure, RecordRefused) and not self._logs_reasons:
            return (
                "RecordRefused: a record stopped the pipeline. The reason may quote the record, so only the log of the "
                "process has it (`errors.log_include_messages` sends it, too)"
            )
        return self._without_secrets(f"{type(failure).__name__}: {failure}")

    def _without_secrets(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, HIDDEN)
        return text


def opened_client(settings: LineageSettings) -> OpenLineageClient:
    """Return the client. Its own environment variables and file add to the settings, as it defines.

    Raises BadInput for a transport that the client refuses, and if there is none.
    """
    transport = json.loads(json.dumps(settings.transport))  # the client changes what it gets
    try:
        client = OpenLineageClient(config={"transport": transport} if transport else None)
    except Exception as error:
        raise BadInput(
            f"`lineage.transport` (with OpenLineage's variables and file): {type(error).__name__}: {error}. Correct "
            "it; `tidelake help lineage` has examples"
        ) from error
    if client.transport.kind == "console" and not (client.config.transport or {}).get("type"):
        raise BadInput(
            "`lineage` is set, but not where events go. Set `lineage.transport: {type: http, url: …}`, or "
            "OPENLINEAGE_URL"
        )
    return client


def _secrets_of(config: Config) -> Iterator[str]:
    """Yield the secrets in a configuration, and those of OpenLineage in the environment."""

    def revealed(value: Any) -> Any:
        return {"secret": value.reveal()} if isinstance(value, Secret) else str(value)

    def found(value: Any, *, is_secret: bool) -> Iterator[str]:
        if isinstance(value, Mapping):
            for name, inner in value.items():
                yield from found(inner, is_secret=is_secret or SECRET_NAME.search(str(name)) is not None)
        elif isinstance(value, list | tuple):
            for inner in value:
                yield from found(inner, is_secret=is_secret)
        elif is_secret and isinstance(value, str) and len(value) >= _SHORTEST_SECRET:
            yield value

    yield from found(msgspec.to_builtins(config, enc_hook=revealed, str_keys=True), is_secret=False)
    for name, text in os.environ.items():
        if name.startswith("OPENLINEAGE_") and SECRET_NAME.search(name):
            yield text
            with suppress(ValueError):
                yield from found(json.loads(text), is_secret=True)
