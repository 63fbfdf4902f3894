"""Runs one command, and returns an exit code and a message.

`tidelake completion`: prints a script that lets a shell complete commands and options.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from tidelake.cli.arguments import build_parser, parse
from tidelake.cli.exits import ExitCode, exit_code
from tidelake.cli.formatting import printable
from tidelake.cli.output import CommandOutput

PIPELINES: Final = frozenset(
    f"tidelake.cli.commands.{command}"
    for command in ("ingest:run", "sync_table:sync_table", "sync_table:sync_database")
)
"""Commands that run as a service: until they are stopped, and as the only one in their process."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program. Returns the exit code; usage errors exit.

    arguments: without the program's name; None: those of the process
    """
    invocation = parse(arguments)
    out = CommandOutput(is_json=invocation.is_json)
    try:
        from tidelake.log_output import LogFormat, set_up_logging

        set_up_logging(invocation.log_level, LogFormat(invocation.log_format))
        if invocation.command in PIPELINES:
            from tidelake.ingest.allocators import use_service_allocators

            use_service_allocators()
        code = _command(invocation.command)(out, **invocation.options)
        out.close()
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except BrokenPipeError:  # `tidelake table scan … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.FAILED
    except Exception as error:
        _report_error(error, invocation.is_json, with_traceback=invocation.is_debug)
        return exit_code(error)
    return ExitCode.DONE if code is None else code


def _command(path: str) -> Callable[..., ExitCode | None]:
    """Import a command's function, only when it runs: `--help` does not wait for the import.

    path: `tidelake.cli.commands.table:show`
    """
    module, _, name = path.partition(":")
    command: Callable[..., ExitCode | None] = getattr(importlib.import_module(module), name)
    return command


def _report_error(error: Exception, is_json: bool, *, with_traceback: bool) -> None:
    is_expected = all(map(_is_expected, _single_errors(error)))
    if with_traceback or not is_expected:
        import traceback

        sys.stderr.write("".join(traceback.format_exception(error)))
    if not is_expected:
        sys.stderr.write("\nThis is a bug in tidelake. Please report it with the lines above.\n")
    for one in _single_errors(error):
        if is_json:
            error_members = {"error": type(one).__name__, "message": str(one), "exit_code": int(exit_code(one))}
            sys.stderr.write(json.dumps(error_members, ensure_ascii=False) + "\n")
        elif _is_expected(one):
            sys.stderr.write(printable(f"{_label(one)}: {one}\n", may_break=True))


def _is_expected(error: BaseException) -> bool:
    """Return whether an error was raised on purpose, or by the operating system about files or networks."""
    from tidelake.storage.base.errors import TidelakeError

    return isinstance(error, TidelakeError | OSError)


def _label(error: BaseException) -> str:
    labels = {ExitCode.REFUSED: "refused", ExitCode.FENCED: "fenced", ExitCode.USAGE: "usage"}
    return labels.get(exit_code(error), "error")


def _single_errors(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _single_errors(inner)
    else:
        yield error


def completion(out: CommandOutput, *, shell: str) -> None:
    import shtab

    script: str = shtab.complete(build_parser(), shell)
    if out.is_json:
        out.document({"shell": shell, "script": script})
    else:
        out.bytes.write(script.encode() + b"\n")
