"""Tables in DuckDB: `tidelake.duckdb.attach(connection, "/data/lake")`, then `select … from shop.orders`.

Needs `tidelake[duckdb]`. For one table or one read, see `Scan.to_duckdb`.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from tidelake.catalog import Catalog, open_catalog
from tidelake.errors import BadInput, TidelakeError
from tidelake.frames.duckdb import duckdb_dataset, folded, quoted, register
from tidelake.frames.readable import Readable, check_installed
from tidelake.storage.base.arguments import checked_except

if TYPE_CHECKING:
    import duckdb

__all__ = ["attach"]


@checked_except("connection")
def attach(
    connection: duckdb.DuckDBPyConnection,
    warehouse: str | Catalog,
    *,
    name: str | None = None,
    databases: Sequence[str] | None = None,
    as_of: datetime | int | None = None,
    **options: str,
) -> list[str]:
    """Make each table of a warehouse a view of DuckDB, and return their names.

    A query reads only its columns, and only files and parts of files that may have matching rows, in bounded memory.
    The tables are read-only. Each query sees the newest snapshot of a table, and all its reads of this table the same
    one. Call it again for tables, columns and types that are newer than the call.

    warehouse: its path or URI, or a catalog
    name: of a new database in memory that gets the views: `lake` for `select … from lake.shop.orders`. None: the
        current database, which must be in memory, for `select … from shop.orders`
    databases: only these; None: all
    as_of: each read sees the last snapshot at this time; a datetime, or epoch milliseconds
    options: of the catalog and the store, as in `open_catalog`

    Warns of tables that can't be read, and leaves them out. Raises BadInput for a name that DuckDB already has.
    """
    check_installed("duckdb", "tidelake.duckdb.attach()")
    import duckdb

    if isinstance(warehouse, Catalog) and options:
        raise BadInput(f"attach(…, {next(iter(options))}=…): the catalog is open already; leave out its options")
    catalog = warehouse if isinstance(warehouse, Catalog) else open_catalog(warehouse, **options)
    own = _views_database(connection, name)
    made = []
    try:
        found = {
            database: catalog.list_tables(database)
            for database in (catalog.list_databases() if databases is None else databases)
        }
        names = Counter(folded(f"{database}.{table}") for database, tables in found.items() for table in tables)
        for database, tables in found.items():
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {_path(own, database)}")
            for table in tables:
                is_one = names[folded(f"{database}.{table}")] == 1
                if _attached(connection, own, _Newest(catalog, f"{database}.{table}", as_of), is_one):
                    made.append(".".join((*([name] if name else []), database, table)))
    except duckdb.CatalogException as error:
        raise BadInput(
            f"attach(): DuckDB can't make a view: {str(error).splitlines()[0]}. Attach the warehouse to a database of "
            'its own: name="lake"'
        ) from None
    return made


@dataclass(frozen=True, slots=True)
class _Newest:
    """Opens a table, and reads its newest snapshot, each time it is called."""

    catalog: Catalog
    table: str
    as_of: datetime | int | None

    def __call__(self) -> Readable:
        opened = self.catalog.table(self.table)
        return opened.scan() if self.as_of is None else opened.scan(as_of=self.as_of)


def _attached(connection: duckdb.DuckDBPyConnection, own: str, newest: _Newest, is_one: bool) -> bool:
    """Make the view of a table, unless it can't be read. is_one: whether DuckDB can tell it from all other tables."""
    try:
        if not is_one:
            raise BadInput(
                "DuckDB does not tell upper from lower case, so it can't tell this table from another one. "
                "Make views of such tables with scan().to_duckdb(NAME)"
            )
        dataset = duckdb_dataset(newest().schema, newest)
    except TidelakeError as error:
        warnings.warn(f"{newest.table} can't be read, and is no view of DuckDB: {error}", UserWarning, stacklevel=3)
        return False
    source = f"tidelake {own} {newest.table}"
    register(connection, source, dataset)
    database, _, table = newest.table.partition(".")
    connection.execute(f"CREATE OR REPLACE VIEW {_path(own, database, table)} AS SELECT * FROM temp.{quoted(source)}")
    return True


def _views_database(connection: duckdb.DuckDBPyConnection, name: str | None) -> str:
    """Return the database of DuckDB that gets the views.

    A view that is stored in a file would be there without its table when the file is opened again.
    """
    if name is not None:
        connection.execute(f"ATTACH IF NOT EXISTS ':memory:' AS {quoted(name)}")
    wanted = "current_database()" if name is None else "?"
    found = connection.execute(
        f"SELECT database_name, path FROM duckdb_databases() WHERE database_name = {wanted}", [name] if name else []
    ).fetchone()
    own, path = found if found is not None else (name, None)
    if path:
        raise BadInput(
            f"attach(): the database {own!r} of DuckDB is the file {path}, which would keep the views, but not their "
            'tables; pass name="lake", and query lake.DATABASE.TABLE'
        )
    return str(own)


def _path(*names: str) -> str:
    return ".".join(map(quoted, names))
