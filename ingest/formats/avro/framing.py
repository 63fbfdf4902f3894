"""Confluent's wire format: a zero byte, the id of the writer's schema in four bytes, the record in Avro's binary form.

A serializer may put the schema into a header instead: an id behind a zero byte, or a GUID behind a one; the value is
then the bare record. Source: Confluent `SchemaId`, `AbstractKafkaSchemaSerDe`.
"""

from __future__ import annotations

from typing import Final, TypeAlias
from uuid import UUID

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ingest.formats.concatenated_json import layout
from ingest.formats.values.json_text import BadValue
from ingest.raw_batch import Headers

SchemaId: TypeAlias = int | UUID
"""What the registry knows a schema by: an id, or a GUID."""

KEY_SCHEMA_HEADER: Final = "__key_schema_id"
VALUE_SCHEMA_HEADER: Final = "__value_schema_id"
FRAME_BYTES: Final = 5
CONFIGURED: Final = 0
_ID_MAGIC: Final = 0
_GUID_MAGIC: Final = 1
_GUID_BYTES: Final = 16


class ConfluentFraming:
    """Every record says its schema's id. frame_bytes: of what is in front of a record."""

    frame_bytes = FRAME_BYTES

    def schema_ids(self, values: pa.Array, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        return schema_ids(values, rows)

    def unframed(self, value: bytes, headers: Headers) -> tuple[SchemaId, bytes]:
        return unframed(value, headers, VALUE_SCHEMA_HEADER)


class BareRecords(ConfluentFraming):
    """No record says its schema: all have one, with the id CONFIGURED."""

    frame_bytes = 0

    def schema_ids(self, values: pa.Array, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.full(len(rows), CONFIGURED, np.int64)

    def unframed(self, value: bytes, headers: Headers) -> tuple[SchemaId, bytes]:
        return CONFIGURED, value


def schema_ids(values: pa.Array, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """The id in front of each of these values (not null); -1 where there is none."""
    positions, data = layout(values)
    octets = np.frombuffer(data, np.uint8)
    begins, ends = positions[rows], positions[rows + 1]
    ids = np.full(len(rows), -1, np.int64)
    framed = np.flatnonzero(ends - begins >= FRAME_BYTES)
    framed = framed[octets[begins[framed]] == _ID_MAGIC]
    at = begins[framed]
    ids[framed] = (octets[at[:, None] + np.arange(1, FRAME_BYTES)].astype(np.int64) << np.array([24, 16, 8, 0])).sum(1)
    return ids


def unframed(value: bytes, headers: Headers, schema_header: str) -> tuple[SchemaId, bytes]:
    """The schema and the bare record. Raises BadValue for a value that has no schema's id, in front or in its header.

    schema_header: KEY_SCHEMA_HEADER or VALUE_SCHEMA_HEADER.
    """
    said = dict(headers).get(schema_header)
    if said is not None:
        return _id_of_header(said, schema_header), value
    if len(value) >= FRAME_BYTES and value[0] == _ID_MAGIC:
        return int.from_bytes(value[1:FRAME_BYTES], "big"), value[FRAME_BYTES:]
    begin = value[:8].hex(" ") or "nothing"
    raise BadValue(
        f"no Avro in Confluent's wire format: it begins with {begin}, not with a zero byte and a schema's id"
    )


def _id_of_header(said: bytes, name: str) -> SchemaId:
    if len(said) == FRAME_BYTES and said[0] == _ID_MAGIC:
        return int.from_bytes(said[1:], "big")
    if len(said) == 1 + _GUID_BYTES and said[0] == _GUID_MAGIC:
        return UUID(bytes=said[1:])
    raise BadValue(f"header {name}: {said[:20].hex(' ')} is no id of a schema")
