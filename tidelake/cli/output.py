"""Output of a command: data to standard output, everything else to standard error."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from tidelake.cli.formatting import printable

if TYPE_CHECKING:
    from rich.console import Console

_WIDTH_OF_NO_TERMINAL: Final = 400  # in a file or a pipe nothing has to be cut


class CommandOutput:
    """Output of a command.

    is_json: write only JSON to standard output, for programs
    logs_json: standard error is a log of JSON lines, so notes are events of the log
    """

    def __init__(self, *, is_json: bool, logs_json: bool = False) -> None:
        self.is_json = is_json
        self.logs_json = logs_json

    def document(self, value: Any) -> None:
        """Write the only JSON document of a command."""
        import msgspec

        self.bytes.write(msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")

    def lines(self, values: Iterable[Any]) -> None:
        """Write one JSON document per line, and flush each one."""
        import msgspec

        encode = msgspec.json.Encoder().encode
        for value in values:
            self.bytes.write(encode(value) + b"\n")
            self.bytes.flush()

    def result(self, document: Mapping[str, Any], text: str) -> None:
        """Report what a command found or did: a JSON document for programs, a line for people."""
        if self.is_json:
            self.document(dict(document))
        else:
            self.line(text)

    def done(self, document: Mapping[str, Any], note: str) -> None:
        """Report what a command without output did: a JSON document for programs, a note for people."""
        if self.is_json:
            self.document(dict(document))
        else:
            self.note(note)

    def line(self, text: str) -> None:
        """Write a line for people to standard output. Line breaks in it, as in a name, are escaped."""
        self.console.print(printable(text), soft_wrap=True)

    def text(self, text: str) -> None:
        """Write a line for people, or several, to standard output."""
        self.console.print(printable(text, may_break=True), soft_wrap=True)

    def note(self, text: str) -> None:
        """Write a note for people to standard error."""
        if self.logs_json:
            from tidelake.storage.base.log_output import log_always

            log_always(logging.INFO, text.strip())
        elif not self.is_json:
            sys.stderr.write(printable(text, may_break=True) + "\n")

    @property
    def bytes(self) -> BinaryIO:
        """Standard output in binary form, for programs."""
        return sys.stdout.buffer

    @cached_property
    def console(self) -> Console:
        """Standard output for people. Colours only on a terminal, and not with NO_COLOR."""
        return _console(is_error=False)

    @cached_property
    def error_console(self) -> Console:
        """Standard error for people: progress."""
        return _console(is_error=True)

    @property
    def width(self) -> int | None:
        """The width of the terminal in cells, which COLUMNS may override; None for a file or a pipe."""
        return self.console.width if sys.stdout.isatty() or "COLUMNS" in os.environ else None

    def close(self) -> None:
        """Flush the output. Raises OSError if that fails (a full disk), as the command has then failed, too."""
        sys.stdout.flush()


def _console(*, is_error: bool) -> Console:
    from rich.console import Console

    stream = sys.stderr if is_error else sys.stdout
    width = None if stream.isatty() or "COLUMNS" in os.environ else _WIDTH_OF_NO_TERMINAL
    return Console(stderr=is_error, width=width, highlight=False, soft_wrap=False, emoji=False, markup=False)
