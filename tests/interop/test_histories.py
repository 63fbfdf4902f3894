"""Java reads the results of Tidelake's tags, branches, fast-forwards and rollbacks, and continues from them."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pyarrow as pa

import tidelake
from tests.support.java_oracle import JavaOracle

NAME = "db.t"
SCHEMA = pa.schema([pa.field("k", pa.int32(), nullable=False), ("v", pa.int64())])


def commit(table: tidelake.Table, value: int) -> None:
    with table.writer() as writer:
        writer.write(pa.table({"k": [1], "v": [value]}, SCHEMA))
        writer.commit()


def test_java_reads_our_tags_branches_and_rollbacks(java_oracle: JavaOracle, tmp_path: Path) -> None:
    def values(**at: str | int) -> list[object]:
        return [row["v"] for row in java_oracle.read(tmp_path, NAME, **at)]  # type: ignore[arg-type]

    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("db")
    table = catalog.create_table(NAME, SCHEMA, primary_key=["k"], options={"bucket": "1", "write-only": "true"})
    for value in (1, 2, 3):
        commit(table, value)
    table.create_tag("first", snapshot=1, retain=timedelta(hours=36))
    table.create_branch("b", tag="first")
    table.create_branch("of_snapshot", snapshot=2)
    assert (values(tag="first"), values(branch="b"), values(branch="of_snapshot")) == ([1], [1], [2])
    (tag,) = java_oracle.system(tmp_path, NAME, "tags")
    assert (tag["tag_name"], tag["snapshot_id"], tag["time_retained"]) == ("first", 1, "PT36H")

    java_oracle.write(tmp_path, NAME, [{"k": 1, "v": 7}], branch="b")
    table.expire(retain_min=1, retain_max=1, retain_ms=0)
    assert (values(), values(tag="first"), values(branch="b")) == ([3], [1], [7])

    assert table.fast_forward("b").id == 2
    table.delete_branch("b")
    table.clean_orphans(older_than_ms=0)
    assert (values(), values(tag="first"), values(branch="of_snapshot")) == ([7], [1], [2])
    java_oracle.write(tmp_path, NAME, [{"k": 1, "v": 8}])
    assert [row["v"] for row in table.scan().to_arrow().to_pylist()] == [8]

    table.rollback(tag="first")
    assert values() == [1]
    java_oracle.write(tmp_path, NAME, [{"k": 1, "v": 9}])
    table.clean_orphans(older_than_ms=0)
    assert (values(), values(snapshot=1), values(branch="of_snapshot")) == ([9], [1], [2])
