"""Rows that leave memory for a while merge as if they had stayed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.format import SEQUENCE_COLUMN
from storage.merge.merge_reader import MergeOrder
from storage.types import BIGINT, INT, DataType
from storage.write import write_buffer
from storage.write.write_buffer import WriteBuffer
from tests.support.column_merge import KEY, batch_of_records, merge_function, records_of
from tests.support.row_merge import Record, merge_row_by_row

TYPES: dict[str, DataType] = {KEY: BIGINT, "a": INT, "b": INT, "s": INT, "order": INT}


@dataclass(frozen=True)
class Engine:
    about: str
    options: Mapping[str, str]
    sequence_fields: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ("+I", "+U")


DELETES_TOO = ("+I", "+U", "-D")
ENGINES = [
    Engine("deduplicate", {"merge-engine": "deduplicate"}, kinds=DELETES_TOO),
    Engine("deduplicate by a column", {"merge-engine": "deduplicate"}, ("order",), DELETES_TOO),
    Engine("first row", {"merge-engine": "first-row"}),
    Engine("partial update", {"merge-engine": "partial-update"}),
    Engine("partial update by a column", {"merge-engine": "partial-update"}, ("order",)),
    Engine(
        "partial update with deletes",
        {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"},
        kinds=DELETES_TOO,
    ),
    Engine(
        "partial update with a sequence group",
        {
            "merge-engine": "partial-update",
            "fields.s.sequence-group": "a,b",
            "fields.a.aggregate-function": "sum",
            "partial-update.remove-record-on-sequence-group": "s",
        },
        kinds=DELETES_TOO,
    ),
]


@st.composite
def batches(draw: st.DrawFn, kinds: tuple[str, ...]) -> list[list[Record]]:
    """Rows in arrival order, in batches; after each the buffer may be told to spill."""
    small = st.none() | st.integers(0, 3)
    row = st.fixed_dictionaries({name: st.integers(1, 3) if name == KEY else small for name in TYPES})
    drawn = draw(
        st.lists(st.lists(st.tuples(st.sampled_from(kinds), row), min_size=1, max_size=5), min_size=1, max_size=6)
    )
    numbers = iter(range(1000))
    return [[Record(kind, next(numbers), row) for kind, row in batch] for batch in drawn]


@pytest.mark.parametrize("engine", [pytest.param(engine, id=engine.about) for engine in ENGINES])
@given(data=st.data())
def test_spilling_changes_nothing(engine: Engine, data: st.DataObject) -> None:
    drawn = data.draw(batches(engine.kinds), label="batches")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(write_buffer, "SEGMENT_BATCH_ROWS", 2)
        buffer = WriteBuffer(MergeOrder((KEY,), engine.sequence_fields), merge_function(TYPES, engine.options), 0, None)
        for batch in drawn:
            buffer.add(batch_of_records(TYPES, batch).drop_columns([SEQUENCE_COLUMN]))
            if data.draw(st.booleans(), label="spill"):
                buffer.spill()
        merged = pa.Table.from_batches(list(buffer.drain())).combine_chunks().to_batches()
    arrived = [record for batch in drawn for record in batch]
    assert [r for rows in merged for r in records_of(rows)] == _merged_row_by_row(engine, arrived)


def _merged_row_by_row(engine: Engine, arrived: list[Record]) -> list[Record]:
    def merge_order(record: Record) -> tuple[object, ...]:
        given = [record.row[name] for name in engine.sequence_fields]
        return (record.row[KEY], [() if value is None else (value,) for value in given], record.sequence)

    merged = []
    for _, versions in groupby(sorted(arrived, key=merge_order), key=lambda record: record.row[KEY]):
        name = engine.options["merge-engine"]
        left = merge_row_by_row(name, engine.options, list(TYPES), KEY, list(versions))
        merged += [] if left is None else [left]
    return merged
