"""Rules that only a damaged schema file can break (test_schema_creation.py has the others)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tidelake.errors import BadInput
from tidelake.storage.ddl.schema_validation import check_new_schema, check_schema
from tidelake.storage.model.schema.table_schema import TableSchema
from tidelake.storage.model.types import BYTES, INT, DataField, RowType

SCHEMA = TableSchema(0, (DataField(0, "a", INT),), 0)


def nested(field_id: int) -> DataField:
    return DataField(0, "r", RowType((DataField(field_id, "x", INT),)))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        pytest.param([DataField(1, "a", INT)], "field id 1 .* outside of 0 to 0", id="beyond the highest"),
        pytest.param([DataField(-1, "a", INT)], "field id -1", id="below zero"),
        pytest.param([DataField(0, "a", INT), DataField(0, "b", INT)], "field id 0 is used twice", id="twice"),
        pytest.param([nested(0)], "field id 0 is used twice", id="twice, once inside"),
        pytest.param([nested(5)], "field id 5", id="beyond the highest, inside"),
    ],
)
def test_ids_are_unique_and_none_is_beyond_the_highest(fields: Sequence[DataField], message: str) -> None:
    check_schema(SCHEMA)
    with pytest.raises(BadInput, match=message):
        check_schema(replace(SCHEMA, fields=tuple(fields)))


def test_existing_tables_of_java_may_have_schemas_refused_for_new_ones() -> None:
    columns = (DataField(0, "k", INT), DataField(1, "p", BYTES))
    keyed = TableSchema(0, columns, 1, partition_keys=("p",), primary_keys=("k", "p"), options={"bucket": "2"})
    check_schema(keyed)
    with pytest.raises(BadInput, match="partition column 'p' is BYTES"):
        check_new_schema(keyed)
