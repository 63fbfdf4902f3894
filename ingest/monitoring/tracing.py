"""OpenTelemetry spans of checkpoints and commits. Without the OpenTelemetry package, nothing is traced.

The environment configures the exporter and other tracing (`opentelemetry-instrument`, `OTEL_…`).
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from importlib import import_module
from typing import Any, Final

SCOPE: Final = "tidelake"


def span(name: str, **attributes: str | int) -> AbstractContextManager[Any]:
    """Return a span around the block. It is the current span in the block, and records an exception of the block."""
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
