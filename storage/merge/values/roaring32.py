"""Unites serialised 32-bit roaring bitmaps.

Source: Java `utils/RoaringBitmap32.java`.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyroaring import BitMap


@dataclass(frozen=True, slots=True)
class RoaringUnion32:
    """A `UnionAccumulator` of bitmaps.

    The time of a union grows with the containers of both sides. So only bitmaps of similar size are united. Then every
    value takes part in log(n) unions, in order.

    parts: (number of inputs, bitmap) of each part. Each has at least twice the inputs of the next one.
    """

    parts: list[tuple[int, BitMap]]

    @classmethod
    def of(cls, serialised: bytes) -> RoaringUnion32:
        return cls([(1, BitMap.deserialize(serialised))])

    def add(self, serialised: bytes) -> None:
        self.parts.append((1, BitMap.deserialize(serialised)))
        while len(self.parts) > 1 and self.parts[-2][0] < 2 * self.parts[-1][0]:
            self._unite_last()

    def _unite_last(self) -> None:
        count, last = self.parts.pop()
        earlier_count, earlier = self.parts[-1]
        earlier.update(last)
        self.parts[-1] = earlier_count + count, earlier

    def serialised(self) -> bytes:
        """Return the portable form with optimised runs. It depends only on the values, not on the order of unions."""
        while len(self.parts) > 1:
            self._unite_last()
        (_, bitmap) = self.parts[0]
        bitmap.run_optimize()
        serialised: bytes = bitmap.serialize()
        return serialised
