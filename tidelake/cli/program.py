"""Runs one command, and returns an exit code and a message."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from tidelake.cli.exits import ExitCode, exit_code
from tidelake.cli.formatting import printable
from tidelake.cli.output import CommandOutput
from tidelake.cli.parser import parse

_BUG: Final = "This is a bug in tidelake. Please report it with the lines above."


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program. Returns the exit code; usage errors exit.

    arguments: without the program's name; None: those of the process
    """
    invocation = parse(arguments)
    logs_json = invocation.log_format == "json"
    out = CommandOutput(is_json=invocation.is_json, logs_json=logs_json)
    try:
        from tidelake.storage.base.log_output import LogFormat, set_up_logging

        set_up_logging(invocation.log_level, LogFormat(invocation.log_format))
        if invocation.is_service:
            from tidelake.ingest.allocators import use_service_allocators

            use_service_allocators()
        with _progress(out, is_service=invocation.is_service):
            code = invocation.command(out, **invocation.options)
        out.close()
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except BrokenPipeError:  # `tidelake table scan … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.FAILED
    except Exception as error:
        report = _log_error if logs_json else _print_error
        report(error, invocation.is_json, with_traceback=invocation.is_debug)
        return exit_code(error)
    return ExitCode.DONE if code is None else code


@contextmanager
def _progress(out: CommandOutput, *, is_service: bool) -> Iterator[None]:
    """Show how far long work of the command has got, on a terminal."""
    if is_service or out.logs_json or not sys.stderr.isatty():
        yield
        return
    from tidelake.cli.rendering.progress import TerminalProgress
    from tidelake.storage.base.progress import shown_on

    display = TerminalProgress(lambda: out.error_console)
    try:
        with shown_on(display):
            yield
    finally:
        display.close()


def _print_error(error: Exception, is_json: bool, *, with_traceback: bool) -> None:
    is_expected = all(map(_is_expected, _single_errors(error)))
    if with_traceback or not is_expected:
        import traceback

        sys.stderr.write("".join(traceback.format_exception(error)))
    if not is_expected:
        sys.stderr.write(f"\n{_BUG}\n")
    for one in _single_errors(error):
        if is_json:
            sys.stderr.write(json.dumps(_members(one), ensure_ascii=False) + "\n")
        elif _is_expected(one):
            sys.stderr.write(printable(f"{_label(one)}: {one}\n{_help_line(one)}", may_break=True))


def _log_error(error: Exception, _: bool, *, with_traceback: bool) -> None:
    """Log each error as one event, with its traceback if it was not expected."""
    import logging
    import traceback

    from tidelake.storage.base.log_output import log_always

    for one in _single_errors(error):
        members = _members(one)
        if with_traceback or not _is_expected(one):
            members["exception"] = "".join(traceback.format_exception(one))
        if not _is_expected(one):
            members["remedy"] = "This is a bug in tidelake. Please report it with this event"
        log_always(logging.ERROR, "the command failed", **members)


def _members(error: BaseException) -> dict[str, Any]:
    from tidelake.cli.pages import PAGE_OF_ERROR

    code = type(error).__name__
    members = {"error": code, "message": str(error), "exit_code": int(exit_code(error))}
    return {**members, "help": f"tidelake help {code}"} if code in PAGE_OF_ERROR else members


def _is_expected(error: BaseException) -> bool:
    """Return whether an error was raised on purpose, or by the operating system about files or networks."""
    from tidelake.errors import TidelakeError

    return isinstance(error, TidelakeError | OSError)


def _help_line(error: BaseException) -> str:
    """Return a line that names the page of an error; nothing for errors whose message says all."""
    from tidelake.cli.pages import PAGE_OF_ERROR

    code = type(error).__name__
    return f"More: tidelake help {code}\n" if code in PAGE_OF_ERROR else ""


def _label(error: BaseException) -> str:
    labels = {ExitCode.REFUSED: "refused", ExitCode.FENCED: "fenced", ExitCode.USAGE: "usage"}
    return labels.get(exit_code(error), "error")


def _single_errors(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _single_errors(inner)
    else:
        yield error
