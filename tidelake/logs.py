"""Where log lines go when the command line runs: standard error, as text for people or as JSON for machines.

A program that uses the library sets up `logging` as it likes; nothing here is called then.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import MutableMapping
from enum import StrEnum
from typing import Any, Final, TextIO

import structlog

from storage.logs import FIELDS

OUR_PACKAGES: Final = ("tidelake", "ingest", "checkpoint", "compaction", "storage")


class LogFormat(StrEnum):
    """AUTO: TEXT on a terminal, else JSON."""

    AUTO = "auto"
    TEXT = "text"
    JSON = "json"


def set_up_logging(level: str, log_format: LogFormat = LogFormat.AUTO) -> None:
    """level: of our own packages, `debug` to `error`. Others are heard from WARNING on, with `debug` from DEBUG on."""
    wanted = logging.getLevelNamesMapping()[level.upper()]
    handler = _StandardError()
    is_text = sys.stderr.isatty() if log_format is LogFormat.AUTO else log_format is LogFormat.TEXT
    handler.setFormatter(_formatter(is_text))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(wanted if wanted <= logging.DEBUG else max(wanted, logging.WARNING))
    for package in OUR_PACKAGES:
        logging.getLogger(package).setLevel(wanted)
    logging.captureWarnings(True)


class _StandardError(logging.StreamHandler[TextIO]):
    """Standard error as it is at the moment: progress on a terminal puts itself in between."""

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
            _fields_apart,
            structlog.stdlib.add_log_level,
            structlog.stdlib.add_logger_name,
            structlog.processors.TimeStamper(fmt="%H:%M:%S" if is_text else "iso", utc=not is_text),
        ],
        processors=last,
    )


def _fields_apart(_: object, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A record of our own as its event and fields; another library's stays the one sentence it is."""
    event.update(getattr(event["_record"], FIELDS, {}))
    return event
