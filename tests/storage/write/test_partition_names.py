"""A partition directory is named after its values. Values that cannot be a directory name are refused before they are
written.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import tidelake
from tidelake import BadInput, Table

LONGEST = 255 - len("d=")


def new_table(place: Path) -> Table:
    catalog = tidelake.open_catalog(str(place))
    catalog.create_database("db")
    columns = pa.schema([("id", pa.int64()), ("d", pa.string())])
    return catalog.create_table("db.t", columns, partition_by=["d"])


@pytest.mark.parametrize("text", ["x" * LONGEST, "é" * (LONGEST // 2), "/" * (LONGEST // 3)], ids=lambda t: t[0])
def test_the_longest_partition_value_is_written_and_read(text: str, tmp_path: Path) -> None:
    table = new_table(tmp_path)
    with table.writer() as writer:
        writer.write(pa.table({"id": [1], "d": [text]}))
        writer.commit()
    assert table.scan().to_arrow().to_pylist() == [{"id": 1, "d": text}]


@pytest.mark.parametrize(
    ("text", "size"),
    [("x" * (LONGEST + 1), 256), ("é" * (LONGEST // 2 + 1), 256), ("/" * (LONGEST // 3 + 1), 257)],
    ids=["letters", "letters of two bytes", "letters that are escaped"],
)
def test_a_partition_value_too_long_for_a_directory_is_refused_by_column_and_row(
    text: str, size: int, tmp_path: Path
) -> None:
    """No row is accepted, not even those of earlier batches of the call."""
    table = new_table(tmp_path)
    before = set(tmp_path.rglob("*"))
    with table.writer() as writer:
        good, bad = ({"id": [1, 2], "d": [value, "b"]} for value in ("a", text))
        rows = pa.concat_tables([pa.table(good), pa.table(bad).slice(1), pa.table(bad)])
        with pytest.raises(BadInput, match=rf"column 'd' is a partition column.* in row 0 of the batch.*{size} bytes"):
            writer.write(rows)
        assert set(tmp_path.rglob("*")) == before
        writer.write(pa.table({"id": [7], "d": ["c"]}))
        writer.commit()
    assert table.scan().to_arrow().to_pylist() == [{"id": 7, "d": "c"}]
