"""Iceberg metadata follows the table: after crashes, losses, rollbacks, expiry and tags."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast
from unittest import mock

import fastavro
import pyarrow as pa
import pytest

import tidelake
from tests.support.iceberg import contents, iceberg_rows, newest, pyiceberg_table
from tidelake.errors import BadInput, UnsupportedFeature
from tidelake.storage.commit.iceberg.publication import IcebergPublication

ROWS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
OPTIONS = {"metadata.iceberg.storage": "table-location"}
VERSION_3 = {
    "metadata.iceberg.format-version": "3",
    "deletion-vectors.bitmap64": "true",
    "deletion-vectors.enabled": "true",
}


@pytest.fixture
def catalog(tmp_path: Path) -> tidelake.Catalog:
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("db")
    return catalog


@pytest.fixture
def metadata(tmp_path: Path) -> Path:
    return tmp_path / "db.db" / "t" / "metadata"


def _append(table: tidelake.Table, *ids: int) -> None:
    with table.writer() as writer:
        writer.write(pa.table({"id": ids, "name": [str(i) for i in ids]}, ROWS))
        writer.commit()


def _ids(metadata: Path, **scan: Any) -> list[int]:
    return sorted(iceberg_rows(metadata, **scan)["id"].to_pylist())


def _files(metadata: Path) -> set[str]:
    return {path.name for path in metadata.iterdir()}


def _named(metadata: Path) -> set[str]:
    """The files that the newest metadata file needs."""
    found = json.loads(newest(metadata).read_text())
    lists = {snapshot["manifest-list"] for snapshot in found["snapshots"]}
    names = {Path(path).name for path in lists}
    for snapshot in pyiceberg_table(metadata).snapshots():
        for manifest in snapshot.manifests(pyiceberg_table(metadata).io):
            names.add(Path(manifest.manifest_path).name)
            if int(manifest.content) == 1:
                entries = manifest.fetch_manifest_entry(pyiceberg_table(metadata).io)
                names |= {Path(entry.data_file.file_path).name for entry in entries}
    return names | {newest(metadata).name, "version-hint.text"}


def _not_published(self: IcebergPublication, snapshot: object) -> None:
    """What a crash after the commit leaves."""


CRASH = mock.patch.object(IcebergPublication, "publish_committed", _not_published)


# ---------------------------------------------------------------- crashes and losses


@pytest.mark.parametrize("missed", [1, 3])
def test_the_next_commit_publishes_what_a_crash_left_out(
    missed: int, catalog: tidelake.Catalog, metadata: Path
) -> None:
    table = catalog.create_table("db.t", ROWS, options=OPTIONS)
    _append(table, 1)
    with CRASH:
        for number in range(missed):
            _append(table, 10 + number)
    assert _ids(metadata) == [1]
    _append(table, 2)
    assert _ids(metadata) == sorted([1, 2, *range(10, 10 + missed)])
    assert _ids(metadata, snapshot_id=2) == [1, 10]
    assert _files(metadata) == _named(metadata)


def test_metadata_after_a_crash_is_that_without_the_crash(catalog: tidelake.Catalog, tmp_path: Path) -> None:
    whole, broken = (catalog.create_table(f"db.{name}", ROWS, options=OPTIONS) for name in ("whole", "broken"))
    for number in range(1, 5):
        _append(whole, number)
        if number in (2, 3):
            with CRASH:
                _append(broken, number)
        else:
            _append(broken, number)
    assert _comparable(tmp_path, "broken") == _comparable(tmp_path, "whole")


def _comparable(lake: Path, name: str) -> str:
    found = contents(newest(lake / "db.db" / name / "metadata"))
    text = json.dumps(found, sort_keys=True).replace(f"/{name}", "/t")
    for snapshot in found["snapshots"]:
        for manifest in snapshot["manifests"]:
            for entry in manifest["entries"]:
                text = text.replace(Path(entry["data_file"]["file_path"]).name, "file")
    return text


def test_a_file_after_the_one_that_the_hint_names_is_found(catalog: tidelake.Catalog, metadata: Path) -> None:
    table = catalog.create_table("db.t", ROWS, options=OPTIONS)
    _append(table, 1)
    _append(table, 2)
    lists = {name for name in _files(metadata) if name.startswith("snap-")}
    (metadata / "version-hint.text").write_text("1")
    _append(table, 3)
    assert _ids(metadata) == [1, 2, 3]
    assert lists <= _files(metadata)


def _lose_all(metadata: Path) -> None:
    shutil.rmtree(metadata)


def _lose_the_hint(metadata: Path) -> None:
    (metadata / "version-hint.text").unlink()


def _lose_the_metadata_file(metadata: Path) -> None:
    newest(metadata).unlink()


def _tear_the_metadata_file(metadata: Path) -> None:
    newest(metadata).write_text(newest(metadata).read_text()[:100])


def _lose_manifest_lists(metadata: Path) -> None:
    for path in metadata.glob("snap-*"):
        path.unlink()


def _tear_manifests(metadata: Path) -> None:
    for path in metadata.glob("*-m*.avro"):
        path.write_bytes(path.read_bytes()[:-30])


def _lose_manifests(metadata: Path) -> None:
    for path in metadata.glob("*-m*.avro"):
        path.unlink()


LOSSES = [
    _lose_all,
    _lose_the_hint,
    _lose_the_metadata_file,
    _tear_the_metadata_file,
    _lose_manifest_lists,
    _lose_manifests,
    _tear_manifests,
]


@pytest.mark.parametrize("lose", LOSSES, ids=lambda lose: lose.__name__.strip("_"))
def test_the_command_repairs_lost_metadata(
    lose: Callable[[Path], None], catalog: tidelake.Catalog, metadata: Path
) -> None:
    table = catalog.create_table("db.t", ROWS, options=OPTIONS)
    _append(table, 1)
    _append(table, 2)
    table.create_tag("two")
    _append(table, 3)
    lose(metadata)
    path = catalog.table("db.t").publish_iceberg_metadata()
    assert path == str(newest(metadata))
    assert _ids(metadata) == [1, 2, 3]
    assert _ids(metadata, snapshot_id=2) == [1, 2]
    assert pyiceberg_table(metadata).refs()["two"].snapshot_id == 2


@pytest.mark.parametrize("lose", LOSSES, ids=lambda lose: lose.__name__.strip("_"))
def test_the_next_commit_repairs_lost_metadata(
    lose: Callable[[Path], None], catalog: tidelake.Catalog, metadata: Path
) -> None:
    table = catalog.create_table("db.t", ROWS, options=OPTIONS)
    _append(table, 1)
    _append(table, 2)
    lose(metadata)
    _append(catalog.table("db.t"), 3)
    assert _ids(metadata) == [1, 2, 3]


def test_new_metadata_has_the_identity_of_the_old(catalog: tidelake.Catalog, metadata: Path) -> None:
    table = catalog.create_table("db.t", ROWS, options=OPTIONS)
    _append(table, 1)
    identity = pyiceberg_table(metadata).metadata.table_uuid
    table.publish_iceberg_metadata(anew=True)
    assert pyiceberg_table(metadata).metadata.table_uuid == identity
    assert _files(metadata) == _named(metadata)


def test_an_error_does_not_fail_the_commit(catalog: tidelake.Catalog, metadata: Path) -> None:
    table = catalog.create_table("db.t", ROWS, options=OPTIONS)
    with mock.patch.object(IcebergPublication, "publish", side_effect=OSError("disk full")):
        _append(table, 1)
    assert table.scan().to_arrow()["id"].to_pylist() == [1]
    _append(table, 2)
    assert _ids(metadata) == [1, 2]


def test_a_table_that_gets_the_option_later_is_published(catalog: tidelake.Catalog, metadata: Path) -> None:
    table = catalog.create_table("db.t", ROWS)
    _append(table, 1)
    with pytest.raises(BadInput, match=r"db.t has no Iceberg metadata: .*Set the option"):
        table.publish_iceberg_metadata()
    catalog.alter_table("db.t", [tidelake.SetOption("metadata.iceberg.storage", "table-location")])
    catalog.table("db.t").publish_iceberg_metadata()
    assert _ids(metadata) == [1]


# ---------------------------------------------------------------- other writers


def test_a_writer_that_is_late_leaves_the_hint_to_the_newer_one(catalog: tidelake.Catalog, metadata: Path) -> None:
    table = catalog.create_table("db.t", ROWS, options=OPTIONS)
    _append(table, 1)
    late: list[Any] = []
    with mock.patch.object(IcebergPublication, "publish_committed", lambda self, s: late.append((self, s))):
        _append(table, 2)
    _append(catalog.table("db.t"), 3)
    publication, snapshot = late[0]
    publication.publish(snapshot)
    assert (metadata / "version-hint.text").read_text() == "3"
    assert _ids(metadata) == [1, 2, 3]


@pytest.mark.parametrize("options", [VERSION_3, {"changelog-producer": "lookup"}], ids=["vectors", "lookup"])
def test_both_snapshots_of_the_first_commit_are_shown(
    options: dict[str, str], catalog: tidelake.Catalog, metadata: Path
) -> None:
    """The second one is of the compaction."""
    table = catalog.create_table("db.t", ROWS, primary_key=["id"], options={"bucket": "1", **OPTIONS, **options})
    _append(table, 1)
    table.create_tag("rows", snapshot=1)
    shown = pyiceberg_table(metadata)
    assert [snapshot.snapshot_id for snapshot in shown.snapshots()] == [1, 2]
    assert {name: ref.snapshot_id for name, ref in shown.refs().items()} == {"main": 2, "rows": 1}
    assert (_ids(metadata, snapshot_id=1), len(table.snapshots())) == ([], 2)


def test_a_rollback_shows_the_older_rows_again(catalog: tidelake.Catalog, metadata: Path) -> None:
    table = catalog.create_table("db.t", ROWS, options=OPTIONS)
    for number in (1, 2, 3):
        _append(table, number)
    identity = pyiceberg_table(metadata).metadata.table_uuid
    table.rollback(snapshot=2)
    assert _ids(metadata) == [1, 2]
    _append(catalog.table("db.t"), 9)
    assert _ids(metadata) == [1, 2, 9]
    assert pyiceberg_table(metadata).metadata.table_uuid == identity


@pytest.mark.parametrize("later", ["append", "overwrite", "truncate", "alter", "delete"])
@pytest.mark.parametrize("options", [{}, VERSION_3], ids=["format version 2", "deletion vectors"])
def test_a_rollback_keeps_the_older_snapshots_and_their_tags(
    options: dict[str, str], later: str, catalog: tidelake.Catalog, metadata: Path
) -> None:
    table = catalog.create_table("db.t", ROWS, options=OPTIONS | options)
    _append(table, 1)
    table.create_tag("first")
    _append(table, 2)
    _append(table, 3)
    table.create_tag("third")
    if later == "alter":
        table = catalog.alter_table("db.t", [tidelake.AddColumn("n", "INT")])
        _append(table, 4)
    else:
        changes: dict[str, Callable[[], object]] = {
            "append": lambda: _append(table, 4),
            "overwrite": lambda: table.overwrite([{"id": 4}]),
            "truncate": table.truncate,
            "delete": lambda: table.delete("id = 1"),
        }
        changes[later]()
    for latest, tags in ((3, {"first": 1, "third": 3}), (2, {"first": 1})):
        table.rollback(snapshot=latest)
        assert _ids(metadata) == list(range(1, latest + 1))
        shown = pyiceberg_table(metadata)
        assert [snapshot.snapshot_id for snapshot in shown.snapshots()] == list(range(1, latest + 1))
        assert {name: ref.snapshot_id for name, ref in shown.refs().items() if name != "main"} == tags
        assert [_ids(metadata, snapshot_id=number) for number in range(1, latest + 1)] == [
            list(range(1, number + 1)) for number in range(1, latest + 1)
        ]
    _append(catalog.table("db.t"), 9)
    assert _ids(metadata) == [1, 2, 9]
    assert _ids(metadata, snapshot_id=1) == [1]
    left = {name for name in _files(metadata) - _named(metadata) if not name.endswith(".puffin")}  # are for `orphans`
    assert left <= {"v2.metadata.json"}  # the one before


def test_a_rollback_without_this_release_is_noticed_by_the_next_commit(
    catalog: tidelake.Catalog, metadata: Path
) -> None:
    table = catalog.create_table("db.t", ROWS, options=OPTIONS)
    for number in (1, 2, 3):
        _append(table, number)
    saved = {path: path.read_bytes() for path in metadata.iterdir()}
    table.rollback(snapshot=1)
    shutil.rmtree(metadata)
    metadata.mkdir()
    for path, data in saved.items():
        path.write_bytes(data)
    _append(catalog.table("db.t"), 9)
    assert _ids(metadata) == [1, 9]
    assert not (metadata / "v3.metadata.json").exists()


def test_a_fast_forward_shows_the_rows_of_the_branch(catalog: tidelake.Catalog, metadata: Path) -> None:
    table = catalog.create_table("db.t", ROWS, options=OPTIONS)
    _append(table, 1)
    table.create_tag("start")
    table.create_branch("dev", tag="start")
    _append(catalog.table("db.t$branch_dev"), 2)
    assert _ids(metadata) == [1]
    table.fast_forward("dev")
    assert _ids(metadata) == [1, 2]


def test_a_table_with_the_name_of_a_dropped_one_is_another_table(catalog: tidelake.Catalog, tmp_path: Path) -> None:
    options = {"metadata.iceberg.storage": "hadoop-catalog"}
    metadata = tmp_path / "iceberg" / "db" / "t" / "metadata"
    _append(catalog.create_table("db.t", ROWS, options=options), 1)
    identity = pyiceberg_table(metadata).metadata.table_uuid
    catalog.drop_table("db.t")
    _append(catalog.create_table("db.t", ROWS, options=options), 2)
    assert _ids(metadata) == [2]
    assert pyiceberg_table(metadata).metadata.table_uuid != identity


def test_a_renamed_table_is_seen_under_its_new_name(catalog: tidelake.Catalog, tmp_path: Path) -> None:
    for name, place in (("table-location", "db.db/new/metadata"), ("hadoop-catalog", "iceberg/db/new/metadata")):
        _append(catalog.create_table("db.t", ROWS, options={"metadata.iceberg.storage": name}), 1)
        catalog.rename_table("db.t", "db.new")
        assert _ids(tmp_path / place) == [1]
        assert not (tmp_path / "iceberg" / "db" / "t").exists()
        catalog.drop_table("db.new")
        assert not (tmp_path / place).exists()


# ---------------------------------------------------------------- tags, expiry


def test_tags_are_references(catalog: tidelake.Catalog, metadata: Path) -> None:
    table = catalog.create_table("db.t", ROWS, options=OPTIONS)
    _append(table, 1)
    table.create_tag("one")
    _append(table, 2)
    assert {name: ref.snapshot_id for name, ref in pyiceberg_table(metadata).refs().items()} == {"one": 1, "main": 2}
    table.create_tag("two")
    table.rename_tag("one", "first")
    assert {"first", "two"} <= pyiceberg_table(metadata).refs().keys()
    table.replace_tag("first", snapshot=2)
    assert pyiceberg_table(metadata).refs()["first"].snapshot_id == 2
    table.delete_tag("two")
    assert pyiceberg_table(metadata).refs().keys() == {"first", "main"}


EXPIRING = {
    **OPTIONS,
    "snapshot.num-retained.min": "2",
    "snapshot.num-retained.max": "3",
    "metadata.iceberg.compaction.min.file-num": "3",
    "metadata.iceberg.compaction.max.file-num": "3",
}


@pytest.mark.parametrize("vectors", [False, True], ids=["append", "deletion vectors"])
def test_expired_snapshots_go_with_their_files_unless_they_have_a_tag(
    vectors: bool, catalog: tidelake.Catalog, metadata: Path
) -> None:
    v3 = {
        "metadata.iceberg.format-version": "3",
        "deletion-vectors.bitmap64": "true",
        "deletion-vectors.enabled": "true",
    }
    table = catalog.create_table("db.t", ROWS, options={**EXPIRING, **(v3 if vectors else {})})
    _append(table, 1, 100)
    table.create_tag("kept")
    for number in range(2, 12):
        _append(table, number, number + 100)
        if vectors:
            table.delete(tidelake.col("id") == number + 100)
    shown = pyiceberg_table(metadata)
    newest_id = shown.current_snapshot().snapshot_id  # type: ignore[union-attr]
    assert [s.snapshot_id for s in shown.snapshots()] == [1, newest_id - 2, newest_id - 1, newest_id]
    assert _ids(metadata, snapshot_id=1) == [1, 100]
    assert _ids(metadata) == sorted(table.scan().to_arrow()["id"].to_pylist())
    assert _files(metadata) == _named(metadata)


@pytest.mark.parametrize(
    ("options", "versions"),
    [
        ({}, 1),
        ({"metadata.iceberg.previous-versions-max": "2"}, 3),
        ({"metadata.iceberg.delete-after-commit.enabled": "false"}, 5),
    ],
)
def test_old_versions_of_the_metadata_file_are_kept_as_told(
    options: dict[str, str], versions: int, catalog: tidelake.Catalog, metadata: Path
) -> None:
    table = catalog.create_table("db.t", ROWS, options={**OPTIONS, **options})
    for number in range(5):
        _append(table, number)
    assert len(list(metadata.glob("v*.metadata.json"))) == versions


def test_manifests_are_merged_when_there_are_enough(catalog: tidelake.Catalog, metadata: Path) -> None:
    table = catalog.create_table("db.t", ROWS, options=EXPIRING)
    for number in range(12):
        _append(table, number)
        assert len(contents(newest(metadata))["snapshots"][-1]["manifests"]) < 4
    assert _ids(metadata) == list(range(12))


# options, the folder of the metadata, the codec of manifests, a column of manifest lists
SNAPPY = "snappy"
FORMS = [
    pytest.param({}, "db.db/t/metadata", "snappy", "added_files_count", id="as they are"),
    pytest.param({"metadata.iceberg.storage": "hadoop-catalog"}, "iceberg/db/t/metadata", SNAPPY, None, id="a catalog"),
    pytest.param(
        {"metadata.iceberg.storage-location": "catalog-location"}, "iceberg/db/t/metadata", SNAPPY, None, id="elsewhere"
    ),
    pytest.param({"metadata.iceberg.manifest-compression": "deflate"}, "db.db/t/metadata", "deflate", None, id="codec"),
    pytest.param(
        {"metadata.iceberg.manifest-legacy-version": "true"}, "db.db/t/metadata", "snappy", "added_data_files_count",
        id="names of Iceberg 1.4",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("options", "folder", "codec", "column"), FORMS)
def test_options_decide_place_and_form(
    options: dict[str, str], folder: str, codec: str, column: str | None, catalog: tidelake.Catalog, tmp_path: Path
) -> None:
    table = catalog.create_table("db.t", ROWS, options={**OPTIONS, **options})
    _append(table, 1)
    _append(table, 2)
    assert _ids(tmp_path / folder) == [1, 2]
    (manifest_list, *_) = (tmp_path / folder).glob("snap-*.avro")
    with manifest_list.open("rb") as file:
        reader = fastavro.reader(file)
        assert reader.metadata["avro.codec"] == codec
        names = [field["name"] for field in cast(dict[str, Any], reader.writer_schema)["fields"]]
    assert column is None or column in names


def test_row_ids_of_version_3_are_never_given_twice(catalog: tidelake.Catalog, metadata: Path) -> None:
    options = {
        **EXPIRING,
        "metadata.iceberg.format-version": "3",
        "metadata.iceberg.delete-after-commit.enabled": "false",
    }
    table = catalog.create_table("db.t", ROWS, options=options)
    for number in range(8):
        _append(table, number, number + 50)
    table.publish_iceberg_metadata(anew=True)
    _append(table, 99)
    next_id = 0
    for version in range(1, 10):
        found = (
            json.loads((metadata / f"v{version}.metadata.json").read_text())
            if (metadata / f"v{version}.metadata.json").exists()
            else None
        )
        if found is not None:
            current = found["snapshots"][-1]
            assert current["first-row-id"] >= next_id
            next_id = found["next-row-id"]
    current = contents(newest(metadata))["snapshots"][-1]
    given: list[int] = []
    for manifest in current["manifests"]:
        first = manifest["first_row_id"]
        for entry in manifest["entries"]:
            file = entry["data_file"]
            start = first if file["first_row_id"] is None else file["first_row_id"]
            first += file["record_count"] if file["first_row_id"] is None else 0
            given += range(start, start + file["record_count"])
    assert len(given) == len(set(given)) == 17


# ---------------------------------------------------------------- what is refused

VECTORS = {"deletion-vectors.enabled": "true"}
EVOLUTION = {"row-tracking.enabled": "true", "data-evolution.enabled": "true"}


def _column(kind: pa.DataType) -> pa.Schema:
    return pa.schema([("v", kind)])


REFUSED = [
    pytest.param({"metadata.iceberg.storage": "rest-catalog"}, ROWS, "rest-catalog", id="a REST catalog"),
    pytest.param({"metadata.iceberg.storage": "hive-catalog"}, ROWS, "hive-catalog", id="a metastore"),
    pytest.param({**OPTIONS, "metadata.iceberg.format-version": "1"}, ROWS, "format-version = 1", id="version 1"),
    pytest.param({**OPTIONS, **VECTORS}, ROWS, "would see deleted rows", id="vectors in version 2"),
    pytest.param(
        {**OPTIONS, **EVOLUTION}, ROWS, "several files", id="data evolution"
    ),
    pytest.param(OPTIONS, _column(pa.timestamp("s")), r"column v TIMESTAMP\(0\)", id="timestamps in seconds"),
    pytest.param(OPTIONS, _column(pa.timestamp("ns")), r"column v TIMESTAMP\(9\).*version 3", id="nanoseconds"),
    pytest.param(OPTIONS, _column(pa.list_(pa.timestamp("s"))), "column v ARRAY<TIMESTAMP", id="inside an array"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "columns", "message"), REFUSED)
def test_what_iceberg_readers_would_not_read_rightly_is_refused(
    options: dict[str, str], columns: pa.Schema, message: str, catalog: tidelake.Catalog
) -> None:
    with pytest.raises(UnsupportedFeature, match=message):
        catalog.create_table("db.t", columns, options=options)


def test_no_column_is_added_that_iceberg_lacks(catalog: tidelake.Catalog) -> None:
    catalog.create_table("db.t", ROWS, options=OPTIONS)
    with pytest.raises(UnsupportedFeature, match="column at TIMESTAMP"):
        catalog.alter_table("db.t", [tidelake.AddColumn("at", pa.timestamp("s"))])
