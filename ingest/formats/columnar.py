"""Decoding records as columns: what makes a decoder leave them to the row decoder, and which columns it fails for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
