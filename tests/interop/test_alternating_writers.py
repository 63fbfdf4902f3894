"""Java and Tidelake write one table alternately. Each continues from the state of the other, and both always read the
same.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final

import pyarrow as pa
import pytest

from tests.interop.conftest import NewTable
from tests.interop.layouts import Layout, append, primary_key
from tests.interop.shared_table import Reader

TURNS: Final = 20

LAYOUTS: Final = (
    primary_key("one bucket", options={"num-sorted-run.compaction-trigger": "3"}),
    primary_key(
        "partitioned, three buckets, avro", partition=["boolean"], options={"bucket": "3", "file.format": "avro"}
    ),
    primary_key(
        "text keys, orc, small files",
        ["int", "double"],
        key=["string", "tinyint"],
        options={"bucket": "2", "file.format": "orc", "target-file-size": "2 kb"},
    ),
    append("append, partitioned", ["int", "string"], ["boolean"]),
)


@dataclass
class Turns:
    """Rows for one turn after the other: upserts and deletes of old and of new keys, some of them twice."""

    layout: Layout
    random: Random

    def rows(self, turn: int) -> pa.Table:
        numbers = self.random.choices(range(turn * 3 + 20), k=self.random.choice([1, 5, 30]))
        kinds = self.random.choices([0, 2, 3], weights=[2, 4, 2], k=len(numbers)) if self.layout.key else None
        return self.layout.rows(numbers, kinds, turn=turn)


@pytest.mark.exhaustive
@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.id)
def test_java_and_tidelake_write_alternately(layout: Layout, new_table: NewTable) -> None:
    options = {**layout.options, "snapshot.num-retained.min": "100"}
    table = new_table(layout.columns, primary_key=layout.key, partition_by=layout.partition, options=options)
    turns = Turns(layout, Random(layout.id))
    for turn in range(TURNS):
        match turn % 4:
            case 0 | 2:
                table.write(turns.rows(turn), identifier=turn)
            case 1:
                table.java_writes(turns.rows(turn), full=bool(layout.key) and turn % 8 == 5)
            case _:
                table.java_writes(turns.rows(turn))
                table.java_compacts(full=turn % 8 == 3)
        table.check([Reader.JAVA])
    table.check()
    table.check_history()
