"""What the exit code says, so that scripts need not read messages."""

from __future__ import annotations

from enum import IntEnum

from storage.errors import PositionRefused, TidelakeError, WriterFenced


class ExitCode(IntEnum):
    """The command line's promise: never renumber. USAGE is what argparse exits with."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    REFUSED = 3  # going on would risk data; the message names the options
    FENCED = 4  # a newer writer owns the pipeline: don't restart
    INTERRUPTED = 130  # cancelled before all was done


class CommandRefused(TidelakeError):
    """The command would destroy or risk data, and was not confirmed."""


class UsageError(TidelakeError):
    """Arguments that parse one by one and make no sense together."""


def exit_code(error: BaseException) -> ExitCode:
    """Of an error that ends a command. Of several at once, the one that a caller must not retry decides."""
    match error:
        case BaseExceptionGroup():
            return max(exit_code(inner) for inner in error.exceptions)
        case WriterFenced():
            return ExitCode.FENCED
        case PositionRefused() | CommandRefused():
            return ExitCode.REFUSED
        case UsageError():
            return ExitCode.USAGE
        case _:
            return ExitCode.FAILED
