"""Metadata columns: where a record came from, and when its change was made.

Names and types are Paimon's (`cdc/CdcMetadataConverter.java`): of Kafka `topic`, `partition`, `offset`, `timestamp`,
`timestamp_type`; of its direct sources `database_name`, `schema_name`, `table_name`, `op_ts`, which here every format
tells that knows them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ingest.formats.base import ReadsAsJson
from ingest.raw_batch import RawBatch, timestamp_type_names
from storage.errors import BadInput
from storage.messages.suggestions import did_you_mean
from storage.types import BIGINT, INT, STRING, DataType, timestamp_ltz

_OF_LOG: Final[Mapping[str, DataType]] = {
    "topic": STRING,
    "partition": INT,
    "offset": BIGINT,
    "timestamp": timestamp_ltz(3),
    "timestamp_type": STRING,
}
_OF_SOURCE: Final[Mapping[str, DataType]] = {
    "database_name": STRING,
    "schema_name": STRING,
    "table_name": STRING,
    "op_ts": timestamp_ltz(3),
}
METADATA_TYPES: Final = {**_OF_LOG, **_OF_SOURCE}


@dataclass(frozen=True, slots=True)
class RecordOrigin:
    """What a record says of its source. op_ts: epoch milliseconds."""

    database_name: str | None = None
    schema_name: str | None = None
    table_name: str | None = None
    op_ts: int | None = None


def check_metadata(names: Mapping[str, str], format_name: str) -> None:
    """names: column to metadata.

    Raises BadInput for one that there isn't, or that the format's records don't tell.
    """
    for name in names.values():
        if name not in METADATA_TYPES:
            hint = did_you_mean(name, list(METADATA_TYPES)) or "."
            raise BadInput(f"there is no metadata column {name!r}{hint} There are {', '.join(METADATA_TYPES)}")
        if name in _OF_SOURCE and format_name not in _ORIGINS:
            raise BadInput(f"metadata column {name}: records of {format_name} are not asked for it; leave it out")


def metadata_arrays(
    names: Mapping[str, str],
    batch: RawBatch,
    records: NDArray[np.intp],
    format_name: str,
    as_json: ReadsAsJson | None = None,
) -> dict[str, pa.Array]:
    """The columns by name. records (n,): the record of each row, its number in the batch. as_json: reads values that
    are not JSON.
    """
    found: dict[str, pa.Array] = {}
    origins: list[RecordOrigin] | None = None
    for column, name in names.items():
        match name:
            case "topic":
                found[column] = pa.repeat(pa.scalar(batch.topic, pa.string()), len(records))
            case "partition":
                found[column] = pa.repeat(pa.scalar(batch.partition, pa.int32()), len(records))
            case "offset":
                found[column] = pa.array(batch.offsets[records])
            case "timestamp":
                times = batch.timestamps_ms[records]
                found[column] = pa.array(times, mask=times < 0).view(pa.timestamp("ms", "UTC"))
            case "timestamp_type":
                found[column] = timestamp_type_names(batch.timestamp_types, records)
            case _:
                if origins is None:
                    origins = _origins(batch, records, format_name, as_json)
                arrow = pa.int64() if name == "op_ts" else pa.string()
                values = pa.array([getattr(origin, name) for origin in origins], arrow)
                found[column] = values.view(pa.timestamp("ms", "UTC")) if name == "op_ts" else values
    return found


def _origins(
    batch: RawBatch, records: NDArray[np.intp], format_name: str, as_json: ReadsAsJson | None
) -> list[RecordOrigin]:
    """Rows are of records that were decoded, so each can be read."""
    read = _ORIGINS[format_name]
    unique, places = np.unique(records, return_inverse=True)
    if as_json is None:
        known = [read(value) for value in batch.values.take(pa.array(unique)).to_pylist()]
    else:
        known = [read(as_json.value_as_json(batch, row)) for row in unique.tolist()]
    return [known[place] for place in places.tolist()]


# ---------------------------------------------------------------- what each format says


class _DebeziumSource(msgspec.Struct, frozen=True):
    db: str | None = None
    schema: str | None = None
    table: str | None = None
    collection: str | None = None
    ts_ms: int | None = None


class _DebeziumPayload(msgspec.Struct, frozen=True):
    source: _DebeziumSource = _DebeziumSource()
    payload: _DebeziumPayload | None = None


class _Canal(msgspec.Struct, frozen=True):
    database: str | None = None
    table: str | None = None
    es: int | None = None


class _Maxwell(msgspec.Struct, frozen=True):
    database: str | None = None
    table: str | None = None
    ts: int | None = None


class _Ogg(msgspec.Struct, frozen=True):
    table: str | None = None
    op_ts: str | None = None


class _DmsMetadata(msgspec.Struct, frozen=True, rename="kebab"):
    schema_name: str | None = None
    table_name: str | None = None
    timestamp: str | None = None


class _Dms(msgspec.Struct, frozen=True):
    metadata: _DmsMetadata = _DmsMetadata()


class _AliyunSource(msgspec.Struct, frozen=True, rename="camel"):
    db_name: str | None = None
    table_name: str | None = None


class _AliyunSchema(msgspec.Struct, frozen=True):
    source: _AliyunSource = _AliyunSource()


class _AliyunTimes(msgspec.Struct, frozen=True, rename="camel"):
    event_time: int | None = None


class _AliyunPayload(msgspec.Struct, frozen=True):
    timestamp: _AliyunTimes | None = None


class _Aliyun(msgspec.Struct, frozen=True):
    schema: _AliyunSchema = _AliyunSchema()
    payload: _AliyunPayload = _AliyunPayload()


def _reader(kind: Any, origin: Callable[[Any], RecordOrigin]) -> Callable[[bytes], RecordOrigin]:
    decode = msgspec.json.Decoder(kind).decode

    def read(value: bytes) -> RecordOrigin:
        try:
            return origin(decode(value))
        except msgspec.MsgspecError:  # a member of another type than the format's: nothing is known
            return RecordOrigin()

    return read


def _of_debezium(record: _DebeziumPayload) -> RecordOrigin:
    source = (record.payload or record).source
    return RecordOrigin(source.db, source.schema, source.table or source.collection, source.ts_ms)


def _of_ogg(record: _Ogg) -> RecordOrigin:
    schema, _, table = (record.table or "").rpartition(".")
    return RecordOrigin(schema or None, schema or None, table or None, _epoch_ms(record.op_ts))


def _of_dms(record: _Dms) -> RecordOrigin:
    metadata = record.metadata
    return RecordOrigin(metadata.schema_name, metadata.schema_name, metadata.table_name, _epoch_ms(metadata.timestamp))


def _of_aliyun(record: _Aliyun) -> RecordOrigin:
    source, times = record.schema.source, record.payload.timestamp
    return RecordOrigin(source.db_name, None, source.table_name, None if times is None else times.event_time)


def _epoch_ms(text: str | None) -> int | None:
    """Times without a zone are of UTC."""
    try:
        moment = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000 // 1)


_ORIGINS: Final[Mapping[str, Callable[[bytes], RecordOrigin]]] = {
    "debezium-json": _reader(_DebeziumPayload, _of_debezium),
    "debezium-avro": _reader(_DebeziumPayload, _of_debezium),
    "debezium-bson": _reader(_DebeziumPayload, _of_debezium),
    "canal-json": _reader(_Canal, lambda r: RecordOrigin(r.database, None, r.table, r.es)),
    "maxwell-json": _reader(
        _Maxwell, lambda r: RecordOrigin(r.database, None, r.table, None if r.ts is None else r.ts * 1000)
    ),
    "ogg-json": _reader(_Ogg, _of_ogg),
    "aws-dms-json": _reader(_Dms, _of_dms),
    "aliyun-json": _reader(_Aliyun, _of_aliyun),
}
