"""Changes INT96 columns to 12-byte binaries in Parquet footers, and back.

Arrow reads INT96 as nanoseconds that wrap silently, and writes it for all timestamps of a file or for none. Both types
have the same bytes in every encoding of INT96 (plain, and dictionaries of plain values). So with a changed footer the
values can be converted here.

Source: apache/parquet-format `parquet.thrift`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from tidelake.storage.files.formats.thrift import I32, Struct, parse, parse_first, serialize

MAGIC: Final = b"PAR1"

INT96: Final = 3  # enum Type of parquet.thrift
_FIXED_LEN_BYTE_ARRAY: Final = 7
_INT96_BYTES: Final = 12


def framed(footer: bytes) -> bytes:
    """Return the end of a Parquet file: the footer, its length, and the magic bytes."""
    return footer + len(footer).to_bytes(4, "little") + MAGIC


def int96_as_binary(footer: bytes) -> bytes:
    """Change every INT96 column of a footer to FIXED_LEN_BYTE_ARRAY(12), and drop the bounds of such columns.

    footer: the Thrift struct, without length and magic bytes. Raises ValueError if it is invalid.
    """
    metadata = parse(footer)
    leaves = _leaves(metadata)
    changed = {index for index, leaf in enumerate(leaves) if leaf.get(1) == INT96}
    for index in changed:
        leaves[index].set(1, I32, _FIXED_LEN_BYTE_ARRAY)
        leaves[index].set(2, I32, _INT96_BYTES)
    _set_chunk_type(metadata, changed, _FIXED_LEN_BYTE_ARRAY)
    return serialize(metadata)


def binary_as_int96(footer: bytes, columns: Collection[int]) -> bytes:
    """Reverse `int96_as_binary` for the leaf columns with these numbers."""
    metadata = parse(footer)
    leaves = _leaves(metadata)
    for index in columns:
        leaves[index].set(1, I32, INT96)
        leaves[index].remove(2)
    _set_chunk_type(metadata, columns, INT96)
    return serialize(metadata)


def schema_elements(footer: bytes) -> dict[str, Struct]:
    """Return the SchemaElement of each flat column. Raises ValueError."""
    elements = iter(parse_first(footer, last_field=2)[0].get(2).items[1:])
    return {element.get(4).decode(): element for element in elements if not _skips_children(element, elements)}


def _skips_children(element: Struct, after: Iterator[Struct]) -> bool:
    """Return whether an element is a group; the elements of its fields are taken from those after it."""
    children = element.get(5) or 0
    for _ in range(children):
        _skips_children(next(after), after)
    return children > 0


def _leaves(metadata: Struct) -> list[Struct]:
    """Return FileMetaData.schema without its groups. The numbers of leaf columns refer to this list."""
    return [element for element in metadata.get(2).items if not element.get(5)]


def _set_chunk_type(metadata: Struct, columns: Collection[int], physical_type: int) -> None:
    for row_group in metadata.get(4).items:
        chunks = row_group.get(1).items
        for index in columns:
            column_metadata = chunks[index].get(3)
            column_metadata.set(1, I32, physical_type)
            column_metadata.remove(12)  # statistics
