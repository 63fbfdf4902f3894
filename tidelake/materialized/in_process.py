"""Refreshes with DuckDB in this process: those of `Catalog.refresh_table`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from tidelake.errors import BadInput
from tidelake.frames.duckdb import quoted
from tidelake.materialized.changed_rows import has_key_of
from tidelake.materialized.duckdb_sql import DIALECT, SOURCE, Stream, check_installed, result_of, result_over
from tidelake.materialized.plain_query import PlainQuery, columns_of
from tidelake.materialized.query_engine import FullRefresh, QueriedTable, check_columns
from tidelake.materialized.refresh import Refresh
from tidelake.materialized.refresh_result import Refreshed
from tidelake.materialized.source_state import REFRESH_USER
from tidelake.scan import Scan
from tidelake.table import Table
from tidelake.writer import Writer

_ALL_ROWS = {"dynamic-partition-overwrite": "false"}


def refresh_in_process(
    open_table: Callable[[str], Table],
    name: str,
    full: bool,
    when_due: bool,
    dialect: str | None,
    sources: Mapping[str, str],
) -> Refreshed:
    """See `Catalog.refresh_table`.

    open_table: opens a table by its full name.
    """
    if dialect not in (None, DIALECT):
        raise BadInput(
            f"dialect={dialect!r}: expected {DIALECT!r}, or nothing for a query that means the same in every dialect. "
            "Refresh a query in Spark's SQL on Spark: tidelake spark call refresh_materialized_table -w WAREHOUSE"
        )
    target = open_table(name)
    database = target.name.partition(".")[0]

    def find(name: str) -> Table:
        found = sources.get(name, name)
        return open_table(found if "." in found else f"{database}.{found}")

    check_installed(target.name)
    return Refresh(target, find, InProcess(target.name), dialect == DIALECT).run(full=full, when_due=when_due)


@dataclass(frozen=True, slots=True)
class InProcess:
    """Runs a refresh's query with DuckDB.

    table: the table to refresh, for messages.
    """

    table: str
    dialect: str = DIALECT

    def evaluate_over(self, query: PlainQuery, rows: pa.RecordBatch) -> pa.RecordBatch:
        return result_over(query.sql(DIALECT, SOURCE), rows, self.table)

    def replace_all(self, request: FullRefresh) -> int | None:
        target, plain = request.target, request.plain
        query = request.query if plain is None else plain.sql(DIALECT, plain.table)
        streams = {name: _stream(source, request) for name, source in request.sources.items()}
        database = target.name.partition(".")[0]
        if target.primary_key and not _has_unique_keys(request):
            self._check_keys(query, streams, request)
        with result_of(query, streams, database, target.name) as rows:
            check_columns(target, rows.schema.names)
            with Writer(target.context.with_options(_ALL_ROWS), REFRESH_USER, overwrite=True) as writer:
                for batch in rows:
                    writer.write(batch)
                return writer.commit(request.number, properties=request.properties)

    def _check_keys(self, query: str, streams: Mapping[str, Stream], request: FullRefresh) -> None:
        """Raise BadInput if a key has several rows: the row that stays would be random."""
        target = request.target
        keys = ", ".join(quoted(name) for name in target.primary_key)
        twice = f"SELECT {keys} FROM (\n{query.rstrip().rstrip(';')}\n) GROUP BY {keys} HAVING COUNT(*) > 1 LIMIT 1"
        with result_of(twice, streams, target.name.partition(".")[0], target.name) as found:
            for row in found.read_all().to_pylist():
                key = ", ".join(f"{name} = {value!r}" for name, value in row.items())
                raise BadInput(
                    f"the query of {target.name} gives several rows with the key {key}. Group by "
                    f"{', '.join(target.primary_key)}, or give the table a primary key that is unique in the query's "
                    "rows"
                )


def _has_unique_keys(request: FullRefresh) -> bool:
    if request.plain is None:
        return False
    return has_key_of(request.plain, request.sources[request.plain.table].context, request.target.context)


def _stream(source: QueriedTable, request: FullRefresh) -> Callable[[], pa.RecordBatchReader]:
    """Return a stream of only the columns that the query names, and the rows that its condition may select."""
    names = source.table.schema.names
    wanted = columns_of(request.query, DIALECT) if request.plain is None else set(request.plain.columns())
    columns = names if wanted is None else [name for name in names if name in wanted or name.lower() in wanted]
    condition = None if request.plain is None else request.plain.condition(source.table.schema)
    return partial(_reader, source, columns or names[:1], condition)


def _reader(source: QueriedTable, columns: list[str], condition: object) -> pa.RecordBatchReader:
    if source.snapshot is None:
        scan = source.table.scan(columns=columns, filter=condition)
    else:
        scan = Scan(source.context, source.snapshot, tuple(columns), None)
        scan = scan if condition is None else scan.where(condition)
    return pa.RecordBatchReader.from_batches(scan.schema, scan.to_batches())
