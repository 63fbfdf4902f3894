"""Runs checks side by side, each with a time limit. A check that fails or gives no answer never hides the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from tidelake.errors import AccessDenied, BadInput, PositionRefused, TidelakeError
from tidelake.storage.base import env


class Status(StrEnum):
    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found.

    remedy: what to do about it; empty for OK
    """

    status: Status
    found: str
    remedy: str = ""


Findings: TypeAlias = Sequence[Finding]


@dataclass(frozen=True, slots=True)
class Check:
    """One check.

    limit_s: seconds until the check counts as failed
    look: returns the findings. It blocks, changes nothing, and may raise any error
    remedy: for an error that doesn't name its own
    """

    name: str
    look: Callable[[], Findings]
    limit_s: float
    remedy: str


@dataclass(slots=True)
class CheckResult:
    """The findings of a check, at least one.

    is_abandoned: the time limit was over, so its thread still runs
    """

    name: str
    findings: list[Finding] = field(default_factory=list)
    is_abandoned: bool = False


def ok(found: str) -> Finding:
    return Finding(Status.OK, found)


def warning(found: str, remedy: str) -> Finding:
    return Finding(Status.WARNING, found, remedy)


def failed(found: str, remedy: str) -> Finding:
    return Finding(Status.FAILED, found, remedy)


def run_checks(checks: Iterable[Check]) -> list[CheckResult]:
    """Run all checks at once, and return their results in the same order. Takes at most the longest time limit.

    Each check has its own daemon thread: a pool would let a check that hangs delay the others, and the process's end.
    """
    begun_s = env.monotonic_s()
    running = [(check, *_start(check)) for check in checks]
    results = []
    for check, thread, found in running:
        thread.join(max(0.0, begun_s + check.limit_s - env.monotonic_s()))
        result = CheckResult(check.name, list(found))
        if not result.findings:
            result.is_abandoned = True
            result.findings = [failed(f"no answer within {check.limit_s:g} s", check.remedy)]
        results.append(result)
    return results


def _start(check: Check) -> tuple[env.Thread, list[Finding]]:
    found: list[Finding] = []

    def look() -> None:
        try:
            findings = list(check.look())
        except Exception as error:
            findings = [failed(_reason(error), _remedy(error, check.remedy))]
        found.extend(findings)  # at once: the reader may look at any time

    thread = env.Thread(target=look, name=f"doctor: {check.name}", daemon=True)
    thread.start()
    return thread, found


def counted(number: int, one: str, several: str = "") -> str:
    """Return `1 table`, `2 tables`.

    several: the plural, if it has another ending than -s
    """
    return f"{number:,} {one if number == 1 else several or one + 's'}"


def _reason(error: BaseException) -> str:
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(_reason(inner) for inner in error.exceptions)
    if isinstance(error, PositionRefused):
        return error.found
    return str(error) if isinstance(error, TidelakeError | OSError) else f"{type(error).__name__}: {error}"


def _remedy(error: BaseException, otherwise: str) -> str:
    """Return what to do. Most of our messages end with their own remedy."""
    if isinstance(error, PositionRefused):
        return "choose one of these\n" + "\n".join(error.ways_out)
    return "Follow the message" if isinstance(error, BadInput | AccessDenied) else otherwise
