"""`tidelake completion`: prints a script that lets a shell complete commands and options."""

from __future__ import annotations

from tidelake.cli.arguments import build_parser
from tidelake.cli.output import CommandOutput


def completion(out: CommandOutput, *, shell: str) -> None:
    import shtab

    script: str = shtab.complete(build_parser(), shell)
    if out.is_json:
        out.document({"shell": shell, "script": script})
    else:
        out.bytes.write(script.encode() + b"\n")
