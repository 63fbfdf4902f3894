"""Unions of Apache DataSketches, to the byte what Java's library (4.2.0) makes.

Its C++ sibling, which Python uses, leaves two fields empty that Java fills; neither is needed for an estimate.
Source: Java `utils/ThetaSketch.java`, `utils/HllSketchUtil.java`; DataSketches' `Union`, `AbstractHllArray`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from storage.errors import UnsupportedFeature

# Theta: byte 0 is the length of the preamble in 8-byte words; from two words on, 12:16 is the sampling rate.
_SAMPLING_RATE: Final = slice(12, 16)
_ALL_SAMPLED: Final = struct.pack("<f", 1.0)

# HLL: 5 flags, 7 mode (2: an array of registers; else a list or set of coupons), 8 the HIP accumulator, 16 and 24 the
# two parts of KxQ, the sum of 2**-register; registers from 40, if they are a byte each. A coupon is a register's value
# above 26 bits of a hash, whose last bits say which register; coupons begin at 8 in a list, at 12 in a set.
_FLAGS, _MODE = 5, 7
_OUT_OF_ORDER: Final = 16
_REGISTERS: Final = 2
_HIP: Final = slice(8, 16)
_KXQ: Final = slice(16, 32)


@dataclass(slots=True)
class SketchUnion:
    """See `UnionAccumulator`. It is serialised after each, for its size is bounded and Java's rounds at each step."""

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
    """Compact theta sketch of both."""
    library = _datasketches()
    union = library.theta_union()
    for sketch in (acc, item):
        union.update(library.compact_theta_sketch.deserialize(sketch))
    united = bytearray(union.get_result().serialize())
    if united[0] > 1:
        united[_SAMPLING_RATE] = _ALL_SAMPLED
    return bytes(united)


def _unite_hll(acc: bytes, item: bytes) -> bytes:
    """Compact HLL_4 sketch of both. The result is at most as precise as `item`."""
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
    """What Java's is after coupons went into registers that are out of order: it goes on adding, to no use."""
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
