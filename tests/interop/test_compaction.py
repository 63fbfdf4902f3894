"""Java and Tidelake compact one table: both pick the same files, and each continues from the result of the other."""

from __future__ import annotations

import shutil
from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

import pyarrow as pa
import pytest

import tidelake
from tests.compaction.invariants import check_tree, live_files
from tests.support.expected import difference
from tests.support.java_oracle import JavaOracle
from tidelake.compaction.merge_tree.merge_tree import MergeTree
from tidelake.compaction.merge_tree.rewrite_plan import Rewrite, plan_rewrite
from tidelake.storage.commit.manifests.snapshot_files import delta_entries, live_entries
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.format import CommitKind, FileKind
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext

NAME = "db.t"


def columns(**types: str) -> list[dict[str, Any]]:
    return [{"name": name, "type": kind, "nullable": name != "k"} for name, kind in types.items()]


def ours(warehouse: Path) -> tidelake.Table:
    return tidelake.open_catalog(str(warehouse)).table(NAME)


def check_same_rows(java_oracle: JavaOracle, warehouse: Path) -> pa.Table:
    rows = ours(warehouse).scan().to_arrow()
    theirs = [list(row.values()) for row in java_oracle.read(warehouse, NAME)]
    assert (problem := difference(rows, theirs)) is None, problem
    return rows


# ---------------------------------------------------------------- what is picked


@dataclass(frozen=True)
class Picks:
    id: str
    options: dict[str, str]
    commits: int = 30
    rows: tuple[int, ...] = (1, 5, 40, 200)  # of a commit, by chance
    keys: int = 300


@dataclass
class Done:
    """What one compaction of a bucket did, by file name. output_level: None when no file is left."""

    read: set[str] = field(default_factory=set)
    raised: set[str] = field(default_factory=set)
    output_levels: set[int] = field(default_factory=set)


PICKS = (
    Picks("defaults", {}),
    Picks("many levels, low trigger", {"num-sorted-run.compaction-trigger": "2", "num-levels": "8"}),
    Picks("little amplification", {"compaction.max-size-amplification-percent": "20"}),
    Picks("much amplification, wide ratio", {"compaction.max-size-amplification-percent": "1000000"}, commits=40),
    Picks(
        "runs that grow",
        {"compaction.max-size-amplification-percent": "1000000", "compaction.size-ratio": "30"},
        rows=(1, 300, 900),
        keys=4000,
    ),
    Picks("level 0 goes up", {"compaction.force-up-level-0": "true"}),
    Picks("level 0 is looked up", {"force-lookup": "true", "num-levels": "7"}),
    Picks("level 0 is looked up, by sequence", {"force-lookup": "true", "sequence.field": "v"}),
    Picks("small tables in full", {"compaction.total-size-threshold": "6 kb"}),
    Picks("in full by what is new", {"compaction.incremental-size-threshold": "6 kb"}),
    Picks("large files are raised", {"compaction.small-file-ratio": "0", "bucket": "3"}, rows=(1, 2), keys=100_000),
)


@pytest.mark.exhaustive
@pytest.mark.parametrize("case", PICKS, ids=lambda case: case.id)
def test_the_picker_picks_the_same_files_as_java(case: Picks, java_oracle: JavaOracle, tmp_path: Path) -> None:
    options = {"bucket": "1", "snapshot.num-retained.min": "1000", **case.options}
    java_oracle.create(tmp_path, NAME, columns(k="BIGINT", v="STRING"), primary_keys=["k"], options=options)
    random = Random(case.id)
    for _ in range(case.commits):
        kinds = random.choices(["+I", "-D"], weights=[3, 1], k=random.choice(case.rows))
        rows = [{"k": random.randrange(case.keys), "v": str(random.random()), "_kind": kind} for kind in kinds]
        java_oracle.write(tmp_path, NAME, rows, commit_user="java", wait_compaction=True)
    table = ours(tmp_path)
    snapshots = table.snapshots()
    compactions = 0
    for before, after in zip(snapshots, [*snapshots[1:], None], strict=True):
        if before.commit_kind is not CommitKind.APPEND:
            continue
        by_java = done_by(table.context, after)
        compactions += len(by_java)
        # Java only looks at buckets that the commit wrote to
        touched = {e.bucket_id for e in delta_entries(table.context, before)}
        assert planned(table.context, before, touched) == by_java, f"snapshot {before.id}"
    assert compactions > 2


def done_by(context: TableContext, snapshot: Snapshot | None) -> dict[BucketId, Done]:
    done: dict[BucketId, Done] = defaultdict(Done)
    if snapshot is None or snapshot.commit_kind is not CommitKind.COMPACT:
        return done
    entries = delta_entries(context, snapshot)
    read = {e.file.file_name for e in entries if e.kind is FileKind.DELETE}
    for entry in entries:
        of_bucket = done[entry.bucket_id]
        name = entry.file.file_name
        if entry.kind is FileKind.ADD:
            of_bucket.output_levels.add(entry.file.level)
            if name in read:
                of_bucket.raised.add(name)
        else:
            of_bucket.read.add(name)
    return done


def planned(context: TableContext, snapshot: Snapshot, buckets: set[BucketId]) -> dict[BucketId, Done]:
    live = live_entries(context, snapshot)
    done = {}
    for key in buckets:
        files = [e.file for e in live if e.bucket_id == key]
        tree = MergeTree(context, key, files)
        unit = tree.pick()
        if unit is None:
            continue
        size = context.options.compaction_file_size_bytes(has_primary_key=True)
        steps = plan_rewrite(
            unit,
            tree.levels.key_types,
            tree.levels.max_level,
            min_file_size_bytes=size,
            must_rewrite=tree._must_rewrite(now_s=0),
            upgrade_strategy=partial(tree._merges.upgrade, tree.levels, output_level=unit.output_level),
        )
        raised = {step.file.file_name for step in steps if not isinstance(step, Rewrite)}
        read = {file.file_name for step in steps if isinstance(step, Rewrite) for file in step.files} | raised
        if read:
            done[key] = Done(read, raised, {unit.output_level})
    return done


# ---------------------------------------------------------------- taking turns


SUM = {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum", "fields.w.aggregate-function": "max"}
ENGINES = {
    "deduplicate": {},
    "deduplicate, thin, two buckets": {"data-file.thin-mode": "true", "bucket": "2"},
    "deduplicate by sequence, looked up": {"sequence.field": "v", "force-lookup": "true"},
    "first-row": {"merge-engine": "first-row"},
    "partial-update": {"merge-engine": "partial-update"},
    "aggregation": SUM,
    "aggregation, looked up": {**SUM, "force-lookup": "true"},
}


def turns(java_oracle: JavaOracle, warehouse: Path, options: dict[str, str], count: int) -> None:
    declared = {"bucket": "1", "num-sorted-run.compaction-trigger": "3", "snapshot.num-retained.min": "1000"}
    types = columns(k="INT", v="BIGINT", w="STRING")
    java_oracle.create(warehouse, NAME, types, primary_keys=["k"], options={**declared, **options})
    random = Random(str(options))
    may_delete = not {"merge-engine", "sequence.field"} & options.keys()
    for turn in range(1, count + 1):
        many = random.choice([1, 10, 60])
        rows = [
            {
                "k": random.randrange(30 + 3 * turn),
                "v": random.choice([None, turn, random.randrange(99)]),
                "w": f"w{turn}",
            }
            for _ in range(many)
        ]
        kinds = random.choices([0, 3], weights=[3, 1], k=many) if may_delete else [0] * many
        match turn % 5:
            case 1 | 3:
                with ours(warehouse).writer(commit_user="etl") as writer:
                    table = pa.Table.from_pylist(rows, ours(warehouse).schema)
                    writer.write(table.append_column("_VALUE_KIND", pa.array(kinds, pa.int8())))
                    writer.commit(turn)
            case 2 | 4:
                actual = [{**row, "_kind": "+I" if kind == 0 else "-D"} for row, kind in zip(rows, kinds, strict=True)]
                java_oracle.write(warehouse, NAME, actual, commit_user="java", wait_compaction=True)
            case _ if turn % 10 == 0:
                java_oracle.compact(warehouse, NAME, full=turn % 20 == 0, commit_user="compactor")
            case _:
                ours(warehouse).compact(full=turn % 15 == 0)
        check_same_rows(java_oracle, warehouse)
    check_tree(ours(warehouse).context)


@pytest.mark.exhaustive
@pytest.mark.parametrize("options", ENGINES.values(), ids=ENGINES.keys())
def test_java_and_tidelake_write_and_compact_alternately(
    options: dict[str, str], java_oracle: JavaOracle, tmp_path: Path
) -> None:
    turns(java_oracle, tmp_path, options, 15)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.exhaustive
@pytest.mark.parametrize("options", ENGINES.values(), ids=ENGINES.keys())
def test_java_and_tidelake_commit_alternately_fifty_times(
    options: dict[str, str], java_oracle: JavaOracle, tmp_path: Path
) -> None:
    turns(java_oracle, tmp_path, options, 50)


# ---------------------------------------------------------------- rows that are too old

TIMES: Final[dict[str, list[int | str | None]]] = {
    "INT": [1, None, 2_000_000_000, 1_000_000_000, -5],
    "BIGINT": [1, None, 2_000_000_000, 2_000_000_000_000, 1_000_000_000_000, 999_999_999_999],
    "TIMESTAMP(0)": ["1969-12-31T23:59:59", None, "2100-01-01T00:00:00", "2001-01-01T00:00:00"],
    "TIMESTAMP(3)": ["1969-12-31T23:59:59.001", None, "2100-01-01T00:00:00.000", "2001-01-01T00:00:00.000"],
    "TIMESTAMP(6)": ["1969-12-31T23:59:59.000001", None, "2100-01-01T00:00:00.000000"],
    "TIMESTAMP(9)": ["1969-12-31T23:59:59.000000001", None, "2100-01-01T00:00:00.000000000"],
    "TIMESTAMP(6) WITH LOCAL TIME ZONE": ["1970-01-01T00:00:01.000000Z", None, "2100-01-01T00:00:00.000000Z"],
}


@pytest.mark.parametrize("kind", TIMES)
def test_both_expire_the_same_rows(kind: str, java_oracle: JavaOracle, tmp_path: Path) -> None:
    by_java, by_us = tmp_path / "java", tmp_path / "ours"
    options = {"bucket": "1", "record-level.expire-time": "10 d", "record-level.time-field": "at", "write-only": "true"}
    java_oracle.create(by_java, NAME, columns(k="INT", at=kind, v="INT"), primary_keys=["k"], options=options)
    for commit in range(2):  # the second time each key of the first has a newer row, which may expire before the older
        times = TIMES[kind][:: 1 if commit else -1]
        rows = [{"k": k + number, "at": at, "v": commit} for k in (0, 100 * commit) for number, at in enumerate(times)]
        java_oracle.write(by_java, NAME, rows, commit_user="java")
    java_oracle.alter(by_java, NAME, {"set": {"key": "write-only", "value": "false"}})
    shutil.copytree(by_java, by_us)
    java_oracle.compact(by_java, NAME, full=True)
    ours(by_us).compact(full=True)
    compacted = check_same_rows(java_oracle, by_us)
    theirs = [list(row.values()) for row in java_oracle.read(by_java, NAME)]
    assert difference(compacted, theirs) is None
    assert 0 < compacted.num_rows < 2 * len(TIMES[kind])


def test_a_full_compaction_rewrites_only_files_with_expired_rows(java_oracle: JavaOracle, tmp_path: Path) -> None:
    """All rows are on the highest level already. Both sides rewrite the same files and drop the same rows."""
    by_java, by_us = tmp_path / "java", tmp_path / "ours"
    options = {"bucket": "1", "record-level.time-field": "at", "compaction.small-file-ratio": "0"}
    java_oracle.create(by_java, NAME, columns(k="INT", at="INT"), primary_keys=["k"], options=options)
    for first, at in ((0, 2_000_000_000), (100, 1_000), (200, 2_000_000_001), (300, 1_001)):
        rows = [{"k": first + n, "at": at if n else 2_100_000_000} for n in range(3)]
        java_oracle.write(by_java, NAME, rows, commit_user="java", full=True, wait_compaction=True)
    assert {file.level for files in live_files(ours(by_java).context).values() for file in files} == {5}
    java_oracle.alter(by_java, NAME, {"set": {"key": "record-level.expire-time", "value": "1 d"}})
    shutil.copytree(by_java, by_us)
    java_oracle.compact(by_java, NAME, full=True)
    ours(by_us).compact(full=True)
    done = [done_by(ours(warehouse).context, ours(warehouse).snapshots()[-1]) for warehouse in (by_java, by_us)]
    assert done[0] == done[1]
    (one,) = done[0].values()
    assert len(one.read) == 2
    assert check_same_rows(java_oracle, by_us).num_rows == 8
    assert check_same_rows(java_oracle, by_java).num_rows == 8
