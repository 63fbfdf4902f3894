"""How the site shows our docstrings: lines `name: text` about arguments become a list of arguments.

An extension of Griffe, which reads the code without importing it.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_NAMED = re.compile(r"^(\w+): (.*)$")


class ArgumentLines(griffe.Extension):
    """Turn the lines that begin with the name of an argument into the section that the site knows."""

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        if func.docstring is not None:
            func.docstring.value = with_section(func.docstring.value, {argument.name for argument in func.parameters})


def with_section(text: str, arguments: set[str]) -> str:
    """Return the docstring with a section of its arguments; the lines of one argument stay together."""
    lines: list[str] = []
    inside = False
    for line in text.splitlines():
        named = _NAMED.match(line)
        if named is not None and named[1] in arguments:
            if not inside:
                lines += ["", "Args:"]
            inside = True
            lines.append(f"    {line}")
        elif inside and line.startswith("    "):
            lines.append(f"    {line}")
        else:
            inside = False
            lines.append(line)
    return "\n".join(lines)
