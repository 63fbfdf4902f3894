"""Spans of checkpoints and commits for OpenTelemetry, where its package is installed; else nothing.

Which exporter takes them, and what else is traced, is the environment's affair (`opentelemetry-instrument`, `OTEL_…`).
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from importlib import import_module
from typing import Any, Final

SCOPE: Final = "tidelake"


def span(name: str, **attributes: str | int) -> AbstractContextManager[Any]:
    """A span around the block, the current one in it; an exception that leaves the block is recorded."""
    tracer = cached_tracer()
    if tracer is None:
        return nullcontext()
    named = {f"{SCOPE}.{key}": value for key, value in attributes.items()}
    found: AbstractContextManager[Any] = tracer.start_as_current_span(f"{SCOPE}.{name}", attributes=named)
    return found


@cache
def cached_tracer() -> Any:
    try:
        trace = import_module("opentelemetry.trace")
    except ImportError:
        return None
    return trace.get_tracer(SCOPE)
