"""The format `debezium-outbox`: the events that Debezium's outbox event router sends. Each event is a row.

The router takes an event out of its outbox table: the payload becomes the record's value, the aggregate's id its key,
and the event's id a header. This format puts them together again, in columns with the names of the outbox table.

Source: Debezium 3.5 `io.debezium.transforms.outbox.EventRouterDelegate`, `EventRouterConfigDefinition`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, Literal, TypeAlias

import msgspec

from tidelake.errors import BadInput, TableNotInferred
from tidelake.ingest.formats.base import (
    DecodedBatch,
    DecodeFailure,
    Decoder,
    FailureKind,
    InferredTable,
    Skipped,
    TargetOf,
)
from tidelake.ingest.formats.connect_schema import JSON_VALUE
from tidelake.ingest.formats.envelopes.plain_json import PlainJson
from tidelake.ingest.formats.format_capabilities import FormatCapabilities
from tidelake.ingest.formats.values.json_text import BadValue
from tidelake.ingest.raw_batch import Headers, RawBatch, binary_column
from tidelake.storage.model.messages import did_you_mean
from tidelake.storage.model.types import STRING, DataField, not_null

ID_HEADER: Final = "id"
TYPE_HEADER: Final = "eventType"
_ID: Final = "id"
_COLUMNS: Final = (_ID, "aggregateid", "type", "payload")  # of the outbox table that the router expects by default
_OPTIONS: Final = ("key_converter", "value_converter", "inexact_values")

Converter: TypeAlias = Literal["json", "string"]
"""What the connector writes with: Connect's JsonConverter, with or without schemas, or its StringConverter."""


def _converted(data: bytes, converter: Converter, what: str) -> str | None:
    """Return the text of a key or a payload. A text in JSON is the text itself, null is None, others are their JSON.

    what: `key` or `value`.

    Raises BadValue for bytes that the converter does not write.
    """
    try:
        text = data.decode()
        if converter == "string":
            return text
        found = msgspec.json.decode(data)
        if isinstance(found, dict) and found.keys() == {"schema", "payload"} and _is_schema(found["schema"]):
            text = bytes(msgspec.json.decode(data, type=dict[str, msgspec.Raw])["payload"]).decode()
            found = found["payload"]
    except UnicodeDecodeError:
        raise BadValue(
            f"the {what} of the event is not UTF-8. Set `{what}.converter` of the connector to Connect's JsonConverter "
            "or StringConverter"
        ) from None
    except (msgspec.MsgspecError, RecursionError) as error:
        raise BadValue(
            f"the {what} of the event is not JSON ({error}). If the connector writes it with StringConverter, set "
            f"`format_options: {{{what}_converter: string}}`"
        ) from None
    return found if found is None or isinstance(found, str) else text


def _is_schema(schema: object) -> bool:
    return schema is None or (isinstance(schema, dict) and "type" in schema)


def _header_text(value: bytes | None, name: str) -> str | None:
    """Return the text of a header. Header converters write it as it is (the default), or in JSON."""
    try:
        text = None if value is None else value.decode()
        if text is None or not text.startswith('"'):
            return text
        return msgspec.json.decode(text, type=str)
    except (UnicodeDecodeError, msgspec.MsgspecError):
        raise BadValue(f"the header {name} of the event is no text: {value!r:.40}") from None


@dataclass(frozen=True)
class DebeziumOutbox:
    """The format `debezium-outbox`. See `tidelake.ingest.formats.base.Format`.

    key_converter, value_converter: the converters of the connector.
    rows: the format of the rows that events become.
    """

    NAME: ClassVar = "debezium-outbox"
    KEPT_HEADERS: ClassVar = frozenset({ID_HEADER, TYPE_HEADER})
    DECODING_BLOCKS: ClassVar = False
    CAPABILITIES: ClassVar = FormatCapabilities()

    key_converter: Converter = "json"
    value_converter: Converter = "json"
    rows: PlainJson = field(default_factory=PlainJson)

    @classmethod
    def with_options(cls, options: Mapping[str, Any]) -> DebeziumOutbox:
        """Return the format with its options: `key_converter`, `value_converter` and `inexact_values`."""
        for name in options:
            if name not in _OPTIONS:
                hint = did_you_mean(name, _OPTIONS) or "."
                raise BadInput(
                    f"`format_options`: {cls.NAME} has no option {name!r}{hint} Its options are {', '.join(_OPTIONS)}"
                )
        converters: list[Converter] = []
        for name in ("key_converter", "value_converter"):
            value = options.get(name, "json")
            if value not in ("json", "string"):
                raise BadInput(f"{name} of {cls.NAME} must be json or string, not {value!r}")
            converters.append(value)
        of_rows = {name: value for name, value in options.items() if name == "inexact_values"}
        return cls(converters[0], converters[1], PlainJson.with_options(of_rows))

    def decoder(self, target_of: TargetOf) -> Decoder:
        return _OutboxDecoder(self, self.rows.decoder(target_of))

    def infer_table(self, batch: RawBatch, row: int) -> InferredTable:
        """Return the table of events: the columns of the outbox table, with the event's id as the key."""
        try:
            event = self.row_of(batch.keys[row].as_py(), batch.values[row].as_py(), batch.headers.get(row, ()))
        except BadValue as error:
            raise TableNotInferred.for_record(batch, row, str(error)) from None
        if event is None:
            raise TableNotInferred.for_record(batch, row, "it is a tombstone")
        fields = tuple(
            DataField(number, name, not_null(STRING) if name == _ID else STRING) for number, name in enumerate(_COLUMNS)
        )
        return InferredTable(fields, (_ID,), dict.fromkeys(_COLUMNS, JSON_VALUE))

    def row_of(self, key: bytes | None, value: bytes | None, headers: Headers) -> bytes | None:
        """Return the row of an event as JSON; None for a tombstone. Raises BadValue for a record that is no event."""
        found = dict(headers)
        id_ = _header_text(found.get(ID_HEADER), ID_HEADER)
        if id_ is None:
            if value is None:
                return None
            raise BadValue(
                "the record has no header `id`, which Debezium's outbox event router adds to each event. If the topic "
                "has the changes of the outbox table itself, set `format: debezium-json`; for other rows `format: json`"
            )
        return msgspec.json.encode(
            {
                _ID: id_,
                "aggregateid": None if key is None else _converted(key, self.key_converter, "key"),
                "type": _header_text(found.get(TYPE_HEADER), TYPE_HEADER),
                "payload": None if value is None else _converted(value, self.value_converter, "value"),
            }
        )


class _OutboxDecoder:
    """See `tidelake.ingest.formats.base.Decoder`.

    rows: decodes the rows that events become.
    """

    def __init__(self, format_: DebeziumOutbox, rows: Decoder) -> None:
        self._format = format_
        self._rows = rows

    def decode(self, batch: RawBatch) -> DecodedBatch:
        rows: list[bytes | None] = []
        failures: list[DecodeFailure] = []
        records = zip(batch.keys.to_pylist(), batch.values.to_pylist(), strict=True)
        for row, (key, value) in enumerate(records):
            try:
                rows.append(self._format.row_of(key, value, batch.headers.get(row, ())))
            except BadValue as error:
                rows.append(None)
                failures.append(DecodeFailure(row, int(batch.offsets[row]), FailureKind.BAD_RECORD, str(error)))
        decoded = self._rows.decode(replace(batch, values=binary_column(rows)))
        if not failures:
            return decoded
        skipped = dict(decoded.skipped)
        skipped[Skipped.TOMBSTONE] -= len(failures)  # they have no row
        return replace(
            decoded,
            failures=tuple(sorted((*decoded.failures, *failures), key=lambda failure: failure.row)),
            skipped={kind: count for kind, count in skipped.items() if count},
        )

    def value_as_json(self, batch: RawBatch, row: int) -> bytes:
        """Return an event's row as JSON. See `JsonView`."""
        found = self._format.row_of(batch.keys[row].as_py(), batch.values[row].as_py(), batch.headers.get(row, ()))
        return b"null" if found is None else found
