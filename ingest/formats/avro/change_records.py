"""What records in Avro have to be for their rows to be read as columns: changes of rows, in whatever shape."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from ingest.formats.avro.avro_schema import AvroType
from ingest.formats.avro.column_images import Changes
from ingest.formats.avro.column_reader import ColumnReader
from ingest.formats.avro.decoded_columns import DecodedColumn
from ingest.formats.connect_schema import SourceType


@dataclass(frozen=True, slots=True, eq=False)
class ChangeSchema:
    """A writer's schema.

    type: of the record.
    image: of a row, in it.
    columns: of its images, in order.
    reader: None where the records are no row changes.
    """

    type: AvroType
    image: AvroType
    columns: Mapping[str, SourceType]
    reader: ColumnReader | None


class ChangeRecords(Protocol):
    """The shape of a format's records."""

    ARE_KEYED: ClassVar[bool]
    """Whether keys of records name columns of the row's key."""

    def schema_of(self, type_: AvroType) -> ChangeSchema: ...

    def changes(
        self, rows: NDArray[np.int64], schema: ChangeSchema, cells: Mapping[str, DecodedColumn]
    ) -> tuple[Changes, list[DecodedColumn | None]]:
        """What the records of a schema change; and where they say it, what they say of their source: database, schema,
        table and connector.

        rows: of the batch.
        cells: what the schema's reader found.
        """
        ...

    def payload(self, members: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """The record as Debezium's payload in JSON would have it. members: of the record, each in JSON."""
        ...
