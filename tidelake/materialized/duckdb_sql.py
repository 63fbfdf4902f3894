"""Queries run by DuckDB, in this process: tables come as streams of Arrow, and so do the rows.

A definition is text out of a lake: DuckDB gets the tables that it names and nothing else, no file and no network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from tempfile import TemporaryDirectory
from typing import Any, Final

import pyarrow as pa

from storage.errors import BadInput, TidelakeError, UnsupportedFeature

DIALECT: Final = "duckdb"
SOURCE: Final = "source"
_BATCH_ROWS: Final = 65_536
_SETTINGS: Final = (
    "SET python_enable_replacements = false",  # or a name of the query might be a variable of ours
    "SET TimeZone = 'UTC'",
    "SET preserve_insertion_order = false",
)

Stream = Callable[[], pa.RecordBatchReader]  # a new one at each call


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
    """Of a query over tables, by their names in the query; those without a database are of `database`.

    name: of the materialized table, for messages.
    Raises BadInput, with what DuckDB says.
    """
    import duckdb  # an extra of the package, and quite large

    failed: list[TidelakeError] = []
    with (
        TemporaryDirectory(prefix="tidelake-refresh-") as spill,  # else it would be made where the process runs
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
                raise failed[0] from None  # DuckDB passes on the text alone
            if isinstance(error, duckdb.Error) or "duckdb" in str(error).lower():
                raise BadInput(f"the query of {name} can't be run by DuckDB: {_first_lines(error)}") from None
            raise


def result_over(sql: str, rows: pa.RecordBatch, name: str) -> pa.RecordBatch:
    """Of a query over these rows, which it calls `source`."""
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
    """What DuckDB may read again and again: in a self-join, say."""

    def __init__(self, stream: Stream, failed: list[TidelakeError]) -> None:
        self._stream = stream
        self._failed = failed

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        reader = self._stream()
        kept = pa.RecordBatchReader.from_batches(reader.schema, self._noting(reader))
        return kept.__arrow_c_stream__(requested_schema)

    def _noting(self, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        try:
            yield from reader
        except TidelakeError as error:
            self._failed.append(error)
            raise


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _first_lines(error: Exception) -> str:
    return " ".join(line.strip() for line in str(error).splitlines()[:2] if line.strip())
