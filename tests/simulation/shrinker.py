"""Makes a failing run smaller: fewer operations, fewer actors and faults, as long as it fails."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tests.simulation.lake import Outcome, simulate
from tests.simulation.options import ACTORS, FAULTS

_SWITCHES: Final = (*[name for name in ACTORS if name not in ("pipeline", "writer")], *FAULTS, "pipeline", "writer")


@dataclass(frozen=True)
class Smaller:
    """The smallest failing run that was found."""

    outcome: Outcome
    operations: int
    off: frozenset[str]

    def command(self, bug: str | None = None) -> str:
        return replay_command(self.outcome.seed, self.operations, self.off, bug)


def replay_command(seed: int, operations: int, off: frozenset[str], bug: str | None = None) -> str:
    switches = f" --off '{','.join(sorted(off))}'" if off else ""
    plant = f" --planted '{bug}'" if bug else ""
    return f"python -m tests.simulation --seed {seed} --operations {operations}{switches}{plant} --trace"


def shrunk(seed: int, operations: int, off: frozenset[str] = frozenset()) -> Smaller:
    """Return a smaller run of a failing seed.

    Another switch makes another history, so the failure of a smaller run may be another one, too. Its message says.
    """
    best = simulate(seed, operations, off)
    assert best.finding is not None, "the run is sound"
    operations = min(operations, best.operations)
    for name in _SWITCHES:
        if name not in off and (outcome := simulate(seed, operations, off | {name})).finding is not None:
            best, off, operations = outcome, off | {name}, min(operations, outcome.operations)
    while operations > 20 and (outcome := simulate(seed, operations // 2, off)).finding is not None:
        best, operations = outcome, operations // 2
    return Smaller(best, operations, off)
