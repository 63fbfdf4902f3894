"""Row images of YugabyteDB, whose columns are cells: `{"value": 1, "set": true}`.

A cell that is null, or is not set, says that the column did not change. A cell is never a value itself.

Cassandra's connector has cells as well, but also other operations (`i`, and `r` for a deleted range), and deletes of
columns. Its records are refused by name.

Source: YugabyteDB's Debezium connector, "Before image modes"; Debezium 3.5 `connector-cassandra` (`Record`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import msgspec

from tidelake.ingest.formats.connect_schema import SourceType
from tidelake.ingest.formats.values.json_text import BadValue, JsonKind, kind_of, read_object, shown

_CELL_CONNECTORS: Final = frozenset({"yugabytedb"})
_REFUSED_CONNECTORS: Final = frozenset({"cassandra"})
_CELL: Final = frozenset({"value", "set"})


class _Cell(msgspec.Struct, forbid_unknown_fields=True):
    value: msgspec.Raw = msgspec.Raw(b"null")
    set: bool = True


_read_cell: Final = msgspec.json.Decoder(_Cell).decode


def has_cells(connector: str | None) -> bool:
    """Return whether the columns of this connector's records are cells."""
    return (connector or "").lower() in _CELL_CONNECTORS


def is_plain(connector: str | None) -> bool:
    """Return whether the columns of this connector's records are values, as those of almost all are."""
    return (connector or "").lower() not in _CELL_CONNECTORS | _REFUSED_CONNECTORS


def check_cells(connector: str | None) -> None:
    """Raise BadValue for records of a connector whose operations are not those of the other connectors."""
    if (connector or "").lower() in _REFUSED_CONNECTORS:
        raise BadValue(
            f"records of the connector {connector} can't be read: they have cells with times of deletion, and deletes "
            "of columns and ranges. Write whole rows at the source, and read them with format json"
        )


def value_type(source: SourceType) -> SourceType:
    """Return the type of a cell's value; of another type than a cell, the type itself."""
    if source.connect == "struct" and source.fields.keys() == _CELL:
        return replace(source.fields["value"], doc=source.doc)
    return source


def without_cells(image: Mapping[str, bytes], which: str) -> tuple[dict[str, bytes], frozenset[str]]:
    """Return the values of an image, and the columns that it does not set.

    which: the image, for messages.

    Raises BadValue for a column that is no cell.
    """
    values: dict[str, bytes] = {}
    unset: set[str] = set()
    for name, raw in image.items():
        if raw == b"null":
            unset.add(name)
            continue
        try:
            if kind_of(raw) is not JsonKind.OBJECT:
                raise BadValue("not an object")
            cell = _read_cell(raw)
        except (BadValue, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise BadValue(f"{which}: column {name} is no cell with value and set: {shown(raw)}") from None
        if cell.set:
            values[name] = bytes(cell.value)
        else:
            unset.add(name)
    return values, frozenset(unset)


def image_without_cells(image: msgspec.Raw, which: str) -> tuple[msgspec.Raw, frozenset[str]]:
    """Return an image, which may be null, with values instead of cells, and the columns that it does not set."""
    if bytes(image) == b"null":
        return image, frozenset()
    values, unset = without_cells(read_object(image), f"{which} image")
    return raw_object(values), unset


def raw_object(members: Mapping[str, bytes]) -> msgspec.Raw:
    """Return the JSON object of these raw members."""
    return msgspec.Raw(msgspec.json.encode({name: msgspec.Raw(raw) for name, raw in members.items()}))
