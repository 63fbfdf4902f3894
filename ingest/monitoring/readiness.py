"""Whether a pipeline is ready, and the reasons if it is not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tidelake.ingest.monitoring.observations import RunObservations

STALL_INTERVALS: Final = 2  # checkpoint intervals without a commit while records wait for one
_ACTIVITIES_SHOWN: Final = 3
_TABLES_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class NotReady:
    """A reason why a pipeline is not ready.

    code: a stable code for programs.
    reason: a text for people.
    tables: the affected tables; empty if the reason affects the whole pipeline.
    """

    code: str
    reason: str
    tables: tuple[str, ...] = ()


def not_ready(observed: RunObservations) -> list[NotReady]:
    """Return the reasons why the pipeline isn't ready; an empty list if it is ready."""
    if observed.refusal is not None:
        return [NotReady("refused", observed.refusal)]
    reasons = []
    if observed.state not in ("RUNNING", "STOPPING"):
        reasons.append(NotReady("not_running", f"the pipeline is {observed.state.lower().replace('_', ' ')}"))
    if (stall := _stall_reason(observed)) is not None:
        reasons.append(stall)
    if (timeout := _source_timeout(observed)) is not None and not reasons:
        reasons.append(timeout)
    problems = observed.problems()
    for table, reason in sorted(problems.items())[:_TABLES_SHOWN]:
        reasons.append(NotReady("table_held_back", f"{table}: {reason}", (table,)))
    if len(problems) > _TABLES_SHOWN:
        left = sorted(problems)[_TABLES_SHOWN:]
        reasons.append(NotReady("table_held_back", f"{len(left)} more tables are held back", tuple(left)))
    return reasons


def _limit_ms(observed: RunObservations) -> int:
    return max(STALL_INTERVALS * observed.interval_ms, observed.stall_tolerance_ms)


def _source_timeout(observed: RunObservations) -> NotReady | None:
    """Return a reason if the source has not answered for longer than STALL_INTERVALS, so that its lag is unknown."""
    since_ms = observed.source_problem_since_ms
    if since_ms is None:
        return None
    unanswered_ms = observed.clock.now_ms() - since_ms
    if unanswered_ms <= _limit_ms(observed):
        return None
    return NotReady(
        "source_unreachable",
        f"the source has not answered for {unanswered_ms / 1000:,.1f} s: {observed.source_problem}",
    )


def _stall_reason(observed: RunObservations) -> NotReady | None:
    """Return a reason if records have waited for a commit for longer than STALL_INTERVALS."""
    since_ms = observed.waiting_since_ms
    if since_ms is None:
        return None
    waited_ms = observed.clock.now_ms() - since_ms
    limit_ms = _limit_ms(observed)
    if waited_ms <= limit_ms:
        return None
    committing = tuple(sorted(name for name, t in list(observed.tables.items()) if t.committing_since_ms is not None))
    doing = [f"{name} for {ms / 1000:,.1f} s" for name, ms in observed.activities()[:_ACTIVITIES_SHOWN]]
    parts = [f"nothing was committed for {waited_ms / 1000:,.1f} s, and the limit is {limit_ms / 1000:g} s"]
    if committing:
        parts.append(f"commits under way: {', '.join(committing[:_TABLES_SHOWN])}")
    if doing:
        parts.append(f"now: {', '.join(doing)}")
    if observed.source_problem is not None:
        parts.append(f"state of the source: {observed.source_problem}")
    return NotReady("commits_stalled", "; ".join(parts), committing)
