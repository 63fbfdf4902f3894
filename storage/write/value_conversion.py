"""Converts a caller's values to the in-memory form of a column's type. The conversion is exact, or an error.

The same rules apply at every depth:

    ROW        fields are matched by exact name; a missing field is null, an unknown one is an error
    ARRAY …    lists of any kind and length; VECTOR only of its own length; MAP and MULTISET need maps
    NOT NULL   a null part is an error if its parent is not null; keys of maps and elements of vectors are never null
    numbers    of any type, if the number does not change: 7.0 for INT, 0.5 for FLOAT, 0.1 for DECIMAL(10, 2)
    times      of any unit, if no digit is lost; not with a zone for a type without one, and no number for a time
    texts      if Arrow can parse them as the type, or as a time of day, rounded for FLOAT and DOUBLE; any number or
               time can become a text

Values below a null are ignored. A batch that has the table's types is checked for values that these types can't hold
but Arrow allows in arrays built from buffers (bytes that are not UTF-8, decimals with too many digits, times outside of
a day). It is returned unchanged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.storage.files.formats.arrow_conversion import struct_array, with_child
from tidelake.storage.model.types import (
    BINARY_ROOTS,
    BYTES,
    INT,
    STRING_ROOTS,
    ArrayType,
    AtomicType,
    DataField,
    DataType,
    MapType,
    MultisetType,
    Root,
    RowType,
    VectorType,
    arrow_type,
    not_null,
    walk_types,
)
from tidelake.storage.model.types.arrow_buffers import fixed_width_values, is_ascii
from tidelake.storage.write.value_location import ElementLocation, EntryLocation, FieldLocation, ValueLocation

_CHECKED_ROOTS: Final = STRING_ROOTS | {Root.DECIMAL, Root.TIME}
_VARIANT_PARTS: Final = (DataField(0, "value", not_null(BYTES)), DataField(1, "metadata", not_null(BYTES)))
_WHOLE: Final = pa.decimal256(76, 0)  # any integer
_INT32_MAX: Final = 2**31 - 1


def convert_exactly(column: pa.Array, data_type: DataType, place: ValueLocation) -> pa.Array:
    """Return the column in the standard form of its type. A column in this form is returned as the same object.

    Nulls of the column itself are allowed; the caller checks them.

    place: location of the column in the batch, for error messages.
    Raises BadInput with the path and the row of the first value that does not fit.
    """
    column = _unwrapped(column, data_type, place)
    target = arrow_type(data_type)
    if column.type == target and not _needs_value_check(data_type):
        return column
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), target)
    match data_type:
        case RowType():
            return _row(column, data_type, data_type.fields, place)
        case AtomicType(root=Root.VARIANT):
            return _row(column, data_type, _VARIANT_PARTS, place)
        case ArrayType():
            return _array(column, data_type, place)
        case VectorType():
            return _vector(column, data_type, place)
        case MapType():
            return _map(column, data_type, data_type.key, data_type.value, place)
        case MultisetType():
            return _map(column, data_type, data_type.element, not_null(INT), place)
        case AtomicType():
            return _atoms(column, data_type, place)


def _needs_value_check(data_type: DataType) -> bool:
    """Return whether a column in the type's form may still hold invalid values, or nulls in NOT NULL parts."""
    own, *parts = walk_types(data_type)
    return _may_hold_invalid_values(own) or any(not part.nullable or _may_hold_invalid_values(part) for part in parts)


def _may_hold_invalid_values(data_type: DataType) -> bool:
    if isinstance(data_type, AtomicType):
        return data_type.root in _CHECKED_ROOTS or data_type.root is Root.VARIANT
    return isinstance(data_type, MapType | MultisetType | VectorType)  # null keys, null elements


def _unwrapped(column: pa.Array, data_type: DataType, place: ValueLocation) -> pa.Array:
    """Remove extension types, dictionaries and run lengths."""
    if isinstance(column, pa.ExtensionArray):
        return _unwrapped(_stored(column, data_type, place), data_type, place)
    if isinstance(column, pa.DictionaryArray):
        values = column.dictionary
        if pa.types.is_string_view(values.type):  # Arrow can't decode these
            column = pa.DictionaryArray.from_arrays(column.indices, values.cast(pa.string()))
        return _unwrapped(column.dictionary_decode(), data_type, place)
    if isinstance(column, pa.RunEndEncodedArray):
        return _unwrapped(pc.run_end_decode(column), data_type, place)
    return column


_NO_VALUES: Final = frozenset(["pandas.period", "pandas.interval", "arrow.opaque"])
"""Extension types whose storage says something else than their values: a number of months, say."""


def _stored(column: pa.ExtensionArray, data_type: DataType, place: ValueLocation) -> pa.Array:
    """Return the values of an extension type: those that are stored, unless these mean something else."""
    match column.type.extension_name:
        case "arrow.uuid" if data_type.root in STRING_ROOTS:
            return _uuid_texts(column.storage)
        case "arrow.uuid" if data_type.root not in BINARY_ROOTS:
            raise place.mismatch_error(data_type, column.type, "it is a text or 16 bytes")
        case "arrow.bool8":
            return pc.not_equal(column.storage, 0)
        case name if name in _NO_VALUES:
            remedy = "Convert the values first, naming what they mean"
            raise place.mismatch_error(data_type, column.type, "no column has such values", remedy=remedy)
    return column.storage


def _uuid_texts(column: pa.Array) -> pa.Array:
    """Return the texts of 16 bytes each, as 00112233-4455-6677-8899-aabbccddeeff."""
    octets = fixed_width_values(column, np.uint8).reshape(-1, 16)
    texts = np.full((len(octets), 36), ord("-"), np.uint8)
    texts[:, _UUID_DIGITS] = _HEX_DIGITS[np.stack([octets >> 4, octets & 15], axis=2).reshape(-1, 32)]
    validity = column.is_valid().buffers()[1] if column.null_count else None
    fixed = pa.Array.from_buffers(pa.binary(36), len(octets), [validity, pa.py_buffer(texts)])
    return fixed.cast(pa.binary()).cast(pa.string())


_HEX_DIGITS: Final = np.frombuffer(b"0123456789abcdef", np.uint8)
_UUID_DIGITS: Final = [at for at in range(36) if at not in (8, 13, 18, 23)]


# ---------------------------------------------------------------- values with parts


def _row(column: pa.Array, data_type: DataType, fields: Sequence[DataField], place: ValueLocation) -> pa.Array:
    target = arrow_type(data_type)
    if not pa.types.is_struct(column.type):
        raise place.mismatch_error(data_type, column.type, "it is not a struct")
    _check_field_names(column, [f.name for f in fields], place)
    given = dict(zip((f.name for f in column.type), column.flatten(), strict=True))  # null if the struct is
    children = []
    for f in fields:
        part = FieldLocation(place, f.name)
        if f.name in given:
            child = convert_exactly(given[f.name], f.type, part)
            _check_not_null(child, f.type, part, column)
        elif f.type.nullable or column.null_count == len(column):
            child = pa.nulls(len(column), arrow_type(f.type))
        else:
            raise part.missing_value_error()
        children.append(child)
    if column.type == target and all(child is given[f.name] for child, f in zip(children, fields, strict=True)):
        return column
    return struct_array(children, list(target), column)


def _check_field_names(column: pa.StructArray, known: Sequence[str], place: ValueLocation) -> None:
    repeated = [name for name, count in Counter(f.name for f in column.type).items() if count > 1]
    if repeated:
        raise place.refused(f"has the field {repeated[0]!r} more than once in the batch. Keep one of them")
    for field in column.type:
        if field.name not in known:
            raise place.unknown(field.name, field.type, known)


def _array(column: pa.Array, data_type: ArrayType, place: ValueLocation) -> pa.Array:
    if not _is_list(column.type):
        raise place.mismatch_error(data_type, column.type, "it is not a list")
    items, item = column.flatten(), ElementLocation(place, column)
    elements = convert_exactly(items, data_type.element, item)
    _check_not_null(elements, data_type.element, item)
    target = arrow_type(data_type)
    return column if column.type == target and elements is items else _lists(target, column, elements, place)


def _vector(column: pa.Array, data_type: VectorType, place: ValueLocation) -> pa.Array:
    if not _is_list(column.type):
        raise place.mismatch_error(data_type, column.type, "it is not a list")
    other_length = pc.not_equal(pc.list_value_length(column), data_type.length)
    if pc.any(other_length).as_py():
        index = pc.index(other_length, True).as_py()
        raise place.mismatch_error(data_type, column.type, f"a list of {len(column[index])} elements", index)
    items, item = column.flatten(), ElementLocation(place, column)
    elements = convert_exactly(items, data_type.element, item)
    _check_not_null(elements, not_null(data_type.element), item)
    target = arrow_type(data_type)
    if column.type == target and elements is items:
        return column
    # Fixed-size lists also have elements below nulls. These become zeros.
    is_there = np.repeat(column.is_valid().to_numpy(zero_copy_only=False), data_type.length)
    indices = pa.array(np.cumsum(is_there) - 1, mask=~is_there)
    filled = pc.fill_null(elements.take(indices), pa.scalar(0).cast(elements.type))
    mask = column.is_null() if column.null_count else None
    return pa.FixedSizeListArray.from_arrays(filled, type=target, mask=mask)


def _map(column: pa.Array, data_type: DataType, key: DataType, value: DataType, place: ValueLocation) -> pa.Array:
    if not pa.types.is_map(column.type):
        raise place.mismatch_error(data_type, column.type, "it is not a map")
    lists = with_child(column, pa.list_(column.values.type), column.values)
    entries = lists.flatten()
    given_keys, given_values = entries.field(0), entries.field(1)
    keys_place = EntryLocation(place, lists, given_keys, of_key=True)
    keys = convert_exactly(given_keys, key, keys_place)
    _check_not_null(keys, not_null(key), keys_place)
    values_place = EntryLocation(place, lists, given_keys, of_key=False)
    values = convert_exactly(given_values, value, values_place)
    _check_not_null(values, value, values_place)
    target = arrow_type(data_type)
    if column.type == target and keys is given_keys and values is given_values:
        return column
    parts = pa.StructArray.from_arrays([keys, values], fields=[target.key_field, target.item_field])
    return _lists(target, lists, parts, place)


def _is_list(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(kind)
        or pa.types.is_large_list(kind)
        or pa.types.is_fixed_size_list(kind)
        or pa.types.is_list_view(kind)
        or pa.types.is_large_list_view(kind)
    )


def _lists(kind: pa.DataType, like: pa.Array, child: pa.Array, place: ValueLocation) -> pa.Array:
    """Return lists or maps with the lengths of `like` and the elements of `child`."""
    if len(child) > _INT32_MAX:
        limit = "more than Arrow's lists can count. Write fewer rows at once"
        raise place.refused(f"has {len(child):,} elements in one batch, {limit}")
    lengths = pc.fill_null(pc.list_value_length(like), 0).to_numpy(zero_copy_only=False)
    offsets = np.zeros(len(like) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    validity = like.is_valid().buffers()[1] if like.null_count else None
    return pa.Array.from_buffers(
        kind, len(like), [validity, pa.py_buffer(offsets)], like.null_count, 0, children=[child]
    )


def _check_not_null(part: pa.Array, data_type: DataType, place: ValueLocation, parent: pa.Array | None = None) -> None:
    """Raise BadInput for a null in a NOT NULL part.

    parent: the structs of the part, one for each value. Nulls below a null struct are allowed.
    """
    hidden = parent.null_count if parent is not None else 0
    if data_type.nullable or part.null_count <= hidden:
        return
    is_fault = part.is_null() if parent is None else pc.and_(part.is_null(), parent.is_valid())
    raise place.null(pc.index(is_fault, True).as_py())


# ---------------------------------------------------------------- values without parts


def _atoms(column: pa.Array, data_type: AtomicType, place: ValueLocation) -> pa.Array:
    _check_cast_meaning(column.type, data_type, place)
    try:
        return _converted(column, data_type)
    except pa.ArrowException as e:
        index = _first_fault(column, lambda part: _converted(part, data_type))
        reason = e
        if index is not None:
            try:
                _converted(column.slice(index, 1), data_type)
            except pa.ArrowException as of_value:
                reason = of_value
        raise place.mismatch_error(data_type, column.type, str(reason).splitlines()[0], index) from None


def _first_fault(column: pa.Array, attempt: Callable[[pa.Array], object]) -> int | None:
    """Return the first value for which `attempt` fails; None if it fails without values. Slow: for errors only."""

    def fails(rows: int) -> bool:
        try:
            attempt(column.slice(0, rows))
        except pa.ArrowException:
            return True
        return False

    if fails(0):
        return None
    good, bad = 0, len(column)
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (good, middle) if fails(middle) else (middle, bad)
    return bad - 1


def _converted(column: pa.Array, data_type: AtomicType) -> pa.Array:
    """Raise pa.ArrowInvalid or pa.ArrowNotImplementedError with the reason."""
    target = arrow_type(data_type)
    if column.type == target:
        _check_values(column, data_type)
        return column
    if pa.types.is_decimal(column.type) and pa.types.is_floating(target):
        converted = column.cast(pa.string()).cast(target)  # a direct cast may miss the nearest number by one
    elif _is_text(column.type) and pa.types.is_time(target):
        converted = _times_of_day(column).cast(target, safe=True)
    elif _are_integer_and_decimal(column.type, target):
        converted = column.cast(_WHOLE).cast(target)  # a direct cast requires more digits than the values need
    else:
        converted = column.cast(target, safe=True)
    if not _is_checked_by_arrow(column.type, target):
        _check_same(column, converted)
    _check_values(converted, data_type)
    return converted


def _times_of_day(texts: pa.Array) -> pa.Array:
    """Return the times that texts such as 12:30 or 12:30:00.5 mean. Arrow only parses them behind a date."""
    behind_date = pc.binary_join_element_wise("1970-01-01", texts.cast(pa.string()), " ")
    try:
        return behind_date.cast(pa.timestamp("ns")).cast(pa.time64("ns"))
    except pa.ArrowInvalid:
        raise pa.ArrowInvalid("it is not a time of day, as in '12:30:00'") from None


def _check_values(column: pa.Array, data_type: AtomicType) -> None:
    """Raise pa.ArrowInvalid for values that an array of the right type can hold, but the type can't."""
    if data_type.root not in _CHECKED_ROOTS or (data_type.root in STRING_ROOTS and is_ascii(column)):
        return
    try:
        column.validate(full=True)
    except pa.ArrowInvalid as e:
        if data_type.root in STRING_ROOTS:
            raise pa.ArrowInvalid("its bytes are not UTF-8") from None
        raise pa.ArrowInvalid(str(e).splitlines()[0]) from None


def _check_cast_meaning(given: pa.DataType, data_type: AtomicType, place: ValueLocation) -> None:
    """Raise BadInput for casts with a wrong meaning. Arrow would treat times without zone as UTC, drop zones and treat
    numbers as times of any unit.
    """
    target = arrow_type(data_type)
    if given == target or _is_text(given) or _is_text(target):
        return
    is_time, is_wanted = pa.types.is_temporal(given), pa.types.is_temporal(target)
    if is_time != is_wanted:
        reason = "a number has no unit" if is_wanted else "a time is not a number"
        remedy = "Convert it first, naming the unit (pyarrow.compute.cast)"
        raise place.mismatch_error(data_type, given, reason, remedy=remedy)
    has_zone, wants_zone = (getattr(kind, "tz", None) is not None for kind in (given, target))
    if is_time and has_zone != wants_zone:
        has = "it has a time zone" if has_zone else "it has no time zone"
        required = "the column needs an instant" if wants_zone else "the column needs a time without zone"
        remedy = "Convert it first, saying which zone is meant (pyarrow.compute.assume_timezone, local_timestamp)"
        raise place.mismatch_error(data_type, given, f"{has}, but {required}", remedy=remedy)


def _is_checked_by_arrow(given: pa.DataType, target: pa.DataType) -> bool:
    """Return whether Arrow's safe cast rejects every value that would change."""
    types = pa.types
    families: tuple[Callable[[pa.DataType], bool], ...] = (
        types.is_integer,
        types.is_decimal,
        types.is_timestamp,
        types.is_time,
        types.is_date,
        _is_bytes,
    )
    if any(is_one(given) and is_one(target) for is_one in families) or _are_integer_and_decimal(given, target):
        return True
    return bool(types.is_floating(given) and types.is_floating(target) and given.bit_width < target.bit_width)


def _are_integer_and_decimal(one: pa.DataType, other: pa.DataType) -> bool:
    types = pa.types
    return bool(
        (types.is_integer(one) and types.is_decimal(other)) or (types.is_decimal(one) and types.is_integer(other))
    )


def _check_same(given: pa.Array, converted: pa.Array) -> None:
    """Raise pa.ArrowInvalid for a value that changes in a round trip."""
    if _is_text(given.type):
        if pa.types.is_floating(converted.type):
            lost = pc.and_(pc.is_inf(converted), pc.invert(pc.match_substring_regex(given, "(?i)^[+-]?inf")))
            _raise_if_any(lost, given, converted)
        return
    back = converted.cast(given.type, safe=False)
    same = pc.equal(back, given)
    if pa.types.is_floating(given.type):
        same = pc.or_(same, pc.and_(pc.is_nan(back), pc.is_nan(given)))
    _raise_if_any(pc.invert(same), given, converted)


def _raise_if_any(lost: pa.Array, given: pa.Array, converted: pa.Array) -> None:
    index = pc.index(lost, True).as_py()
    if index >= 0:
        raise pa.ArrowInvalid(f"{given[index].as_py()!r} would become {converted[index].as_py()!r}")


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    """Include texts: their bytes are UTF-8. The opposite direction, bytes to text, is checked separately."""
    return bool(
        _is_text(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_binary_view(kind)
        or (pa.types.is_fixed_size_binary(kind) and not pa.types.is_decimal(kind))
    )
