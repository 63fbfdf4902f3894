"""Unions of serialised 32-bit roaring bitmaps.

Source: Java `utils/RoaringBitmap32.java`.
"""

from __future__ import annotations

from pyroaring import BitMap


def unite_rbm32(acc: bytes, item: bytes) -> bytes:
    """In the portable form, runs optimised. Raises ValueError for bytes that are no bitmap."""
    united = BitMap.deserialize(acc)
    united |= BitMap.deserialize(item)
    united.run_optimize()
    serialised: bytes = united.serialize()
    return serialised
