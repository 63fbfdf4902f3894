"""Limits log lines about brokers that do not answer, ours and those of aiokafka, to one per minute.

aiokafka logs each attempt to connect, and each request that failed with it: fifty lines per second. One of these lines
or of ours passes per minute, and the next one reports how many were suppressed. Other lines of aiokafka are limited
separately, to one of each kind per minute. If aiokafka's loggers are at DEBUG, all lines pass.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Hashable
from typing import Any, Final

import structlog

INTERVAL_MS: Final = 60_000

_PACKAGE: Final = "aiokafka"
_BROKER_UNREACHABLE: Final = "away"  # the common kind of all lines about brokers that don't answer
_BROKER_MESSAGE: Final = re.compile(
    r"Unable (to )?(connect|request|update)|Failed fetch|Failed to|.* [Rr]equest failed|Heartbeat failed|.*onnection"
)


class BrokerErrorLog(logging.Filter):
    """A filter of log lines about brokers. Call `begin` before its use, and `end` afterwards.

    log: the logger of our own lines.
    now_ms: a monotonic clock.
    """

    def __init__(self, log: structlog.stdlib.BoundLogger, now_ms: Callable[[], int]) -> None:
        super().__init__()
        self._log = log
        self._now_ms = now_ms
        self._logged_ms: dict[Hashable, int] = {}
        self._suppressed: dict[Hashable, int] = {}
        self._loggers: list[logging.Logger] = []

    def begin(self) -> None:
        """Filter the lines of all loggers that aiokafka has created so far."""
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
        """Log a line about brokers that don't answer, unless one was logged within the last minute."""
        passed_over = self._lines_suppressed(_BROKER_UNREACHABLE)
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
        passed_over = self._lines_suppressed(_BROKER_UNREACHABLE if _BROKER_MESSAGE.match(template) else template)
        if passed_over:
            record.msg, record.args = f"{record.getMessage()} (and {passed_over} more lines since the last one)", None
        return passed_over is not None

    def _lines_suppressed(self, kind: Hashable) -> int | None:
        """Return how many lines of this kind were suppressed since the last one; None within a minute of it."""
        now_ms, said_ms = self._now_ms(), self._logged_ms.get(kind)
        if said_ms is not None and now_ms - said_ms < INTERVAL_MS:
            self._suppressed[kind] = self._suppressed.get(kind, 0) + 1
            return None
        self._logged_ms[kind] = now_ms
        return self._suppressed.pop(kind, 0)
