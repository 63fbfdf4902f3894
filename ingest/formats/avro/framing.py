"""Confluent's wire format: a zero byte, the id of the writer's schema in four bytes, the record in Avro's binary form.

A serializer may write the schema's id to a header instead: a zero byte and an id, or a one byte and a GUID. The value
is then the record without a frame. Source: Confluent `SchemaId`, `AbstractKafkaSchemaSerDe`.
"""

from __future__ import annotations

from typing import Final, TypeAlias
from uuid import UUID

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelake.ingest.formats.concatenated_json import layout
from tidelake.ingest.formats.registry import GLUE_COMPRESSIONS, GLUE_FRAME_BYTES, GLUE_MAGIC
from tidelake.ingest.formats.values.json_text import BadValue
from tidelake.ingest.raw_batch import Headers

SchemaId: TypeAlias = int | UUID
"""The identifier of a schema in the registry: an id, or a GUID."""

KEY_SCHEMA_HEADER: Final = "__key_schema_id"
VALUE_SCHEMA_HEADER: Final = "__value_schema_id"
FRAME_BYTES: Final = 5
CONFIGURED: Final = 0
_ID_MAGIC: Final = 0
_GUID_MAGIC: Final = 1
_GUID_BYTES: Final = 16


class ConfluentFraming:
    """The framing of records that contain the id of their schema.

    frame_bytes: number of bytes before a record.
    """

    frame_bytes = FRAME_BYTES

    def schema_ids(self, values: pa.Array, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        return schema_ids(values, rows)

    def unframed(self, value: bytes, headers: Headers) -> tuple[SchemaId, bytes]:
        return unframed(value, headers, VALUE_SCHEMA_HEADER)


class BareRecords(ConfluentFraming):
    """The framing of records without a schema's id. All have the configured schema, with the id CONFIGURED."""

    frame_bytes = 0

    def schema_ids(self, values: pa.Array, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.full(len(rows), CONFIGURED, np.int64)

    def unframed(self, value: bytes, headers: Headers) -> tuple[SchemaId, bytes]:
        return CONFIGURED, value


def schema_ids(values: pa.Array, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the schema id at the beginning of each of these values, which are not null; -1 for a value without id."""
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
    """Return the schema's id and the record without its frame.

    schema_header: KEY_SCHEMA_HEADER or VALUE_SCHEMA_HEADER.

    Raises BadValue for a value without a schema's id in its frame or header.
    """
    header = dict(headers).get(schema_header)
    if header is not None:
        return _id_of_header(header, schema_header), value
    if len(value) >= FRAME_BYTES and value[0] == _ID_MAGIC:
        return int.from_bytes(value[1:FRAME_BYTES], "big"), value[FRAME_BYTES:]
    if len(value) >= GLUE_FRAME_BYTES and value[0] == GLUE_MAGIC and value[1] in GLUE_COMPRESSIONS:
        raise BadValue(
            f"its frame is that of AWS Glue Schema Registry (schema version {UUID(bytes=value[2:18])}), which is "
            "not read. Let the producer write to a registry with Confluent's interface, or records without a registry"
        )
    begin = value[:8].hex(" ") or "nothing"
    raise BadValue(f"not Avro in Confluent's wire format: it begins with {begin}, not with a zero byte and a schema id")


def _id_of_header(header: bytes, name: str) -> SchemaId:
    if len(header) == FRAME_BYTES and header[0] == _ID_MAGIC:
        return int.from_bytes(header[1:], "big")
    if len(header) == 1 + _GUID_BYTES and header[0] == _GUID_MAGIC:
        return UUID(bytes=header[1:])
    raise BadValue(f"header {name}: {header[:20].hex(' ')} is not the id of a schema")
