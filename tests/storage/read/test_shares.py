"""Shares of a read: groups of about equal bytes, shards, ranges of rows. Together they have each row once."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidelake
from tests.support.levels import examples
from tidelake import BadInput, Scan, Table, UnsupportedFeature

SCHEMA: Final = pa.schema([pa.field("id", pa.int64(), nullable=False), ("text", pa.string()), ("day", pa.string())])


def rows(ids: range, day: str = "mon") -> pa.Table:
    texts = [f"{i} " * (i % 7) for i in ids]
    return pa.table({"id": list(ids), "text": texts, "day": [day] * len(ids)}, SCHEMA)


def made(folder: Path, sizes: list[int], options: Mapping[str, str] | None = None, **arguments: Any) -> Table:
    """A table of one file for each size, the files of a primary-key table overlapping in half of their keys."""
    catalog = tidelake.open_catalog(str(folder))
    catalog.create_database("db", if_not_exists=True)
    table = catalog.create_table("db.t", SCHEMA, options=options, **arguments)
    start = 0
    for size in sizes:
        table.append(rows(range(start, start + size)))
        start += size // 2 if "primary_key" in arguments else size
    return table


def append_table(folder: Path) -> Table:
    return made(folder, [100, 1, 37, 12])


def overlapping_keys(folder: Path) -> Table:
    return made(folder, [100, 40, 37, 12], {"bucket": "3"}, primary_key=["id"])


def compacted_keys(folder: Path) -> Table:
    table = overlapping_keys(folder)
    table.compact(full=True)
    return table


def deletion_vectors(folder: Path) -> Table:
    table = made(folder, [100, 1, 37, 12], {"deletion-vectors.enabled": "true"})
    table.delete("id between 20 and 70")
    return table


def partitions(folder: Path) -> Table:
    table = made(folder, [30, 5], {"bucket": "2", "bucket-key": "id"}, partition_by=["day"])
    table.append(rows(range(100, 140), "tue"))
    return table


def data_evolution(folder: Path) -> Table:
    options = {"row-tracking.enabled": "true", "data-evolution.enabled": "true"}
    table = made(folder, [20, 7, 30], options)
    table.update_columns(pa.table({"_ROW_ID": [3, 4], "text": ["new", "newer"]}))
    return table


TABLES: Final = [append_table, overlapping_keys, compacted_keys, deletion_vectors, partitions, data_evolution]


def ids(scan: Scan, splits: Any = None) -> list[int]:
    found: list[int] = scan.to_arrow(splits).column("id").to_pylist()
    return found


@pytest.mark.exhaustive(kept=12)
@pytest.mark.parametrize("table_of", TABLES)
@pytest.mark.parametrize("count", [1, 3, 50])
@pytest.mark.parametrize("condition", [None, "id > 10 and id < 95"])
def test_groups_and_shards_have_each_row_once(
    table_of: Callable[[Path], Table], count: int, condition: str | None, tmp_path: Path
) -> None:
    scan = table_of(tmp_path).scan(filter=condition)
    expected = sorted(ids(scan))
    groups = scan.splits(count)
    assert 1 <= len(groups) <= count
    assert sorted(i for group in groups for i in ids(scan, [group])) == expected
    shards = [scan.shard(index, count) for index in range(count)]
    assert sorted(i for shard in shards for i in ids(shard)) == expected
    assert sum(shard.count() for shard in shards) == len(expected)


def test_groups_have_about_equal_bytes_and_never_a_part_of_a_file(tmp_path: Path) -> None:
    scan = made(tmp_path, [4000, 10, 2000, 2000, 10, 3900]).scan()
    groups = scan.splits(3)
    sizes = [group.size_bytes for group in groups]
    assert max(sizes) < 1.2 * min(sizes)
    assert sorted(f.file_name for g in groups for f in g.files) == sorted(
        f.file_name for s in scan.splits() for f in s.files
    )
    assert [group.row_count for group in scan.splits(1)] == [11_920]
    assert len(scan.splits(100)) == 6, "not more than there are files"


@pytest.mark.parametrize("count", [0, -1, True, "2"])
def test_a_number_of_groups_that_makes_no_sense_is_refused(count: Any, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"splits\(count=…\)"):
        append_table(tmp_path).scan().splits(count)


def test_shards_of_an_append_table_have_as_many_rows_give_or_take_one(tmp_path: Path) -> None:
    scan = append_table(tmp_path).scan()  # 150 rows
    assert [scan.shard(i, 4).count() for i in range(4)] == [38, 38, 37, 37]
    assert [ids(scan.shard(i, 4))[0] for i in range(4)] == [0, 38, 76, 113]


def test_a_shard_stays_the_same_rows_whatever_is_asked_of_it_later(tmp_path: Path) -> None:
    shard = append_table(tmp_path).scan().shard(0, 2)
    assert ids(shard) == list(range(75))
    assert ids(shard.where("id >= 70 and id < 80")) == list(range(70, 75))
    assert ids(shard.where("id >= 80")) == []
    assert shard.to_polars().filter(id=74).collect().height == 1
    assert shard.limit(3).count() == 3


def test_a_condition_before_the_shard_is_divided_with_it(tmp_path: Path) -> None:
    scan = made(tmp_path, [10, 10, 10]).scan(filter="id >= 20")
    assert [ids(scan.shard(i, 2)) for i in range(2)] == [list(range(20, 25)), list(range(25, 30))]


def test_shards_are_divided_again_for_the_workers_of_a_node(tmp_path: Path) -> None:
    scan = append_table(tmp_path).scan()
    parts = [ids(scan.shard(node, 2).shard(worker, 3)) for node in range(2) for worker in range(3)]
    assert [len(part) for part in parts] == [25] * 6
    assert sorted(chain.from_iterable(parts)) == list(range(150))


def test_one_bucket_whose_files_need_a_merge_is_divided_where_keys_do_not_overlap(tmp_path: Path) -> None:
    table = made(tmp_path, [], {"bucket": "1"}, primary_key=["id"])
    for start in (0, 5, 100, 105):
        table.append(rows(range(start, start + 10)))
    scan = table.scan()
    assert [ids(scan.shard(i, 2)) for i in range(2)] == [list(range(15)), list(range(100, 115))]
    assert len(scan.splits(5)) == 2


def test_a_range_of_rows_counts_in_the_order_of_the_files_with_deleted_rows(tmp_path: Path) -> None:
    scan = append_table(tmp_path).scan()
    assert ids(scan.row_range(95, 105)) == list(range(95, 105))
    assert ids(scan.row_range(0, 0)) == []
    assert ids(scan.row_range(140, 1000)) == list(range(140, 150))
    assert ids(scan.where("id > 100").row_range(98, 104)) == [101, 102, 103], "numbers don't depend on conditions"
    assert repr(scan.row_range(2, 7)).startswith(
        "Scan(db.t, snapshot=4, columns=[id, text, day], rows=2 to 7, reads 1 "
    )
    assert scan.row_range(2, 7).count() == 5


def test_a_range_of_rows_leaves_out_deleted_rows(tmp_path: Path) -> None:
    scan = deletion_vectors(tmp_path).scan()
    assert ids(scan.row_range(15, 75)) == [*range(15, 20), *range(71, 75)]
    assert scan.row_range(15, 75).count() == 9


@pytest.mark.parametrize(
    ("table_of", "remedy"),
    [(overlapping_keys, r"shard\(index, count\)"), (data_evolution, "_ROW_ID between 1 and 4")],
)
def test_a_range_of_rows_is_refused_where_rows_have_no_numbers(
    table_of: Callable[[Path], Table], remedy: str, tmp_path: Path
) -> None:
    with pytest.raises(UnsupportedFeature, match=remedy):
        table_of(tmp_path).scan().row_range(1, 5)


def test_wrong_parts_are_refused_by_name(tmp_path: Path) -> None:
    scan = append_table(tmp_path).scan()
    with pytest.raises(BadInput, match=r"shard\(index=3, count=3\): the index is 0 to 2"):
        scan.shard(3, 3)
    with pytest.raises(BadInput, match=r"row_range\(5, 4\): the end is before the start"):
        scan.row_range(5, 4)
    with pytest.raises(BadInput, match=r"put the limit after it"):
        scan.limit(3).shard(0, 2)
    table = append_table(tmp_path / "other")
    system = tidelake.open_catalog(str(tmp_path)).table("db.t$files")
    with pytest.raises(UnsupportedFeature, match="a system table can only be read as a whole"):
        system.scan().shard(0, 2)
    assert table.scan().shard(0, 1).count() == 150


@pytest.mark.parametrize("table_of", TABLES)
def test_parts_are_pickled_and_read_elsewhere(table_of: Callable[[Path], Table], tmp_path: Path) -> None:
    scan = table_of(tmp_path).scan(columns=["id"])
    sent = pickle.loads(pickle.dumps([(scan, group) for group in scan.splits(3)]))
    assert sorted(i for of, group in sent for i in ids(of, [group])) == sorted(ids(scan))
    assert ids(pickle.loads(pickle.dumps(scan.shard(1, 3)))) == ids(scan.shard(1, 3))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Scan:
    return made(tmp_path_factory.mktemp("shares"), [13, 1, 8, 1, 30]).scan()


@settings(max_examples=examples(100))
@given(cuts=st.lists(st.integers(0, 60), max_size=6), again=st.integers(1, 4))
def test_adjacent_ranges_divided_again_are_the_rows_in_order(files: Scan, cuts: list[int], again: int) -> None:
    ends = sorted({0, 60, *cuts})
    parts = [ids(files.row_range(start, end).shard(i, again)) for start, end in pairwise(ends) for i in range(again)]
    assert list(chain.from_iterable(parts)) == list(range(53))
