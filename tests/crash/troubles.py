"""The faults of one call, and the calls in which they are injected."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tests.support.faulty_file_io import Call, Fault, FaultyFileIO


@dataclass(frozen=True)
class Trouble:
    """is_crash: and then the process is no more. landing: what is LATE happens so many calls later."""

    fault: Fault
    is_crash: bool = False
    landing: int = 0

    @property
    def kind(self) -> str:
        return f"{'crash' if self.is_crash else 'error'}, {self.fault.name.lower()}"

    @property
    def id(self) -> str:
        return f"{self.kind} by {self.landing} calls" if self.landing else self.kind

    @property
    def lands_after_death(self) -> bool:
        return self.fault is Fault.LATE and self.is_crash

    def is_possible(self, call: Call) -> bool:
        if self.fault is Fault.TORN:
            return call.name in ("open_output", "write")
        return self.fault is not Fault.LATE or call.name in ("open_output", "write", "create_if_absent", "delete")

    def await_in(self, io: FaultyFileIO, number: int) -> None:
        """It comes in the number-th call."""
        (io.crash_call if self.is_crash else io.fail_call)(number, self.fault)
        if self.landing and not self.is_crash:
            land_before(io, number + self.landing, io)

    def continue_in(self, io: FaultyFileIO, before: FaultyFileIO) -> None:
        """Requests in flight when the process of `before` died still arrive, while the process of `io` continues."""
        if self.lands_after_death:
            land_before(io, self.landing, before)


def land_before(io: FaultyFileIO, number: int, late: FaultyFileIO) -> None:
    """What is LATE in `late` happens before the number-th call of `io`."""
    fault: Callable[[Call], Fault | None] = io.fault

    def decide(call: Call) -> Fault | None:
        if len(io.calls) > number:
            late.land()
        return fault(call)

    io.fault = decide


ESSENTIAL: Final = (
    Trouble(Fault.BEFORE),
    Trouble(Fault.AFTER),
    Trouble(Fault.BEFORE, is_crash=True),
    Trouble(Fault.AFTER, is_crash=True),
)
OTHERS: Final = (
    Trouble(Fault.HANG),
    Trouble(Fault.TORN),
    Trouble(Fault.TORN, is_crash=True),
    *(Trouble(Fault.LATE, landing=landing) for landing in (1, 2, 4, 8, 16)),
    *(Trouble(Fault.LATE, is_crash=True, landing=landing) for landing in (1, 3, 6, 10, 15, 25, 40, 60)),
)


def every_point(calls: Sequence[Call]) -> Iterator[tuple[int, Trouble]]:
    """Each trouble with each call: hundreds of points for a life of a hundred calls."""
    for number, call in enumerate(calls):
        yield from ((number, trouble) for trouble in (*ESSENTIAL, *OTHERS) if trouble.is_possible(call))


def some_points(calls: Sequence[Call], start: int = 0) -> Iterator[tuple[int, Trouble]]:
    """Each call with one essential trouble, another than the call before; and one of the others where something is
    published. start: which trouble the first call gets.
    """
    turn = 0
    for number, call in enumerate(calls):
        yield number, ESSENTIAL[(start + number) % len(ESSENTIAL)]
        if call.name in ("create_if_absent", "write"):
            possible = [trouble for trouble in OTHERS if trouble.is_possible(call)]
            yield number, possible[(start + turn) % len(possible)]
            turn += 1
