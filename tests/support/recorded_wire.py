"""Facts of a recording that `expected.json` does not contain: settings, dropped columns, truncates."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import fastavro
import msgspec
import zstandard

from tests.support.cases import NotUnderstood, recorded_bytes, recorded_lines
from tests.support.recorded_columns import Wire

_JSON: Final = "org.apache.kafka.connect.json.JsonConverter"
# Variants by name, for captures without connectors.json; the words are the connector's.
_VARIANTS: Final[Mapping[str, Mapping[str, str]]] = {
    "json-schema": {"value.converter": _JSON},
    "json-schema-numeric": {"value.converter": _JSON, "value.converter.decimal.format": "NUMERIC"},
    "json-schema-connect": {
        "value.converter": _JSON,
        "time.precision.mode": "connect",
        "decimal.handling.mode": "double",
        "binary.handling.mode": "hex",
    },
    "json-plain": {
        "value.converter": _JSON,
        "value.converter.schemas.enable": "false",
        "decimal.handling.mode": "string",
    },
    "avro": {"value.converter": "AvroConverter"},
}


@cache
def connector(capture: Path, variant: str | None) -> Mapping[str, str]:
    """Settings of the connector that made a variant. None: a capture with its topics directly in its folder, as plain
    JSON.

    Raises NotUnderstood for a variant that neither connectors.json nor its name explains.
    """
    path = capture / "connectors.json"
    settings = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    found: Mapping[str, str] | None = settings.get(variant) or _VARIANTS.get(variant or "json-plain")
    if found is None:
        raise NotUnderstood(
            f"capture {capture.name} has a variant {variant!r}; known are {', '.join(_VARIANTS)}, "
            "and what connectors.json describes"
        )
    if not found["value.converter"].endswith(("JsonConverter", "AvroConverter")):
        raise NotUnderstood(f"variant {variant!r} of {capture.name} is written by {found['value.converter']}")
    return found


def is_avro(settings: Mapping[str, str]) -> bool:
    return settings["value.converter"].endswith("AvroConverter")


def wire_of(settings: Mapping[str, str]) -> Wire:
    return Wire(
        has_schema=is_avro(settings) or settings.get("value.converter.schemas.enable") != "false",
        sends_doubles=settings.get("decimal.handling.mode") == "double",
        sends_interval_texts=settings.get("interval.handling.mode") == "string",
        sends_unsigned_decimals=settings.get("bigint.unsigned.handling.mode") == "precise",
    )


def format_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """What `format_options` must say of the connector, because its records don't."""
    found = {
        "binary_handling_mode": settings.get("binary.handling.mode", "bytes").replace("bytes", ""),
        "unavailable_value_placeholder": settings.get("unavailable.value.placeholder", ""),
    }
    if not wire_of(settings).has_schema:
        found["time_precision_mode"] = settings.get("time.precision.mode", "")
        found["decimal_handling_mode"] = settings.get("decimal.handling.mode", "precise")
    if found.get("decimal_handling_mode") in ("string", "double"):
        del found["decimal_handling_mode"]
    return {name: text for name, text in found.items() if text}


# ---------------------------------------------------------------- records


@dataclass
class Seen:
    """columns: of all after images, in order of appearance, to the first letters of their values in JSON.
    in_all: columns that no after image lacks. rows: op c and r. truncates: op t.
    """

    columns: dict[str, set[str]] = field(default_factory=dict)
    in_all: set[str] | None = None
    rows: int = 0
    truncates: int = 0

    def add(self, image: Mapping[str, str]) -> None:
        for name, letter in image.items():
            self.columns.setdefault(name, set()).add(letter)
        self.in_all = set(image) if self.in_all is None else self.in_all & set(image)


class _Payload(msgspec.Struct):
    op: str | None = None
    after: dict[str, msgspec.Raw] | None = None
    payload: _Payload | None = None


class _Line(msgspec.Struct):
    value: str | None = None
    value_base64: str | None = None


def seen_in(paths: Iterable[Path], schemas: Path | None) -> Seen:
    """Every record of these files. schemas: of records in Avro."""
    seen = Seen()
    for path in paths:
        if schemas is not None:
            _see_avro(seen, path, schemas)
        else:
            _see_json(seen, path)
    return seen


def _see_json(seen: Seen, path: Path) -> None:
    line_decoder, decoder = msgspec.json.Decoder(_Line), msgspec.json.Decoder(_Payload)
    with zstandard.open(path, "rb") as lines:
        for line in lines.read().split(b"\n"):
            if not line or (value := line_decoder.decode(line).value) is None:
                continue
            record = decoder.decode(value)
            record = record.payload or record
            seen.truncates += record.op == "t"
            if record.after is not None:
                seen.rows += record.op in ("c", "r")
                seen.add({name: chr(bytes(raw)[0]) for name, raw in record.after.items()})


def _see_avro(seen: Seen, path: Path, schemas: Path) -> None:
    texts: dict[str, str] = json.loads(schemas.read_text(encoding="utf-8"))["schemas"]
    for line in recorded_lines(path):
        value = recorded_bytes(line, "value")
        if value is None:
            continue
        op, after = _avro_envelope(texts[str(int.from_bytes(value[1:5], "big"))], value[5:])
        seen.truncates += op == "t"
        if after is not None:
            seen.rows += op in ("c", "r")
            seen.add(after)


@cache
def _parsed(schema: str) -> Any:
    return fastavro.parse_schema(json.loads(schema))


def _avro_envelope(schema: str, data: bytes) -> tuple[str | None, dict[str, str] | None]:
    record: Any = fastavro.schemaless_reader(BytesIO(data), _parsed(schema), None)
    after = record.get("after")
    return record.get("op"), None if after is None else {name: _letter(value) for name, value in after.items()}


def _letter(value: object) -> str:
    """As JSON would begin with."""
    return "n" if value is None else '"' if isinstance(value, str) else "0" if isinstance(value, int | float) else "{"
