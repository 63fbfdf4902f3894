"""What a command says, and where: data to standard output, everything else to standard error."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from tidelake.cli.formatting import printable

if TYPE_CHECKING:
    from rich.console import Console

_WIDTH_OF_NO_TERMINAL: Final = 400  # in a file or a pipe nothing need be cut


class CommandOutput:
    """is_json: whether programs read standard output; then it holds JSON and nothing else."""

    def __init__(self, *, is_json: bool) -> None:
        self.is_json = is_json

    def document(self, value: Any) -> None:
        """The one JSON document of a command."""
        import msgspec

        self.bytes.write(msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")

    def lines(self, values: Iterable[Any]) -> None:
        """One JSON document a line, each written out at once."""
        import msgspec

        encode = msgspec.json.Encoder().encode
        for value in values:
            self.bytes.write(encode(value) + b"\n")
            self.bytes.flush()

    def note(self, text: str) -> None:
        """For people only, beside the data."""
        if not self.is_json:
            sys.stderr.write(printable(text, may_break=True) + "\n")

    @property
    def bytes(self) -> BinaryIO:
        """Standard output for programs."""
        return sys.stdout.buffer

    @cached_property
    def console(self) -> Console:
        """Standard output for people. Colours only on a terminal, and not with NO_COLOR."""
        return _console(is_error=False)

    @cached_property
    def error_console(self) -> Console:
        """Standard error for people: progress."""
        return _console(is_error=True)

    def close(self) -> None:
        """Raises OSError when what was written can't be delivered (a full disk): that is a failure, too."""
        sys.stdout.flush()


def _console(*, is_error: bool) -> Console:
    from rich.console import Console

    stream = sys.stderr if is_error else sys.stdout
    width = None if stream.isatty() or "COLUMNS" in os.environ else _WIDTH_OF_NO_TERMINAL
    return Console(stderr=is_error, width=width, highlight=False, soft_wrap=False, emoji=False, markup=False)
