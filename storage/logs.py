"""Loggers of events with fields, on top of the standard library's `logging`.

    log = get_logger(__name__)
    log.warning("option unknown", option=key)

They end in the standard library's `logging`, wherever the program sends it, and not, as structlog's would, on standard
output, where data belongs. A program that set nothing up sees warnings on standard error.
"""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from typing import Any, Final, cast

import structlog

FIELDS: Final = "event_fields"  # attribute of a log record: its fields, for handlers that keep them apart


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
    """Arguments for the standard library's logger: the event with its fields behind it, and the fields on their own."""
    text = str(event.pop("event"))
    exc_info = event.pop("exc_info", None)
    said = " ".join([text, *(f"{key}={value!r}" for key, value in event.items())])
    return (said,), {"exc_info": exc_info, "extra": {FIELDS: {"event": text, **event}}}
