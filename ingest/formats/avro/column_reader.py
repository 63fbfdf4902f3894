"""Many Avro records of one schema at once: field after field, a step of NumPy for all records.

A record of Avro has no offsets: where a field begins, the one before it says. So the reader keeps one position for each
record and moves all of them over a field together. A record that does not match its schema (a length beyond its end, a
branch that the union lacks) is sent to a place behind the buffer, where it stays: it does not end where it should, and
is left to `value_reader`, which says what is wrong.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ingest.formats.avro.avro_schema import NULL, AvroType
from ingest.formats.avro.decoded_columns import DecodedColumn, Mask, Places
from ingest.formats.concatenated_json import layout

_PADDING: Final = 16  # what a step may look at behind the last record
_BLOCK_STEPS_MAX: Final = 4_096  # of arrays and maps in one chunk; records with longer ones are read alone
_DEPTH_MAX: Final = 24
_PLAIN: Final = frozenset({"boolean", "int", "long", "float", "double", "string", "bytes"})
_FIXED_BYTES: Final = {"boolean": 1, "float": 4, "double": 8}


class ColumnReader:
    """Reads records of one schema, a record's.

    wanted: the fields to read, by name; all others are passed over. Fields of records inside: those of `inside`, where
    it has the field's name.
    """

    def __init__(
        self, type_: AvroType, wanted: Collection[str], inside: Mapping[str, Collection[str]] | None = None
    ) -> None:
        self._type = type_
        self._wanted = frozenset(wanted)
        self._inside = {name: frozenset(names) for name, names in (inside or {}).items()}

    def read(self, values: pa.Array, rows: NDArray[np.int64], skip_bytes: int) -> tuple[dict[str, DecodedColumn], Mask]:
        """The wanted fields' cells, one a row, and which rows were read; in all others the cells mean nothing.

        values: binary, no nulls in `rows`. skip_bytes: in front of each record.
        """
        positions, data = layout(values)
        begins, ends = positions[rows] + skip_bytes, positions[rows + 1]
        first, last = int(begins.min()), int(ends.max())
        octets = np.zeros(last - first + _PADDING, np.uint8)
        octets[: last - first] = np.frombuffer(data, np.uint8)[first:last]
        step = _Step(octets, last - first)
        at = begins - first
        cells: dict[str, DecodedColumn] = {}
        for name, inner in self._type.fields.items():
            found, at = step.read(inner, at, name in self._wanted, self._inside.get(name), 1)
            if found is not None:
                cells[name] = found
        return cells, at == ends - first


class _Step:
    """The buffer, and how each type is read from it. Positions are never behind `lost`, which is behind every end."""

    def __init__(self, octets: NDArray[np.uint8], end: int) -> None:
        self._octets = octets
        self._end = end
        self._lost = end + 1
        self._words = np.ndarray((len(octets) - 7,), "<u8", octets, 0, (1,))
        self._block_steps = 0

    def read(
        self, type_: AvroType, at: Places, wanted: bool, inside: Collection[str] | None, depth: int
    ) -> tuple[DecodedColumn | None, Places]:
        """The cells of a field, None if they are not wanted, and where the next one begins."""
        if depth > _DEPTH_MAX:
            return None, np.full_like(at, self._lost)
        match type_.kind:
            case "union":
                return self._union(type_, at, wanted, inside, depth)
            case "record":
                return self._record(type_, at, wanted, inside, depth)
            case "array" if wanted and _is_plain(type_.items):
                return self._plain_array(type_, at, depth)
            case "array" | "map":
                end, values = self._blocks(type_, at, depth, None), None
            case "null":
                end, values = at, None
            case "int" | "long":
                values, end = self._longs(at)
            case "string" | "bytes":
                values, end = self._lengths(at)
            case "enum":
                numbers, end = self._longs(at)
                end, values = self._unless((numbers < 0) | (numbers >= len(type_.symbols)), end), None
            case "fixed":
                end = self._moved(at, type_.size)
                values = np.full(len(at), type_.size, np.int64)
            case kind:
                values, end = self._fixed_width(kind, at, wanted)
        if not wanted:
            return None, end
        valid = np.full(len(at), type_.kind != NULL)
        starts, ends = (at, end) if type_.kind != NULL else (at[:0], end[:0])
        return DecodedColumn(type_, self._octets, valid, starts, ends, values), end

    # ------------------------------------------------------------ positions

    def _moved(self, at: Places, by: Any) -> Places:
        return self._unless((by < 0) | (by > self._end - at), at + by)

    def _unless(self, wrong: Mask, at: Places) -> Places:
        return np.where(wrong, self._lost, at) if wrong.any() else at

    # ------------------------------------------------------------ numbers

    def _longs(self, at: Places) -> tuple[NDArray[np.int64], Places]:
        """Zigzag integers in groups of seven bits, the lowest first."""
        octets = self._octets[at]
        raw = octets.astype(np.uint64) & np.uint64(0x7F)
        end = at + 1
        more = np.flatnonzero(octets & 0x80)
        if len(more):
            raw[more], end[more] = self._long_tails(raw[more], end[more])
        np.minimum(end, self._lost, out=end)
        return (raw >> np.uint64(1)).view(np.int64) ^ -(raw & np.uint64(1)).view(np.int64), end

    def _long_tails(self, raw: NDArray[np.uint64], at: Places) -> tuple[NDArray[np.uint64], Places]:
        """The up to nine bytes behind the first, eight of them at once."""
        words = self._words[np.minimum(at, len(self._words) - 1)]
        last = ~words & np.uint64(0x8080808080808080)  # a bit for each byte that may be the last
        lowest = last & (~last + np.uint64(1))
        words &= lowest | (lowest - np.uint64(1))  # what is behind the first of them is another value's
        for byte in range(8):
            part = words >> np.uint64(8 * byte)
            if byte and not part.any():
                break
            raw = raw | ((part & np.uint64(0x7F)) << np.uint64(7 * (byte + 1)))
        taken = np.bitwise_count(lowest - np.uint64(1)).astype(np.int64) // 8 + 1
        end = at + taken
        longest = np.flatnonzero(last == 0)  # ten bytes, the tenth of which has one bit left
        if len(longest):
            tenth = self._octets[np.minimum(at[longest] + 8, self._lost)]
            raw[longest] |= tenth.astype(np.uint64) << np.uint64(63)
            end[longest] = np.where(tenth > 1, self._lost, at[longest] + 9)
        return raw, end

    def _lengths(self, at: Places) -> tuple[NDArray[np.int64], Places]:
        """Of texts or bytes, and where they end."""
        lengths, start = self._longs(at)
        end = self._moved(start, lengths)
        if (wrong := end == self._lost).any():
            lengths = np.where(wrong, 0, lengths)
        return lengths, end

    def _fixed_width(self, kind: str, at: Places, wanted: bool) -> tuple[NDArray[Any] | None, Places]:
        end = self._moved(at, _FIXED_BYTES[kind])
        if kind == "boolean":
            flags = self._octets[at]
            return flags == 1, self._unless(flags > 1, end)
        if not wanted:
            return None, end
        words = self._words[at]
        return (words.view(np.float64) if kind == "double" else words.astype(np.uint32).view(np.float32)), end

    # ------------------------------------------------------------ what is made of others

    def _union(
        self, type_: AvroType, at: Places, wanted: bool, inside: Collection[str] | None, depth: int
    ) -> tuple[DecodedColumn | None, Places]:
        """Null and one other type give its cells; anything else is one value, its branch included."""
        branch, start = self._longs(at)
        end = self._unless((branch < 0) | (branch >= len(type_.branches)), start)
        value = type_.without_null
        found: DecodedColumn | None = None
        valid = np.zeros(len(at), np.bool_)
        for number, inner in enumerate(type_.branches):
            taken = branch == number
            if inner.kind == NULL or not taken.any():
                valid = valid | taken if inner is value else valid
                continue
            reads = wanted and inner is value
            if taken.all():
                cells, end = self.read(inner, end, reads, inside, depth + 1)
            else:
                rows = np.flatnonzero(taken)
                cells, end[rows] = self.read(inner, end[rows], reads, inside, depth + 1)
            if reads:
                found, valid = cells, taken
        if not wanted:
            return None, end
        if value is type_:  # several branches
            present = np.ones(len(at), np.bool_)
            nulls = [number for number, inner in enumerate(type_.branches) if inner.kind == NULL]
            if nulls:
                present = branch != nulls[0]
            return DecodedColumn(type_, self._octets, present, at[present], end[present]), end
        if found is None:
            found = self._empty(value)
        return DecodedColumn(
            value, self._octets, valid, found.starts, found.ends, found.values, found.fields, found.items
        ), end

    def _empty(self, type_: AvroType) -> DecodedColumn:
        """No cells. A record's fields have none either."""
        none = np.empty(0, np.int64)
        cells, _ = self.read(type_, none, True, None, 1)
        assert cells is not None
        return cells

    def _record(
        self, type_: AvroType, at: Places, wanted: bool, inside: Collection[str] | None, depth: int
    ) -> tuple[DecodedColumn | None, Places]:
        end = at
        fields: dict[str, DecodedColumn] = {}
        for name, inner in type_.fields.items():
            reads = wanted and inside is not None and name in inside
            cells, end = self.read(inner, end, reads, None, depth + 1)
            if cells is not None:
                fields[name] = cells
        if not wanted:
            return None, end
        return DecodedColumn(type_, self._octets, np.ones(len(at), np.bool_), at, end, None, fields), end

    def _plain_array(self, type_: AvroType, at: Places, depth: int) -> tuple[DecodedColumn, Places]:
        """Arrays whose items' cells are kept."""
        found: list[tuple[Places, DecodedColumn]] = []
        end = self._blocks(type_, at, depth, found)
        valid = np.ones(len(at), np.bool_)
        if not found:
            assert type_.items is not None
            found = [(at[:0], self._empty(type_.items))]
        owners = np.concatenate([rows for rows, _ in found])
        order = np.argsort(owners, kind="stable")
        items = DecodedColumn.joined([cells for _, cells in found]).take(order)
        counts = np.bincount(owners, minlength=len(at)).astype(np.int64)
        return DecodedColumn(type_, self._octets, valid, at, end, counts, items=items), end

    def _blocks(
        self, type_: AvroType, at: Places, depth: int, found: list[tuple[Places, DecodedColumn]] | None
    ) -> Places:
        """The ends of arrays and maps: blocks of items until one is empty. A block may say its size.

        found: gets the items, with the rows they belong to; None passes over them, and over sized blocks at once.
        """
        assert type_.items is not None
        end = at.copy()
        open_ = np.arange(len(at))
        while len(open_):
            counts, start = self._longs(end[open_])
            sized = counts < 0
            if sized.any():
                rows = np.flatnonzero(sized)
                sizes, behind = self._longs(start[rows])
                start[rows] = self._moved(behind, sizes) if found is None else behind
            left = np.where(sized, 0 if found is None else -counts, counts)
            while len(rows := np.flatnonzero(left)):
                self._block_steps += 1
                if self._block_steps > _BLOCK_STEPS_MAX:
                    start[rows] = self._lost
                    break
                item = start[rows]
                if type_.kind == "map":
                    _, item = self._lengths(item)
                cells, start[rows] = self.read(type_.items, item, found is not None, None, depth + 1)
                if found is not None and cells is not None:
                    found.append((open_[rows], cells))
                left[rows] = np.where(start[rows] == self._lost, 0, left[rows] - 1)
            end[open_] = start
            open_ = open_[(counts != 0) & (start != self._lost)]
        return end


def _is_plain(type_: AvroType | None) -> bool:
    """Whether cells of this type have values, and nothing inside."""
    return type_ is not None and type_.without_null.kind in _PLAIN
