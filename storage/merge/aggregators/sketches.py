"""Unites serialised sets: bitmaps, and Apache DataSketches with the same bytes as Java's library (4.2.0).

The C++ library of DataSketches, which Python uses, leaves two fields empty that Java fills. Estimates need neither of
them.

Source: Java `utils/ThetaSketch.java`, `utils/HllSketchUtil.java`; DataSketches' `Union`, `AbstractHllArray`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

import pyarrow as pa

from tidelake.errors import BadInput, UnsupportedFeature
from tidelake.storage.merge.aggregators.aggregator import Steps
from tidelake.storage.merge.aggregators.row_aggregator import RowAggregator
from tidelake.storage.merge.column_aggregation import ColumnAggregation
from tidelake.storage.merge.equal_keys import Groups

# Theta: byte 0 is the length of the preamble in 8-byte words. With two words or more, 12:16 is the sampling rate.
_SAMPLING_RATE: Final = slice(12, 16)
_SAMPLING_PROBABILITY_1: Final = struct.pack("<f", 1.0)

# HLL, by byte offset:
#   5: flags
#   7: mode (2: an array of registers; otherwise a list or a set of coupons)
#   8: the HIP accumulator
#   16 and 24: the two parts of KxQ, the sum of 2**-register
#   40: the registers, if each takes a byte
# Coupons begin at offset 8 in a list, and at 12 in a set. A coupon is the value of a register in the upper 6 bits, and
# 26 bits of a hash. The last bits of the hash are the number of the register.
_FLAGS, _MODE = 5, 7
_OUT_OF_ORDER: Final = 16
_REGISTERS: Final = 2
_HIP: Final = slice(8, 16)
_KXQ: Final = slice(16, 32)


@dataclass(slots=True)
class SketchUnion:
    """A `UnionAccumulator` of sketches. It is serialised after each set, because Java rounds at each step.

    This is affordable, as the size of a sketch is bounded.
    """

    unite: Callable[[bytes, bytes], bytes]
    data: bytes

    @classmethod
    def of_theta(cls, serialised: bytes) -> SketchUnion:
        return cls(_unite_theta, serialised)

    @classmethod
    def of_hll(cls, serialised: bytes) -> SketchUnion:
        return cls(_unite_hll, serialised)

    def add(self, serialised: bytes) -> None:
        self.data = self.unite(self.data, serialised)

    def serialised(self) -> bytes:
        return self.data


def _unite_theta(acc: bytes, item: bytes) -> bytes:
    """Return the compact theta sketch of both."""
    library = _datasketches()
    union = library.theta_union()
    for sketch in (acc, item):
        union.update(library.compact_theta_sketch.deserialize(sketch))
    united = bytearray(union.get_result().serialize())
    if united[0] > 1:
        united[_SAMPLING_RATE] = _SAMPLING_PROBABILITY_1
    return bytes(united)


def _unite_hll(acc: bytes, item: bytes) -> bytes:
    """Return the compact HLL_4 sketch of both. It is at most as precise as `item`."""
    library = _datasketches()
    older, newer = (library.hll_sketch.deserialize(sketch) for sketch in (acc, item))
    union = library.hll_union(newer.lg_config_k)
    union.update(newer)
    union.update(older)
    united = bytearray(union.get_result(library.tgt_hll_type.HLL_4).serialize_compact())
    modes = [sketch[_MODE] & 3 for sketch in (acc, item)]
    if united[_FLAGS] & _OUT_OF_ORDER and modes.count(_REGISTERS) == 1:
        registers, coupons = (acc, newer) if modes[0] == _REGISTERS else (item, older)
        united[_HIP] = _hip_accumulator(registers, coupons, newer.lg_config_k)
    return bytes(united)


def _hip_accumulator(registers: bytes, coupons: Any, most_lg_k: int) -> bytes:
    """Return Java's HIP accumulator after coupons were added to registers that are out of order.

    Java continues to update it then, although it is not used any more.
    """
    library = _datasketches()
    union = library.hll_union(most_lg_k)
    union.update(library.hll_sketch.deserialize(registers))
    before = union.get_result(library.tgt_hll_type.HLL_8).serialize_updatable()
    count = 1 << before[3]
    values = list(before[40 : 40 + count])
    kxq = sum(struct.unpack("<dd", before[_KXQ]))
    (hip,) = struct.unpack("<d", registers[_HIP]) if registers[3] <= most_lg_k else (0.0,)
    compact = coupons.serialize_compact()
    for (coupon,) in struct.iter_unpack("<I", compact[8 if compact[_MODE] & 3 == 0 else 12 :]):
        register, value = coupon & (count - 1), coupon >> 26
        if value > values[register]:
            hip += count / kxq
            kxq += 2.0**-value - 2.0 ** -values[register]
            values[register] = value
    return struct.pack("<d", hip)


def _datasketches() -> Any:
    try:
        import datasketches  # noqa: PLC0415  # an extra: only tables with sketches need it
    except ImportError:
        raise UnsupportedFeature(
            "aggregate functions theta_sketch and hll_sketch",
            "they need the package datasketches",
            "Install it: pip install 'tidelake[sketches]'",
        ) from None
    return datasketches


class UnionAccumulator(Protocol):
    """A set to which others are added.

    Bytes that are not such a set raise ValueError, or an error of the library; `_UnionRowAggregator` handles both.
    """

    def add(self, serialised: bytes) -> None: ...

    def serialised(self) -> bytes:
        """Return the same bytes as Java after the same sets in the same order. Java serialises after each set."""
        ...


@dataclass(frozen=True, slots=True)
class UnionAggregator:
    """A function that unites sets. Nulls don't count. A single value stays unchanged.

    Sets are added one by one, as in Java, because the union of sketches is not associative.

    new_accumulator: makes an accumulator from the bytes of the first set.
    """

    aggregation: ColumnAggregation
    new_accumulator: Callable[[bytes], UnionAccumulator]

    def aggregate(self, values: pa.Array, groups: Groups, steps: Steps | None = None) -> pa.Array:
        items = values.take(pa.array(groups.rows)).to_pylist()
        return pa.array(_UnionRowAggregator(self).aggregate(items, groups, steps), values.type)


class _UnionRowAggregator(RowAggregator[bytes, UnionAccumulator]):
    def __init__(self, union: UnionAggregator) -> None:
        self._union = union

    def agg(self, acc: bytes | UnionAccumulator | None, item: bytes | None) -> bytes | UnionAccumulator | None:
        if acc is None or item is None:
            return item if acc is None else acc
        try:
            united = self._union.new_accumulator(acc) if isinstance(acc, bytes) else acc
            united.add(item)
        except (ValueError, RuntimeError, IndexError, MemoryError) as e:
            field, function = self._union.aggregation.field, self._union.aggregation.function
            raise BadInput(
                f"column {field.name!r} {field.type}: a value is not in the serialised form that aggregate function "
                f"{function} needs ({e}); write values in this form"
            ) from None
        return united

    def finish(self, acc: bytes | UnionAccumulator) -> bytes:
        return acc if isinstance(acc, bytes) else acc.serialised()
