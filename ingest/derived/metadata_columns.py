"""Metadata columns: the origin of a record, and the time of its change.

Names and types are Paimon's (`cdc/CdcMetadataConverter.java`). Kafka has `topic`, `partition`, `offset`, `timestamp`
and `timestamp_type`. Paimon's direct sources have `database_name`, `schema_name`, `table_name` and `op_ts`; here every
format provides those of them that its records contain.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidelake.errors import BadInput
from tidelake.ingest.formats.base import JsonView
from tidelake.ingest.formats.format_capabilities import OriginOf, RecordOrigin
from tidelake.ingest.formats.registry import capabilities_of
from tidelake.ingest.raw_batch import RawBatch, timestamp_type_names
from tidelake.storage.base.clock import epoch_ms
from tidelake.storage.model.format import RowKind
from tidelake.storage.model.messages import did_you_mean
from tidelake.storage.model.types import BIGINT, INT, STRING, DataType, timestamp_ltz

_LOG_METADATA: Final[Mapping[str, DataType]] = {
    "topic": STRING,
    "partition": INT,
    "offset": BIGINT,
    "timestamp": timestamp_ltz(3),
    "timestamp_type": STRING,
}
_SOURCE_METADATA: Final[Mapping[str, DataType]] = {
    "database_name": STRING,
    "schema_name": STRING,
    "table_name": STRING,
    "op_ts": timestamp_ltz(3),
}
_SELECTABLE: Final = (*_LOG_METADATA, *_SOURCE_METADATA)
OPERATION: Final = "op"
METADATA_TYPES: Final = {**_LOG_METADATA, **_SOURCE_METADATA, OPERATION: STRING}
_OPERATIONS: Final = pa.array([kind.symbol for kind in sorted(RowKind)], pa.string())


def check_metadata(names: Mapping[str, str], format_name: str) -> None:
    """Check the names of metadata.

    names: column to metadata.

    Raises BadInput for unknown metadata, and for metadata that the format's records don't contain.
    """
    for name in names.values():
        if name not in _SELECTABLE:
            hint = did_you_mean(name, list(_SELECTABLE)) or "."
            raise BadInput(
                f"metadata column {name!r} does not exist{hint} The metadata columns are {', '.join(_SELECTABLE)}"
            )
        if name in _SOURCE_METADATA and capabilities_of(format_name).origin_of is None:
            raise BadInput(f"metadata column {name} is not available for records of {format_name}; leave it out")


def history_metadata(format_name: str) -> tuple[str, ...]:
    """Return the metadata of each row of a history: what the change did, where its record was, and its time.

    The time is the source's if the format's records contain it, or else that of the record.
    """
    has_time = capabilities_of(format_name).origin_of is not None
    return OPERATION, "topic", "partition", "offset", "op_ts" if has_time else "timestamp"


def change_times(
    batch: RawBatch,
    records: NDArray[np.intp],
    origin_of: OriginOf | None,
    as_json: JsonView | None = None,
) -> pa.TimestampArray:
    """Return the time of each change at its source, or else of its record, or else now. It is never null.

    records: (n,) for each change, the index of its record in the batch.
    """
    times = metadata_arrays({"timestamp": "timestamp"}, batch, records, origin_of, as_json)["timestamp"]
    has_value = batch.values.is_valid().to_numpy(zero_copy_only=False)[records]
    if origin_of is not None and has_value.any():
        at_source = metadata_arrays({"op_ts": "op_ts"}, batch, records[has_value], origin_of, as_json)["op_ts"]
        places = pa.array(np.cumsum(has_value) - 1, mask=~has_value)
        times = pc.coalesce(at_source.take(places), times)
    return pc.fill_null(times, pa.scalar(epoch_ms(), pa.int64()).cast(times.type))


def metadata_arrays(
    names: Mapping[str, str],
    batch: RawBatch,
    records: NDArray[np.intp],
    origin_of: OriginOf | None,
    as_json: JsonView | None = None,
    kinds: pa.Array | None = None,
) -> dict[str, pa.Array]:
    """Return the metadata columns by name.

    records: (n,) for each row, the index of its record in the batch.
    origin_of: reads a record's origin, for columns that need it.
    as_json: reads values that are not JSON.
    kinds: (n,) the kind of each row, for the operation.
    """
    found: dict[str, pa.Array] = {}
    origins: list[RecordOrigin] | None = None
    for column, name in names.items():
        match name:
            case "op":
                assert kinds is not None, name
                found[column] = _OPERATIONS.take(kinds)
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
                    assert origin_of is not None, name  # ensured by `check_metadata`
                    origins = _origins(batch, records, origin_of, as_json)
                arrow = pa.int64() if name == "op_ts" else pa.string()
                values = pa.array([getattr(origin, name) for origin in origins], arrow)
                found[column] = values.view(pa.timestamp("ms", "UTC")) if name == "op_ts" else values
    return found


def _origins(
    batch: RawBatch, records: NDArray[np.intp], read: OriginOf, as_json: JsonView | None
) -> list[RecordOrigin]:
    """Return the origin of each row. The records were decoded before, so each can be read."""
    unique, places = np.unique(records, return_inverse=True)
    if as_json is None:
        known = [read(value) for value in batch.values.take(pa.array(unique)).to_pylist()]
    else:
        known = [read(as_json.value_as_json(batch, row)) for row in unique.tolist()]
    return [known[place] for place in places.tolist()]
