"""Tables that this release does not create, as Java Paimon would create them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from tidelake.storage.catalog.filesystem import FileSystemCatalog
from tidelake.storage.catalog.identifier import Identifier
from tidelake.storage.ddl.schema_creation import create_schema


def create_as_java(
    catalog: FileSystemCatalog,
    name: str,
    columns: pa.Schema,
    options: Mapping[str, str],
    *,
    primary_key: Sequence[str] = (),
    partition_by: Sequence[str] = (),
) -> None:
    """An empty table, whatever its options ask of those who use it."""
    schema = create_schema(columns, primary_key=primary_key, partition_by=partition_by, options=options, time_ms=0)
    assert catalog._schemas(Identifier.parse(name)).publish(schema)
