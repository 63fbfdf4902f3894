"""Loggers of events with fields, on top of the standard library's `logging`.

    log = get_logger(__name__)
    log.warning("option unknown", option=key)

Events are passed to the standard library's `logging`, which the program configures. structlog's own loggers would write
to standard output, which is for data. Without configuration, warnings are written to standard error.
"""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from typing import Any, Final, cast

import structlog

FIELDS: Final = "event_fields"  # attribute of a log record: its fields, for handlers that need them separately


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """name: `__name__` of the module."""
    logger = structlog.wrap_logger(
        logging.getLogger(name),
        processors=[structlog.stdlib.filter_by_level, _to_record],
        wrapper_class=structlog.stdlib.BoundLogger,
        context_class=dict,
    )
    return cast(structlog.stdlib.BoundLogger, logger)


def _to_record(_: object, __: str, event: MutableMapping[str, Any]) -> tuple[tuple[str], dict[str, Any]]:
    """Return arguments for a standard logger: the event followed by its fields, and the fields as a dictionary."""
    text = str(event.pop("event"))
    exc_info = event.pop("exc_info", None)
    message = " ".join([text, *(f"{key}={value!r}" for key, value in event.items())])
    return (message,), {"exc_info": exc_info, "extra": {FIELDS: {"event": text, **event}}}
