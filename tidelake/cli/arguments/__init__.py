"""The command line: nouns, verbs, options and their help.

It imports no slow module, as `tidelake --help` needs only this.

It uses argparse, which answers `--help` in 40 ms and starts a command as fast; typer takes 150 ms for either, cyclopts
150 and 80. Each option is a parameter of its command's function; a test checks that they agree.
"""

from __future__ import annotations

from tidelake.cli.arguments.parser import CatalogAddress, Invocation, build_parser, parse

__all__ = ["CatalogAddress", "Invocation", "build_parser", "parse"]
