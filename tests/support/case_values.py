"""Column types and values from the JSON of a vector: types are written in the suite, or derived from the values.

Under a hook there are cases nobody here has seen: what is not understood is an error that says what.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tests.support.cases import NotUnderstood
from tidelake.storage.model.types import (
    TIMESTAMP_ROOTS,
    ArrayType,
    AtomicType,
    DataType,
    MapType,
    MultisetType,
    Root,
    RowType,
    VectorType,
    arrow_type,
    parse_type,
)

_SPELLINGS: Final[Mapping[str, str]] = {
    "BOOL": "BOOLEAN",
    "BYTE": "TINYINT",
    "SHORT": "SMALLINT",
    "LONG": "BIGINT",
    "TEXT": "STRING",
    "VARCHAR": "STRING",
    "BINARY": "BYTES",
    "VARBINARY": "BYTES",
    **{
        f"{name}_{unit}": f"{name}({digits})"
        for name in ("TIMESTAMP", "TIMESTAMP_LTZ")
        for unit, digits in (("SECONDS", 0), ("MILLIS", 3), ("MICROS", 6), ("NANOS", 9))
    },
}
_FLOAT_WORDS: Final = frozenset({"nan", "inf", "+inf", "-inf", "infinity", "+infinity", "-infinity"})
_PREFIXES: Final = ("i64:", "f32:", "f64:", "hex:")


# ---------------------------------------------------------------- types


def column_type(text: str | None, samples: Iterable[Any], row_fields: Sequence[str] | None = None) -> DataType:
    """text: `int`, `array<row>`, `map`, `decimal(10,2)`, `timestamp_millis`, …; what it leaves open (all of it when
    None) comes from the samples. row_fields: names of the fields of a `row`; f0, f1, … else.
    """
    return parse_type(_spelled(text or "", list(samples), row_fields))


def _spelled(text: str, samples: Sequence[Any], row_fields: Sequence[str] | None) -> str:
    head, bracket, rest = text.strip().partition("<")
    inner = rest.rpartition(">")[0]
    present = [sample for sample in samples if sample is not None]
    match head.strip().upper():
        case "ARRAY":
            return f"ARRAY<{_spelled(inner, [e for sample in present for e in sample], row_fields)}>"
        case "MAP":
            entries = [entry for sample in present for entry in _entries(sample)]
            texts = top_level_parts(inner) if bracket else ["", ""]
            key, value = (_spelled(t, [entry[i] for entry in entries], row_fields) for i, t in enumerate(texts))
            return f"MAP<{key}, {value}>"
        case "ROW" if not bracket:
            return _row(present, row_fields)
        case "DECIMAL" if "(" not in text:
            scale = max((max(0, -_exponent(sample)) for sample in present), default=0)
            return f"DECIMAL({38 if scale else 10}, {scale})"
        case "TIMESTAMP" | "TIMESTAMP_LTZ" as bare if any(isinstance(sample, int) for sample in present):
            return f"{bare}(3)"  # a number alone is milliseconds, as Java's Timestamp counts
        case "":
            return _guessed(present, row_fields)
        case upper:
            return _SPELLINGS.get(upper, text)


def _guessed(present: Sequence[Any], row_fields: Sequence[str] | None = None) -> str:
    kinds = {type(sample) for sample in present}
    if not kinds:
        return "INT"
    if kinds == {bool}:
        return "BOOLEAN"
    if kinds == {int}:
        return "INT" if all(-(2**31) <= number < 2**31 for number in present) else "BIGINT"
    if kinds <= {int, float} or (
        kinds <= {int, float, str} and all(s.lower() in _FLOAT_WORDS for s in present if isinstance(s, str))
    ):
        return "DOUBLE"
    if kinds == {str}:
        return "STRING"
    if kinds == {dict}:
        return "BYTES" if all(sample.keys() == {"hex"} for sample in present) else _row(present, row_fields)
    if kinds == {list}:
        elements = [element for sample in present for element in sample if element is not None]
        if len({_family(element) for element in elements}) > 1:
            return _row(present, row_fields)
        return f"ARRAY<{_guessed(elements, row_fields)}>"
    raise NotUnderstood(f"a column with the values {present!r}, and the case doesn't say its type")


def is_decimal_text(sample: Any) -> bool:
    return isinstance(sample, str) and re.fullmatch(r"[+-]?\d+(\.\d+)?", sample) is not None


def _row(present: Sequence[Any], row_fields: Sequence[str] | None) -> str:
    if present and isinstance(present[0], Mapping):
        names = list(dict.fromkeys(name for sample in present for name in sample))
        rows = list(present)
    else:
        names = list(row_fields or (f"f{i}" for i in range(max(map(len, present), default=2))))
        rows = [dict(zip(names, sample, strict=True)) for sample in present]
    columns = {name: [row[name] for row in rows if row.get(name) is not None] for name in names}
    texts = any(isinstance(value, str) for values in columns.values() for value in values)
    kinds = {name: _guessed(values) if values else "STRING" if texts else "INT" for name, values in columns.items()}
    return f"ROW<{', '.join(f'`{name}` {kind}' for name, kind in kinds.items())}>"


def _family(value: Any) -> type:
    return float if type(value) is int else type(value)


def top_level_parts(text: str) -> list[str]:
    """`INT, MAP<INT, STRING>` cut at the commas that are in no brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "<(") - (character in ">)")
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def _exponent(number: Any) -> int:
    exponent = Decimal(str(number)).as_tuple().exponent
    return exponent if isinstance(exponent, int) else 0


# ---------------------------------------------------------------- values


def python_value(value: Any, data_type: DataType) -> Any:
    """As `pa.array` takes it. Whole numbers for times count what the type counts: days, milliseconds of a day, and
    since 1970 what the last digit of the type stands for.
    """
    if value is None:
        return None
    if isinstance(value, str) and data_type.root not in (Root.CHAR, Root.VARCHAR):
        for prefix in _PREFIXES:
            value = value.removeprefix(prefix)
    try:
        return _read(value, data_type)
    except (ValueError, TypeError, ArithmeticError, AttributeError, KeyError) as e:
        raise NotUnderstood(f"{value!r} as a value of type {data_type}: {e!r}") from e


def _read(value: Any, data_type: DataType) -> Any:
    match data_type:
        case ArrayType(element=element) | VectorType(element=element):
            return [python_value(e, element) for e in value]
        case MapType(key=key, value=of_value):
            return [(python_value(k, key), python_value(v, of_value)) for k, v in _entries(value)]
        case MultisetType(element=element):
            return [(python_value(k, element), int(v)) for k, v in _entries(value)]
        case RowType(fields=fields):
            names = [field.name for field in fields]
            row = value if isinstance(value, Mapping) else dict(zip(names, value, strict=True))
            if extra := row.keys() - names:
                raise NotUnderstood(f"fields {sorted(extra)} of a row {data_type}")
            return {field.name: python_value(row.get(field.name), field.type) for field in fields}
        case AtomicType(root=root):
            return _atom(value, root, data_type)
    raise ValueError("no such values are known")


def _atom(value: Any, root: Root, data_type: AtomicType) -> Any:
    is_text = isinstance(value, str)
    match root:
        case Root.BOOLEAN:
            return {"true": True, "false": False}[value.lower()] if is_text else _typed(value, bool)
        case Root.TINYINT | Root.SMALLINT | Root.INT | Root.BIGINT:
            return int(value) if is_text or value == int(value) else _typed(value, int)
        case Root.FLOAT | Root.DOUBLE:
            return float(value)
        case Root.DECIMAL:
            unscaled = is_text and value.startswith("unscaled:")
            return Decimal(value[9:]).scaleb(-data_type.scale) if unscaled else Decimal(str(value))
        case Root.CHAR | Root.VARCHAR:
            return _typed(value, str)
        case Root.BINARY | Root.VARBINARY:
            digits = value["hex"] if isinstance(value, Mapping) else value
            is_hex = len(digits) % 2 == 0 and not set(digits) - set("0123456789abcdefABCDEF")
            return bytes.fromhex(digits) if is_hex else digits.encode()
        case Root.DATE:
            return date.fromisoformat(value) if is_text and "-" in value[1:] else int(value)
        case Root.TIME:
            if is_text and ":" in value:
                return time.fromisoformat(value)
            return (datetime.min + timedelta(milliseconds=int(value))).time()
        case _ if root in TIMESTAMP_ROOTS:
            return _moment(value, data_type) if is_text and "-" in value[1:] else int(value)
    raise ValueError("no such values are known")


def _moment(text: str, data_type: AtomicType) -> Any:
    """A number where there are more digits than a datetime holds."""
    text = text.removesuffix("Z").strip()
    if data_type.precision > 6 and len(text.partition(".")[2].rstrip("0")) > 6:
        return int(np.datetime64(text.replace(" ", "T"), "ns").astype(np.int64))
    return datetime.fromisoformat(text)


def _typed(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"expected {kind.__name__}")
    return value


def _entries(value: Any) -> list[Any]:
    return list(value.items()) if isinstance(value, Mapping) else list(value)


def column_of(values: Iterable[Any], data_type: DataType) -> pa.Array:
    """Values as the JSON has them, as a column."""
    return pa.array([python_value(value, data_type) for value in values], arrow_type(data_type))


# ---------------------------------------------------------------- comparing


def expected_value(value: Any, data_type: DataType) -> Any:
    """What `to_pylist` gives for the value that the JSON has. Sums may outgrow the digits that a decimal declares."""
    kind = arrow_type(data_type)
    if pa.types.is_decimal(kind):
        kind = pa.decimal128(38, kind.scale)
    return pa.array([python_value(value, data_type)], kind)[0].as_py()


def comparable(value: Any, *, unordered: bool = False) -> Any:
    """NaN equals NaN, and the order of a map's entries means nothing; that of elements neither where `unordered`."""
    match value:
        case float() if math.isnan(value):
            return "NaN"
        case dict():
            return {name: comparable(member, unordered=unordered) for name, member in value.items()}
        case tuple():
            return tuple(comparable(part, unordered=unordered) for part in value)
        case list():
            parts = [comparable(element, unordered=unordered) for element in value]
            is_map = bool(parts) and all(isinstance(part, tuple) for part in parts)
            return sorted(parts, key=repr) if unordered or is_map else parts
    return value
