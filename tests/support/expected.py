"""Arrow values and the JSON values of golden tables and of the Java oracle, compared by meaning.

The JSON form (tools/java-oracle/README.md, "Values"): DECIMAL as text, bytes {"hex": ..}, DATE, TIME, TIMESTAMP
as ISO text, NaN and infinities as text, MAP and MULTISET as a list of [key, value] in any order, ROW as an object.
Meaning depends on the column's type: "1.0" and "1.00" are one DECIMAL and two STRINGs.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from decimal import Context, Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa

Json = Any

KIND_TEXT: Final = ("+I", "-U", "+U", "-D")  # by the value of _VALUE_KIND
_EXACT: Final = Context(prec=100)
_TIMESTAMP: Final = re.compile(r"([+-]?\d{4,}-\d\d-\d\d)[T ](\d\d:\d\d(?::\d\d)?)(?:\.(\d+))?Z?")
_FRACTION_DIGITS: Final = {"s": 0, "ms": 3, "us": 6, "ns": 9}


# ---------------------------------------------------------------- Arrow to JSON


def json_rows(rows: pa.Table | pa.RecordBatch) -> list[dict[str, Json]]:
    """Each row as an object in the JSON form: what the Java oracle's `write` takes."""
    columns = [json_values(column) for column in rows.columns]
    return [dict(zip(rows.schema.names, row, strict=True)) for row in zip(*columns, strict=True)]


def json_values(column: pa.Array | pa.ChunkedArray) -> list[Json]:
    """A column's values in the JSON form. Row by row: for tests."""
    if isinstance(column, pa.ChunkedArray):
        return [value for chunk in column.chunks for value in json_values(chunk)]
    plain = _plain_values(column)
    valid = column.is_valid().to_pylist()
    return [value if there else None for value, there in zip(plain, valid, strict=True)]


def _plain_values(column: pa.Array) -> Sequence[Json]:
    """Like json_values, but the entries for nulls are arbitrary."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return json_values(column.dictionary_decode())
    if pa.types.is_timestamp(kind):
        ending = "" if kind.tz is None else "Z"
        return [_iso_timestamp(ticks, kind.unit) + ending for ticks in _ticks(column, pa.int64())]
    if pa.types.is_date32(kind):
        return [str(np.datetime64(days, "D")) for days in _ticks(column, pa.int32())]
    if pa.types.is_time(kind):
        narrow = pa.int32() if pa.types.is_time32(kind) else pa.int64()
        return [_iso_timestamp(ticks, kind.unit).partition("T")[2] for ticks in _ticks(column, narrow)]
    if pa.types.is_floating(kind):
        return [_json_float(value) for value in column.to_pylist()]
    if pa.types.is_decimal(kind):
        return [f"{value:f}" if value is not None else None for value in column.to_pylist()]
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return [{"hex": value.hex()} if value is not None else None for value in column.to_pylist()]
    if pa.types.is_map(kind):
        return [_pairs(value) if value.is_valid else None for value in column]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return [json_values(value.values) if value.is_valid else None for value in column]
    if pa.types.is_struct(kind):
        fields = [json_values(part) for part in column.flatten()]
        names = [field.name for field in kind]
        return [dict(zip(names, row, strict=True)) for row in zip(*fields, strict=True)] or [{}] * len(column)
    plain: list[Json] = column.to_pylist()
    return plain


def _pairs(value: pa.MapScalar) -> list[list[Json]]:
    keys, values = (json_values(part) for part in value.values.flatten())
    return sorted(([k, v] for k, v in zip(keys, values, strict=True)), key=lambda pair: str(pair[0]))


def _ticks(column: pa.Array, integer: pa.DataType) -> list[int]:
    return [0 if ticks is None else ticks for ticks in column.view(integer).to_pylist()]


def _iso_timestamp(ticks: int, unit: str) -> str:
    """Formats the fraction itself: nanoseconds would limit NumPy's years to 1677..2262."""
    per_second = 10 ** _FRACTION_DIGITS[unit]
    seconds, fraction = divmod(ticks, per_second)
    text = str(np.datetime64(seconds, "s"))
    return text if unit == "s" else f"{text}.{fraction:0{_FRACTION_DIGITS[unit]}d}"


def _json_float(value: float | None) -> float | str | None:
    if value is None or np.isfinite(value):
        return value
    return "NaN" if np.isnan(value) else "Infinity" if value > 0 else "-Infinity"


# ---------------------------------------------------------------- meaning


def meaning(kind: pa.DataType) -> Callable[[Json], Json]:
    """A function that makes JSON values of this Arrow type equal exactly when they mean the same."""
    there = _meaning_of_value(kind)
    return lambda value: None if value is None else there(value)


def _meaning_of_value(kind: pa.DataType) -> Callable[[Json], Json]:
    if pa.types.is_dictionary(kind):
        return meaning(kind.value_type)
    if pa.types.is_decimal(kind):
        return lambda value: f"{Decimal(value).normalize(_EXACT):f}"
    if pa.types.is_timestamp(kind):
        return _timestamp_meaning
    if pa.types.is_time(kind):
        return lambda value: _without_zero_fraction(str(value))
    if pa.types.is_float32(kind):
        return lambda value: str(np.float32(value))
    if pa.types.is_floating(kind):
        return lambda value: repr(float(value))
    if pa.types.is_map(kind):
        key, item = meaning(kind.key_type), meaning(kind.item_type)
        return lambda value: sorted(([key(k), item(v)] for k, v in value), key=_text)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        element = meaning(kind.value_type)
        return lambda value: [element(v) for v in value]
    if pa.types.is_struct(kind) and {field.name for field in kind} == {"value", "metadata"}:
        return _variant_meaning
    if pa.types.is_struct(kind):
        parts = {field.name: meaning(field.type) for field in kind}
        return lambda value: {name: part(value[name]) for name, part in parts.items()}
    return lambda value: value


def _variant_meaning(value: dict[str, Json]) -> dict[str, str]:
    """The two byte strings. The oracle writes them as hex, next to the value as JSON text."""
    return {
        part: value[part]["hex"] if isinstance(value[part], dict) else value[part] for part in ("value", "metadata")
    }


def _timestamp_meaning(value: str) -> str:
    match = _TIMESTAMP.fullmatch(value)
    if match is None:
        raise ValueError(f"{value!r} is not a timestamp")
    day, time, fraction = match.groups()
    return _without_zero_fraction(f"{day}T{time if time.count(':') == 2 else time + ':00'}.{fraction or ''}")


def _without_zero_fraction(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text


def _text(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


# ---------------------------------------------------------------- comparing


def difference(actual: pa.Table, expected: Iterable[Sequence[Json]], *, in_order: bool = False) -> str | None:
    """None when the table has exactly the expected rows (lists in column order), each as often; else what differs.

    in_order: the rows must also come in the expected order.
    """
    means = [meaning(field.type) for field in actual.schema]
    wanted = [_row_text(row, means, actual.schema.names) for row in expected]
    got = [_row_text(list(row.values()), means, actual.schema.names) for row in json_rows(actual)]
    return text_difference(got, wanted, in_order=in_order)


def changes_difference(
    actual: pa.Table, expected: Iterable[Sequence[Json]], key_columns: Sequence[str] = ()
) -> str | None:
    """As `difference`, for changes: `actual` has _VALUE_KIND, expected rows begin with +I, -U, +U or -D.

    key_columns: rows of one key must also come in the expected order. Between keys order means nothing.
    """
    names = [name for name in actual.schema.names if name != "_VALUE_KIND"]
    kinds = [KIND_TEXT[kind] for kind in actual.column("_VALUE_KIND").to_pylist()]
    values = actual.select(names)
    means: list[Callable[[Json], Json]] = [str, *(meaning(field.type) for field in values.schema)]
    columns = ["_kind", *names]
    rows = [[kind, *row.values()] for kind, row in zip(kinds, json_rows(values), strict=True)]
    got = [_row_text(row, means, columns) for row in rows]
    wanted_rows = list(expected)
    wanted = [_row_text(row, means, columns) for row in wanted_rows]
    if (problem := text_difference(got, wanted)) is not None or not key_columns:
        return problem
    positions = [columns.index(name) for name in key_columns]

    def by_key(rows: list[list[Json]], texts: list[str]) -> list[str]:
        keyed = [(_text([means[at](row[at]) for at in positions]), text) for row, text in zip(rows, texts, strict=True)]
        return [text for _, text in sorted(keyed, key=lambda pair: pair[0])]  # stable: order holds inside a key

    return text_difference(by_key(rows, got), by_key([list(row) for row in wanted_rows], wanted), in_order=True)


def text_difference(got: Sequence[str], wanted: Sequence[str], *, in_order: bool = False, shown: int = 5) -> str | None:
    """None when both hold the same texts, each as often (and in the same order where asked)."""
    surplus, missing = Counter(got) - Counter(wanted), Counter(wanted) - Counter(got)
    if surplus or missing:
        lines = [f"{len(got)} rows instead of {len(wanted)}" if len(got) != len(wanted) else f"{len(got)} rows"]
        lines += [f"missing, {missing.total()}:"] if missing else []
        lines += [f"  {row}{_nearest(row, surplus)}" for row, _ in missing.most_common(shown)]
        lines += [f"not expected, {surplus.total()}:"] if surplus else []
        lines += [f"  {row}" for row, _ in surplus.most_common(shown)]
        return "\n".join(lines)
    if in_order and list(got) != list(wanted):
        at = next(i for i, (a, b) in enumerate(zip(got, wanted, strict=True)) if a != b)
        return f"same rows in another order: row {at} is {got[at]}, expected {wanted[at]}"
    return None


def _nearest(missing: str, surplus: Iterable[str]) -> str:
    """In which columns the likeliest of the rows that were not expected differs; nothing when all differ in most."""
    wanted = json.loads(missing)
    others = [json.loads(row) for row in surplus]
    changes = [{c: other[c] for c in wanted if other[c] != wanted[c]} for other in others]
    nearest = min(changes, key=len, default=wanted)
    return f"\n    there is one with {_text(nearest)}" if 2 * len(nearest) <= len(wanted) else ""


def _row_text(row: Sequence[Json], means: Sequence[Callable[[Json], Json]], names: Sequence[str]) -> str:
    if len(row) != len(names):
        raise ValueError(f"{len(row)} values for the {len(names)} columns {', '.join(names)}: {row}")
    return _text({name: mean(value) for name, mean, value in zip(names, means, row, strict=True)})
