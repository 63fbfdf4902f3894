"""What Avro records show of the initial snapshot of their source: few records of a batch are read, one by one."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from tidelake.errors import RegistryUnavailable
from tidelake.ingest.formats.avro.framing import VALUE_SCHEMA_HEADER
from tidelake.ingest.formats.avro.schema_cache import SchemaCache
from tidelake.ingest.formats.format_capabilities import LAST_WORDS, BinaryValues, SnapshotMarks
from tidelake.ingest.formats.values.json_text import BadValue


def avro_snapshot_marks(
    schemas: SchemaCache, op: str, snapshot_of: Callable[[Mapping[str, bytes]], bytes | None]
) -> SnapshotMarks:
    """Return the marks of records in Confluent's frame.

    A record whose schema is named in a header only, or can't be had, shows nothing.

    op: the field with the operation, which is `r`.
    snapshot_of: returns the place in the snapshot, as JSON, from the fields of a record as JSON.
    """

    def fields_of(value: bytes) -> Mapping[str, bytes]:
        try:
            _, fields = schemas.record(value, (), VALUE_SCHEMA_HEADER)
        except (BadValue, RegistryUnavailable):
            return {}
        return fields

    def are_rows(values: BinaryValues) -> bool:
        return all(fields_of(value).get(op) == b'"r"' for value in values.to_pylist())

    def is_last(value: bytes) -> bool:
        place = snapshot_of(fields_of(value))
        return place is not None and place.strip(b'"').decode() in LAST_WORDS

    return SnapshotMarks(are_rows, is_last)


def snapshot_in_source(fields: Mapping[str, bytes]) -> bytes | None:
    """Return the member `snapshot` of the field `source`; None if there is none."""
    try:
        source = msgspec.json.decode(fields.get("source", b"null"), type=dict[str, msgspec.Raw] | None) or {}
    except msgspec.MsgspecError:
        return None
    return bytes(source["snapshot"]) if "snapshot" in source else None
