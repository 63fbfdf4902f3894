"""Sends events in a thread of its own, so that no server can make the pipeline wait.

What waits is bounded: beyond the limit an event is dropped, counted, and a warning says so once.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Full
from typing import TYPE_CHECKING, Final

from tidelake.ingest.monitoring.observations import LINEAGE_DROPPED, LINEAGE_FAILED, LINEAGE_SENT
from tidelake.storage.base import env
from tidelake.storage.base.logs import get_logger

if TYPE_CHECKING:
    from openlineage.client.event_v2 import RunEvent

_CLIENT_LOGGER: Final = "openlineage.client.transport"

_log = get_logger(__name__)


class _ReportedErrors(logging.Handler):
    """Counts the errors that the client's transports log instead of raising them: those of Kafka's deliveries."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


@dataclass
class EventSender:
    """Sends the events of one pipeline, in order.

    emit: sends one event. It blocks, and may raise anything.
    limit: how many tasks may wait.
    outcomes: counts of events; see `RunObservations`.
    redacted: takes secrets out of a message.
    finish: called after the last event: some transports send in threads of their own. It blocks, and may raise.
    """

    emit: Callable[[RunEvent], object]
    limit: int
    outcomes: Counter[str]
    redacted: Callable[[str], str] = str
    finish: Callable[[], object] = bool
    _warned: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._tasks: env.Queue[Callable[[], RunEvent | None] | None] = env.Queue(self.limit)
        self._ended = env.Event()
        self._given_up = env.Event()
        self._thread: env.Thread | None = None

    def put(self, task: Callable[[], RunEvent | None]) -> None:
        """Add a task for the thread, which returns the event to send, if any. Never blocks.

        A task that fails counts as a failed event.
        """
        if self._thread is None:
            # A daemon: a process must end although a server does not answer.
            self._thread = env.Thread(target=self._run, name="openlineage", daemon=True)
            self._thread.start()
        try:
            self._tasks.put_nowait(task)
        except Full:
            self._dropped(1, f"{self.limit} of them wait already")

    def close(self, wait_s: float) -> None:
        """Wait until all is sent, but not longer than this. Blocks. What is left is dropped."""
        if self._thread is None:
            return
        until = env.monotonic_s() + wait_s
        while env.monotonic_s() < until and not self._ended.is_set():
            try:
                self._tasks.put(None, timeout=max(0.0, until - env.monotonic_s()))
            except Full:
                break
            self._ended.wait(max(0.0, until - env.monotonic_s()))
        if not self._ended.is_set():
            self._given_up.set()
            left = self._tasks.qsize()
            self._dropped(max(1, left), f"they could not be sent within {wait_s:g} s, and the process ends")

    def _run(self) -> None:
        try:
            while (task := self._tasks.get()) is not None and not self._given_up.is_set():
                self._perform(task)
            with suppress(Exception):
                self.finish()
        finally:
            self._ended.set()

    def _perform(self, task: Callable[[], RunEvent | None]) -> None:
        errors = _ReportedErrors()
        logger = logging.getLogger(_CLIENT_LOGGER)
        logger.addHandler(errors)
        try:
            event = task()
            if event is None:
                return
            self.emit(event)
            problem = errors.texts[0] if errors.texts else None
        except Exception as error:
            problem = str(error) or type(error).__name__
        finally:
            logger.removeHandler(errors)
        if problem is None:
            self.outcomes[LINEAGE_SENT] += 1
            return
        self.outcomes[LINEAGE_FAILED] += 1
        self._warn(LINEAGE_FAILED, self.redacted(problem))

    def _dropped(self, events: int, reason: str) -> None:
        self.outcomes[LINEAGE_DROPPED] += events
        self._warn(LINEAGE_DROPPED, reason)

    def _warn(self, outcome: str, reason: str) -> None:
        if outcome not in self._warned:
            self._warned.add(outcome)
            _log.warning(
                "OpenLineage events are lost",
                outcome=outcome,
                reason=reason,
                effect="the pipeline continues; lineage is incomplete. This is logged once a run, and counted in "
                "tidelake_lineage_events_total",
                remedy="look at the server or the topic of `lineage.transport`",
            )
