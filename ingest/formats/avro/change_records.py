"""The protocol of Avro records of row changes whose rows are read as columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from tidelake.ingest.formats.avro.column_images import Changes
from tidelake.ingest.formats.connect_schema import SourceType
from tidelake.storage.model.avro.avro_type import AvroType
from tidelake.storage.model.avro.column_reader import ColumnReader
from tidelake.storage.model.avro.decoded_columns import DecodedColumn


@dataclass(frozen=True, slots=True, eq=False)
class ChangeSchema:
    """A writer's schema of change records.

    type: the type of the record.
    image: the type of a row image in the record.
    columns: the columns of a row image, in order.
    reader: reads the records; None if the records are no row changes.
    """

    type: AvroType
    image: AvroType
    columns: Mapping[str, SourceType]
    reader: ColumnReader | None


class ChangeRecords(Protocol):
    """The structure of a format's records."""

    ARE_KEYED: ClassVar[bool]
    """Whether keys of records contain the columns of the row's key."""

    def schema_of(self, type_: AvroType) -> ChangeSchema:
        """Return the schema of records of this type."""
        ...

    def changes(
        self, rows: NDArray[np.int64], schema: ChangeSchema, columns: Mapping[str, DecodedColumn]
    ) -> tuple[Changes, list[DecodedColumn | None]]:
        """Return the changes of records of one schema, and the columns that name their source.

        These columns are database, schema, table and connector. Each is None if the records lack it. The list is empty
        if the records name no source.

        rows: rows of the batch.
        columns: the result of the schema's reader for these rows.
        """
        ...

    def payload(self, members: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """Return the members of Debezium's JSON payload for a record. members: the record's members as raw JSON."""
        ...
