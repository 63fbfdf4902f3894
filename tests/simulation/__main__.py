"""`python -m tests.simulation --seed 71 --operations 20000` runs a lake, and ends with one line about it.

`--seeds 1-500` runs many, and ends with what was covered. `--off expiry,late` switches actors and faults off.
`--planted NAME` plants a bug, `--shrink` looks for a smaller run that still fails.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence

from tests.simulation.lake import Outcome, explained, simulate
from tests.simulation.planted_bugs import PLANTED, planted
from tests.simulation.shrinker import replay_command, shrunk


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m tests.simulation", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, help="run this seed")
    parser.add_argument("--seeds", help="run these: 1-500")
    parser.add_argument("--operations", type=int, default=2_000, help="I/O calls and records; default: 2000")
    parser.add_argument("--off", default="", help="actors and faults that do not take part, with commas")
    parser.add_argument("--planted", choices=sorted(PLANTED), help="plant this bug first")
    parser.add_argument("--shrink", action="store_true", help="look for fewer operations and fewer actors that fail")
    parser.add_argument("--trace", action="store_true", help="print the last steps, and the error")
    given = parser.parse_args(arguments)
    off = frozenset(name for name in given.off.split(",") if name)
    first, _, last = (given.seeds or f"{given.seed or 1}").partition("-")
    failed, operations, began = 0, 0, time.monotonic()
    covered, pairs = Counter[str](), Counter[str]()
    with planted(given.planted):
        for seed in range(int(first), int(last or first) + 1):
            outcome = simulate(seed, given.operations, off)
            operations += outcome.operations
            covered.update(outcome.covered)
            pairs.update(outcome.pairs)
            print(outcome, flush=True)
            if outcome.finding is None:
                continue
            failed += 1
            command = replay_command(seed, given.operations, off, given.planted)
            if given.shrink:
                smaller = shrunk(seed, given.operations, off)
                outcome, command = smaller.outcome, smaller.command(given.planted)
            if given.trace:
                print(explained(outcome))
            print(f"  replay: {command}", flush=True)
    if given.seeds:
        _print_coverage(covered, pairs, operations, time.monotonic() - began)
    return 1 if failed else 0


def _print_coverage(covered: Counter[str], pairs: Counter[str], operations: int, took_s: float) -> None:
    print(f"{operations:,} operations in {took_s:,.0f} s")
    once = [pair for pair, times in pairs.items() if times == 1]
    print(f"{len(pairs):,} pairs of an option with an actor or a fault, {len(once):,} of them once")
    for what, times in sorted(covered.items()):
        print(f"  {times:>7,}  {what}")


__all__ = ["Outcome", "main"]

if __name__ == "__main__":
    sys.exit(main())
