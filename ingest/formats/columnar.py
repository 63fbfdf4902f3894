"""What decoders of records as columns have in common."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import msgspec
import pyarrow as pa

from ingest.formats.values.column_decoders import ColumnDecoder, float_hook

NOT_COLUMNAR: Final = (
    ValueError,
    TypeError,
    OverflowError,
    RecursionError,
    msgspec.MsgspecError,
    pa.ArrowNotImplementedError,
)
"""What a columnar decoder raises for records that are to be read one by one."""


@contextmanager
def garbage_collection_paused() -> Iterator[None]:
    """For the milliseconds of a chunk: thousands of objects come and go, none in a cycle, and looking costs a tenth.

    Nothing else may pause it: whichever ended first would end it for both.
    """
    if not gc.isenabled():  # off for good, or paused by another thread, which will resume it
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
    """Which columns of these good row images their decoders refuse. Not fast itself.

    decoders: with the names of their columns.
    images: column to raw JSON.
    """
    null = msgspec.Raw(b"null")
    refused = set()
    for name, decoder in decoders:
        values = b"[" + b",".join([image.get(name, null) for image in images]) + b"]"
        list_type: Any = list[decoder.json_type]  # type: ignore[name-defined]
        try:
            decoder.to_arrow(msgspec.json.Decoder(list_type, float_hook=float_hook).decode(values))
        except NOT_COLUMNAR:
            refused.add(name)
    return frozenset(refused)
