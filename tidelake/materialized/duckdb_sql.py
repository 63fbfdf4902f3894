"""Runs queries with DuckDB in this process. Tables and results are Arrow streams.

A definition is untrusted text from a lake: DuckDB gets only the tables that it names, and no access to files or the
network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from tempfile import TemporaryDirectory
from typing import Any, Final

import pyarrow as pa

from tidelake.errors import BadInput, TidelakeError, UnsupportedFeature
from tidelake.frames.duckdb import quoted

DIALECT: Final = "duckdb"
SOURCE: Final = "source"
_BATCH_ROWS: Final = 65_536
_SETTINGS: Final = (
    "SET python_enable_replacements = false",  # otherwise a name of the query could be a Python variable
    "SET TimeZone = 'UTC'",
    "SET preserve_insertion_order = false",
)

Stream = Callable[[], pa.RecordBatchReader]  # returns a new reader at each call


def check_installed(table: str) -> None:
    if find_spec("duckdb") is None:
        raise UnsupportedFeature(
            f"a refresh of {table} in this process",
            "it needs the package duckdb",
            "Install it: pip install 'tidelake[sql]'. Or refresh on Spark: tidelake spark call "
            "refresh_materialized_table -w WAREHOUSE",
        )


@contextmanager
def result_of(query: str, tables: Mapping[str, Stream], database: str, name: str) -> Iterator[pa.RecordBatchReader]:
    """Return the result of a query over tables.

    tables: by their names in the query
    database: the database of tables that are named without one
    name: of the materialized table, for messages

    Raises BadInput with DuckDB's message.
    """
    import duckdb  # an optional dependency, and large

    failed: list[TidelakeError] = []
    with (
        TemporaryDirectory(prefix="tidelake-refresh-") as spill,  # by default it would be in the current directory
        duckdb.connect(":memory:", config={"enable_external_access": "false", "temp_directory": spill}) as connection,
    ):
        try:
            for setting in _SETTINGS:
                connection.execute(setting)
            _register(connection, tables, database, failed)
            connection.execute("SET lock_configuration = true")
            yield connection.sql(query).to_arrow_reader(_BATCH_ROWS)
        except (duckdb.Error, pa.ArrowException) as error:
            if failed:
                raise failed[0] from None  # DuckDB returns only the text of an error
            if isinstance(error, duckdb.Error) or "duckdb" in str(error).lower():
                raise BadInput(f"the query of {name} can't be run by DuckDB: {_first_lines(error)}") from None
            raise


def result_over(sql: str, rows: pa.RecordBatch, name: str) -> pa.RecordBatch:
    """Return the result of a query over these rows, which it names `source`."""
    table = pa.Table.from_batches([rows])
    with result_of(sql, {SOURCE: table.to_reader}, "main", name) as found:
        schema = found.schema
        return pa.concat_batches(list(found) or [pa.RecordBatch.from_pylist([], schema)])


def _register(connection: Any, tables: Mapping[str, Stream], database: str, failed: list[TidelakeError]) -> None:
    databases = {name.partition(".")[0] for name in tables if "." in name} | {database}
    for one in sorted(databases - {"main"}):
        connection.execute(f"CREATE SCHEMA {quoted(one)}")
    connection.execute(f"USE memory.{quoted(database)}")
    for number, (name, stream) in enumerate(tables.items()):
        connection.register(f"__stream_{number}", _Source(stream, failed))
        path = ".".join(quoted(part) for part in (name.split(".") if "." in name else (database, name)))
        connection.execute(f"CREATE VIEW {path} AS SELECT * FROM temp.__stream_{number}")


class _Source:
    """A table that DuckDB may read several times, for example in a self-join."""

    def __init__(self, stream: Stream, failed: list[TidelakeError]) -> None:
        self._stream = stream
        self._failed = failed

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        reader = self._stream()
        kept = pa.RecordBatchReader.from_batches(reader.schema, self._collect_errors(reader))
        return kept.__arrow_c_stream__(requested_schema)

    def _collect_errors(self, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        try:
            yield from reader
        except TidelakeError as error:
            self._failed.append(error)
            raise


def _first_lines(error: Exception) -> str:
    return " ".join(line.strip() for line in str(error).splitlines()[:2] if line.strip())
