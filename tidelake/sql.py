"""Queries over the tables of a catalog in DuckDB's SQL, for `tidelake sql`. Reading only.

A name in a query is a table: `shop.orders`, a system table (`shop.orders$snapshots`), a branch, or an earlier state:
`shop.orders@5` is snapshot 5, `shop.orders@'before-import'` a tag, `shop.orders@'2026-05-01T12:00:00'` a time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from importlib.util import find_spec
from typing import Any, Final

import pyarrow as pa

from tidelake.catalog import Catalog
from tidelake.errors import BadInput, TidelakeError, UnsupportedFeature
from tidelake.frames.duckdb import alike, duckdb_dataset, quoted, register
from tidelake.frames.readable import Readable
from tidelake.scan import Scan
from tidelake.storage.base.arguments import check_text

_BATCH_ROWS: Final = 65_536
_READS: Final = frozenset({"SELECT", "EXPLAIN", "PRAGMA", "SET", "VARIABLE_SET", "RELATION"})
_PIVOTS: Final = frozenset({"pivot", "pivot_wider", "select", "from", "with", "explain", "describe", "summarize"})
"""How a reading statement begins that DuckDB divides: a PIVOT without IN asks for the values first."""
_SETTINGS: Final = (
    "SET python_enable_replacements = false",  # otherwise a name of the query could be a Python variable
    "SET TimeZone = 'UTC'",
)
_QUOTED: Final = r'"(?:[^"]|"")+"'
_TOKENS: Final = re.compile(
    rf"""
      (?P<other>'(?:[^']|'')*' | --[^\n]* | /\*.*?\*/)
    | (?P<database>{_QUOTED}|[^\W\d]\w*) \. (?P<table>{_QUOTED}|[^\W\d]\w*)
      (?P<system>(?:\$\w+)+)?
      (?:@(?P<at>\d+|'(?:[^']|'')*'))?
    | (?P<quoted>{_QUOTED})
    | (?P<word>\w+)
    """,
    re.VERBOSE | re.DOTALL,
)
_AT: Final = re.compile(r"(?P<name>.*?)@(?:(?P<snapshot>\d+)|'(?P<text>.*)')", re.DOTALL)  # of a table in a query
_NAME: Final = re.compile(rf"(?P<first>{_QUOTED}|[^\s.\"]+)\.(?P<second>{_QUOTED}|[^\s.\"]+)(?P<third>\.)?")


def check_duckdb() -> None:
    """Raise UnsupportedFeature unless DuckDB is installed."""
    if find_spec("duckdb") is None:
        raise UnsupportedFeature(
            "SQL in the terminal", "it needs the package duckdb", "Install it: pip install 'tidelake[sql]'"
        )


@dataclass(frozen=True, slots=True)
class TableRead:
    """A read of one table by a query.

    text: says which rows and columns were read
    read: number of files that it reads, of `files`; None for a table without files
    """

    text: str
    read: int | None = None
    files: int | None = None


@dataclass
class Session:
    """A connection of DuckDB, which opens tables when a query names them first. Not thread-safe."""

    catalog: Catalog
    _reads: list[Readable] = field(default_factory=list)
    _plans_only: bool = False

    def __post_init__(self) -> None:
        check_duckdb()
        import duckdb

        self._connection = duckdb.connect(":memory:", config={"enable_external_access": "false"})
        for setting in _SETTINGS:
            self._connection.execute(setting)
        self._opened: list[tuple[str, str]] = []  # the views of the newest statement
        self._queried: set[str] = set()

    def close(self) -> None:
        self._connection.close()

    def statements(self, text: str) -> list[str]:
        """Return the statements of a text. Raises BadInput for one that is not SQL, or that would change something."""
        import duckdb

        check_text("the query", text)
        try:
            found = self._connection.extract_statements(_with_quoted_tables(text))
        except duckdb.Error as error:
            raise BadInput(f"the query can't be read: {error}") from None
        for statement in found:
            kind = str(statement.type).rpartition(".")[2]
            if kind not in _READS and not (kind == "MULTI" and _first_word(statement.query) in _PIVOTS):
                raise BadInput(
                    f"SQL in the terminal only reads, but this is {kind}: change tables with Python or the "
                    "commands for tables, and write results with --format and --output"
                )
        return [statement.query for statement in found]

    def run(self, statement: str) -> pa.RecordBatchReader | None:
        """Run one of the `statements`. Returns its rows as a stream; None if it has none. Raises BadInput."""
        import duckdb

        self._reads.clear()
        try:
            self._open_tables(statement)
            relation = self._connection.sql(statement)
            return None if relation is None else relation.to_arrow_reader(_BATCH_ROWS)
        except duckdb.InterruptException:
            raise KeyboardInterrupt from None
        except duckdb.Error as error:
            message, hint = _without_origin(str(error)), self._hint(str(error))
            if hint:  # DuckDB knows only the tables that were opened, and proposes its own
                message = re.sub(r'\nDid you mean ".*"\?', "", message)
            raise BadInput(message + hint) from None

    def explain(self, query: str) -> tuple[str, list[TableRead]]:
        """Return DuckDB's plan of a query, and what it reads of each table. Reads no rows."""
        plan = self.run(f"EXPLAIN {query}")
        text = "\n".join(str(row["explain_value"]) for batch in plan or () for row in batch.to_pylist())
        self._plans_only = True
        try:
            for _ in self.run(query) or ():
                pass
            return text, [_table_read(scan) for scan in self._reads]
        finally:
            self._plans_only = False

    def _hint(self, message: str) -> str:
        """Return which name a query should have used, if it names a table as DuckDB can't find it."""
        found = re.search(r"Table with name (.+?) does not exist", message)
        if found is None:
            return ""
        whole = [name for name in self.names() if found[1] in (name, name.partition(".")[2])]
        if whole:
            return f"\nA table has the name of its database before it: {', '.join(whole[:3])}"
        name, mark, _ = found[1].partition("$")
        if mark and name in self.names():
            return f"\nWrite the name without quotes around the whole: {found[1]}"
        return "\nWrite database.table; `\\d` in the shell lists the tables"

    def interrupt(self) -> None:
        self._connection.interrupt()

    # ------------------------------------------------------------ tables

    def _open_tables(self, statement: str) -> None:
        """Make views of the tables of a statement, and of no others."""
        for database, table in self._opened:  # DuckDB does not name tables that have a view, nor those alike
            self._connection.execute(f"DROP VIEW {quoted(database)}.{quoted(table)}")
        self._opened.clear()
        named = self._tables_of(statement)
        if same := alike(f"{database}.{table}" for database, table in named):
            raise BadInput(
                f"DuckDB does not tell upper from lower case, so one statement can't read both {same[0]} and {same[1]}"
            )
        for database, table in named:
            self._open(database, table)

    def _tables_of(self, statement: str) -> list[tuple[str, str]]:
        """Return the tables of a statement.

        DuckDB tells them without knowing any of their columns, so it fails if a name of a column must be resolved
        (USING, NATURAL JOIN, UNPIVOT), and for the several statements of a PIVOT. Then they are those whose names are
        in the text.
        """
        import duckdb

        try:
            named = self._connection.get_table_names(statement, qualified=True)
        except duckdb.Error:
            pairs = [(found["database"], found["table"]) for found in _TOKENS.finditer(statement) if found["table"]]
            read = [(_unquoted(database), _unquoted(table)) for database, table in pairs]
            known = set(self.names()) if read else set()
            return [pair for pair in dict.fromkeys(read) if ".".join(pair).partition("@")[0].partition("$")[0] in known]
        found_names = [found for name in named if (found := _NAME.match(name)) is not None and not found["third"]]
        tables = dict.fromkeys((_unquoted(found["first"]), _unquoted(found["second"])) for found in found_names)
        return [pair for pair in tables if pair[0] not in ("information_schema", "pg_catalog")]

    def _open(self, database: str, table: str) -> None:
        """Make a view of a table."""
        opened = _OpenedTable.of(self.catalog, database, table)
        schema = opened().schema
        try:
            dataset = duckdb_dataset(schema, opened, self._observe)
        except BadInput as error:
            raise BadInput(f"{database}.{table} can't be read by SQL: {error}") from None
        source = f"tidelake {database}.{table}"
        register(self._connection, source, dataset)
        path = f"{quoted(database)}.{quoted(table)}"
        self._connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(database)}")
        self._connection.execute(f"CREATE VIEW {path} AS SELECT * FROM temp.{quoted(source)}")
        self._opened.append((database, table))
        self._queried.add(f"{database}.{table}")

    def _observe(self, scan: Readable) -> Readable:
        self._reads.append(scan)
        return scan.limit(0) if self._plans_only else scan

    def names(self) -> Iterator[str]:
        """Yield the names of all tables."""
        for database in self.catalog.list_databases():
            for table in self.catalog.list_tables(database):
                yield f"{database}.{table}"


@dataclass(frozen=True, slots=True)
class _OpenedTable:
    catalog: Catalog
    name: str
    at: dict[str, Any]

    @classmethod
    def of(cls, catalog: Catalog, database: str, table: str) -> _OpenedTable:
        """Return a table by its name in a query, with the state after the @: a number, or a text in quotes."""
        found = _AT.fullmatch(table)
        full = f"{database}.{table if found is None else found['name']}"
        return cls(catalog, full, {} if found is None else _state(found, full, catalog))

    def __call__(self) -> Scan:
        return self.catalog.table(self.name).scan(**self.at)


def _state(found: re.Match[str], name: str, catalog: Catalog) -> dict[str, Any]:
    """Return what to read. A text in quotes is a tag if there is one, also if it is a number or a time."""
    text = found["text"]
    if text is None:
        return {"snapshot": int(found["snapshot"])}
    if text in catalog.table(name).tags():
        return {"tag": text}
    if text.isdecimal():
        return {"snapshot": int(text)}
    with suppress(ValueError):
        return {"as_of": datetime.fromisoformat(text)}
    raise BadInput(f"{name}@{text}: write a snapshot id, a tag of the table, or a time: {name}@'2026-05-01T12:00:00'")


def _table_read(scan: Readable) -> TableRead:
    if not isinstance(scan, Scan) or not scan.has_splits:
        return TableRead(repr(scan))
    files = scan.explain()
    return TableRead(repr(scan), sum(file.left_out is None for file in files), len(files))


# ---------------------------------------------------------------- texts


def _with_quoted_tables(text: str) -> str:
    """Quote the names of tables that SQL does not take: with a system table, a branch or a state."""

    def replaced(found: re.Match[str]) -> str:
        if found["table"] is None or (found["system"] is None and found["at"] is None):
            return found[0]
        table = _unquoted(found["table"]) + (found["system"] or "")
        if found["at"] is not None:
            table += "@" + found["at"].replace("''", "'")
        return f"{quoted(_unquoted(found['database']))}.{quoted(table)}"

    return _TOKENS.sub(replaced, text)


def _first_word(text: str) -> str:
    return next((found["word"].lower() for found in _TOKENS.finditer(text) if found["word"]), "")


def _unquoted(name: str) -> str:
    return name[1:-1].replace('""', '"') if name.startswith('"') else name


def _without_origin(message: str) -> str:
    """Return the message of DuckDB without where it came from in Python, and without tabs."""
    _, found, own = message.partition("BadInput: ")
    return (own if found else message).expandtabs(4).rstrip()


def words_of(session: Session, names: Sequence[str]) -> list[str]:
    """Return the words that complete a query: tables, and the columns of those that were opened."""
    words = list(names)
    for name in names:
        if name in session._queried:
            with suppress(TidelakeError):
                words += session.catalog.table(name).schema.names
    return words
