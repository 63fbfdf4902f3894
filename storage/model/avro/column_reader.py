"""Reads the records of one schema together, field by field. NumPy operations read a field of many records at once.

An Avro record has no offsets: a field begins where the previous field ends. So the reader keeps a position for each
*lane*, and moves the positions of all lanes over a field together. A lane is one record, or the records of one block of
a file: then the first records of all lanes are read together, after them the second ones, and so on.

If a record does not match its schema (a length beyond the end, a branch that the union lacks), its position is set
after the end of the buffer and stays there. Such a lane does not end where it should. The caller reads it in another
way, which finds the error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelake.storage.model.avro.avro_type import NULL, AvroType
from tidelake.storage.model.avro.decoded_columns import DecodedColumn, Mask, Places
from tidelake.storage.model.types.arrow_buffers import text_buffers

Wanted: TypeAlias = Mapping[str, "Wanted"]
"""Names of the fields of a record to read; for each that is a record, the names of its fields to read. All others are
skipped."""

_Read: TypeAlias = Callable[[Places, Places], Places]
"""Reads one value in each lane. Takes the positions of the values and their rows, returns the positions after them."""

_PADDING: Final = 16  # bytes that a step may read after the end of the last record
_BLOCK_STEPS_MAX: Final = 10_000  # for the arrays and maps of one record in all lanes; longer ones are not read
_STEPS_AT_ONCE: Final = 16  # items that are read before lanes that can't be read any more are left out
_NESTED_RECORDS_MAX: Final = 24
_PLAIN: Final = frozenset({"boolean", "int", "long", "float", "double", "string", "bytes"})
_FIXED_BYTES: Final = {"boolean": 1, "float": 4, "double": 8}
_VALUE_DTYPES: Final[Mapping[str, Any]] = {"boolean": np.bool_, "float": np.float32, "double": np.float64}
_INT64_VALUES: Final = frozenset({"int", "long", "string", "bytes", "fixed"})

_ONE: Final = np.uint64(1)
_LAST_BITS: Final = np.uint64(0x8080_8080_8080_8080)
_LOW_7_BITS: Final = np.uint64(0x7F7F_7F7F_7F7F_7F7F)
# Masks of the groups that are joined in a step, and the shift in bits: groups of 7 bits become 14, then 28, then 56
_FOLD_STEPS: Final = tuple(
    (np.uint64(low), np.uint64(high), np.uint64(bits))
    for low, high, bits in (
        (0x007F_007F_007F_007F, 0x7F00_7F00_7F00_7F00, 1),
        (0x0000_3FFF_0000_3FFF, 0x3FFF_0000_3FFF_0000, 2),
        (0x0000_0000_0FFF_FFFF, 0x0FFF_FFFF_0000_0000, 4),
    )
)


class ColumnReader:
    """A reader of records of one schema. Immutable and thread-safe.

    type_: the schema, of kind record.
    """

    def __init__(self, type_: AvroType, wanted: Wanted) -> None:
        self._type = type_
        self._wanted = wanted

    def read(self, values: pa.Array, rows: Places, skip_bytes: int) -> tuple[Mapping[str, DecodedColumn], Mask]:
        """Return the wanted fields as columns with a value for each row, and flags of the rows that were read.

        For rows that were not read, the values are meaningless.

        values: binary, one record each, without nulls in `rows`.
        skip_bytes: number of bytes before each record.
        """
        offsets, data = text_buffers(values)
        begins, ends = offsets[rows].astype(np.int64) + skip_bytes, offsets[rows + 1].astype(np.int64)
        first, last = (int(begins.min()), int(ends.max())) if len(rows) else (0, 0)
        octets = np.frombuffer(data, np.uint8)[first:last]
        return self.read_lanes(octets, begins - first, ends - first, np.ones(len(rows), np.int64))

    def read_lanes(
        self, octets: NDArray[np.uint8], begins: Places, ends: Places, counts: Places
    ) -> tuple[Mapping[str, DecodedColumn], Mask]:
        """Return the wanted fields as columns with a value for each record, and flags of the lanes that were read.

        The records are in the order of their lanes. For those of lanes that were not read, the values are meaningless.

        begins (k,): where each lane begins.
        ends (k,): where each lane ends.
        counts (k,): number of records of each lane.
        """
        padded = np.zeros(len(octets) + _PADDING, np.uint8)
        padded[: len(octets)] = octets
        fields = {name: _Cells(inner.without_null) for name, inner in self._type.fields.items() if name in self._wanted}
        steps = _Steps(padded)
        read_record = steps.fields_reader(self._type, fields, self._wanted)
        lanes = np.argsort(-counts, kind="stable")
        at, first, left = begins[lanes].copy(), (np.cumsum(counts) - counts)[lanes], -counts[lanes]
        for number in range(int(counts.max()) if len(counts) else 0):
            steps.blocks_left = _BLOCK_STEPS_MAX
            active = int(np.searchsorted(left, -number))  # lanes with more than `number` records
            at[:active] = read_record(at[:active].copy(), first[:active] + number)
        is_read = np.empty(len(counts), np.bool_)
        is_read[lanes] = at == ends[lanes]
        records, in_order = int(counts.sum()), int(left.min(initial=0)) >= -1
        return {name: cells.column(padded, records, None, in_order) for name, cells in fields.items()}, is_read


@dataclass(slots=True)
class _Cells:
    """The values of one wanted field, in the order in which they were read.

    type: the type of values that are not null.
    rows, starts, ends, values: one array for each step. See `DecodedColumn`.
    fields: those of a record, by name.
    items: those of an array. Their rows are numbers in the order in which the items were read.
    owners: the rows of the arrays to which the items belong.
    """

    type: AvroType
    rows: list[Places] = field(default_factory=list)
    starts: list[Places] = field(default_factory=list)
    ends: list[Places] = field(default_factory=list)
    values: list[NDArray[Any]] = field(default_factory=list)
    fields: dict[str, _Cells] = field(default_factory=dict)
    items: _Cells | None = None
    owners: list[Places] = field(default_factory=list)
    item_count: int = 0

    def add(self, rows: Places, starts: Places, ends: Places, values: NDArray[Any] | None = None) -> None:
        self.rows.append(rows)
        self.starts.append(starts)
        self.ends.append(ends)
        if values is not None:
            self.values.append(values)

    def number_items(self, owners: Places) -> Places:
        """Return the numbers of new items, one for each of these arrays."""
        numbers = np.arange(self.item_count, self.item_count + len(owners))
        self.owners.append(owners)
        self.item_count += len(owners)
        return numbers

    def column(self, octets: NDArray[np.uint8], count: int, place_of: Places | None, in_order: bool) -> DecodedColumn:
        """Return the column of the values.

        count: the number of its values and nulls.
        place_of: row to its place in the column; None if they are the same.
        in_order: whether the rows of each step are in order, because lanes have one record at most.
        """
        rows = _joined(self.rows, np.int64)
        if place_of is not None:
            rows = place_of[rows]
        valid = np.zeros(count, np.bool_)
        valid[rows] = True
        if len(rows) < count:
            dense = np.cumsum(valid) - 1
            place_of = dense if place_of is None else dense[place_of]
            rows = dense[rows]
        order = None if in_order and len(self.rows) == 1 else rows
        values: NDArray[Any] | None = None
        if self.values:
            values = _ordered(_joined(self.values, np.int64), order)
        elif self.type.kind in _VALUE_DTYPES or self.type.kind in _INT64_VALUES:
            values = np.zeros(0, _VALUE_DTYPES.get(self.type.kind, np.int64))
        items = None
        if self.items is not None:
            owners = _joined(self.owners, np.int64)
            if place_of is not None:
                owners = place_of[owners]
            values = np.bincount(owners, minlength=len(rows)).astype(np.int64)
            places = np.empty(len(owners), np.int64)
            places[np.argsort(owners, kind="stable")] = np.arange(len(owners))
            items = self.items.column(octets, self.item_count, places, in_order)
        return DecodedColumn(
            self.type,
            octets,
            valid,
            _ordered(_joined(self.starts, np.int64), order),
            _ordered(_joined(self.ends, np.int64), order),
            values,
            {name: inner.column(octets, len(rows), place_of, in_order) for name, inner in self.fields.items()},
            items,
        )


def _joined(parts: Sequence[NDArray[Any]], empty: Any) -> NDArray[Any]:
    return parts[0] if len(parts) == 1 else np.concatenate(parts) if parts else np.zeros(0, empty)


def _ordered(values: NDArray[Any], places: Places | None) -> NDArray[Any]:
    if places is None:
        return values
    ordered = np.empty_like(values)
    ordered[places] = values
    return ordered


class _Steps:
    """A buffer with records, and a reader for each field of a schema, which keeps the values of wanted fields.

    `_lost` is the position of records that can't be read. It is after the end of all records, and no position is after
    it.

    blocks_left: how many items of arrays and maps, one in all lanes, may still be read.
    """

    def __init__(self, octets: NDArray[np.uint8]) -> None:
        """octets: with `_PADDING` zeros after the last record."""
        self._octets = octets
        self._end = len(octets) - _PADDING
        self._lost = self._end + 1
        self._words = np.ndarray((len(octets) - 7,), "<u8", octets, 0, (1,))
        self._skippers: dict[int, _Read] = {}
        self._nested_records = 0
        self.blocks_left = 0

    # ------------------------------------------------------------ readers of wanted fields

    def fields_reader(self, type_: AvroType, fields: Mapping[str, _Cells], wanted: Wanted) -> _Read:
        """Return a reader of a record's fields."""
        return _in_turn(
            [
                self._reader(inner, fields[name], wanted[name]) if name in fields else self._skipper(inner)
                for name, inner in type_.fields.items()
            ]
        )

    def _reader(self, type_: AvroType, cells: _Cells, wanted: Wanted) -> _Read:
        match type_.kind:
            case "union" if type_.without_null is not type_:
                return self._nullable(type_, self._reader(type_.without_null, cells, wanted))
            case "union":
                return self._kept_union(type_, cells)
            case "record":
                cells.fields = {
                    name: _Cells(inner.without_null) for name, inner in type_.fields.items() if name in wanted
                }
                return self._kept_whole(self.fields_reader(type_, cells.fields, wanted), cells)
            case "array" if type_.items is not None and type_.items.without_null.kind in _PLAIN:
                cells.items = _Cells(type_.items.without_null)
                items = self._reader(type_.items, cells.items, {})
                return self._kept_whole(lambda at, rows: self._blocks(type_, items, at, rows, cells), cells)
            case "array" | "map" | "enum":
                return self._kept_whole(self._skipper(type_), cells)
            case "null":
                return lambda at, rows: at
            case _:
                return self._kept_value(type_, cells)

    def _kept_whole(self, read: _Read, cells: _Cells) -> _Read:
        def keep(at: Places, rows: Places) -> Places:
            end = read(at, rows)
            cells.add(rows, at, end)
            return end

        return keep

    def _kept_value(self, type_: AvroType, cells: _Cells) -> _Read:
        values_at = self._plain(type_)

        def keep(at: Places, rows: Places) -> Places:
            values, end = values_at(at)
            cells.add(rows, at, end, values)
            return end

        return keep

    def _kept_union(self, type_: AvroType, cells: _Cells) -> _Read:
        """Return a reader of a union of several types. It keeps each value in its Avro form, with its branch number."""
        skip = self._skipper(type_)
        nulls = [number for number, inner in enumerate(type_.branches) if inner.kind == NULL]

        def keep(at: Places, rows: Places) -> Places:
            end = skip(at, rows)
            if nulls:
                present = np.flatnonzero(self._longs(at)[0] != nulls[0])
                cells.add(rows[present], at[present], end[present])
            else:
                cells.add(rows, at, end)
            return end

        return keep

    # ------------------------------------------------------------ readers of fields that are skipped

    def _skipper(self, type_: AvroType) -> _Read:
        """Return a reader that keeps nothing. Each type has one, because a type may contain itself."""
        found = self._skippers.get(id(type_))
        if found is None:
            found = self._new_skipper(type_)
            self._skippers[id(type_)] = found
        return found

    def _new_skipper(self, type_: AvroType) -> _Read:
        match type_.kind:
            case "record":
                return self._skipped_record(type_)
            case "union" if type_.without_null is not type_:
                return self._nullable(type_, self._skipper(type_.without_null))
            case "union":
                return self._skipped_union(type_)
            case "array" | "map":
                assert type_.items is not None
                items = self._skipper(type_.items)
                return lambda at, rows: self._blocks(type_, items, at, rows, None)
            case "null":
                return lambda at, rows: at
            case "enum":
                return lambda at, rows: self._enums(type_, at)
            case _:
                values_at = self._plain(type_)
                return lambda at, rows: values_at(at)[1]

    def _skipped_record(self, type_: AvroType) -> _Read:
        fields: list[_Read] = []
        in_turn = _in_turn(fields)

        def skip(at: Places, rows: Places) -> Places:
            if self._nested_records >= _NESTED_RECORDS_MAX:
                return np.full_like(at, self._lost)
            self._nested_records += 1
            end = in_turn(at, rows)
            self._nested_records -= 1
            return end

        self._skippers[id(type_)] = skip
        fields += [self._skipper(inner) for inner in type_.fields.values()]
        return skip

    def _skipped_union(self, type_: AvroType) -> _Read:
        branches = [self._skipper(inner) for inner in type_.branches]

        def skip(at: Places, rows: Places) -> Places:
            numbers, end = self._longs(at)
            end = self._lost_where((numbers < 0) | (numbers >= len(branches)), end)
            for number, branch in enumerate(branches):
                taken = np.flatnonzero(numbers == number)
                if len(taken):
                    end[taken] = branch(end[taken], rows[taken])
            return end

        return skip

    # ------------------------------------------------------------ composite types

    def _nullable(self, type_: AvroType, read: _Read) -> _Read:
        """Return a reader of a union of null and one type, in any order. read: reads values of this type."""
        branches = len(type_.branches)
        number = next(i for i, inner in enumerate(type_.branches) if inner is type_.without_null)

        def read_present(at: Places, rows: Places) -> Places:
            numbers, end = self._longs(at)
            taken = numbers == number
            if taken.all():
                return read(end, rows)
            present = np.flatnonzero(taken)
            if len(present):
                end[present] = read(end[present], rows[present])
            if int(numbers.view(np.uint64).max()) >= branches:  # a negative number, too
                end[(numbers < 0) | (numbers >= branches)] = self._lost
            return end

        return read_present

    def _blocks(self, type_: AvroType, read_item: _Read, at: Places, rows: Places, cells: _Cells | None) -> Places:
        """Return the ends of arrays and maps. They are blocks of items, and an empty block is the last one.

        A block may contain its size in bytes.

        cells: the arrays whose items are kept; None if they are skipped. Blocks with a size are then skipped at once.
        """
        counts, end = self._longs(at)
        open_ = np.flatnonzero(counts)
        counts = counts[open_]
        while len(open_):
            if int(counts.min()) < 0:
                sized = np.flatnonzero(counts < 0)
                sizes, behind = self._longs(end[open_[sized]])
                end[open_[sized]] = behind if cells is not None else self._moved(behind, sizes)
                counts[sized] = -np.maximum(counts[sized], -_BLOCK_STEPS_MAX - 1) if cells is not None else 0
            filled = open_ if counts.all() else open_[counts != 0]
            left = counts if len(filled) == len(open_) else counts[counts != 0]
            while len(filled):
                steps = min(int(left.min()), _STEPS_AT_ONCE, self.blocks_left)
                if not steps:
                    end[filled] = self._lost
                    break
                self.blocks_left -= steps
                item, owners = end[filled], rows[filled]
                for _ in range(steps):
                    if type_.kind == "map":
                        _, item = self._lengths(item)
                    item = read_item(item, owners if cells is None else cells.number_items(owners))
                end[filled] = item
                more = (left > steps) & (item != self._lost)
                filled, left = filled[more], left[more] - steps
            open_ = open_[end[open_] != self._lost]
            if len(open_):
                counts, end[open_] = self._longs(end[open_])
                if counts.any():
                    open_ = open_[counts != 0]
                    counts = counts[counts != 0]
                else:
                    break
        return end

    # ------------------------------------------------------------ positions

    def _moved(self, at: Places, by: Places | int) -> Places:
        end: Places = at + by
        largest = by if isinstance(by, int) else int(by.view(np.uint64).max())  # a negative number is very large
        if largest > self._end or int(end.max()) > self._end:
            return self._lost_where((by < 0) | (by > self._end - at), end)
        return end

    def _lost_where(self, wrong: Mask, at: Places) -> Places:
        return np.where(wrong, self._lost, at) if wrong.any() else at

    # ------------------------------------------------------------ plain values

    def _plain(self, type_: AvroType) -> Callable[[Places], tuple[NDArray[Any], Places]]:
        """Return a reader of numbers, or of the lengths of texts and bytes, that also returns their ends."""
        match type_.kind:
            case "int" | "long":
                return self._longs
            case "string" | "bytes":
                return self._lengths
            case "fixed":
                return partial(self._fixed, type_.size)
            case kind:
                return partial(self._fixed_width, kind)

    def _longs(self, at: Places) -> tuple[NDArray[np.int64], Places]:
        """Return zigzag integers, which are stored in groups of seven bits, the lowest group first, and their ends."""
        octets = self._octets[at]
        if int(octets.max()) < 0x80:
            raw, end = octets.astype(np.uint64), at + 1
        else:
            long_ = np.flatnonzero(octets >= 0x80)
            if 4 * len(long_) < len(at):
                raw, end = octets.astype(np.uint64), at + 1
                raw[long_], end[long_] = self._long_varints(at[long_])
            else:
                raw, end = self._long_varints(at)
        np.minimum(end, self._lost, out=end)
        return (raw >> _ONE).view(np.int64) ^ -(raw & _ONE).view(np.int64), end

    def _long_varints(self, at: Places) -> tuple[NDArray[np.uint64], Places]:
        """Return integers of any length, before zigzag, and their ends. The first eight bytes are read as one word."""
        words = self._words[at]
        last = ~words & _LAST_BITS  # a bit for each byte that may be the last
        below = (last & -last) - _ONE  # the bits before the last byte's; all, if the last one is not in the word
        words &= below
        words &= _LOW_7_BITS
        longest = int(words.max())
        for low, high, bits in _FOLD_STEPS:
            words = (words & low) | ((words & high) >> bits)
            if longest >> 16 * int(bits) == 0:
                break
        following = np.bitwise_count(below) >> 3  # bytes after the first one
        end = at + following + 1
        if int(following.max()) == 8:
            nine = np.flatnonzero(following == 8)
            ninth, tenth = self._octets[at[nine] + 8].astype(np.uint64), self._octets[at[nine] + 9].astype(np.uint64)
            has_tenth = ninth >= 0x80  # it may only have its lowest bit
            words[nine] |= (ninth & np.uint64(0x7F)) << np.uint64(56)
            words[nine] |= np.where(has_tenth, tenth << np.uint64(63), np.uint64(0))
            ends = at[nine] + 9 + has_tenth
            end[nine] = np.where(has_tenth & (tenth > 1), self._lost, ends)
        return words, end

    def _lengths(self, at: Places) -> tuple[NDArray[np.int64], Places]:
        """Return the lengths of texts or bytes, and where they end."""
        lengths, start = self._longs(at)
        end = self._moved(start, lengths)
        if int(end.max()) > self._end:
            lengths = np.where(end == self._lost, 0, lengths)
        return lengths, end

    def _enums(self, type_: AvroType, at: Places) -> Places:
        numbers, end = self._longs(at)
        return self._lost_where((numbers < 0) | (numbers >= len(type_.symbols)), end)

    def _fixed(self, size: int, at: Places) -> tuple[NDArray[Any], Places]:
        return np.full(len(at), size, np.int64), self._moved(at, size)

    def _fixed_width(self, kind: str, at: Places) -> tuple[NDArray[Any], Places]:
        end = self._moved(at, _FIXED_BYTES[kind])
        if kind == "boolean":
            flags = self._octets[at]
            return flags == 1, self._lost_where(flags > 1, end)
        words = self._words[at]
        return (words.view(np.float64) if kind == "double" else words.astype(np.uint32).view(np.float32)), end


def _in_turn(readers: Sequence[_Read]) -> _Read:
    def read(at: Places, rows: Places) -> Places:
        for reader in readers:
            at = reader(at, rows)
        return at

    return read
