"""Rows that users pass: Arrow, anything that exports Arrow, pandas DataFrames, lists of dicts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Protocol, TypeAlias

import pyarrow as pa

from tidelake.errors import BadInput
from tidelake.frames.python_values import python_array
from tidelake.storage.base.arguments import shown
from tidelake.storage.model.format import KIND_COLUMN


class ArrowStream(Protocol):
    """Anything that exports an Arrow stream: frames of Polars, relations of DuckDB, readers, scans."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...


class ArrowArray(Protocol):
    """Anything that exports an Arrow array of structs: record batches of other libraries."""

    def __arrow_c_array__(self, requested_schema: object = None) -> object: ...


class ArrowSchema(Protocol):
    """Anything that exports an Arrow schema."""

    def __arrow_c_schema__(self) -> object: ...


Rows: TypeAlias = ArrowStream | ArrowArray | Sequence[Mapping[str, Any]]
"""What can be written: frames are of these kinds, too (`pandas.DataFrame` exports an Arrow stream)."""


def incoming_rows(given: object, schema: pa.Schema, what: str) -> pa.Table | pa.RecordBatchReader:
    """Return the rows: a table if they are in memory already, otherwise a reader that fetches them batch by batch.

    schema: of the table that they are for; it decides the types of nested values in dicts
    what: begins the message of an error, such as the name of the table

    Raises BadInput for anything that has no rows.
    """
    if isinstance(given, pa.Table):
        return given
    if isinstance(given, pa.RecordBatch):
        return pa.Table.from_batches([given])
    if isinstance(given, pa.RecordBatchReader):
        return given
    if _is_of("pandas", "DataFrame", given):
        return _of_pandas(given, schema, what)
    if isinstance(given, Sequence) and not isinstance(given, str | bytes):
        return _of_dicts(given, schema, what)
    if _is_of("duckdb", "DuckDBPyRelation", given) or _is_of("_duckdb", "DuckDBPyRelation", given):
        _check_duckdb_types(given, what)
    try:
        if hasattr(given, "__arrow_c_stream__"):
            reader = pa.RecordBatchReader.from_stream(given)
            return reader.read_all() if _is_of("polars", "DataFrame", given) else reader
        if hasattr(given, "__arrow_c_array__"):
            return pa.Table.from_batches([pa.record_batch(given)])
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise BadInput(f"{what}: {type(given).__name__} has no rows with columns: {error}") from None
    raise BadInput(f"{what}: rows are {_KINDS}, not {shown(given)}{_remedy(given)}")


_INEXACT_IN_ARROW: Final = {"UHUGEINT": "DECIMAL(38, 0)", "BIT": "VARCHAR", "TIME WITH TIME ZONE": "VARCHAR"}
"""Types of DuckDB, of which it exports other values to Arrow: -1 for 2**128 - 1, a time of day without its zone."""


def _check_duckdb_types(relation: Any, what: str) -> None:
    """Raise BadInput for a column of a relation whose values would change on the way."""
    for name, kind in zip(relation.columns, relation.types, strict=True):
        for part in _parts_of(kind):
            if str(part) in _INEXACT_IN_ARROW:
                raise BadInput(
                    f"{what}: column {name!r} of the relation is {kind}, and DuckDB does not export {part} exactly; "
                    f"cast it in the query, as to {_INEXACT_IN_ARROW[str(part)]}"
                )


def _parts_of(kind: Any) -> Iterator[Any]:
    yield kind
    if kind.id in ("list", "array", "struct", "map", "union"):
        for _, part in kind.children:
            if not isinstance(part, int):  # the length of an array
                yield from _parts_of(part)


@contextmanager
def stream_closed(found: pa.Table | pa.RecordBatchReader, given: object) -> Iterator[None]:
    """Close the stream that `incoming_rows` opened, if the block fails.

    An error refers to the objects that were in use when it was raised. As long as it is kept, so would be the stream:
    DuckDB refuses any other query of the connection meanwhile.
    """
    try:
        yield
    except BaseException:
        if isinstance(found, pa.RecordBatchReader) and found is not given:
            found.close()
        raise


_KINDS = "a pyarrow Table or RecordBatch, anything that exports an Arrow stream, a pandas DataFrame, or a list of dicts"


def _remedy(given: object) -> str:
    if _is_of("polars", "LazyFrame", given):
        return "; call collect() first"
    if isinstance(given, Mapping):
        return "; pass [row] for one row, pyarrow.table(columns) for lists by column"
    if isinstance(given, Iterable):
        return "; pass list(rows) if it yields dicts"
    return ""


def arrow_schema_of(given: object, what: str) -> pa.Schema:
    """Return the columns of a schema, or of rows, in Arrow's types. Raises BadInput for anything else.

    Polars and DuckDB have times of day in nanoseconds and microseconds only. Their columns become times in
    milliseconds, those of a table; writing refuses a row that has more digits.
    """
    if isinstance(given, pa.Schema):
        return given
    found = _schema_of(given, what)
    return pa.schema([f.with_type(pa.time32("ms")) if pa.types.is_time64(f.type) else f for f in found], found.metadata)


def _schema_of(given: object, what: str) -> pa.Schema:
    if _is_of("pandas", "DataFrame", given):
        return _of_pandas(given, None, what).schema
    if _is_of("polars", "Schema", given):
        import polars as pl

        return pl.DataFrame(schema=given).to_arrow().schema  # type: ignore[arg-type]
    if _is_of("polars", "LazyFrame", given):
        return _schema_of(given.collect_schema(), what)  # type: ignore[attr-defined]
    try:
        if hasattr(given, "__arrow_c_schema__"):
            return pa.schema(given)
        if hasattr(given, "__arrow_c_stream__"):
            return pa.RecordBatchReader.from_stream(given).schema
        if hasattr(given, "__arrow_c_array__"):
            return pa.record_batch(given).schema
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise BadInput(f"{what}: {type(given).__name__} has no columns: {error}") from None
    raise BadInput(
        f"{what}: the schema is a pyarrow.Schema, a frame or another object with an Arrow schema, or a list of "
        f"DataField, not {shown(given)}"
    )


def _is_of(package: str, name: str, given: object) -> bool:
    """Return whether it is of this class, or of a subclass, without importing the package."""
    return any(kind.__name__ == name and kind.__module__.partition(".")[0] == package for kind in type(given).__mro__)


# ---------------------------------------------------------------- pandas


def _of_pandas(given: Any, schema: pa.Schema | None, what: str) -> pa.Table:
    """Return the rows of a DataFrame.

    A named index is a column, an unnamed one is dropped: it numbers rows. NaN in a NumPy column of floats, or of
    objects, means missing in pandas, and becomes null, except for a NOT NULL column.
    """
    index = given.index
    named = [(name, index.get_level_values(level)) for level, name in enumerate(index.names) if name is not None]
    named += [(name, given.iloc[:, position]) for position, name in enumerate(given.columns)]
    if not named and len(given):
        raise BadInput(
            f"{what}: the DataFrame has {len(given)} rows, but no columns; give it columns, or name its index"
        )
    levels = {name for name in index.names if name is not None}
    columns = []
    for name, values in named:
        if not isinstance(name, str):
            raise BadInput(
                f"{what}: the DataFrame has a column named {shown(name)}; columns have names, which are texts"
            )
        if name in levels and name in given.columns:
            raise BadInput(
                f"{what}: the DataFrame has a column and an index named {name!r}; drop one of them, as by "
                "reset_index(drop=True)"
            )
        own = None if schema is None or schema.get_field_index(name) < 0 else schema.field(name)
        columns.append(_array(values, own, what, name, nan_is_null=own is None or own.nullable))
    return pa.Table.from_arrays(columns, names=[name for name, _ in named])


# ---------------------------------------------------------------- dicts


def _of_dicts(given: Sequence[Any], schema: pa.Schema, what: str) -> pa.Table:
    """Return the rows of dicts. A missing column is null."""
    names: dict[str, None] = {}
    for number, row in enumerate(given):
        if not isinstance(row, Mapping):
            raise BadInput(
                f"{what}: item {number} of the list is not a dict: {shown(row)}; a row is a dict of its columns"
            )
        names.update(dict.fromkeys(row))
    if not given:
        return schema.empty_table()
    if not names:  # a table without columns has no rows
        names[schema.names[0]] = None
    for name in names:
        if not isinstance(name, str):
            raise BadInput(f"{what}: a row has a column named {shown(name)}; rename it to a text")
    columns = [
        _array(
            [row.get(name) for row in given],
            None if schema.get_field_index(name) < 0 else schema.field(name),
            what,
            name,
            nan_is_null=False,
        )
        for name in names
    ]
    return pa.Table.from_arrays(columns, names=list(names))


def _array(values: Any, own: pa.Field | None, what: str, name: str, *, nan_is_null: bool) -> pa.Array | pa.ChunkedArray:
    """Return a column. The writer converts it to the type of the table, and refuses what would change."""
    try:
        has_parts = own is not None and pa.types.is_nested(own.type)
        is_plain = nan_is_null and not has_parts and not isinstance(values, list) and _are_texts(values)
        if isinstance(values, list) or (values.dtype == object and not is_plain):
            found = python_array(values, None if own is None else own.type, nan_is_null=nan_is_null)
        else:
            dense = values.sparse.to_dense() if type(values.dtype).__name__ == "SparseDtype" else values
            found = pa.array(dense, from_pandas=nan_is_null)
        return found.cast(pa.int8()) if name == KIND_COLUMN else found
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise BadInput(
            f"{what}: the values of column {name!r} don't fit"
            f"{' together' if own is None else f' its type {own.type}, or not together'}: {reason}"
        ) from None


def _are_texts(values: Any) -> bool:
    """Return whether objects of pandas are texts and missing values only: Arrow takes these as they are."""
    return values.dtype == object and {kind.__name__ for kind in set(map(type, values))} <= {
        "str",
        "NoneType",
        "NAType",
        "float",
    }
