"""Object tables: a row for each file below a folder. Every read lists the files.

Java's releases before 2.0 stored the listing as rows, and a refresh updated them. Since 2.0 every read lists the files.

Source: Java `table/object/ObjectTable.java`, `ObjectTableImpl.java`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa

from tidelake.errors import BadInput, UnsupportedFeature
from tidelake.storage.fileio.location import LOCAL_SCHEME, local_path, scheme_of
from tidelake.storage.model.schema.table_schema import TableSchema
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import BIGINT, STRING, DataField, not_null
from tidelake.storage.read.arrow_expressions import matching_rows
from tidelake.storage.read.predicate import Predicate

OBJECT_TABLE: Final = "object-table"
OBJECT_COLUMNS: Final = (
    DataField(0, "path", not_null(STRING), "Relative path of object"),
    DataField(1, "name", not_null(STRING), "Name of object"),
    DataField(2, "length", not_null(BIGINT), "Bytes length of object"),
    DataField(3, "mtime", not_null(BIGINT), "Modification time of object"),
    DataField(4, "atime", not_null(BIGINT), "Access time of object"),
    DataField(5, "owner", STRING, "Owner of object"),
)
_BATCH_ROWS: Final = 10_000


def is_object_table(options: Mapping[str, str] | None) -> bool:
    return (options or {}).get("type", "").strip().lower() == OBJECT_TABLE


def new_object_table(
    given: pa.Schema | Sequence[DataField],
    keys: Sequence[str],
    options: Mapping[str, str],
    comment: str | None,
    time_ms: int,
) -> TableSchema:
    """Return the schema of a new object table. Its columns are always the same.

    given: the requested columns: none, or those of an object table.
    keys: the requested keys: must be empty.

    Raises BadInput or UnsupportedFeature for any other request.
    """
    names = list(given.names) if isinstance(given, pa.Schema) else [column.name for column in given]
    own = [column.name for column in OBJECT_COLUMNS]
    if keys or (names and names != own):
        raise BadInput(f"the columns of an object table are always {', '.join(own)}, without keys; pass no columns")
    if "object-location" in options:
        raise UnsupportedFeature(
            "option object-location",
            "Java's readers since 2.0 look at option path instead",
            "Set option path to the folder",
        )
    if not options.get("path"):
        raise BadInput("an object table needs option path: the folder whose files are its rows")
    if other := sorted(options.keys() - {"type", "path"}):
        raise BadInput(f"option {other[0]} does not apply to an object table; remove it")
    return TableSchema(0, OBJECT_COLUMNS, OBJECT_COLUMNS[-1].id, (), (), dict(options), comment, time_ms)


def objects_location(context: TableContext) -> str:
    location = context.options.get("path") or context.location
    location = local_path(location) if scheme_of(location) == LOCAL_SCHEME else location
    return location.rstrip("/")


def scan_objects(
    context: TableContext, columns: Sequence[str], predicate: Predicate | None
) -> Iterator[pa.RecordBatch]:
    """Yield the files that exist now, sorted by name in each directory.

    Access times and owners are unknown: they are 0 and NULL, like in Java.
    """
    schema = context.schema.arrow
    condition = None if predicate is None else predicate.expression(schema)
    batch: list[tuple[str, str, int, int, int, None]] = []
    for row in _below(context, objects_location(context), ""):
        batch.append(row)
        if len(batch) == _BATCH_ROWS:
            yield from _kept(batch, schema, columns, condition)
            batch = []
    yield from _kept(batch, schema, columns, condition)


def _below(context: TableContext, location: str, prefix: str) -> Iterator[tuple[str, str, int, int, int, None]]:
    for entry in sorted(context.io.list_directory(location), key=lambda entry: entry.name):
        if entry.is_directory:
            yield from _below(context, f"{location}/{entry.name}", f"{prefix}{entry.name}/")
        else:
            yield prefix + entry.name, entry.name, entry.size_bytes, entry.modified_ms, 0, None


def _kept(
    batch: Sequence[tuple[str, str, int, int, int, None]],
    schema: pa.Schema,
    columns: Sequence[str],
    condition: object,
) -> Iterator[pa.RecordBatch]:
    if not batch:
        return
    values = zip(*batch, strict=True)
    rows = pa.RecordBatch.from_arrays([pa.array(v, f.type) for v, f in zip(values, schema, strict=True)], schema=schema)
    kept = rows if condition is None else matching_rows(rows, condition)
    if kept.num_rows:
        yield kept.select(columns)
