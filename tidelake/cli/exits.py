"""Exit codes, so that scripts don't have to read messages."""

from __future__ import annotations

from enum import IntEnum

from tidelake.errors import PositionRefused, ReloadRefused, TidelakeError, WriterFenced


class ExitCode(IntEnum):
    """Exit codes of the command line. Never renumber them. USAGE is argparse's exit code."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    REFUSED = 3  # needs a decision: continuing could lose data, for example; the message lists the options
    FENCED = 4  # a newer writer owns the pipeline: do not restart
    INTERRUPTED = 130  # cancelled before everything was done


class CommandRefused(TidelakeError):
    """The command would delete or risk data, and was not confirmed."""


class UsageError(TidelakeError):
    """Each argument is valid, but not all of them together."""


def exit_code(error: BaseException) -> ExitCode:
    """Return the exit code of an error that ends a command.

    Of several errors, the highest code counts: that of the error that a caller must not retry.
    """
    match error:
        case BaseExceptionGroup():
            return max(exit_code(inner) for inner in error.exceptions)
        case WriterFenced():
            return ExitCode.FENCED
        case PositionRefused() | CommandRefused() | ReloadRefused():
            return ExitCode.REFUSED
        case UsageError():
            return ExitCode.USAGE
        case _:
            return ExitCode.FAILED
