"""Logging of the command line, and of the Python workers of its Spark tasks: to standard error, as text for people or
as JSON for machines.

A program that uses the library configures `logging` itself, without this module.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable, Mapping, MutableMapping
from enum import StrEnum
from types import TracebackType
from typing import Any, Final, TextIO

import structlog

from tidelake.storage.base.logs import FIELDS

_PROGRAM: Final = "tidelake.cli"  # logger of what a command itself reports
LOG_FORMAT_VARIABLE: Final = "TIDELAKE_LOG_FORMAT"
LOG_LEVEL_VARIABLE: Final = "TIDELAKE_LOG_LEVEL"

_environment: dict[str, str] = {}  # how this process logs, for the environment of workers


class LogFormat(StrEnum):
    """Format of log lines. AUTO: TEXT on a terminal, otherwise JSON."""

    AUTO = "auto"
    TEXT = "text"
    JSON = "json"


def set_up_logging(
    level: str, log_format: LogFormat = LogFormat.AUTO, *, fields: Callable[[], Mapping[str, Any]] = dict
) -> None:
    """Configure logging.

    level: level of our packages, `debug` to `error`. Other packages log from WARNING, with `debug` from DEBUG
    fields: returns fields that every line gets

    With JSON, Python's reports of errors that nobody handles (in threads, in destructors, at the end of the program)
    become events, too.
    """
    wanted = logging.getLevelNamesMapping()[level.upper()]
    handler = _StandardError()
    is_text = sys.stderr.isatty() if log_format is LogFormat.AUTO else log_format is LogFormat.TEXT
    handler.setFormatter(_formatter(is_text, fields))
    _environment[LOG_FORMAT_VARIABLE] = str(LogFormat.TEXT if is_text else LogFormat.JSON)
    _environment[LOG_LEVEL_VARIABLE] = level
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(wanted if wanted <= logging.DEBUG else max(wanted, logging.WARNING))
    logging.getLogger("tidelake").setLevel(wanted)
    logging.captureWarnings(True)
    if log_format is LogFormat.JSON:
        sys.excepthook = _log_unhandled
        threading.excepthook = lambda of: _log_unhandled(of.exc_type, of.exc_value, of.exc_traceback)
        sys.unraisablehook = lambda of: _log_unhandled(of.exc_type, of.exc_value, of.exc_traceback)


def worker_environment() -> dict[str, str]:
    """Return the variables that make a worker log as this process does; empty if a program configures its logging."""
    return dict(_environment)


def log_always(level: int, event: str, **fields: Any) -> None:
    """Log an event whatever the configured level: the output of a command whose standard error is a log of JSON lines.

    level: level of the event, as in `logging`.
    """
    record = logging.LogRecord(_PROGRAM, level, __file__, 0, event, None, None)
    setattr(record, FIELDS, {"event": event, **fields})
    for handler in logging.getLogger().handlers:
        handler.handle(record)


def _log_unhandled(kind: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> None:
    if error is not None and not issubclass(kind, KeyboardInterrupt | SystemExit):
        logging.getLogger(_PROGRAM).error("an error that nobody handled", exc_info=(kind, error, trace))


class _StandardError(logging.StreamHandler[TextIO]):
    """Writes to the current standard error, which the progress display of a terminal may replace."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:  # type: ignore[override]
        return sys.stderr


def _formatter(is_text: bool, fields: Callable[[], Mapping[str, Any]]) -> logging.Formatter:
    def add_fields(_: object, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        event.update(fields())
        return event

    last: list[Any] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta]
    if is_text:
        has_colors = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
        plain = structlog.dev.plain_traceback
        last.append(structlog.dev.ConsoleRenderer(colors=has_colors, pad_event_to=0, exception_formatter=plain))
    else:
        last += [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(ensure_ascii=False)]
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[
            _split_fields,
            add_fields,
            structlog.stdlib.add_log_level,
            structlog.stdlib.add_logger_name,
            structlog.processors.TimeStamper(fmt="%H:%M:%S" if is_text else "iso", utc=not is_text),
        ],
        processors=last,
    )


def _split_fields(_: object, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Split our own records into event and fields. Records of other libraries stay one text."""
    event.update(getattr(event["_record"], FIELDS, {}))
    return event
