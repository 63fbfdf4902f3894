"""Functions that all columnar decoders share."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import msgspec
import pyarrow as pa

from tidelake.ingest.formats.values.conversion import ColumnDecoder, float_hook

COLUMNAR_FAILURES: Final = (
    ValueError,
    TypeError,
    OverflowError,
    RecursionError,
    msgspec.MsgspecError,
    pa.ArrowNotImplementedError,
)
"""The errors with which a columnar decoder refuses records. The row decoder then reads these records one by one."""


@contextmanager
def garbage_collection_paused() -> Iterator[None]:
    """Pause the garbage collector while a chunk is decoded, which takes milliseconds.

    Decoding creates and frees thousands of objects without reference cycles. The collector's searches for cycles would
    cost a tenth of the time. No other code may pause the collector: the pause that ends first would end both.
    """
    if not gc.isenabled():  # turned off by the user, or paused by another thread, which will resume it
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def refused_columns(
    decoders: Iterable[tuple[str, ColumnDecoder]], images: Sequence[Mapping[str, msgspec.Raw]]
) -> frozenset[str]:
    """Return the columns whose column decoders refuse the values of these row images. Slow.

    decoders: column names with their decoders.
    images: valid row images, each as column name to raw JSON.
    """
    null = msgspec.Raw(b"null")
    refused = set()
    for name, decoder in decoders:
        values = b"[" + b",".join([image.get(name, null) for image in images]) + b"]"
        list_type: Any = list[decoder.json_type]  # type: ignore[name-defined]
        try:
            decoder.to_arrow(msgspec.json.Decoder(list_type, float_hook=float_hook).decode(values))
        except COLUMNAR_FAILURES:
            refused.add(name)
    return frozenset(refused)
