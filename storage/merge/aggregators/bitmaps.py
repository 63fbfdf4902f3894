"""Unions of serialised 32-bit roaring bitmaps.

Source: Java `utils/RoaringBitmap32.java`.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyroaring import BitMap


@dataclass(frozen=True, slots=True)
class UnitedBitmap32:
    """See `United`."""

    bitmap: BitMap

    @classmethod
    def of(cls, serialised: bytes) -> UnitedBitmap32:
        return cls(BitMap.deserialize(serialised))

    def add(self, serialised: bytes) -> None:
        self.bitmap.update(BitMap.deserialize(serialised))

    def serialised(self) -> bytes:
        """In the portable form, runs optimised: what containers hold decides theirs, not how they came to it."""
        self.bitmap.run_optimize()
        serialised: bytes = self.bitmap.serialize()
        return serialised
