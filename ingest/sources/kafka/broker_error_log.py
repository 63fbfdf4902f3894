"""Log lines about brokers that do not answer, at most one a minute, ours and those of aiokafka.

aiokafka logs each attempt to connect, and each request that failed for it: fifty lines a second. Its lines are let
through one a minute, as ours are, and the next one says how many there were. Other lines of its own have a minute each.
With its loggers at DEBUG everything is let through.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Hashable
from typing import Any, Final

import structlog

INTERVAL_MS: Final = 60_000

_PACKAGE: Final = "aiokafka"
_AWAY: Final = "away"  # what all lines about brokers that don't answer have in common
_ABOUT_BROKERS: Final = re.compile(
    r"Unable (to )?(connect|request|update)|Failed fetch|Failed to|.* [Rr]equest failed|Heartbeat failed|.*onnection"
)


class BrokerErrorLog(logging.Filter):
    """log: for our own lines.
    now_ms: any clock that goes on.

    `begin` and `end` it.
    """

    def __init__(self, log: structlog.stdlib.BoundLogger, now_ms: Callable[[], int]) -> None:
        super().__init__()
        self._log = log
        self._now_ms = now_ms
        self._said_ms: dict[Hashable, int] = {}
        self._suppressed: dict[Hashable, int] = {}
        self._loggers: list[logging.Logger] = []

    def begin(self) -> None:
        """From now on aiokafka's loggers are listened to; those that it has made until now."""
        self.end()
        names = [name for name in logging.root.manager.loggerDict if name.split(".")[0] == _PACKAGE]
        self._loggers = [logging.getLogger(name) for name in names]
        for logger in self._loggers:
            logger.addFilter(self)

    def end(self) -> None:
        for logger in self._loggers:
            logger.removeFilter(self)
        self._loggers = []

    def warning(self, event: str, **fields: Any) -> None:
        """A line of ours about brokers that don't answer, unless there was one within the minute."""
        passed_over = self._lines_suppressed(_AWAY)
        if passed_over is not None:
            more = {"lines_passed_over": passed_over} if passed_over else {}
            self._log.warning(event, **fields, **more)

    def filter(self, record: logging.LogRecord) -> bool:
        if (
            record.levelno < logging.WARNING
            or record.exc_info
            or logging.getLogger(record.name).isEnabledFor(logging.DEBUG)
        ):
            return True
        template = str(record.msg)
        passed_over = self._lines_suppressed(_AWAY if _ABOUT_BROKERS.match(template) else template)
        if passed_over:
            record.msg, record.args = f"{record.getMessage()} (and {passed_over} more lines since the last one)", None
        return passed_over is not None

    def _lines_suppressed(self, kind: Hashable) -> int | None:
        """How many lines of this kind were passed over since the last one; None within its minute."""
        now_ms, said_ms = self._now_ms(), self._said_ms.get(kind)
        if said_ms is not None and now_ms - said_ms < INTERVAL_MS:
            self._suppressed[kind] = self._suppressed.get(kind, 0) + 1
            return None
        self._said_ms[kind] = now_ms
        return self._suppressed.pop(kind, 0)
