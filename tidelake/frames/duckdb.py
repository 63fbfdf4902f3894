"""Scans as views of DuckDB, which passes the columns and conditions of a query to the scan."""

from __future__ import annotations

import atexit
from collections.abc import Callable, Iterable
from contextlib import suppress
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

import pyarrow as pa

from tidelake.errors import BadInput
from tidelake.frames.dataset import Opened
from tidelake.frames.query_dataset import QueryDataset
from tidelake.frames.readable import Readable, check_installed

if TYPE_CHECKING:
    import duckdb


def to_duckdb(scan: Readable, name: str, connection: duckdb.DuckDBPyConnection | None) -> duckdb.DuckDBPyConnection:
    """Register a scan as a view, and return the connection. None: a new one, in memory."""
    check_installed("duckdb", "to_duckdb()")
    import duckdb

    found = duckdb.connect() if connection is None else connection
    register(found, name, duckdb_dataset(scan.schema, Opened(scan)))
    return found


def register(connection: duckdb.DuckDBPyConnection, name: str, dataset: QueryDataset) -> None:
    """Make a dataset a view of a connection, which is closed before Python ends.

    A result that nobody has read to its end keeps threads of DuckDB in our iterators. Once Python ends, they can't go
    on, and the process would hang or abort.
    """
    _registered.add(connection)
    connection.register(name, dataset)


_registered: Final[WeakSet[Any]] = WeakSet()


@atexit.register
def _close_all() -> None:
    for connection in list(_registered):
        with suppress(Exception):
            connection.interrupt()
        with suppress(Exception):
            connection.close()


def duckdb_dataset(
    schema: pa.Schema, opened: Callable[[], Readable], observed: Callable[[Readable], Readable] | None = None
) -> QueryDataset:
    """Return a dataset that DuckDB reads exactly, and a query in one state.

    DuckDB keeps times with a zone in microseconds, and would cut nanoseconds off without a word: such a value is an
    error, all others are cast. Raises BadInput for two columns whose names differ only in upper and lower case: DuckDB
    would read one for the other.
    """
    if same := alike(schema.names):
        raise BadInput(
            f"DuckDB does not tell upper from lower case, so it can't tell the column {same[0]!r} from {same[1]!r}; "
            "leave one out, as by scan().select(…).to_duckdb(…), or rename one"
        )
    held = pa.schema([field.with_type(_held(field.type)) for field in schema])
    return QueryDataset(schema, opened, held, observed)


def _held(kind: Any) -> pa.DataType:
    """Return the type that DuckDB holds exactly."""
    if pa.types.is_timestamp(kind) and kind.unit == "ns" and kind.tz is not None:
        return pa.timestamp("us", kind.tz)
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, kind.item_field.with_type(_held(kind.item_type)))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_held(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_held(field.type)) for field in kind])
    return kind


def alike(names: Iterable[str]) -> tuple[str, str] | None:
    """Return two names that are one for DuckDB, as they differ only in upper and lower case; None if there are none."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(folded(name), name)
        if other != name:
            return other, name
    return None


def folded(name: str) -> str:
    """Return a name as DuckDB compares it: only ASCII letters have a case."""
    return name.translate(_LOWER)


_LOWER: Final = {ord(letter): ord(letter.lower()) for letter in ascii_uppercase}


def quoted(name: str) -> str:
    """Return a name as an identifier of DuckDB's SQL."""
    return '"' + name.replace('"', '""') + '"'
