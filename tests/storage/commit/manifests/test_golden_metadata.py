"""Snapshots, manifest lists and manifests of every golden table have the content that their writer reports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.cases import GOLDEN_DATABASE, GoldenTable, golden_expected, golden_tables
from tidelake.storage.commit.manifests.manifest_entry import ManifestEntry
from tidelake.storage.commit.manifests.manifest_file_meta import describe_manifest
from tidelake.storage.commit.manifests.manifest_store import ManifestStore
from tidelake.storage.commit.manifests.partition_stats import partition_stats
from tidelake.storage.commit.manifests.snapshot_files import (
    changelog_entries,
    delta_entries,
    live_entries,
    table_manifests,
)
from tidelake.storage.fileio.local import LocalFileIO
from tidelake.storage.files.bucket_directory import partition_directory
from tidelake.storage.model.format import FileKind
from tidelake.storage.model.snapshots.branches import branch_names
from tidelake.storage.model.snapshots.tags import TagStore
from tidelake.storage.model.table import TableContext

TABLES = [pytest.param(table, id=table.id) for table in golden_tables()]


def opened(table: GoldenTable, warehouse: Path, branch: str = "main") -> TableContext:
    root = warehouse / f"{GOLDEN_DATABASE}.db" / table.name
    return TableContext.open(LocalFileIO(), str(root), table.identifier, branch=branch)


def row_change(entries: list[ManifestEntry]) -> int:
    return sum(e.file.row_count if e.kind is FileKind.ADD else -e.file.row_count for e in entries)


def as_expected(context: TableContext, entry: ManifestEntry) -> dict[str, Any]:
    """As `snapshots[].files` of expected.json has it, as far as all tables have it."""
    file = entry.file
    directory = partition_directory(context, entry.partition)
    return {
        "partition": f"{directory}/" if directory else "",
        "bucket": entry.bucket,
        "total_buckets": entry.total_buckets,
        "level": file.level,
        "row_count": file.row_count,
        "delete_row_count": file.delete_row_count,
        "min_sequence": file.min_sequence_number,
        "max_sequence": file.max_sequence_number,
        "schema_id": file.schema_id,
        "source": None if file.file_source is None else file.file_source.name,
        "name": file.file_name,
    }


def by_file(files: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(files, key=lambda f: (f["partition"], f["bucket"], f["level"], f["name"]))


@pytest.mark.parametrize("table", TABLES)
def test_counts_and_files_of_every_golden_snapshot_are_read(table: GoldenTable, tmp_path: Path) -> None:
    warehouse = table.unpack(tmp_path)
    context = opened(table, warehouse)
    listed = {s["id"]: s["files"] for s in golden_expected(warehouse, table.name).get("snapshots", [])}
    snapshots = list(context.snapshots.all())
    assert snapshots
    for snapshot in snapshots:
        live = live_entries(context, snapshot)
        assert sum(entry.file.row_count for entry in live) == snapshot.total_record_count
        assert row_change(delta_entries(context, snapshot)) == snapshot.delta_record_count
        changelog = changelog_entries(context, snapshot)
        assert (row_change(changelog) or None) == snapshot.changelog_record_count
        if snapshot.id in listed:
            found = by_file([as_expected(context, entry) for entry in live])
            members = found[0].keys() if found else ()
            assert found == by_file([{name: f.get(name) for name in members} for f in listed[snapshot.id]])


@pytest.mark.parametrize("table", TABLES)
def test_manifest_statistics_equal_those_of_the_writer(table: GoldenTable, tmp_path: Path) -> None:
    context = opened(table, table.unpack(tmp_path))
    manifests = ManifestStore(context)
    metas = [meta for snapshot in context.snapshots.all() for meta in table_manifests(manifests, snapshot)]
    assert metas
    for meta in metas:
        entries = manifests.read(meta)
        stats = partition_stats([entry.partition for entry in entries], manifests.partition_types)
        assert describe_manifest(meta.file_name, meta.file_size, entries, stats) == meta


@pytest.mark.parametrize("table", TABLES)
def test_snapshots_and_tags_are_written_as_by_their_writer(table: GoldenTable, tmp_path: Path) -> None:
    context = opened(table, table.unpack(tmp_path))
    found = {context.paths.snapshot(s.id): s for s in context.snapshots.all()}
    found |= {context.paths.tag(name): s for name, s in TagStore(context.io, context.paths).all().items()}
    assert found
    for path, snapshot in found.items():
        text = Path(path).read_text(encoding="utf-8")
        if table.writer == "java":
            assert snapshot.to_json() == text
        else:
            assert snapshot.to_members() == json.loads(text)


@pytest.mark.parametrize("table_id", ["java/tags_branches", "pypaimon/tag_and_branch"])
def test_tags_and_branches_are_found(table_id: str, tmp_path: Path) -> None:
    (table,) = (t for t in golden_tables() if t.id == table_id)
    warehouse = table.unpack(tmp_path)
    expected = golden_expected(warehouse, table.name)
    context = opened(table, warehouse)
    assert set(TagStore(context.io, context.paths).names()) == expected["tags"].keys()
    branches = branch_names(context.io, context.paths)
    assert expected["branches"].keys() <= set(branches)
    for branch in branches:
        there = opened(table, warehouse, branch)
        for snapshot in there.snapshots.all():
            assert sum(e.file.row_count for e in live_entries(there, snapshot)) == snapshot.total_record_count
