"""Reads columns from the records of many Avro blocks. Each NumPy step reads one field in all blocks at once.

Avro records have no offsets: a record starts where the previous one ends. Only the starts of blocks are known, so each
block is a lane. All lanes read their first record field by field, then their second one, and so on. The cost hardly
depends on the number of lanes, so this is faster than fastavro from about sixty blocks on (a manifest has one for each
64 kB), and takes a sixth of fastavro's time.

It supports the types of metadata records. Other types and invalid bytes are left to fastavro, which reports the error.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias, cast

import fastavro
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Places: TypeAlias = NDArray[np.int64]

_PADDING: Final = 16  # bytes that a step may read after the last record
_LENGTHS_COPIED_AT_ONCE: Final = 64
_ITEMS_MAX: Final = 10_000  # items of an array; metadata has no larger arrays
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


@dataclass(frozen=True, slots=True)
class AvroBlocks:
    """Blocks of files that were written with one schema, in their order.

    counts: number of records of each block.
    """

    schema: Mapping[str, Any]
    blocks: Sequence[bytes]
    counts: Sequence[int]

    @property
    def count(self) -> int:
        return sum(self.counts)


def blocks_of(files: Sequence[bytes]) -> AvroBlocks | None:
    """Returns None if the files were written with several schemas. Raises the errors of fastavro."""
    schemas, blocks, counts = [], [], []
    for data in files:
        reader = fastavro.block_reader(io.BytesIO(data))
        schemas.append(reader.writer_schema)
        for block in reader:
            blocks.append(cast(Any, block).bytes_.getvalue())  # not in fastavro's types
            counts.append(block.num_records)
    if not schemas or any(schema != schemas[0] for schema in schemas):
        return None
    return AvroBlocks(cast(Mapping[str, Any], schemas[0]), blocks, counts)


def read_columns(source: AvroBlocks, wanted: Mapping[str, pa.DataType]) -> dict[str, pa.Array] | None:
    """Returns one value for each record, in the order of the blocks; None for records that this module can't read.

    wanted: types by the path of the field, as `_FILE._FILE_NAME`. Types are int64, string, binary and lists of them.
        Fields that the records don't have are null.
    """
    lengths = np.array([len(block) for block in source.blocks], np.int64)
    counts = np.array(source.counts, np.int64)
    octets = np.zeros(int(lengths.sum()) + _PADDING, np.uint8)
    octets[: len(octets) - _PADDING] = np.frombuffer(b"".join(source.blocks), np.uint8)
    starts = np.cumsum(lengths) - lengths
    lanes = np.argsort(-counts, kind="stable")
    try:
        program = _RecordReader(_Octets(octets), wanted)
        step = program.reader(source.schema, "")
        at, first = starts[lanes].copy(), (np.cumsum(counts) - counts)[lanes]
        left = counts[lanes]
        for number in range(int(left[0]) if len(left) else 0):
            active = int(np.searchsorted(-left, -number, side="left"))
            at[:active] = step(at[:active], first[:active] + number)
        if (at != (starts + lengths)[lanes]).any():
            return None
        return {name: program.column(name, source.count) for name in wanted}
    except _UnreadableError:
        return None


class _UnreadableError(Exception):
    """A type, or bytes, that only fastavro can read or report."""


# ---------------------------------------------------------------- bytes


class _Octets:
    """The bytes of all blocks, and functions that read numbers from them. Positions are checked against the buffer."""

    def __init__(self, octets: NDArray[np.uint8]) -> None:
        self.octets = octets
        self.last = len(octets) - _PADDING
        self._words = np.ndarray((len(octets) - 7,), "<u8", octets, 0, (1,))

    def longs(self, at: Places) -> tuple[Places, Places]:
        """Returns zigzag integers of at most eight bytes (seven bits each, lowest first), and where they end."""
        raw = self.octets[at].astype(np.uint64)
        if int(raw.max()) < 0x80:
            return (raw >> np.uint64(1)).view(np.int64) ^ -(raw & np.uint64(1)).view(np.int64), at + 1
        words = self._words[at]
        ends = ~words & _LAST_BITS
        lowest = ends & (~ends + np.uint64(1))
        if not lowest.all():
            raise _UnreadableError
        below = lowest - np.uint64(1)
        words &= below & _LOW_7_BITS
        for low, high, bits in _FOLD_STEPS:
            words = (words & low) | ((words & high) >> bits)
        taken = np.bitwise_count(below).astype(np.int64) // 8 + 1
        return (words >> np.uint64(1)).view(np.int64) ^ -(words & np.uint64(1)).view(np.int64), self.within(at + taken)

    def lengths(self, at: Places) -> tuple[Places, Places, Places]:
        """Returns the lengths of texts or bytes, where they start, and where they end."""
        lengths, begin = self.longs(at)
        if (lengths < 0).any():
            raise _UnreadableError
        return lengths, begin, self.within(begin + lengths)

    def within(self, at: Places) -> Places:
        if int(at.max()) > self.last:
            raise _UnreadableError
        return at


class _Reader(Protocol):
    def __call__(self, at: Places, rows: Places) -> Places:
        """Reads values and returns the positions after them.

        at: the positions of the values.
        rows: the rows that they belong to.
        """


# ---------------------------------------------------------------- collecting values for columns


@dataclass(slots=True)
class _Cells:
    """The values of one field, in the order in which they were read.

    rows: the rows of the values.
    numbers: the values, or the start of texts and bytes, or the number of items of an array.
    lengths: the lengths of texts and bytes.
    items: the items of arrays. Their rows are numbers in the order in which the items were read.
    owners: for each of these numbers, the row of the array.
    """

    rows: list[Places] = field(default_factory=list)
    numbers: list[Places] = field(default_factory=list)
    lengths: list[Places] = field(default_factory=list)
    items: _Cells | None = None
    owners: list[Places] = field(default_factory=list)
    item_count: int = 0

    def number_items(self, owners: Places) -> Places:
        numbers = np.arange(self.item_count, self.item_count + len(owners))
        self.owners.append(owners)
        self.item_count += len(owners)
        return numbers


class _RecordReader:
    """A reader for each field of a schema. Readers of wanted fields keep their values."""

    def __init__(self, octets: _Octets, wanted: Mapping[str, pa.DataType]) -> None:
        self._octets = octets
        self._wanted = wanted
        self._cells: dict[str, _Cells] = {}

    def reader(self, schema: Any, path: str) -> _Reader:
        cells = self._cells.setdefault(path, _Cells()) if path in self._wanted else None
        return self._reader(schema, path, cells)

    def _reader(self, schema: Any, path: str, cells: _Cells | None) -> _Reader:
        match schema:
            case "int" | "long":
                return self._numbers(cells)
            case "string" | "bytes":
                return self._bytes(cells)
            case ["null", inner]:
                return self._nullable(self._reader(inner, path, cells))
            case {"type": "record", "fields": fields}:
                return _all([self.reader(f["type"], f"{path}.{f['name']}".lstrip(".")) for f in fields])
            case {"type": "array", "items": items}:
                inside = None
                if cells is not None:
                    inside = cells.items = _Cells()
                return self._array(self._reader(items, path, inside), cells)
            case {"type": str() as name} if name in ("int", "long", "string", "bytes"):
                return self._reader(name, path, cells)
        raise _UnreadableError

    def _numbers(self, cells: _Cells | None) -> _Reader:
        def read(at: Places, rows: Places) -> Places:
            numbers, end = self._octets.longs(at)
            if cells is not None:
                cells.rows.append(rows)
                cells.numbers.append(numbers)
            return end

        return read

    def _bytes(self, cells: _Cells | None) -> _Reader:
        def read(at: Places, rows: Places) -> Places:
            lengths, begin, end = self._octets.lengths(at)
            if cells is not None:
                cells.rows.append(rows)
                cells.numbers.append(begin)
                cells.lengths.append(lengths)
            return end

        return read

    def _nullable(self, inner: _Reader) -> _Reader:
        def read(at: Places, rows: Places) -> Places:
            branches, end = self._octets.longs(at)
            if not branches.any():
                return end
            if ((branches != 0) & (branches != 1)).any():
                raise _UnreadableError
            if branches.all():
                return inner(end, rows)
            present = np.flatnonzero(branches)
            end[present] = inner(end[present], rows[present])
            return end

        return read

    def _array(self, inner: _Reader, cells: _Cells | None) -> _Reader:
        """Reads arrays of one block of items and the empty block after it. fastavro must read any other array."""

        def read(at: Places, rows: Places) -> Places:
            counts, end = self._octets.longs(at)
            if cells is not None:
                cells.rows.append(rows)
                cells.numbers.append(counts.copy())
            open_ = np.flatnonzero(counts)
            if len(open_) and (int(counts.min()) < 0 or int(counts.max()) > _ITEMS_MAX):
                raise _UnreadableError
            while len(open_):
                owners = rows[open_]
                end[open_] = inner(end[open_], owners if cells is None else cells.number_items(owners))
                counts[open_] -= 1
                ended = open_[counts[open_] == 0]
                if len(ended):
                    more, end[ended] = self._octets.longs(end[ended])
                    if more.any():
                        raise _UnreadableError
                    open_ = open_[counts[open_] != 0]
            return end

        return read

    # ------------------------------------------------------------ columns

    def column(self, name: str, count: int) -> pa.Array:
        return self._column(self._cells.get(name), self._wanted[name], count)

    def _column(self, cells: _Cells | None, kind: pa.DataType, count: int) -> pa.Array:
        if cells is None or not cells.rows:
            return pa.nulls(count, kind)
        rows = np.concatenate(cells.rows)
        numbers = np.zeros(count, np.int64)
        numbers[rows] = np.concatenate(cells.numbers)
        nulls = None
        if len(rows) < count:
            nulls = np.ones(count, np.bool_)
            nulls[rows] = False
        if pa.types.is_list(kind):
            return self._lists(cells, kind, numbers, nulls)
        if not cells.lengths:
            return pa.array(numbers, pa.int64(), mask=nulls).cast(kind)
        lengths = np.zeros(count, np.int64)
        lengths[rows] = np.concatenate(cells.lengths)
        return self._texts(numbers, lengths, kind, nulls)

    def _lists(self, cells: _Cells, kind: pa.DataType, counts: Places, nulls: NDArray[np.bool_] | None) -> pa.Array:
        items = cells.items
        assert items is not None
        if cells.owners:
            order = np.argsort(np.concatenate(cells.owners), kind="stable")
            places = np.empty_like(order)
            places[order] = np.arange(len(order))
            items.rows = [places[rows] for rows in items.rows]
        inside = self._column(items, kind.value_type, cells.item_count)
        offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))
        return pa.ListArray.from_arrays(offsets, inside, kind, mask=None if nulls is None else pa.array(nulls))

    def _texts(self, starts: Places, lengths: Places, kind: pa.DataType, nulls: NDArray[np.bool_] | None) -> pa.Array:
        ends = np.cumsum(lengths)
        if len(ends) and ends[-1] >= 1 << 31:
            raise _UnreadableError
        offsets = np.concatenate([[0], ends]).astype(np.int32)
        validity = None if nulls is None else pa.py_buffer(np.packbits(~nulls, bitorder="little"))
        content = _copied(self._octets.octets, starts, lengths, ends - lengths)
        column = pa.Array.from_buffers(kind, len(lengths), [validity, pa.py_buffer(offsets), pa.py_buffer(content)])
        if pa.types.is_string(kind):
            try:
                column.validate(full=True)
            except pa.ArrowInvalid:
                raise _UnreadableError from None
        return column


def _all(readers: Sequence[_Reader]) -> _Reader:
    def read(at: Places, rows: Places) -> Places:
        for reader in readers:
            at = reader(at, rows)
        return at

    return read


def _copied(octets: NDArray[np.uint8], starts: Places, lengths: Places, targets: Places) -> NDArray[np.uint8]:
    """Concatenates ranges of bytes. Metadata has few distinct lengths; all ranges of one length are copied at once."""
    result = np.zeros(int(lengths.sum()), np.uint8)
    distinct = np.unique(lengths)
    if len(distinct) > _LENGTHS_COPIED_AT_ONCE:
        places = np.repeat(starts - targets, lengths) + np.arange(len(result))
        return octets[places]
    for length in distinct[distinct > 0].tolist():
        rows = np.flatnonzero(lengths == length)
        source = np.lib.stride_tricks.sliding_window_view(octets, length)
        target = np.lib.stride_tricks.sliding_window_view(result, length, writeable=True)
        target[targets[rows]] = source[starts[rows]]
    return result
