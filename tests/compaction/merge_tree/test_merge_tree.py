"""One bucket: the picked files, and the result of compacting them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TypeAlias
from unittest.mock import patch

import pyarrow as pa
import pytest

import tidelake
from tests.compaction.invariants import live_files
from tests.support.local_zone import MoveTo
from tidelake.compaction.cancellation import CompactionCancelled
from tidelake.compaction.merge_tree.compact_unit import PickReason
from tidelake.compaction.merge_tree.merge_tree import MergeTree
from tidelake.storage.files.data_file import DataFileMeta
from tidelake.storage.merge import sections
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.format import FileSource, RowKind
from tidelake.storage.model.table import TableContext

MakeBucket: TypeAlias = Callable[..., tuple[TableContext, BucketId, list[DataFileMeta]]]

SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string())])


@pytest.fixture
def tree_of(tmp_path: Path) -> MakeBucket:
    """A bucket with a file of level 0 for each list of (key, kind)."""

    def make(*files: list[tuple[int, RowKind]], **options: str) -> tuple[TableContext, BucketId, list[DataFileMeta]]:
        catalog = tidelake.open_catalog(str(tmp_path))
        catalog.create_database("db")
        given = {name.replace("_", "-"): value for name, value in options.items()}
        declared = {"bucket": "1", "write-only": "true", **given}
        table = catalog.create_table("db.t", SCHEMA, primary_key=["k"], options=declared)
        for number, rows in enumerate(files):
            with table.writer() as writer:
                kinds = pa.array([int(kind) for _, kind in rows], pa.int8())
                columns = {"k": [k for k, _ in rows], "v": [str(number)] * len(rows)}
                writer.write(pa.table(columns, SCHEMA).append_column("_VALUE_KIND", kinds))
                writer.commit()
        ((key, found),) = live_files(table.context).items()
        return table.context, key, found

    return make


def put(*keys: int) -> list[tuple[int, RowKind]]:
    return [(key, RowKind.INSERT) for key in keys]


def drop(*keys: int) -> list[tuple[int, RowKind]]:
    return [(key, RowKind.DELETE) for key in keys]


def stored(context: TableContext) -> set[str]:
    return {path.name for path in Path(context.location).glob("bucket-*/*")}


def test_compacted_files_have_correct_metadata(tree_of: MakeBucket) -> None:
    context, key, files = tree_of(put(1, 2), drop(2), put(3))
    tree = MergeTree(context, key, files)
    unit = tree.pick(full=True)
    assert unit is not None
    result = tree.compact(unit)
    (new,) = result.after
    assert {f.file_name for f in result.before} == {f.file_name for f in files}
    assert (new.level, new.file_source, new.row_count, new.delete_row_count) == (5, FileSource.COMPACT, 2, 0)
    assert (new.min_sequence_number, new.max_sequence_number) == (0, 3)
    assert result.reason == PickReason.FULL
    tree.install(result)
    assert tree.levels.files == (new,)
    assert tree.pick(full=True) is None


def test_a_compaction_without_rows_writes_no_file(tree_of: MakeBucket) -> None:
    context, key, files = tree_of(put(1, 2), drop(1, 2))
    tree = MergeTree(context, key, files)
    unit = tree.pick(full=True)
    assert unit is not None
    result = tree.compact(unit)
    assert (len(result.before), result.after) == (2, ())
    tree.install(result)
    assert tree.levels.runs == ()
    assert stored(context) == {file.file_name for file in files}


def test_a_file_with_a_wrong_delete_count_is_rewritten_instead_of_upgraded(
    tree_of: MakeBucket,
) -> None:
    """As files of pypaimon do. On the highest level readers believe what the metadata say."""
    context, key, (file,) = tree_of([*put(1), *drop(2)], **{"compaction.small-file-ratio": "0"})
    for denying, after in ((file, 1), (replace(file, delete_row_count=0), 1)):
        tree = MergeTree(context, key, [denying])
        unit = tree.pick(full=True)
        assert unit is not None
        (new,) = tree.compact(unit).after
        assert new.file_name != file.file_name
        assert (new.row_count, new.delete_row_count) == (after, 0)


def test_a_cancelled_compaction_leaves_no_files(tree_of: MakeBucket, tmp_path: Path) -> None:
    context, key, files = tree_of(put(1, 2), put(2, 3), put(1, 3))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    tree = MergeTree(context, key, files, str(scratch))
    unit = tree.pick(full=True)
    assert unit is not None
    before = stored(context)
    calls = 0
    for patience in range(10):
        calls = 0

        def impatient(patience: int = patience) -> bool:
            nonlocal calls
            calls += 1
            return calls > patience

        with patch.object(sections, "OPEN_MEMORY_BYTES", 0):
            try:
                tree.discard(tree.compact(unit, impatient))
            except CompactionCancelled:
                pass
            else:
                break
        assert stored(context) == before
        assert list(scratch.iterdir()) == []
    assert calls > 3, "asked while runs are spilled, and while they are merged"
    assert stored(context) == before
    assert list(scratch.iterdir()) == []


def test_missing_scratch_space_leaves_no_files(
    tree_of: MakeBucket,
) -> None:
    context, key, files = tree_of(put(1, 2), put(2, 3))
    before = stored(context)
    tree = MergeTree(context, key, files, "/nowhere")
    unit = tree.pick(full=True)
    assert unit is not None
    with patch.object(sections, "OPEN_MEMORY_BYTES", 0), pytest.raises(OSError, match="nowhere"):
        tree.compact(unit)
    assert stored(context) == before


def test_one_time_decides_which_rows_of_a_compaction_expire(tree_of: MakeBucket) -> None:
    """Else the newer of two rows, read a second after the older, would expire, and the older one come out again."""
    options = {"record-level.expire-time": "10000 s", "record-level.time-field": "k"}
    context, key, files = tree_of(put(7), put(7), **options)
    seconds = count(10_006)  # to pick, to compact: the last second in which a row of second 7 stays
    tree = MergeTree(context, key, files, now_ms=lambda: next(seconds) * 1000)
    unit = tree.pick(full=True)
    assert unit is not None
    (left,) = tree.compact(unit).after
    assert (left.row_count, left.min_sequence_number) == (1, 1)


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "Pacific/Pago_Pago"])  # 0, 14 and -11 hours
def test_a_restart_does_not_trigger_an_optimization(tree_of: MakeBucket, zone: str, local_zone: MoveTo) -> None:
    """The time of the last full compaction is that of the newest file on the highest level."""
    local_zone(zone)
    context, key, (file, young) = tree_of(put(1), put(1), **{"compaction.optimization-interval": "1 h"})
    assert MergeTree(context, key, [file, young]).pick() is not None
    assert MergeTree(context, key, [replace(file, level=5), young]).pick() is None


def test_a_file_above_lowered_num_levels_is_that_of_the_last_full_compaction(tree_of: MakeBucket) -> None:
    lowered = {"compaction.optimization-interval": "1 h", "num-levels": "3"}
    context, key, (file, young) = tree_of(put(1), put(1), **lowered)
    assert MergeTree(context, key, [replace(file, level=5), young]).pick() is None
