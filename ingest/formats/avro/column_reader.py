"""Reads many Avro records of one schema together, field by field. NumPy operations read a field of all records at once.

An Avro record has no offsets: a field begins where the previous field ends. So the reader keeps one position for each
record, and moves all positions over a field together. If a record does not match its schema (a length beyond its end, a
branch that the union lacks), its position is set after the end of the buffer and stays there. Such a record does not
end where it should. It is left to `value_reader`, which finds the error.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelake.ingest.formats.avro.decoded_columns import DecodedColumn, Mask, Places
from tidelake.ingest.formats.avro.writer_schema import NULL, AvroType
from tidelake.ingest.formats.concatenated_json import layout

_PADDING: Final = 16  # bytes that a step may read after the end of the last record
_BLOCK_STEPS_MAX: Final = 4_096  # for arrays and maps of one chunk; records with longer ones are read one by one
_DEPTH_MAX: Final = 24
_PLAIN: Final = frozenset({"boolean", "int", "long", "float", "double", "string", "bytes"})
_FIXED_BYTES: Final = {"boolean": 1, "float": 4, "double": 8}


class ColumnReader:
    """A reader of records of one schema.

    type_: the schema, of kind record.
    wanted: names of the fields to read. All other fields are skipped.
    inside: name of a wanted field that is a record to the names of its fields to read.
    """

    def __init__(
        self, type_: AvroType, wanted: Collection[str], inside: Mapping[str, Collection[str]] | None = None
    ) -> None:
        self._type = type_
        self._wanted = frozenset(wanted)
        self._inside = {name: frozenset(names) for name, names in (inside or {}).items()}

    def read(self, values: pa.Array, rows: NDArray[np.int64], skip_bytes: int) -> tuple[dict[str, DecodedColumn], Mask]:
        """Return the wanted fields as columns with a value for each row, and flags of the rows that were read.

        For rows that were not read, the values are meaningless.

        values: binary, without nulls in `rows`.
        skip_bytes: number of bytes before each record.
        """
        positions, data = layout(values)
        begins, ends = positions[rows] + skip_bytes, positions[rows + 1]
        first, last = int(begins.min()), int(ends.max())
        octets = np.zeros(last - first + _PADDING, np.uint8)
        octets[: last - first] = np.frombuffer(data, np.uint8)[first:last]
        step = _Step(octets, last - first)
        at = begins - first
        columns: dict[str, DecodedColumn] = {}
        for name, inner in self._type.fields.items():
            column, at = step.read(inner, at, name in self._wanted, self._inside.get(name), 1)
            if column is not None:
                columns[name] = column
        return columns, at == ends - first


class _Step:
    """A buffer with records, and the methods that read each type from it.

    `_lost` is the position of records that can't be read. It is after the end of all records, and no position is after
    it.
    """

    def __init__(self, octets: NDArray[np.uint8], end: int) -> None:
        self._octets = octets
        self._end = end
        self._lost = end + 1
        self._words = np.ndarray((len(octets) - 7,), "<u8", octets, 0, (1,))
        self._block_steps = 0

    def read(
        self, type_: AvroType, at: Places, wanted: bool, inside: Collection[str] | None, depth: int
    ) -> tuple[DecodedColumn | None, Places]:
        """Return the column of a field, or None if it is not wanted, and the positions of the next field."""
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
                end, values = self._invalidate_where((numbers < 0) | (numbers >= len(type_.symbols)), end), None
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
        return self._invalidate_where((by < 0) | (by > self._end - at), at + by)

    def _invalidate_where(self, wrong: Mask, at: Places) -> Places:
        return np.where(wrong, self._lost, at) if wrong.any() else at

    # ------------------------------------------------------------ numbers

    def _longs(self, at: Places) -> tuple[NDArray[np.int64], Places]:
        """Return zigzag integers, which are stored in groups of seven bits, the lowest group first, and their ends."""
        octets = self._octets[at]
        raw = octets.astype(np.uint64) & np.uint64(0x7F)
        end = at + 1
        more = np.flatnonzero(octets & 0x80)
        if len(more):
            raw[more], end[more] = self._read_long_varints(raw[more], end[more])
        np.minimum(end, self._lost, out=end)
        return (raw >> np.uint64(1)).view(np.int64) ^ -(raw & np.uint64(1)).view(np.int64), end

    def _read_long_varints(self, raw: NDArray[np.uint64], at: Places) -> tuple[NDArray[np.uint64], Places]:
        """Return the integers with their bytes after the first one, up to nine, and their ends.

        The first eight of these bytes are read at once as one word.
        """
        words = self._words[np.minimum(at, len(self._words) - 1)]
        last = ~words & np.uint64(0x8080808080808080)  # a bit for each byte that may be the last
        lowest = last & (~last + np.uint64(1))
        words &= lowest | (lowest - np.uint64(1))  # bytes after the last one belong to other values
        for byte in range(8):
            part = words >> np.uint64(8 * byte)
            if byte and not part.any():
                break
            raw = raw | ((part & np.uint64(0x7F)) << np.uint64(7 * (byte + 1)))
        taken = np.bitwise_count(lowest - np.uint64(1)).astype(np.int64) // 8 + 1
        end = at + taken
        longest = np.flatnonzero(last == 0)  # integers of ten bytes; the tenth byte may only have its lowest bit
        if len(longest):
            tenth = self._octets[np.minimum(at[longest] + 8, self._lost)]
            raw[longest] |= tenth.astype(np.uint64) << np.uint64(63)
            end[longest] = np.where(tenth > 1, self._lost, at[longest] + 9)
        return raw, end

    def _lengths(self, at: Places) -> tuple[NDArray[np.int64], Places]:
        """Return the lengths of texts or bytes, and where they end."""
        lengths, start = self._longs(at)
        end = self._moved(start, lengths)
        if (wrong := end == self._lost).any():
            lengths = np.where(wrong, 0, lengths)
        return lengths, end

    def _fixed_width(self, kind: str, at: Places, wanted: bool) -> tuple[NDArray[Any] | None, Places]:
        end = self._moved(at, _FIXED_BYTES[kind])
        if kind == "boolean":
            flags = self._octets[at]
            return flags == 1, self._invalidate_where(flags > 1, end)
        if not wanted:
            return None, end
        words = self._words[at]
        return (words.view(np.float64) if kind == "double" else words.astype(np.uint32).view(np.float32)), end

    # ------------------------------------------------------------ composite types

    def _union(
        self, type_: AvroType, at: Places, wanted: bool, inside: Collection[str] | None, depth: int
    ) -> tuple[DecodedColumn | None, Places]:
        """Read a union. A union of null and one type becomes a column of that type.

        Each value of another union is stored in its Avro form, with its branch number.
        """
        branch, start = self._longs(at)
        end = self._invalidate_where((branch < 0) | (branch >= len(type_.branches)), start)
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
                column, end = self.read(inner, end, reads, inside, depth + 1)
            else:
                rows = np.flatnonzero(taken)
                column, end[rows] = self.read(inner, end[rows], reads, inside, depth + 1)
            if reads:
                found, valid = column, taken
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
        """Return a column without values. The fields of a record have no values either."""
        none = np.empty(0, np.int64)
        column, _ = self.read(type_, none, True, None, 1)
        assert column is not None
        return column

    def _record(
        self, type_: AvroType, at: Places, wanted: bool, inside: Collection[str] | None, depth: int
    ) -> tuple[DecodedColumn | None, Places]:
        end = at
        fields: dict[str, DecodedColumn] = {}
        for name, inner in type_.fields.items():
            reads = wanted and inside is not None and name in inside
            column, end = self.read(inner, end, reads, None, depth + 1)
            if column is not None:
                fields[name] = column
        if not wanted:
            return None, end
        return DecodedColumn(type_, self._octets, np.ones(len(at), np.bool_), at, end, None, fields), end

    def _plain_array(self, type_: AvroType, at: Places, depth: int) -> tuple[DecodedColumn, Places]:
        """Read arrays of plain values, with their items."""
        found: list[tuple[Places, DecodedColumn]] = []
        end = self._blocks(type_, at, depth, found)
        valid = np.ones(len(at), np.bool_)
        if not found:
            assert type_.items is not None
            found = [(at[:0], self._empty(type_.items))]
        owners = np.concatenate([rows for rows, _ in found])
        order = np.argsort(owners, kind="stable")
        items = DecodedColumn.joined([column for _, column in found]).take(order)
        counts = np.bincount(owners, minlength=len(at)).astype(np.int64)
        return DecodedColumn(type_, self._octets, valid, at, end, counts, items=items), end

    def _blocks(
        self, type_: AvroType, at: Places, depth: int, found: list[tuple[Places, DecodedColumn]] | None
    ) -> Places:
        """Return the ends of arrays and maps. They are blocks of items, and an empty block is the last one.

        A block may contain its size in bytes.

        found: gets columns of items, each with the rows to which the items belong. With None, items are skipped. Blocks
            with a size are then skipped at once.
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
                column, start[rows] = self.read(type_.items, item, found is not None, None, depth + 1)
                if found is not None and column is not None:
                    found.append((open_[rows], column))
                left[rows] = np.where(start[rows] == self._lost, 0, left[rows] - 1)
            end[open_] = start
            open_ = open_[(counts != 0) & (start != self._lost)]
        return end


def _is_plain(type_: AvroType | None) -> bool:
    """Return whether a column of this type has `values`, and no fields or items."""
    return type_ is not None and type_.without_null.kind in _PLAIN
