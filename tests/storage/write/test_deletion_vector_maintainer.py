"""Changing deletion vectors of a bucket, and the resulting index files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import uuid4

import numpy as np
import pytest

from tests.storage.model.snapshots.tables import make_table
from tests.support.cases import Case, case_id, check_members, vectors
from tests.support.faulty_file_io import Fault, FaultyFileIO, FaultyIOError
from tidelake.storage.fileio.memory import MemoryFileIO
from tidelake.storage.files.data_file import EMPTY_ROW
from tidelake.storage.files.index_file import IndexFileMeta, deletion_files_of, index_file_path
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.deletion_vectors.vector_file import read_vector
from tidelake.storage.model.table import TableContext
from tidelake.storage.write.deletion_vector_maintainer import DeletionVectorMaintainer, IndexChange

KEY = BucketId(EMPTY_ROW, 0)


def bucketed(options: Mapping[str, str] | None = None) -> TableContext:
    return make_table(FaultyFileIO(MemoryFileIO()), f"memory://{uuid4()}/t", primary_key=True, options=options)


def without_buckets(options: Mapping[str, str]) -> TableContext:
    return make_table(FaultyFileIO(MemoryFileIO()), f"memory://{uuid4()}/t", options=options)


def stored(context: TableContext, files: Iterable[IndexFileMeta]) -> dict[str, list[int]]:
    found = deletion_files_of(context, KEY.partition, KEY.bucket, files)
    return {name: read_vector(context.io, deletion).tolist() for name, deletion in found.items()}


def files_there(context: TableContext) -> set[str]:
    return {status.name for status in context.io.list_directory(context.paths.index_directory)}


def deleted_rows(context: TableContext, files: Iterable[IndexFileMeta], **positions: list[int]) -> IndexChange | None:
    """After deleting these, by data file."""
    maintainer = DeletionVectorMaintainer(context, KEY, files)
    for data_file, rows in positions.items():
        maintainer.delete(data_file, np.array(rows, np.int64))
    return maintainer.write()


@pytest.mark.parametrize("case", vectors("dv_maintainer"), ids=case_id)
def test_dv_maintainer(case: Case) -> None:
    check_members(case, {"ops", "expect_vectors", "expect_write_results"})
    context = bucketed()
    maintainer = DeletionVectorMaintainer(context, KEY)
    written: list[str] = []
    files: tuple[IndexFileMeta, ...] = ()
    for name, *arguments in case["ops"]:
        match name, arguments:
            case "delete", [data_file, position]:
                maintainer.delete(data_file, np.array([position]))
            case "put", [data_file, positions]:
                maintainer.replace(data_file, np.array(positions))
            case "merge", [data_file, positions]:
                maintainer.delete(data_file, np.array(positions))
            case "remove", [data_file]:
                maintainer.remove(data_file)
            case "write", []:
                change = maintainer.write()
                if change is not None:
                    assert change.deleted == files, "it replaces what was written before"
                    files = change.new
                    assert len(files) == 1
                written.append("none" if change is None else "file" if files[0].row_count else "empty file")
            case _:
                raise AssertionError(name)
    assert written == case["expect_write_results"]
    assert stored(context, files) == case["expect_vectors"]
    assert {name: maintainer.positions(name) is not None for name in maintainer.data_files()} == dict.fromkeys(
        case["expect_vectors"], True
    )


@pytest.mark.parametrize("bitmap64", ["false", "true"])
def test_a_bucket_has_one_index_file_of_any_size(bitmap64: str) -> None:
    context = bucketed({"deletion-vectors.bitmap64": bitmap64, "deletion-vector.index-file.target-size": "1 b"})
    first = deleted_rows(context, (), a=[5, 1], b=[7])
    assert first is not None
    second = deleted_rows(context, first.new, b=[8], c=[0])
    assert second is not None
    assert second.deleted == first.new
    assert [file.row_count for file in second.new] == [3]
    assert stored(context, second.new) == {"a": [1, 5], "b": [7, 8], "c": [0]}


def test_without_buckets_index_files_roll_and_only_changed_ones_are_replaced() -> None:
    context = without_buckets({"deletion-vector.index-file.target-size": "40 b"})
    first = deleted_rows(context, (), a=[1], b=[2], c=[3], d=[4])
    assert first is not None
    assert [[vector.data_file for vector in file.vectors] for file in first.new] == [["a", "b"], ["c", "d"]]
    second = deleted_rows(context, first.new, b=[9])
    assert second is not None
    assert second.deleted == first.new[:1]
    live = [*first.new[1:], *second.new]
    assert stored(context, live) == {"a": [1], "b": [2, 9], "c": [3], "d": [4]}
    maintainer = DeletionVectorMaintainer(context, KEY, live)
    for name in "abcd":
        maintainer.remove(name)
    last = maintainer.write()
    assert last is not None
    assert (last.new, set(last.deleted)) == ((), set(live)), "a file without vectors is not written"


def test_both_vector_formats_may_share_a_file_and_a_changed_vector_uses_the_table_format() -> None:
    context = bucketed()
    first = deleted_rows(context, (), a=[1], b=[2])
    assert first is not None
    wide = context.with_options({"deletion-vectors.bitmap64": "true"})
    second = deleted_rows(wide, first.new, b=[2**33])
    assert second is not None
    assert stored(context, second.new) == {"a": [1], "b": [2, 2**33]}
    lengths = {vector.data_file: vector.length for file in second.new for vector in file.vectors}
    assert lengths["a"] == first.new[0].vectors[0].length
    assert lengths["b"] > lengths["a"]


def test_a_failed_write_leaves_no_files() -> None:
    context = without_buckets({"deletion-vector.index-file.target-size": "1 b"})
    io = context.io
    assert isinstance(io, FaultyFileIO)
    io.fail_call(1, Fault.BEFORE)
    with pytest.raises(FaultyIOError):
        deleted_rows(context, (), a=[1], b=[2], c=[3])
    io.fault = lambda _: None
    assert files_there(context) == set()


def test_index_files_of_other_types_are_kept() -> None:
    context = bucketed()
    hashes = IndexFileMeta("HASH", "index-1", 8, 2)
    change = deleted_rows(context, [hashes], a=[1])
    assert change is not None
    assert (change.deleted, [file.index_type for file in change.new]) == ((), ["DELETION_VECTORS"])
    assert index_file_path(context, KEY.partition, KEY.bucket, change.new[0]).startswith(context.location)
