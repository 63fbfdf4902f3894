"""A sound table has no findings. Any damage is found and named."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidelake
from tests.storage.files.samples import FORMATS
from tests.support.faulty_file_io import Call, FaultyFileIO
from tidelake.storage.commit.manifests.avro_schemas import MANIFEST_ENTRY_SCHEMA, MANIFEST_LIST_SCHEMA
from tidelake.storage.commit.manifests.manifest_entry import ManifestEntry, entry_to_record
from tidelake.storage.commit.manifests.manifest_file_meta import ManifestFileMeta, meta_to_record
from tidelake.storage.commit.manifests.manifest_store import ManifestStore
from tidelake.storage.commit.manifests.record_file import AvroRecordWriter
from tidelake.storage.commit.manifests.snapshot_files import base_list, delta_list
from tidelake.storage.files.data_file import DataFileMeta, SimpleStats
from tidelake.storage.maintenance.verify import Severity, inspect, verify
from tidelake.storage.model.binary_row import serialize_row
from tidelake.storage.model.format import FileKind
from tidelake.storage.model.snapshots.consumers import Consumer
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.snapshots.tags import TagStore
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import BIGINT, STRING, not_null

COLUMNS = pa.schema([pa.field("k", pa.int64(), nullable=False), pa.field("v", pa.string())])
OPTIONS = {"bucket": "2", "changelog-producer": "input", "write-only": "true"}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four snapshots of a primary-key table, the second one tagged; keys 0 to 19 in each commit."""
    warehouse = tmp_path_factory.mktemp("verify") / "lake"
    catalog = tidelake.open_catalog(str(warehouse))
    catalog.create_database("db")
    made = catalog.create_table("db.t", COLUMNS, primary_key=["k"], options=OPTIONS)
    with made.writer(commit_user="etl") as writer:
        for identifier in range(1, 5):
            writer.write(pa.table({"k": range(20), "v": [f"{identifier}"] * 20}, schema=COLUMNS))
            writer.commit(identifier)
    context = made.context
    TagStore(context.io, context.paths).create("second", snapshot(context, 2), now=datetime(2026, 5, 1))
    return warehouse


@pytest.fixture
def table(lake: Path, tmp_path: Path) -> TableContext:
    """One to break."""
    shutil.copytree(lake, tmp_path / "lake")
    return tidelake.open_catalog(str(tmp_path / "lake")).table("db.t").context


def snapshot(table: TableContext, snapshot_id: int) -> Snapshot:
    return table.snapshots.get(snapshot_id)


# ---------------------------------------------------------------- ways to break it


def edit_snapshot(snapshot_id: int, **members: Any) -> Callable[[TableContext], None]:
    def damage(table: TableContext) -> None:
        path = Path(table.paths.snapshot(snapshot_id))
        path.write_text(json.dumps({**json.loads(path.read_text()), **members}))

    return damage


def borrow(snapshot_id: int, member: str, other_id: int) -> Callable[[TableContext], None]:
    """A snapshot names what another one does."""

    def damage(table: TableContext) -> None:
        other = json.loads(Path(table.paths.snapshot(other_id)).read_text())
        names = {name: other[name] for name in (member, f"{member}Size")}
        edit_snapshot(snapshot_id, **names)(table)

    return damage


def edit_entry(change: Callable[[ManifestEntry], ManifestEntry]) -> Callable[[TableContext], None]:
    """The first entry of snapshot 3's delta. Uncompressed: a file shorter than it was would count as cut off."""

    def damage(table: TableContext) -> None:
        store = ManifestStore(table)
        (meta,) = store.read_list(delta_list(snapshot(table, 3)))
        first, *others = store.read(meta)
        writer = AvroRecordWriter(MANIFEST_ENTRY_SCHEMA, "null", 1)
        writer.write(map(entry_to_record, [change(first), *others]))
        Path(table.paths.manifest(meta.file_name)).write_bytes(writer.finish())

    return damage


def edit_file(**members: Any) -> Callable[[TableContext], None]:
    def change(entry: ManifestEntry) -> ManifestEntry:
        file: DataFileMeta = replace(entry.file, **members)
        return replace(entry, file=file)

    return edit_entry(change)


def edit_meta(**members: Any) -> Callable[[TableContext], None]:
    """What the list says of the manifest of snapshot 3's delta."""

    def damage(table: TableContext) -> None:
        (meta,) = ManifestStore(table).read_list(delta_list(snapshot(table, 3)))
        changed: ManifestFileMeta = replace(meta, **members)
        write_list(table, 3, "deltaManifestList", [changed])

    return damage


def double_manifest(table: TableContext) -> None:
    """The base list of snapshot 4 names its last manifest twice."""
    metas = ManifestStore(table).read_list(base_list(snapshot(table, 4)))
    write_list(table, 4, "baseManifestList", [*metas, metas[-1]])


def write_list(table: TableContext, snapshot_id: int, member: str, metas: Sequence[ManifestFileMeta]) -> None:
    """Replaces the manifest list of a snapshot, whose stored size stays correct."""
    writer = AvroRecordWriter(MANIFEST_LIST_SCHEMA, "null", 1)
    writer.write(map(meta_to_record, metas))
    data = writer.finish()
    name = json.loads(Path(table.paths.snapshot(snapshot_id)).read_text())[member]
    Path(table.paths.manifest(name)).write_bytes(data)
    edit_snapshot(snapshot_id, **{f"{member}Size": len(data)})(table)


def stats(smallest: Sequence[Any], largest: Sequence[Any], nulls: Sequence[int] = (0, 0)) -> SimpleStats:
    types = [not_null(BIGINT), STRING][: len(smallest)]
    return SimpleStats(serialize_row(smallest, types), serialize_row(largest, types), tuple(nulls))


def move_up(table: TableContext) -> None:
    """Overlapping files of snapshot 3 and of snapshot 2, both on level 5."""
    store = ManifestStore(table)
    for snapshot_id in (2, 3):
        (meta,) = store.read_list(delta_list(snapshot(table, snapshot_id)))
        entries = [replace(entry, file=replace(entry.file, level=5)) for entry in store.read(meta)]
        writer = AvroRecordWriter(MANIFEST_ENTRY_SCHEMA, "null", 1)
        writer.write(map(entry_to_record, entries))
        Path(table.paths.manifest(meta.file_name)).write_bytes(writer.finish())


def data_file(table: TableContext, kind: str = "data-*") -> Path:
    return max(Path(table.location).glob(f"bucket-0/{kind}"))


def overwrite(path: Callable[[TableContext], Path], data: bytes) -> Callable[[TableContext], None]:
    def damage(table: TableContext) -> None:
        path(table).write_bytes(data)

    return damage


def remove(path: Callable[[TableContext], Path]) -> Callable[[TableContext], None]:
    return lambda table: path(table).unlink()


def shorten(table: TableContext) -> None:
    path = data_file(table)
    path.write_bytes(path.read_bytes()[:-10])


def scramble(table: TableContext) -> None:
    path = data_file(table)
    path.write_bytes(bytes(path.stat().st_size))


def change_bucket(table: TableContext) -> None:
    """The file is moved too: only its rows show the error."""

    def change(entry: ManifestEntry) -> ManifestEntry:
        name, old, new = entry.file.file_name, entry.bucket, 1 - entry.bucket
        root = Path(table.location)
        (root / f"bucket-{old}" / name).rename(root / f"bucket-{new}" / name)
        return replace(entry, bucket=new)

    edit_entry(change)(table)


def manifest_of(snapshot_id: int) -> Callable[[TableContext], Path]:
    def path(table: TableContext) -> Path:
        (meta,) = ManifestStore(table).read_list(delta_list(snapshot(table, snapshot_id)))
        return Path(table.paths.manifest(meta.file_name))

    return path


def list_of(snapshot_id: int) -> Callable[[TableContext], Path]:
    return lambda table: Path(table.paths.manifest(snapshot(table, snapshot_id).delta_manifest_list))


@dataclass(frozen=True)
class Damage:
    id: str
    do: Callable[[TableContext], None]
    check: str
    says: str = ""
    deep: bool = False


DAMAGES = [
    Damage("a data file is gone", remove(data_file), "file-missing", "is missing"),
    Damage("a data file is cut short", shorten, "file-size", "the manifest says"),
    Damage("a changelog file is gone", remove(lambda t: data_file(t, "changelog-*")), "file-missing"),
    Damage("a manifest is gone", remove(manifest_of(3)), "manifest-unreadable", "no file"),
    Damage("a manifest is noise", overwrite(manifest_of(3), bytes(4000)), "manifest-unreadable"),
    Damage("a manifest list is gone", remove(list_of(3)), "manifest-unreadable"),
    Damage("a manifest list is torn", overwrite(list_of(3), b"Obj\x01"), "manifest-unreadable", "bytes"),
    Damage(
        "a snapshot is torn",
        overwrite(lambda t: Path(t.paths.snapshot(3)), b'{"version'),
        "snapshot-unreadable",
        "snapshot-3",
    ),
    Damage("a snapshot is gone", remove(lambda t: Path(t.paths.snapshot(3))), "snapshot-gap", "4 follows 2"),
    Damage("a snapshot says another id", edit_snapshot(3, id=7), "snapshot-unreadable", "found snapshot 7"),
    Damage("the total count is wrong", edit_snapshot(3, totalRecordCount=59), "record-count", "60 rows"),
    Damage("the count of changes is wrong", edit_snapshot(3, changelogRecordCount=1), "record-count", "20 rows"),
    Damage("a schema is gone", edit_snapshot(3, schemaId=7), "schema-missing", "schema-7"),
    Damage("statistics are gone", edit_snapshot(3, statistics="stat-x"), "statistics-missing", "stat-x"),
    Damage("an index manifest is gone", edit_snapshot(3, indexManifest="index-manifest-x"), "manifest-unreadable"),
    Damage("a base list forgets files", borrow(3, "baseManifestList", 2), "base-differs", "2 files are lost"),
    Damage("a base list names a manifest twice", double_manifest, "base-differs", "contradicts itself"),
    Damage("a delta adds files again", borrow(4, "deltaManifestList", 3), "file-added-twice"),
    Damage("a tag is torn", overwrite(lambda t: Path(t.paths.tag("second")), b"{"), "tag-unreadable"),
    Damage(
        "a delete of nothing", edit_entry(lambda e: replace(e, kind=FileKind.DELETE)), "delete-without-file", "not live"
    ),
    Damage("files of a level overlap", move_up, "levels", "overlap"),
    Damage("a file of another bucket count", edit_entry(lambda e: replace(e, total_buckets=3)), "levels", "buckets"),
    Damage("identifiers fall", edit_snapshot(3, commitIdentifier=1), "identifier-order", "after 2"),
    Damage("an identifier twice", edit_snapshot(3, commitIdentifier=2), "identifier-twice", "snapshot 2"),
    Damage("a hint beyond", overwrite(lambda t: Path(t.paths.latest_hint), b"99"), "hint", "99"),
    Damage("a manifest counts wrong", edit_meta(num_added_files=5), "manifest-counts", "(5, 0)"),
    Damage("a manifest's size is wrong", edit_meta(file_size=1), "manifest-size"),
    Damage("a manifest's bounds are wrong", edit_meta(max_bucket=0), "manifest-bounds", "skip files"),
    Damage("sequence numbers fall", edit_file(min_sequence_number=999), "entry-malformed", "999 down"),
    Damage("a bucket beyond", edit_entry(lambda e: replace(e, bucket=2)), "entry-malformed", "bucket 2 of 2"),
    Damage("a file of an unknown schema", edit_file(schema_id=9), "entry-malformed", "schema 9"),
    Damage("keys turned around", edit_file(min_key=serialize_row([99], [not_null(BIGINT)])), "entry-malformed"),
    Damage("rows of noise", scramble, "rows-unreadable", deep=True),
    Damage("a row count that is not true", edit_file(row_count=3), "rows-unreadable", "expected 3 rows", deep=True),
    Damage(
        "a smallest key that is not true",
        edit_file(min_key=serialize_row([-1], [not_null(BIGINT)])),
        "rows-differ",
        "smallest key",
        deep=True,
    ),
    Damage("sequence numbers that are not true", edit_file(max_sequence_number=99), "rows-differ", "99", deep=True),
    Damage(
        "a largest value that is none",
        edit_file(value_stats=stats([0, "3"], [0, "3"])),
        "statistics-differ",
        "column 'k' has values above",
        deep=True,
    ),
    Damage(
        "a smallest value that is none",
        edit_file(value_stats=stats([0, "4"], [19, "5"])),
        "statistics-differ",
        "column 'v' has values below",
        deep=True,
    ),
    Damage(
        "nulls that are not there",
        edit_file(value_stats=stats([0, "3"], [19, "3"], [0, 10])),
        "statistics-differ",
        "'v' has 0 nulls, and 10",
        deep=True,
    ),
    Damage(
        "a largest key that its statistics don't know",
        edit_file(key_stats=stats([0], [0], [0])),
        "statistics-differ",
        "column '_KEY_k' has values above",
        deep=True,
    ),
    Damage(
        "statistics of other columns",
        edit_file(value_stats=stats([0], [19], [0])),
        "statistics-differ",
        "statistics of 2 columns",
        deep=True,
    ),
    Damage("rows in another's bucket", change_bucket, "rows-differ", "another bucket", deep=True),
]


@pytest.mark.parametrize("damage", [pytest.param(damage, id=damage.id) for damage in DAMAGES])
def test_damage_is_found_and_named(table: TableContext, damage: Damage) -> None:
    assert verify(table, deep=damage.deep) == []
    damage.do(table)
    found = [finding for finding in verify(table, deep=damage.deep) if finding.check == damage.check]
    assert found
    assert any(damage.says in str(finding) for finding in found)
    assert all(finding.remedy for finding in found)


@pytest.mark.parametrize("mode", ["full", "truncate(2)", "counts", "none"])
@pytest.mark.parametrize("name", FORMATS)
def test_correct_statistics_are_no_finding_even_if_incomplete(name: str, mode: str, tmp_path: Path) -> None:
    rows = pa.table(
        {
            "f": pa.array([math.nan, -0.0, None, 0.0], pa.float64()),
            "t": ["ab\U0010ffff", "ab", None, "\uffff\uffff\uffff"],
            "b": [b"\xff\xff\xff", b"", None, b"\x00"],
            "d": pa.array([-1, 0, None, 10**17], pa.decimal128(20, 2)),
            "at": pa.array([-1001, 0, None, 1_777_593_600_000], pa.timestamp("ms")),
            "a": [[None], [], None, [3]],
        }
    )
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("db")
    made = catalog.create_table("db.t", rows.schema, options={"file.format": name, "metadata.stats-mode": mode})
    with made.writer(commit_user="etl") as writer:
        writer.write(rows)
        writer.commit(1)
    assert inspect(made.context, deep=True).findings == ()


def test_snapshots_out_of_time_order_are_reported_as_notes(table: TableContext) -> None:
    edit_snapshot(3, timeMillis=1)(table)
    (finding,) = inspect(table).findings
    assert (finding.check, finding.where, finding.severity) == ("time-order", "snapshot 3", Severity.NOTE)


def test_an_unreadable_consumer_is_reported_as_a_note(table: TableContext) -> None:
    Consumer(table.io, table.paths, "reader").write(2)
    Path(table.paths.consumer("reader")).write_text("zz")
    (finding,) = inspect(table).findings
    assert (finding.check, finding.severity) == ("consumer-unreadable", Severity.NOTE)
    assert "no snapshot expires" in finding.what


def test_the_deep_check_runs_only_on_request(table: TableContext) -> None:
    scramble(table)
    assert verify(table) == []


# ---------------------------------------------------------------- what else there is


def test_the_report_counts_all_checked_objects(table: TableContext) -> None:
    report = inspect(table)
    assert (report.snapshots, report.tags, report.branches) == (4, 1, 0)
    assert (report.data_files, report.rows) == (16, 160)
    assert report.orphans is not None
    assert report.orphans.paths == ()


def test_one_snapshot_can_be_verified_alone(table: TableContext) -> None:
    remove(manifest_of(4))(table)
    assert inspect(table, snapshot_id=3).findings == ()
    assert inspect(table, snapshot_id=4).problems != []
    with pytest.raises(tidelake.BadInput, match="no snapshot 9"):
        inspect(table, snapshot_id=9)


def test_unreferenced_files_are_counted_by_age(table: TableContext) -> None:
    root = Path(table.location)
    strays = [root / "bucket-0/data-x.parquet", root / "manifest/manifest-x", root / "snapshot/.snapshot-9.tmp"]
    for stray in strays:
        stray.write_bytes(bytes(10))
    now_ms = strays[0].stat().st_mtime_ns // 1_000_000
    young = inspect(table, now_ms=now_ms).orphans
    assert young is not None
    assert (young.paths, young.young) == ((), 3)
    old = inspect(table, now_ms=now_ms + 2 * 24 * 3_600_000).orphans
    assert old is not None
    assert (old.paths, old.size_bytes, old.young) == (tuple(sorted(map(str, strays))), 30, 0)


def test_no_orphans_are_reported_while_metadata_is_unreadable(table: TableContext) -> None:
    remove(manifest_of(3))(table)
    assert inspect(table, orphans_older_than_ms=0).orphans is None


def test_branches_are_verified_too(table: TableContext) -> None:
    branch = Path(table.location) / "branch/branch-dev"
    for part in ("schema/schema-0", "snapshot/snapshot-2"):
        (branch / part).parent.mkdir(parents=True)
        (branch / part).write_bytes((Path(table.location) / part).read_bytes())
    report = inspect(table)
    assert (report.branches, report.findings) == (1, ())
    (branch / "snapshot/snapshot-2").write_text("{")
    (finding,) = verify(table)
    assert finding.where == "branch dev, snapshot 2"


def test_a_branch_without_a_schema_is_a_note_and_everything_else_is_looked_at(table: TableContext) -> None:
    (Path(table.location) / "branch/branch-dev/snapshot").mkdir(parents=True)
    (note,) = inspect(table).findings
    assert (note.check, note.where, note.severity) == ("branch-incomplete", "branch dev", Severity.NOTE)
    assert verify(table) == []
    (Path(table.location) / "snapshot/snapshot-2").unlink()
    assert "snapshot-gap" in {finding.check for finding in verify(table)}


def test_staged_rows_are_in_any_order_and_the_rows_of_buckets_are_checked(tmp_path: Path) -> None:
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("db")
    columns = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string())])
    options = {"bucket": "-2", "postpone.default-bucket-num": "2"}
    made = catalog.create_table("db.t", columns, primary_key=["k"], options=options)
    with made.writer(commit_user="u") as writer:
        writer.write(pa.table({"k": [5, 3, 8, 1], "v": ["a", "b", "c", "d"]}))
        writer.commit(identifier=1)
    assert verify(made.context, deep=True) == []
    made.compact()
    assert verify(made.context, deep=True) == []
    with made.writer() as writer:
        writer.write(pa.table({"k": [7], "v": ["e"]}))
        assert writer.commit() == 3
    change_bucket(made.context)
    assert "rows-differ" in {finding.check for finding in verify(made.context, deep=True)}


def test_snapshots_below_the_earliest_hint_are_half_expired_and_no_finding(table: TableContext) -> None:
    Path(table.paths.earliest_hint).write_text("3")
    assert inspect(table).findings == ()  # no file of theirs is deleted yet
    list_of(1)(table).unlink()
    (finding,) = inspect(table).findings
    assert (finding.check, finding.severity) == ("half-expired", Severity.NOTE)


def test_a_snapshot_that_expires_during_verification_is_no_finding(table: TableContext) -> None:
    opened = tidelake.open_catalog(str(Path(table.location).parent.parent)).table("db.t")
    number = 0
    while True:
        io = FaultyFileIO(table.io)

        def expire_meanwhile(call: Call, at: int = number, io: FaultyFileIO = io) -> None:
            if len(io.calls) == at + 1:
                opened.expire(retain_max=1, retain_ms=0)

        io.fault = expire_meanwhile
        assert verify(replace(table, io=io)) == []
        if len(io.calls) <= number or len(opened.snapshots()) == 1:
            break
        number += 1
    assert len(opened.snapshots()) == 1
