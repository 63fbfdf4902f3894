"""Logging of the command line: to standard error, as text for people or as JSON for machines.

A program that uses the library configures `logging` itself, without this module.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import MutableMapping
from enum import StrEnum
from typing import Any, TextIO

import structlog

from tidelake.storage.base.logs import FIELDS


class LogFormat(StrEnum):
    """Format of log lines. AUTO: TEXT on a terminal, otherwise JSON."""

    AUTO = "auto"
    TEXT = "text"
    JSON = "json"


def set_up_logging(level: str, log_format: LogFormat = LogFormat.AUTO) -> None:
    """Configure logging.

    level: level of our packages, `debug` to `error`. Other packages log from WARNING, with `debug` from DEBUG
    """
    wanted = logging.getLevelNamesMapping()[level.upper()]
    handler = _StandardError()
    is_text = sys.stderr.isatty() if log_format is LogFormat.AUTO else log_format is LogFormat.TEXT
    handler.setFormatter(_formatter(is_text))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(wanted if wanted <= logging.DEBUG else max(wanted, logging.WARNING))
    logging.getLogger("tidelake").setLevel(wanted)
    logging.captureWarnings(True)


class _StandardError(logging.StreamHandler[TextIO]):
    """Writes to the current standard error, which the progress display of a terminal may replace."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:  # type: ignore[override]
        return sys.stderr


def _formatter(is_text: bool) -> logging.Formatter:
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
