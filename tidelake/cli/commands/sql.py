"""`tidelake sql`: queries of tables, from the command line or in a shell."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidelake.cli.arguments import CatalogAddress, Commands, add_vertical, add_warehouse, command, names, positive
from tidelake.cli.exits import UsageError
from tidelake.cli.output import CommandOutput
from tidelake.errors import BadInput, TidelakeError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from tidelake.sql import Session

_FORMATS: Final = ("table", "json", "csv", "arrow", "parquet")
_HELP: Final = r"""
A query ends with a semicolon:  select status, count(*) from shop.orders group by 1;
  shop.orders@5                 snapshot 5; @'name': a tag, @'2026-05-01T12:00:00': a time
  shop.orders$snapshots         a system table
  explain select …;             the plan, and how many files of each table are read
\d                              tables
\d shop.orders                  the columns of a table
\x                              values on lines of their own, on or off
\q                              end (or Ctrl-D)
Ctrl-C stops a query, or drops what was typed. Tab completes tables, and columns of tables that were queried.
"""


def add_sql(nouns: Commands) -> None:
    parser = command(
        nouns,
        "sql",
        sql,
        "query tables with DuckDB, in one command or in a shell",
        "Tables are named database.table; shop.orders@5 is snapshot 5. Without a query it opens a shell, or reads\n"
        "statements from standard input. It only reads. Needs: pip install 'tidelake[sql]'",
        example='tidelake sql "select status, sum(amount) from shop.orders group by 1" -w lake',
    )
    parser.add_argument("query", nargs="?", metavar="QUERY", help="one or several statements; default: a shell")
    add_warehouse(parser)
    parser.add_argument(
        "--columns", type=names, metavar="COLUMNS", help="print only these of the result, separated by commas"
    )
    parser.add_argument("--limit", type=positive, metavar="N", help="default: 100 with --format table, otherwise all")
    parser.add_argument("--format", dest="row_format", choices=_FORMATS, help="default: table; json: one row per line")
    parser.add_argument("--output", metavar="FILE", help="write the rows of the last statement into this new file")
    add_vertical(parser)


def sql(
    out: CommandOutput,
    *,
    query: str | None,
    catalog: CatalogAddress,
    columns: Sequence[str] | None,
    limit: int | None,
    row_format: str | None,
    output: str | None,
    vertical: bool,
) -> None:
    from tidelake.sql import Session, check_duckdb

    check_duckdb()
    form = row_format or ("json" if out.is_json else _format_of(output) if output is not None else "table")
    if output is not None and form == "table":
        raise UsageError("--output writes json, csv, arrow or parquet: pass --format, or a file name that ends with it")
    shown = _Shown(out, form, columns, limit, vertical, output)
    with closing(Session(catalog.open())) as session:
        if query is not None:
            _run(session, query, shown)
            return
        if not sys.stdin.isatty():
            _Shell(session, shown).run_script(sys.stdin.read())
            return
        if output is not None:
            raise UsageError("--output needs a query")
        _Shell(session, shown).run()


def _format_of(output: str) -> str:
    ending = Path(output).suffix.lstrip(".").lower()
    return ending if ending in _FORMATS else "table"


@dataclass(frozen=True, slots=True)
class _Shown:
    """How the rows of a statement are printed."""

    out: CommandOutput
    form: str
    columns: Sequence[str] | None
    limit: int | None
    vertical: bool
    output: str | None = None

    def print(self, reader: pa.RecordBatchReader) -> None:
        from tidelake.cli.rendering.rows import print_rows

        schema, batches = reader.schema, iter(reader)
        if self.columns is not None:
            if missing := [name for name in self.columns if name not in schema.names]:
                raise BadInput(f"no column {missing[0]!r}; the result has {', '.join(schema.names)}")
            names = list(self.columns)
            schema = reader.schema.empty_table().select(names).schema
            batches = (batch.select(names) for batch in reader)
        if self.output is None:
            print_rows(self.out, schema, batches, self.form, self.limit, vertical=self.vertical)
            return
        with _new_file(self.output), _redirected(self.output):
            print_rows(self.out, schema, batches, self.form, self.limit)
        self.out.note(f"wrote {self.output}")


@contextmanager
def _new_file(path: str) -> Iterator[None]:
    """Remove the file if writing it fails. Raises BadInput if it exists."""
    if Path(path).exists():
        raise BadInput(f"--output {path}: the file exists; name a new one")
    try:
        yield
    except BaseException:
        Path(path).unlink(missing_ok=True)
        raise


@contextmanager
def _redirected(path: str) -> Iterator[None]:
    """Let standard output be this file."""
    previous = sys.stdout
    with open(path, "x", encoding="utf-8", newline="") as file:
        sys.stdout = file
        try:
            yield
            file.flush()
        finally:
            sys.stdout = previous


def _run(session: Session, text: str, shown: _Shown) -> None:
    """Run statements, and print their rows. Only the last one may go into a file."""
    statements = session.statements(text)
    if not statements:
        raise BadInput("there is no statement; write one, such as: select count(*) from shop.orders")
    for number, statement in enumerate(statements, 1):
        _run_one(session, statement, shown if number == len(statements) else replace(shown, output=None))


def _run_one(session: Session, statement: str, shown: _Shown) -> None:
    words = statement.split(None, 2)
    if words and words[0].lower() == "explain" and len(words) > 1 and words[1].lower() != "analyze":
        _explain(session, statement.split(None, 1)[1], shown)
        return
    reader = session.run(statement)
    if reader is not None:
        import pyarrow as pa

        try:
            shown.print(reader)
        except pa.ArrowException as error:
            raise BadInput(str(error)) from None


def _explain(session: Session, query: str, shown: _Shown) -> None:
    plan, reads = session.explain(query)
    if shown.out.is_json:
        shown.out.document(
            {"plan": plan, "reads": [{"scan": one.text, "files": one.files, "files_read": one.read} for one in reads]}
        )
        return
    shown.out.text(plan)
    for one in reads:
        shown.out.line(one.text)
        if one.files is not None and one.read is not None:
            shown.out.line(f"  reads {one.read} of {one.files} files, skips {one.files - one.read}")


# ---------------------------------------------------------------- shell


class _Shell:
    """Reads statements from a terminal, and runs them."""

    def __init__(self, session: Session, shown: _Shown) -> None:
        self._session = session
        self._shown = shown
        self._names: list[str] | None = None

    def run(self) -> None:
        self._shown.out.note("a query ends with a semicolon; \\? shows help, Ctrl-D ends")
        with _history(self._complete):
            while (text := self._read()) is not None:
                try:
                    if text.startswith("\\"):
                        if not self._do(text):
                            return
                    elif text.strip(" ;\n\t"):
                        with self._paged():
                            _run(self._session, text, self._shown)
                except (TidelakeError, UsageError, OSError) as error:  # OSError: a store that doesn't answer
                    self._shown.out.note(f"error: {error}")
                except KeyboardInterrupt:
                    self._shown.out.note("stopped")

    def run_script(self, text: str) -> None:
        """Run statements and commands from a pipe. The first error ends it."""
        lines = text.splitlines()
        parts = [(is_command, list(part)) for is_command, part in groupby(lines, lambda line: line.startswith("\\"))]
        if len(parts) < 2 and not (parts and parts[0][0]):
            _run(self._session, text, self._shown)
            return
        for number, (is_command, part) in enumerate(parts, 1):
            if is_command and not all(map(self._do, part)):
                return
            if not is_command and self._session.statements("\n".join(part)):
                shown = self._shown if number == len(parts) else replace(self._shown, output=None)
                _run(self._session, "\n".join(part), shown)

    def _read(self) -> str | None:
        """Return a command, or statements up to a semicolon; None at the end."""
        lines: list[str] = []
        while True:
            try:
                lines.append(input("tidelake> " if not lines else "      ..> "))
            except KeyboardInterrupt:
                sys.stdout.write("\n")
                lines = []
                continue
            except EOFError:
                sys.stdout.write("\n")
                return None
            text = "\n".join(lines)
            if text.startswith("\\") or text.rstrip().endswith(";") or not text.strip():
                return text.strip()

    def _do(self, text: str) -> bool:
        """Do a command. Returns False to end the shell."""
        name, _, argument = text.rstrip("; \t").partition(" ")
        match name:
            case "\\q":
                return False
            case "\\x":
                self._shown = replace(self._shown, vertical=not self._shown.vertical)
                self._shown.out.note(f"vertical is {'on' if self._shown.vertical else 'off'}")
            case "\\d" if argument.strip():
                table = self._session.catalog.table(argument.strip())
                for field in table.schema:
                    self._shown.out.line(f"{field.name}  {field.type}{'' if field.nullable else ' not null'}")
            case "\\d":
                self._names = None
                for one in self._table_names():
                    self._shown.out.line(one)
            case "\\?":
                self._shown.out.text(_HELP.strip())
            case _:
                raise BadInput(f"{name} is no command; \\? shows help")
        return True

    def _table_names(self) -> list[str]:
        if self._names is None:
            self._names = list(self._session.names())
        return self._names

    def _complete(self, text: str, state: int) -> str | None:
        from tidelake.sql import words_of

        with suppress(TidelakeError, OSError):
            words = dict.fromkeys(
                word for word in words_of(self._session, self._table_names()) if word.startswith(text)
            )
            return [*words, None][state] if state <= len(words) else None
        return None

    @contextmanager
    def _paged(self) -> Iterator[None]:
        """Show long results in a pager, if the terminal has one: PAGER, or less."""
        if self._shown.form != "table" or not sys.stdout.isatty():
            yield
            return
        os.environ.setdefault("LESS", "-RFX")  # colours; a result that fits is printed
        with self._shown.out.console.pager(styles=True):
            yield


@contextmanager
def _history(complete: object) -> Iterator[None]:
    """Read and write the history of the shell, and complete words with the tabulator."""
    try:
        import readline
    except ImportError:  # a Python without it: the shell works, without a history
        yield
        return
    folder = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "tidelake"
    file = folder / "sql_history"
    readline.set_completer(complete)  # type: ignore[arg-type]
    readline.set_completer_delims(" \t\n,()=<>;")
    readline.parse_and_bind("tab: complete")
    with suppress(OSError):
        readline.read_history_file(file)
    try:
        yield
    finally:
        with suppress(OSError):  # a home that can't be written: the session is over, and only its history is lost
            folder.mkdir(parents=True, exist_ok=True)
            readline.set_history_length(10_000)
            readline.write_history_file(file)
