"""The meaning of values at their source: Kafka Connect's schemas with Debezium's logical types.

Sources: Debezium 3.5 `io.debezium.time.*`, `io.debezium.data.*`; Kafka Connect `JsonConverter`; captures of connectors.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

import msgspec

from tidelake.errors import BadInput
from tidelake.ingest.formats.connector_rules import BY_COLUMN, rules_of, unknown_unit
from tidelake.storage.model.types import BINARY_ROOTS, DataType, Root, timestamp_unit

PER_SECOND: Final[Mapping[str, int]] = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


VARYING: Final = 2**31 - 1  # the length that Debezium declares for PostgreSQL's `bit varying` without a limit


class SemanticType(StrEnum):
    """How the JSON value of a column encodes its value."""

    PLAIN = "plain"  # the JSON value itself: a text, a number, true, a list, an object
    UNSIGNED = "unsigned"  # a 64-bit unsigned integer sent as a signed one: 2**64 - 1 arrives as -1
    DECIMAL = "decimal"  # a number, or base64 of the unscaled integer, big-endian two's complement
    VARIABLE_DECIMAL = "variable decimal"  # {"scale": 2, "value": base64 of the unscaled integer}
    BITS = "bits"  # base64, little-endian
    ESCAPED_ENUM = "escaped enum"  # a label whose commas may be escaped by a backslash
    BASE64 = "base64"
    HEX = "hex"
    DATE = "date"  # days since 1970-01-01, or ISO text
    TIME = "time"  # units since midnight, or ISO text
    TIMESTAMP = "timestamp"  # units since 1970-01-01T00:00Z, or ISO text
    UTF8 = "utf-8"  # a text whose UTF-8 encoding is the bytes
    LATIN1 = "latin-1"  # a text with one character for each byte
    BIT_NUMBER = "bit number"  # the bits of a MySQL BIT as a decimal number
    SET = "set"  # labels of a MySQL SET, separated by commas
    NUMBERED_LABEL = "numbered label"  # a label of a MySQL ENUM or SET, or its number, whose label is not known


FLOAT_WORDS: Final = ("float", "float32")  # in Connect's JSON, and in Connect's API
DOUBLE_WORDS: Final = ("double", "float64")


@dataclass(frozen=True, slots=True)
class SourceType:
    """The type of a value as its producer declares it. The default value means that nothing is declared.

    connect: Connect's type name (`int32`, `struct`, …); "" without a schema.
    semantic_type: how the JSON value encodes the value.
    name: the logical type's name, or "".
    per_second: units per second of a TIME or TIMESTAMP.
    counts_as_the_column: whether `per_second` is derived from the column's type only. If the column's type changes, its
        numbers are read in another unit.
    unit_is_assumed: whether neither a schema nor the configuration declares `per_second`.
    unknown_unit: why numbers have no known unit; "" if `per_second` is known.
    scale: the scale of a DECIMAL; -1 for the column's scale.
    precision: the precision of a DECIMAL; 0 if it is not declared.
    length: number of binary digits of BITS and BIT_NUMBER.
    labels: the labels of an ENUM that is sent as the number of its label, from 1.
    flags: the labels of a SET that is sent as a number with one bit for each label.
    column_type: the column type that the source declares.
    word: the source's spelling of the type, in lower case; "" if the source does not give it.
    doc: the source's description of the column.
    element: type of an array's elements.
    key: type of a map's keys.
    value: type of a map's values.
    fields: types of a struct's fields.
    """

    connect: str = ""
    semantic_type: SemanticType = SemanticType.PLAIN
    name: str = ""
    per_second: int = 0
    counts_as_the_column: bool = False
    unit_is_assumed: bool = False
    unknown_unit: str = ""
    scale: int = 0
    precision: int = 0
    length: int = 0
    labels: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    column_type: DataType | None = None
    word: str = ""
    doc: str | None = None
    element: SourceType | None = None
    key: SourceType | None = None
    value: SourceType | None = None
    fields: Mapping[str, SourceType] = field(default_factory=dict)


UNDECLARED: Final = SourceType()
"""For Debezium's records. The column's type and the connector's settings complete what the records don't declare."""

JSON_VALUE: Final = SourceType("json")
"""For records without types: the JSON value is the value. Numbers are not days or times, unless configured."""

_LOGICAL: Final[Mapping[str, tuple[SemanticType, int]]] = {
    "org.apache.kafka.connect.data.Decimal": (SemanticType.DECIMAL, 0),
    "io.debezium.data.VariableScaleDecimal": (SemanticType.VARIABLE_DECIMAL, 0),
    "io.debezium.data.Bits": (SemanticType.BITS, 0),
    "io.debezium.time.Date": (SemanticType.DATE, 0),
    "io.debezium.time.IsoDate": (SemanticType.DATE, 0),
    "org.apache.kafka.connect.data.Date": (SemanticType.DATE, 0),
    "io.debezium.time.Time": (SemanticType.TIME, PER_SECOND["ms"]),
    "io.debezium.time.MicroTime": (SemanticType.TIME, PER_SECOND["us"]),
    "io.debezium.time.NanoTime": (SemanticType.TIME, PER_SECOND["ns"]),
    "org.apache.kafka.connect.data.Time": (SemanticType.TIME, PER_SECOND["ms"]),
    "io.debezium.time.Timestamp": (SemanticType.TIMESTAMP, PER_SECOND["ms"]),
    "io.debezium.time.MicroTimestamp": (SemanticType.TIMESTAMP, PER_SECOND["us"]),
    "io.debezium.time.NanoTimestamp": (SemanticType.TIMESTAMP, PER_SECOND["ns"]),
    "org.apache.kafka.connect.data.Timestamp": (SemanticType.TIMESTAMP, PER_SECOND["ms"]),
    "io.debezium.data.EnumSet": (SemanticType.SET, 0),
}  # ZonedTimestamp, ZonedTime, IsoTime and IsoTimestamp are texts, which any temporal column reads

# Labels with a comma: for the same label, MariaDB's snapshot has `blue, dark` and its binlog has `blue\, dark`.
_ENUM: Final = "io.debezium.data.Enum"
_PROPAGATED_TYPE: Final = "__debezium.source.column.type"  # set by the connector's column.propagate.source.type


class ConnectSchema(msgspec.Struct, frozen=True):
    """Connect's JSON form of a schema, as `JsonConverter` writes it."""

    type: str
    name: str | None = None
    optional: bool = True
    parameters: dict[str, str] | None = None
    doc: str | None = None
    field: str | None = None
    fields: tuple[ConnectSchema, ...] = ()
    items: ConnectSchema | None = None
    keys: ConnectSchema | None = None
    values: ConnectSchema | None = None

    def member(self, name: str) -> ConnectSchema | None:
        """Return the schema of a struct's field, or None."""
        return next((f for f in self.fields if f.field == name), None)


_read_schema: Final = msgspec.json.Decoder(ConnectSchema).decode


def parse_connect_schema(data: bytes | msgspec.Raw) -> ConnectSchema:
    """Return the parsed schema. Raises BadInput for anything but a Connect schema."""
    try:
        return _read_schema(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as e:
        raise BadInput(f"not a Kafka Connect schema: {e}") from None


def source_type(schema: ConnectSchema) -> SourceType:
    """Return the type that a schema declares. A numeric parameter that is not a number is ignored."""
    semantic_type, per_second = _LOGICAL.get(schema.name or "", (SemanticType.PLAIN, 0))
    parameters: Mapping[str, Any] = schema.parameters or {}
    if semantic_type is SemanticType.PLAIN and schema.type == "bytes":
        semantic_type = SemanticType.BASE64
    if schema.name == _ENUM and r"\," in str(parameters.get("allowed", "")):
        semantic_type = SemanticType.ESCAPED_ENUM
    if schema.type == "int64" and "BIGINT UNSIGNED" in str(parameters.get(_PROPAGATED_TYPE, "")).upper():
        semantic_type = SemanticType.UNSIGNED

    def number(parameter: str) -> int:
        text = str(parameters.get(parameter, ""))
        return int(text) if re.fullmatch(r"-?\d{1,10}", text) else 0

    return SourceType(
        connect=schema.type,
        semantic_type=semantic_type,
        name=schema.name or "",
        per_second=per_second,
        scale=number("scale"),
        precision=number("connect.decimal.precision"),
        length=number("length"),
        word=_propagated_word(parameters),
        doc=schema.doc,
        element=None if schema.items is None else source_type(schema.items),
        key=None if schema.keys is None else source_type(schema.keys),
        value=None if schema.values is None else source_type(schema.values),
        fields={f.field: source_type(f) for f in schema.fields if f.field is not None},
    )


def _propagated_word(parameters: Mapping[str, Any]) -> str:
    word = str(parameters.get(_PROPAGATED_TYPE, "")).lower()
    length = parameters.get(f"{_PROPAGATED_TYPE.rpartition('.')[0]}.length")
    return f"{word}(1)" if word == "tinyint" and str(length) == "1" else word


# ---------------------------------------------------------------- types that no schema declares


@dataclass(frozen=True, slots=True)
class ConnectorSettings:
    """Settings of the Debezium connector that its records don't contain, under Debezium's names.

    time_precision_mode: the unit of dates and times. None is the connector's default (see `connector_rules`).
        adaptive: by the column's precision: ms up to 3, us up to 6, else ns.
        adaptive_time_microseconds: like adaptive, but times of day are always in us.
        connect: always ms.
        microseconds: always us.
        nanoseconds: always ns.
        isostring: texts. Numbers are refused.
    binary_handling_mode: base64 (also for Debezium's bytes and base64-url-safe) or hex.
    decimal_handling_mode: string (also for double: any JSON number is read) or precise (base64 of unscaled integers).
    unavailable_value_placeholder: the text that the connector sends for a value that it does not have.
    """

    time_precision_mode: str | None = None
    binary_handling_mode: str = "base64"
    decimal_handling_mode: str = "string"
    unavailable_value_placeholder: str = "__debezium_unavailable_value"

    def __post_init__(self) -> None:
        allowed = {
            "time_precision_mode": (None, *_TIME_MODES),
            "binary_handling_mode": ("base64", "hex"),
            "decimal_handling_mode": ("string", "precise"),
        }
        for name, words in allowed.items():
            if getattr(self, name) not in words:
                known = ", ".join(word for word in words if word)
                raise BadInput(f"{name}: {getattr(self, name)!r} is not one of {known}")


# mode: (unit of times of day, unit of timestamps); None if they are texts.
_TIME_MODES: Final[Mapping[str, tuple[str | None, str | None]]] = {
    "adaptive": (BY_COLUMN, BY_COLUMN),
    "adaptive_time_microseconds": ("us", BY_COLUMN),
    "connect": ("ms", "ms"),
    "microseconds": ("us", "us"),
    "nanoseconds": ("ns", "ns"),
    "isostring": (None, None),
}

# the words allowed in Target.source_types, in addition to `bits(n)`
SPELLED: Final[Mapping[str, SourceType]] = {
    "bigint unsigned": SourceType("int64", SemanticType.UNSIGNED),
    "decimal base64": SourceType("bytes", SemanticType.DECIMAL, scale=-1),  # -1: the column's scale
    "bits": SourceType("bytes", SemanticType.BITS),
    "bits varying": SourceType("bytes", SemanticType.BITS, length=VARYING),
    "base64": SourceType("bytes", SemanticType.BASE64),
    "hex": SourceType("string", SemanticType.HEX),
    "date": SourceType("int32", SemanticType.DATE),
    "set": SourceType("string", SemanticType.SET),
    **{f"time {unit}": SourceType("int64", SemanticType.TIME, per_second=n) for unit, n in PER_SECOND.items()},
    **{
        f"timestamp {unit}": SourceType("int64", SemanticType.TIMESTAMP, per_second=n) for unit, n in PER_SECOND.items()
    },
}


def spelled_source_type(column: str, word: str) -> SourceType:
    """Return the type of a word of SPELLED, or of `bits(n)` for n digits. Raises BadInput for any other word."""
    word = " ".join(word.lower().split())
    if bits := re.fullmatch(r"bits\((\d{1,5})\)", word):
        return replace(SPELLED["bits"], length=int(bits[1]))
    if word not in SPELLED:
        raise BadInput(f"source type {word!r} of column {column}: not one of {', '.join(SPELLED)}, bits(n)")
    return SPELLED[word]


def completed(declared: SourceType, target: DataType, connector: str, settings: ConnectorSettings) -> SourceType:
    """Return `declared`, completed from the column's type and the connector's settings.

    connector: `source.connector` of the records (`postgresql`, `mariadb`, …); "" if they have none.
    """
    if declared.semantic_type is SemanticType.DECIMAL and declared.scale == -1:
        return replace(declared, scale=getattr(target, "scale", 0))
    if declared.semantic_type is SemanticType.SET and target.root is not Root.ARRAY:
        declared = replace(declared, semantic_type=SemanticType.PLAIN)
    if declared.semantic_type is not SemanticType.PLAIN:
        return declared
    if target.root in BINARY_ROOTS:
        return replace(declared, semantic_type=SemanticType(settings.binary_handling_mode))
    if declared.connect not in ("", "string"):
        return declared
    if target.root is Root.ARRAY and declared.connect == "" and (rules := rules_of(connector)) and rules.has_sets:
        return replace(declared, semantic_type=SemanticType.SET)
    match target.root:
        case Root.DATE:
            return replace(declared, semantic_type=SemanticType.DATE)
        case Root.TIME | Root.TIMESTAMP | Root.TIMESTAMP_LTZ:
            return _with_unit(declared, target, connector, settings)
        case Root.DECIMAL if settings.decimal_handling_mode == "precise":
            return replace(declared, semantic_type=SemanticType.DECIMAL, scale=getattr(target, "scale", 0))
        case _:
            return declared


def _with_unit(declared: SourceType, target: DataType, connector: str, settings: ConnectorSettings) -> SourceType:
    """Return `declared` with the unit of its numbers, from the configured mode, else from the connector's rules."""
    is_time = target.root is Root.TIME
    semantic_type = SemanticType.TIME if is_time else SemanticType.TIMESTAMP
    mode = settings.time_precision_mode
    if mode is not None:
        time_unit, timestamp_unit_ = _TIME_MODES[mode]
    else:
        rules = rules_of(connector)
        time_unit, timestamp_unit_ = (None, None) if rules is None else (rules.times, rules.timestamps)
    unit = time_unit if is_time else timestamp_unit_
    if unit is None:
        wanted = semantic_type.value
        why = f"with time_precision_mode {mode} a {wanted} is a text" if mode else unknown_unit(connector, wanted)
        return replace(declared, semantic_type=semantic_type, unknown_unit=why, unit_is_assumed=True)
    is_unnamed = declared.connect == ""
    return replace(
        declared,
        semantic_type=semantic_type,
        per_second=PER_SECOND[unit or adaptive_unit(target)],
        counts_as_the_column=not unit and is_unnamed and not is_time,
        unit_is_assumed=is_unnamed and (mode is None or unit == BY_COLUMN),
    )


def adaptive_unit(target: DataType) -> str:
    """Return the unit of Debezium's adaptive mode for a column. Debezium counts whole seconds in milliseconds, too."""
    unit = timestamp_unit(getattr(target, "precision", 0))
    return "ms" if unit == "s" else unit
