"""A bootstrap makes the table that an ordinary write and a full compaction make, and its changelog."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

import tidelake
from tests.support.merge_engines import ENGINES, KIND, SCHEMA, Engine, Rows
from tidelake.errors import BadInput, CommitConflict, UnsupportedFeature
from tidelake.storage.commit.manifests.snapshot_files import live_entries
from tidelake.storage.maintenance.verify import inspect
from tidelake.table import Table

NO_KIND: Final = pa.schema([field.with_nullable(field.name != "k") for field in SCHEMA if field.name != KIND])
PRODUCERS: Final = ("none", "input", "lookup", "full-compaction")
BUCKETS: Final = {
    "one bucket": {"bucket": "1"},
    "three buckets": {"bucket": "3"},
    "dynamic buckets": {"bucket": "-1", "dynamic-bucket.target-row-num": "5"},
    "deletion vectors": {"bucket": "2", "deletion-vectors.enabled": "true"},
    "thin files": {"bucket": "1", "data-file.thin-mode": "true"},
    "ORC": {"bucket": "1", "file.format": "orc"},
}
CASES: Final = [
    pytest.param(options, producer, id=f"{buckets}, {producer}")
    for buckets, options in BUCKETS.items()
    for producer in PRODUCERS
    if buckets != "deletion vectors" or producer in ("none", "lookup")  # the others can't be created
]
# A run for each few rows, which are merged in many passes.
SPILLING: Final = {"write-buffer-size": "2 kb", "page-size": "512 b", "sort-spill-threshold": "2"}


def new_table(folder: Path, options: Mapping[str, str], **more: Any) -> Table:
    catalog = tidelake.open_catalog(str(folder))
    catalog.create_database("db", if_not_exists=True)
    return catalog.create_table("db.t", more.pop("schema", NO_KIND), options=options, **{"primary_key": ["k"], **more})


def rows_of(engine: Engine, count: int = 200, keys: int = 40) -> list[pa.RecordBatch]:
    """Rows to add, with unicode and nulls; the keys repeat."""
    rows = Rows(Engine(engine.about, engine.options), keys=keys).batch(count)
    texts = pa.array([None if number % 7 == 0 else f"é{number}漢" for number in range(count)])
    batches: list[pa.RecordBatch] = rows.set_column(7, "free", texts).to_batches(13)
    return batches


def stream(batches: list[pa.RecordBatch]) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(batches[0].schema, batches)


def written_ordinarily(folder: Path, options: Mapping[str, str], batches: list[pa.RecordBatch], **more: Any) -> Table:
    table = new_table(folder, {**options, "write-only": "true"}, **more)
    with table.writer() as writer:
        for batch in batches:
            writer.write(batch)
        writer.commit()
    Table(table.context.with_options({"write-only": "false"})).compact(full=True)
    return table


def sorted_rows(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=lambda row: sorted((name, str(value)) for name, value in row.items()))


def changes_of(table: Table) -> list[dict[str, Any]]:
    latest = table.snapshots()[-1].id
    return sorted_rows(pa.Table.from_batches([batch.rows for batch in table.changes(start=1, end=latest)]))


def check_at_the_top(table: Table) -> None:
    """All files are on the highest level, in one snapshot of kind APPEND, and every check of the table passes."""
    (snapshot,) = table.snapshots()
    assert snapshot.commit_kind == "APPEND"
    files = [entry.file for entry in live_entries(table.context, snapshot)]
    assert {file.level for file in files} == {table.context.options.num_levels - 1}
    assert not inspect(table.context, deep=True).findings


def spill_folders(folder: Path) -> list[Path]:
    return list(folder.glob("tidelake-spill-*"))


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The system's directory for temporary files."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    return tmp_path / "tmp"


@pytest.mark.exhaustive(kept=16)
@pytest.mark.parametrize("memory", [{}, SPILLING], ids=["in memory", "spilled"])
@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.about)
def test_every_merge_engine_makes_the_rows_of_an_ordinary_write(
    engine: Engine, memory: Mapping[str, str], tmp_path: Path, temporary: Path
) -> None:
    options = {"bucket": "1", **engine.options}
    batches = rows_of(engine)
    expected = written_ordinarily(tmp_path / "ordinary", options, batches)
    table = new_table(tmp_path / "bootstrap", {**options, **memory})
    assert table.bootstrap(stream(batches)) == 1
    assert sorted_rows(table.scan().to_arrow()) == sorted_rows(expected.scan().to_arrow())
    check_at_the_top(table)
    assert not spill_folders(temporary)


@pytest.mark.exhaustive(kept=16)
@pytest.mark.parametrize("memory", [{}, SPILLING], ids=["in memory", "spilled"])
@pytest.mark.parametrize(("buckets", "producer"), CASES)
def test_the_changelog_of_every_producer_is_that_of_an_ordinary_write(
    buckets: Mapping[str, str], producer: str, memory: Mapping[str, str], tmp_path: Path, temporary: Path
) -> None:
    options = {**buckets, "changelog-producer": producer, "sequence.field": "s"}
    batches = rows_of(ENGINES[0])
    expected = written_ordinarily(tmp_path / "ordinary", options, batches)
    table = new_table(tmp_path / "bootstrap", {**options, **memory})
    table.bootstrap(stream(batches))
    assert sorted_rows(table.scan().to_arrow()) == sorted_rows(expected.scan().to_arrow())
    assert changes_of(table) == changes_of(expected)
    check_at_the_top(table)


@pytest.mark.parametrize("producer", PRODUCERS)
def test_later_writes_and_compactions_continue_a_bootstrapped_table(producer: str, tmp_path: Path) -> None:
    table = new_table(tmp_path, {"bucket": "2", "changelog-producer": producer})
    batches = rows_of(ENGINES[0])
    table.bootstrap(stream(batches))
    before = {row["k"]: row for row in table.scan().to_arrow().to_pylist()}
    table.append([{"k": 1, "a": 77}, {"k": 1000, "a": 78}])
    table.delete(tidelake.col("k") == 2)
    table.compact(full=True)
    found = {row["k"]: row for row in table.scan().to_arrow().to_pylist()}
    assert (found[1]["a"], found[1000]["a"], 2 in found) == (77, 78, False)
    assert found.keys() == (before.keys() | {1, 1000}) - {2}
    assert not inspect(table.context, deep=True).findings


def test_rows_whose_key_moves_between_partitions_stay_in_the_last_one(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("k", pa.int64(), nullable=False), ("p", pa.string()), ("v", pa.int64())])
    rows = [{"k": n % 30, "p": f"p{n % 4}", "v": n} for n in range(100)]
    batches = pa.Table.from_pylist(rows, schema).to_batches(9)
    expected = written_ordinarily(tmp_path / "o", {"bucket": "-1"}, batches, schema=schema, partition_by=["p"])
    table = new_table(tmp_path / "b", {"bucket": "-1", **SPILLING}, schema=schema, partition_by=["p"])
    table.bootstrap(stream(batches))
    found = table.scan().to_arrow()
    assert len(found) == 30
    assert sorted_rows(found) == sorted_rows(expected.scan().to_arrow())
    check_at_the_top(table)


def test_large_rows_are_bootstrapped(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.binary())])
    rows = [{"k": n % 5, "v": bytes([n]) * (1 << 20)} for n in range(12)]
    table = new_table(tmp_path, {"bucket": "1", "write-buffer-size": "3 mb"}, schema=schema)
    table.bootstrap(stream([pa.RecordBatch.from_pylist([row], schema) for row in rows]))
    found = {row["k"]: row["v"][:1] for row in table.scan().to_arrow().to_pylist()}
    assert found == {0: b"\x0a", 1: b"\x0b", 2: b"\x07", 3: b"\x08", 4: b"\x09"}


def test_a_dump_without_rows_makes_no_snapshot(tmp_path: Path) -> None:
    table = new_table(tmp_path, {"bucket": "1"})
    assert table.bootstrap([]) is None
    assert table.bootstrap(NO_KIND.empty_table()) is None
    assert table.snapshots() == []


def test_a_table_that_was_truncated_may_be_bootstrapped(tmp_path: Path) -> None:
    table = new_table(tmp_path, {"bucket": "1"})
    table.append([{"k": 1}])
    table.truncate()
    assert table.bootstrap([{"k": 2}]) == 3
    assert table.scan(columns=["k"]).to_arrow().to_pylist() == [{"k": 2}]


REFUSED: Final = {
    "a table with rows": ({}, ["k"], BadInput, "db.t is not empty (snapshot 1)"),
    "no primary key": ({"bucket": "-1"}, [], BadInput, "has no primary key"),
    "postponed buckets": ({"bucket": "-2"}, ["k"], UnsupportedFeature, "bucket = -2"),
    "no spilling": ({"write-buffer-spillable": "false"}, ["k"], UnsupportedFeature, "write-buffer-spillable = false"),
}


@pytest.mark.parametrize(("options", "key", "error", "message"), REFUSED.values(), ids=REFUSED)
def test_a_table_that_can_t_be_bootstrapped_is_refused_by_name(
    options: Mapping[str, str], key: list[str], error: type[Exception], message: str, tmp_path: Path
) -> None:
    table = new_table(tmp_path, {"bucket": "1", **options}, primary_key=key)
    if error is BadInput and key:
        table.append([{"k": 1}])
    before = len(table.snapshots())
    with pytest.raises(error) as raised:
        table.bootstrap([{"k": 2}])
    assert message in str(raised.value)
    assert len(table.snapshots()) == before


def test_deletes_are_refused_and_nothing_is_left(tmp_path: Path, temporary: Path) -> None:
    table = new_table(tmp_path / "lake", {"bucket": "1", **SPILLING})
    rows = pa.Table.from_pylist([{"k": n, KIND: 3 if n == 150 else 0} for n in range(200)], SCHEMA)
    with pytest.raises(BadInput, match="these have deletes"):
        table.bootstrap(stream(rows.to_batches(20)))
    assert table.snapshots() == []
    assert not list(Path(table.location).rglob("*.parquet"))
    assert not spill_folders(temporary)


@pytest.mark.parametrize("bucket", ["2", "-1"])
def test_rows_of_another_writer_meanwhile_refuse_the_bootstrap_and_nothing_of_it_is_left(
    bucket: str, tmp_path: Path, temporary: Path
) -> None:
    table = new_table(tmp_path / "lake", {"bucket": bucket, "changelog-producer": "lookup", **SPILLING})

    files_of_the_other: set[Path] = set()

    def files() -> set[Path]:
        return {path for part in ("bucket-*", "index") for path in Path(table.location).glob(f"{part}/*")}

    def batches() -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(rows_of(ENGINES[0])):
            if number == 5:
                table.append([{"k": 3, "a": 5}])
                files_of_the_other.update(files())
            yield batch

    reader = pa.RecordBatchReader.from_batches(rows_of(ENGINES[0])[0].schema, batches())
    with pytest.raises(CommitConflict, match=r"db\.t: another writer has published snapshot \d+ meanwhile"):
        table.bootstrap(reader)
    assert files() == files_of_the_other
    table.compact(full=True)
    assert not inspect(table.context, deep=True).findings
    assert table.scan(columns=["k", "a"]).to_arrow().to_pylist() == [{"k": 3, "a": 5}]
    assert not spill_folders(temporary)


def test_a_writer_that_was_opened_before_a_bootstrap_writes_newer_rows(tmp_path: Path) -> None:
    table = new_table(tmp_path, {"bucket": "1"})
    with table.writer() as writer:
        writer.write([{"k": 1, "a": 10}])
        table.bootstrap([{"k": 1, "a": 1}, {"k": 2, "a": 2}, {"k": 1, "a": 3}])
        writer.commit()
    found = sorted_rows(table.scan(columns=["k", "a"]).to_arrow())
    assert found == [{"k": 1, "a": 10}, {"k": 2, "a": 2}]
