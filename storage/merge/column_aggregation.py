"""How one column is aggregated: its function, and the options `fields.<column>.*`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tidelake.storage.model.types import ArrayType, DataField, DataType, MapType, RowType


class NullKeys(StrEnum):
    """The values of `nested-key-null-strategy`: how a nested row with a null in its key is handled."""

    MERGE = "merge"
    IGNORE = "ignore"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class ColumnAggregation:
    """The aggregation of one column: its function and options, checked against the column's type.

    function: the name of a function in `tidelake.storage.merge.aggregate_functions`.
    ignore_retract: whether retract rows leave the accumulator unchanged.
    distinct: for `collect` and `listagg`, whether each value is kept once.
    delimiter: for `listagg`, the text between two values.
    timestamp_field: for `merge_map_with_keytime`, the position of the time in the ROW.
    nested_key: for `nested_update`, the fields of the ROW that are its key.
    null_keys: for `nested_update`, how nulls in the key are handled.
    nested_sequence: for `nested_update`, the fields of the ROW that order the rows of one key.
    count_limit: for `nested_update`, the maximum number of nested rows.
    """

    field: DataField
    function: str
    ignore_retract: bool
    distinct: bool
    delimiter: str
    timestamp_field: int
    nested_key: tuple[str, ...]
    null_keys: NullKeys
    nested_sequence: tuple[str, ...]
    count_limit: int


def inner_row(data_type: DataType) -> dict[str, DataType]:
    """Return the fields of the ROWs in an ARRAY or a MAP. Empty for other types."""
    match data_type:
        case ArrayType(element=RowType(fields=fields)) | MapType(value=RowType(fields=fields)):
            return {field.name: field.type for field in fields}
        case _:
            return {}
