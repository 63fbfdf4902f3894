"""The leaves of columns, which Parquet calls columns and stores separately.

Leaves are numbered in file order, over all columns. Arrow's writer identifies them by their paths (`a`,
`l.list.element`). Paths are not always unique, because names may contain dots.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa


def leaves_of(path: str, kind: pa.DataType) -> Iterator[tuple[str, pa.DataType]]:
    """Yields (path, type) of each leaf of a column, in file order."""
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if pa.types.is_struct(kind):
        for field in kind:
            yield from leaves_of(f"{path}.{field.name}", field.type)
    elif pa.types.is_map(kind):
        yield from leaves_of(f"{path}.key_value.key", kind.key_type)
        yield from leaves_of(f"{path}.key_value.value", kind.item_type)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        yield from leaves_of(f"{path}.list.element", kind.value_type)
    else:
        yield path, kind


def leaf_numbers(schema: pa.Schema) -> dict[str, range]:
    """Returns the numbers of each column's leaves."""
    numbers: dict[str, range] = {}
    first = 0
    for field in schema:
        count = sum(1 for _ in leaves_of(field.name, field.type))
        numbers[field.name] = range(first, first + count)
        first += count
    return numbers
