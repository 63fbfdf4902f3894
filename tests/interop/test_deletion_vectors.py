"""Tables with Java's deletion vectors: we read what Java reads, in both vector formats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import tidelake
from tests.interop.shared_table import values
from tests.support.expected import difference
from tests.support.java_oracle import JavaOracle
from tests.support.pypaimon import Pypaimon
from tidelake.storage.maintenance.verify import verify

NAME: Final = "db.t"
COLUMNS: Final = (
    {"name": "k", "type": "INT NOT NULL"},
    {"name": "v", "type": "BIGINT"},
    {"name": "t", "type": "STRING"},
)
KEYS: Final = 400
COMMITS: Final = 8
VECTORS: Final = {"deletion-vectors.enabled": "true"}


@dataclass(frozen=True)
class Case:
    """pypaimon_reads: no release of it reads vectors of 64 bits, or merges partial updates that remove records."""

    id: str
    options: Mapping[str, str]
    pypaimon_reads: bool = True


CASES: Final = (
    Case("bitmaps of 32 bits", {}),
    Case("bitmaps of 64 bits", {"deletion-vectors.bitmap64": "true"}),
    Case("ORC", {"file.format": "orc"}),
    Case("Avro", {"file.format": "avro"}),
    Case("many row groups", {"file.block-size": "1 kb", "file.compression": "none"}),
    Case("merge on read", {"deletion-vectors.merge-on-read": "true", "num-sorted-run.compaction-trigger": "3"}),
    Case("vectors beside the data files", {"index-file-in-data-file-dir": "true"}),
)


def some_rows(random: Random, commit: int) -> list[dict[str, Any]]:
    keys = random.sample(range(KEYS), KEYS // 4 if commit else KEYS)
    kinds = ["-D" if commit and random.random() < 0.3 else "+I" for _ in keys]
    return [{"k": k, "v": commit, "t": f"{k}-{commit}", "_kind": kind} for k, kind in zip(keys, kinds, strict=True)]


@pytest.mark.exhaustive
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_a_table_with_deletion_vectors_is_read_as_in_java(case: Case, java_oracle: JavaOracle, tmp_path: Path) -> None:
    options = {"bucket": "2", "deletion-vectors.enabled": "true", **case.options}
    java_oracle.create(tmp_path, NAME, COLUMNS, primary_keys=["k"], options=options)
    random = Random(case.id)
    for commit in range(COMMITS):
        java_oracle.write(tmp_path, NAME, some_rows(random, commit), wait_compaction=commit % 3 != 2)
    table = tidelake.open_catalog(str(tmp_path)).table(NAME)
    for snapshot in table.snapshots():
        expected = java_oracle.read(tmp_path, NAME, snapshot=snapshot.id)
        assert difference(table.scan(snapshot=snapshot.id).to_arrow(), values(expected)) is None, snapshot.id
    assert expected
    assert any(split.deletion_files for split in table.scan().splits()), "no vector was written: nothing was tried"
    newest = {row["k"]: row for row in expected}
    for key in (0, 7, KEYS // 2, KEYS - 1):
        found = table.scan(filter=tidelake.col("k") == key).to_arrow()
        assert difference(found, values([newest[key]] if key in newest else [])) is None
    for commit in range(COMMITS):
        found = table.scan(filter=tidelake.col("v") == commit).to_arrow()
        assert difference(found, values(row for row in expected if row["v"] == commit)) is None


def test_deletes_from_an_append_table_are_visible_to_java(java_oracle: JavaOracle, tmp_path: Path) -> None:
    options = {"deletion-vectors.enabled": "true"}
    java_oracle.create(tmp_path, NAME, COLUMNS, options=options)
    for commit in range(3):
        rows = [{"k": k, "v": commit, "t": "x"} for k in range(100)]
        java_oracle.write(tmp_path, NAME, rows)
    for key in (3, 4, 99):
        java_oracle.delete(tmp_path, NAME, {"k": key})
    table = tidelake.open_catalog(str(tmp_path)).table(NAME)
    expected = java_oracle.read(tmp_path, NAME)
    assert len(expected) == 3 * 97
    assert difference(table.scan().to_arrow(), values(expected)) is None
    assert table.scan(filter=tidelake.col("k") >= 98).to_arrow().num_rows == 3


def new_append_table(java_oracle: JavaOracle, folder: Path, options: Mapping[str, str]) -> tidelake.Table:
    """Three files of a hundred rows each, k 0 to 99, v the number of the commit."""
    columns = [{**column, "type": column["type"].removesuffix(" NOT NULL")} for column in COLUMNS]
    java_oracle.create(folder, NAME, columns, options={"deletion-vectors.enabled": "true", **options})
    table = tidelake.open_catalog(str(folder)).table(NAME)
    for commit in range(3):
        with table.writer() as writer:
            keys = list(range(100))
            writer.write(pa.table({"k": keys, "v": [commit] * 100, "t": [str(k) for k in keys]}))
            writer.commit()
    return table


APPEND_CASES: Final = (
    Case("without buckets", {}),
    Case("in buckets", {"bucket": "2", "bucket-key": "k"}),
    Case("bitmaps of 64 bits", {"deletion-vectors.bitmap64": "true"}, pypaimon_reads=False),
    Case("small index files", {"deletion-vector.index-file.target-size": "1 b"}),
    Case("vectors beside the data files", {"index-file-in-data-file-dir": "true"}),
)


@pytest.mark.exhaustive
@pytest.mark.parametrize("case", APPEND_CASES, ids=lambda case: case.id)
def test_rows_that_we_delete_and_update_are_visible_to_others_who_continue(
    case: Case, java_oracle: JavaOracle, pypaimon: Pypaimon, tmp_path: Path
) -> None:
    table = new_append_table(java_oracle, tmp_path, case.options)
    model = [(k, v, str(k)) for v in range(3) for k in range(100)]

    def check() -> None:
        expected = [list(row) for row in model]
        found = table.scan().to_arrow()
        assert difference(found, expected) is None
        assert difference(found, values(java_oracle.read(tmp_path, NAME))) is None
        if case.pypaimon_reads:
            assert difference(pypaimon.read(tmp_path, NAME), expected) is None

    table.delete((tidelake.col("k") < 10) & (tidelake.col("v") != 1))
    model = [row for row in model if not (row[0] < 10 and row[1] != 1)]
    check()
    table.update(tidelake.col("k") == 50, {"v": pc.field("v") + 10})
    model = [(k, v + 10 if k == 50 else v, t) for k, v, t in model]
    check()
    java_oracle.delete(tmp_path, NAME, {"k": 60})
    model = [row for row in model if row[0] != 60]
    check()
    table.delete(tidelake.col("k") == 61)
    model = [row for row in model if row[0] != 61]
    check()
    java_oracle.compact(tmp_path, NAME, full=True)
    check()
    table.delete(tidelake.col("k") == 62)
    model = [row for row in model if row[0] != 62]
    table.compact(full=True)
    assert not any(split.deletion_files for split in table.scan().splits())
    check()
    assert verify(table.context, deep=True) == []


PK_CASES: Final = (
    Case("deduplicate", {}),
    Case("bitmaps of 64 bits", {"deletion-vectors.bitmap64": "true"}, pypaimon_reads=False),
    Case("a sequence field", {"sequence.field": "v"}),
    Case("with a changelog", {"changelog-producer": "lookup"}),
    Case("sums", {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"}),
    Case(
        "partial updates",
        {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"},
        pypaimon_reads=False,
    ),
)
SCHEMA: Final = pa.schema([pa.field("k", pa.int32(), nullable=False), ("v", pa.int64()), ("t", pa.string())])


@pytest.mark.exhaustive
@pytest.mark.parametrize("case", PK_CASES, ids=lambda case: case.id)
def test_keyed_tables_written_alternately_with_java_read_the_same_for_all(
    case: Case, java_oracle: JavaOracle, pypaimon: Pypaimon, tmp_path: Path
) -> None:
    """Compared with the merge of the same rows in a table without vectors."""
    options = {"bucket": "2", "num-sorted-run.compaction-trigger": "4", **case.options}
    java_oracle.create(tmp_path, NAME, COLUMNS, primary_keys=["k"], options={**options, **VECTORS})
    java_oracle.create(tmp_path, "db.model", COLUMNS, primary_keys=["k"], options={**options, "force-lookup": "true"})
    random = Random(case.id)
    catalog = tidelake.open_catalog(str(tmp_path))
    for commit in range(COMMITS):
        rows = some_rows(random, commit)
        if case.options.get("merge-engine") == "aggregation":
            rows = [{**row, "_kind": "+I"} for row in rows]
        if commit % 4 == 2:
            java_oracle.write(tmp_path, NAME, rows, wait_compaction=True)
        else:
            write(catalog.table(NAME), rows)
        write(catalog.table("db.model"), rows)
        if commit == COMMITS - 2:
            catalog.table(NAME).compact(full=True)
        expected = catalog.table("db.model").scan().to_arrow().to_pylist()
        found = catalog.table(NAME).scan().to_arrow()
        assert difference(found, values(expected)) is None, commit
        assert difference(found, values(java_oracle.read(tmp_path, NAME))) is None, commit
    table = catalog.table(NAME)
    assert any(split.deletion_files for split in table.scan().splits()), "no vector was written: nothing was tried"
    if case.pypaimon_reads:
        assert difference(pypaimon.read(tmp_path, NAME), values(expected)) is None
    java_oracle.compact(tmp_path, NAME, full=True)
    assert difference(table.scan().to_arrow(), values(expected)) is None
    assert verify(table.context, deep=True) == []


def write(table: tidelake.Table, rows: list[dict[str, Any]]) -> None:
    kinds = pa.array([{"+I": 0, "-D": 3}[row["_kind"]] for row in rows], pa.int8())
    columns = pa.Table.from_pylist([{k: v for k, v in row.items() if k != "_kind"} for row in rows], SCHEMA)
    with table.writer() as writer:
        writer.write(columns.append_column("_VALUE_KIND", kinds))
        writer.commit()
