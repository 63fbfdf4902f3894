"""Avro schemas of the records in metadata files. They are part of the format on disk and must not change.

Null is branch 0 of every union: Java's decoder assumes that index 0 is null. The six fields of a manifest entry must
have this order and these types; nested fields are found by name.

Source: Java `manifest/ManifestEntry.java`, `ManifestFileMeta.java`, `IndexManifestEntry.java`, `io/DataFileMeta.java`.
"""

from __future__ import annotations

from typing import Any, Final

from tidelake.storage.model.format import AVRO_NAMESPACE, AVRO_RECORD

AvroSchema = dict[str, Any]


def _field(name: str, avro_type: Any) -> AvroSchema:
    return {"name": name, "type": avro_type}


def _nullable(name: str, avro_type: Any) -> AvroSchema:
    return {"name": name, "type": ["null", avro_type], "default": None}


def _array(items: Any) -> AvroSchema:
    return {"type": "array", "items": items}


def _stats(parent: str, name: str) -> AvroSchema:
    """Return a field of type SimpleStats. Nested records are named after their path, as in Java."""
    return _field(
        name,
        {
            "type": "record",
            "name": f"{parent}_{name}",
            "fields": [
                _field("_MIN_VALUES", "bytes"),
                _field("_MAX_VALUES", "bytes"),
                _nullable("_NULL_COUNTS", _array(["null", "long"])),
            ],
        },
    )


def _top(*fields: AvroSchema) -> AvroSchema:
    return {"type": "record", "name": AVRO_RECORD, "namespace": AVRO_NAMESPACE, "fields": list(fields)}


_FILE_RECORD: Final = f"{AVRO_RECORD}__FILE"

_DATA_FILE: Final[AvroSchema] = {
    "type": "record",
    "name": _FILE_RECORD,
    "fields": [
        _field("_FILE_NAME", "string"),
        _field("_FILE_SIZE", "long"),
        _field("_ROW_COUNT", "long"),
        _field("_MIN_KEY", "bytes"),
        _field("_MAX_KEY", "bytes"),
        _stats(_FILE_RECORD, "_KEY_STATS"),
        _stats(_FILE_RECORD, "_VALUE_STATS"),
        _field("_MIN_SEQUENCE_NUMBER", "long"),
        _field("_MAX_SEQUENCE_NUMBER", "long"),
        _field("_SCHEMA_ID", "long"),
        _field("_LEVEL", "int"),
        _field("_EXTRA_FILES", _array("string")),
        _nullable("_CREATION_TIME", {"type": "long", "logicalType": "timestamp-millis"}),
        _nullable("_DELETE_ROW_COUNT", "long"),
        _nullable("_EMBEDDED_FILE_INDEX", "bytes"),
        _nullable("_FILE_SOURCE", "int"),
        _nullable("_VALUE_STATS_COLS", _array("string")),
        _nullable("_EXTERNAL_PATH", "string"),
        _nullable("_FIRST_ROW_ID", "long"),
        _nullable("_WRITE_COLS", _array("string")),
        _nullable("_WRITE_COLS_SEQUENCES", _array("long")),
    ],
}

MANIFEST_ENTRY_SCHEMA: Final = _top(
    _field("_VERSION", "int"),
    _field("_KIND", "int"),
    _field("_PARTITION", "bytes"),
    _field("_BUCKET", "int"),
    _field("_TOTAL_BUCKETS", "int"),
    _field("_FILE", _DATA_FILE),
)

MANIFEST_LIST_SCHEMA: Final = _top(
    _field("_VERSION", "int"),
    _field("_FILE_NAME", "string"),
    _field("_FILE_SIZE", "long"),
    _field("_NUM_ADDED_FILES", "long"),
    _field("_NUM_DELETED_FILES", "long"),
    _stats(AVRO_RECORD, "_PARTITION_STATS"),
    _field("_SCHEMA_ID", "long"),
    _nullable("_MIN_BUCKET", "int"),
    _nullable("_MAX_BUCKET", "int"),
    _nullable("_MIN_LEVEL", "int"),
    _nullable("_MAX_LEVEL", "int"),
    _nullable("_MIN_ROW_ID", "long"),
    _nullable("_MAX_ROW_ID", "long"),
)

_VECTOR_RANGE: Final[AvroSchema] = {
    "type": "record",
    "name": f"{AVRO_RECORD}__DELETIONS_VECTORS_RANGES",
    "fields": [
        _field("f0", "string"),
        _field("f1", "int"),
        _field("f2", "int"),
        _nullable("_CARDINALITY", "long"),
    ],
}
_GLOBAL_INDEX: Final[AvroSchema] = {
    "type": "record",
    "name": f"{AVRO_RECORD}__GLOBAL_INDEX",
    "fields": [
        _field("_ROW_RANGE_START", "long"),
        _field("_ROW_RANGE_END", "long"),
        _field("_INDEX_FIELD_ID", "int"),
        _nullable("_EXTRA_FIELD_IDS", _array("int")),
        _nullable("_INDEX_META", "bytes"),
        _nullable("_SOURCE_META", "bytes"),
    ],
}

INDEX_ENTRY_SCHEMA: Final = _top(
    _field("_VERSION", "int"),
    _field("_KIND", "int"),
    _field("_PARTITION", "bytes"),
    _field("_BUCKET", "int"),
    _field("_INDEX_TYPE", "string"),
    _field("_FILE_NAME", "string"),
    _field("_FILE_SIZE", "long"),
    _field("_ROW_COUNT", "long"),
    _nullable("_DELETIONS_VECTORS_RANGES", _array(["null", _VECTOR_RANGE])),
    _nullable("_EXTERNAL_PATH", "string"),
    _nullable("_GLOBAL_INDEX", _GLOBAL_INDEX),
)
