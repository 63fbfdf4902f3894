"""Avro schemas of Iceberg's manifests and manifest lists, with the field ids by which Iceberg readers find fields.

Source: Java `iceberg/manifest/IcebergManifestEntry.java`, `IcebergDataFileMeta.java`, `IcebergManifestFileMeta.java`;
Iceberg's specification, "Manifests" and "Manifest Lists". Java stores decimals, times and timestamps of partitions
otherwise than the specification says, and not all readers accept it; here they are as specified.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from tidelake.storage.model.iceberg.schemas import MICROSECOND_PRECISION
from tidelake.storage.model.types import AtomicType, DataField, DataType, Root

AvroSchema = dict[str, Any]
FIRST_PARTITION_FIELD_ID: Final = 1000

_AVRO_TYPES: Final[dict[Root, Any]] = {
    Root.BOOLEAN: "boolean",
    Root.TINYINT: "int",
    Root.SMALLINT: "int",
    Root.INT: "int",
    Root.BIGINT: "long",
    Root.FLOAT: "float",
    Root.DOUBLE: "double",
    Root.CHAR: "string",
    Root.VARCHAR: "string",
    Root.BINARY: "bytes",
    Root.VARBINARY: "bytes",
    Root.DATE: {"type": "int", "logicalType": "date"},
    Root.TIME: {"type": "long", "logicalType": "time-micros"},
}


def _field(name: str, avro_type: Any, field_id: int) -> AvroSchema:
    return {"name": name, "type": avro_type, "field-id": field_id}


def _nullable(name: str, avro_type: Any, field_id: int) -> AvroSchema:
    return {"name": name, "type": ["null", avro_type], "default": None, "field-id": field_id}


def _record(name: str, *fields: AvroSchema) -> AvroSchema:
    return {"type": "record", "name": name, "fields": list(fields)}


def _by_column(name: str, value: str, field_id: int, key_id: int) -> AvroSchema:
    """Return a map from column ids. Avro's maps have text keys, so it is an array of pairs."""
    pair = _record(f"k{key_id}_v{key_id + 1}", _field("key", "int", key_id), _field("value", value, key_id + 1))
    return _nullable(name, {"type": "array", "items": pair, "logicalType": "map"}, field_id)


@cache
def manifest_schema(partition_fields: tuple[DataField, ...], format_version: int) -> AvroSchema:
    """Return the schema of a manifest's entries. Equal arguments return the same object."""
    partition = [
        (_nullable if field.type.nullable else _field)(
            field.name, _partition_type(field.type), FIRST_PARTITION_FIELD_ID + position
        )
        for position, field in enumerate(partition_fields)
    ]
    data_file = [
        _field("content", "int", 134),
        _field("file_path", "string", 100),
        _field("file_format", "string", 101),
        _field("partition", _record("r102", *partition), 102),
        _field("record_count", "long", 103),
        _field("file_size_in_bytes", "long", 104),
        _by_column("null_value_counts", "long", 110, 121),
        _by_column("lower_bounds", "bytes", 125, 126),
        _by_column("upper_bounds", "bytes", 128, 129),
        _nullable("referenced_data_file", "string", 143),
        _nullable("content_offset", "long", 144),
        _nullable("content_size_in_bytes", "long", 145),
    ]
    if format_version > 2:
        data_file.append(_nullable("first_row_id", "long", 142))
    return _record(
        "manifest_entry",
        _field("status", "int", 0),
        _nullable("snapshot_id", "long", 1),
        _nullable("sequence_number", "long", 3),
        _nullable("file_sequence_number", "long", 4),
        _field("data_file", _record("r2", *data_file), 2),
    )


def _partition_type(data_type: DataType) -> Any:
    assert isinstance(data_type, AtomicType)
    if data_type.root is Root.DECIMAL:
        size = ((10**data_type.precision).bit_length() + 8) // 8
        return {
            "type": "fixed",
            "name": f"decimal_{data_type.precision}_{data_type.scale}",
            "size": size,
            "logicalType": "decimal",
            "precision": data_type.precision,
            "scale": data_type.scale,
        }
    if data_type.root in (Root.TIMESTAMP, Root.TIMESTAMP_LTZ):
        unit = "nanos" if data_type.precision > MICROSECOND_PRECISION else "micros"
        is_instant = data_type.root is Root.TIMESTAMP_LTZ
        return {"type": "long", "logicalType": f"timestamp-{unit}", "adjust-to-utc": is_instant}
    return _AVRO_TYPES[data_type.root]


@cache
def manifest_list_schema(format_version: int, is_legacy: bool) -> AvroSchema:
    """Return the schema of a manifest list's entries.

    is_legacy: with the names of Iceberg 1.4 (option `metadata.iceberg.manifest-legacy-version`).
    """
    files = "data_files" if is_legacy else "files"
    summary = _record(
        "r508",
        _field("contains_null", "boolean", 509),
        _nullable("contains_nan", "boolean", 518),
        _nullable("lower_bound", "bytes", 510),
        _nullable("upper_bound", "bytes", 511),
    )
    fields = [
        _field("manifest_path", "string", 500),
        _field("manifest_length", "long", 501),
        _field("partition_spec_id", "int", 502),
        _field("content", "int", 517),
        _field("sequence_number", "long", 515),
        _field("min_sequence_number", "long", 516),
        _nullable("added_snapshot_id", "long", 503),
        _field(f"added_{files}_count", "int", 504),
        _field(f"existing_{files}_count", "int", 505),
        _field(f"deleted_{files}_count", "int", 506),
        _field("added_rows_count", "long", 512),
        _field("existing_rows_count", "long", 513),
        _field("deleted_rows_count", "long", 514),
        _nullable("partitions", {"type": "array", "items": summary, "element-id": 508}, 507),
    ]
    if format_version > 2:
        fields.append(_nullable("first_row_id", "long", 520))
    return _record("manifest_file", *fields)
