"""Merging of manifest entries: live files, and contradictions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.storage.model.snapshots.tables import data_file, make_table
from tidelake.errors import CorruptFile
from tidelake.storage.commit.manifests.manifest_entry import (
    ManifestEntry,
    entry_from_record,
    entry_to_record,
    merge_entries,
)
from tidelake.storage.commit.manifests.manifest_file_meta import describe_manifest, meta_from_record, meta_to_record
from tidelake.storage.commit.manifests.manifest_store import ListFile, ManifestStore
from tidelake.storage.fileio.memory import MemoryFileIO
from tidelake.storage.files.data_file import EMPTY_ROW, EMPTY_STATS
from tidelake.storage.model.format import FileKind
from tidelake.storage.model.metadata_cache import MetadataCache
from tidelake.storage.model.table import TableContext


def fresh(context: TableContext) -> ManifestStore:
    """As another process would have it, which knows no file yet."""
    return ManifestStore(context.with_cache(MetadataCache()))


def entries(text: str) -> list[ManifestEntry]:
    """`+a -a@5 +b`: files added and deleted, on level 0 unless said."""
    result = []
    for word in text.split():
        name, _, level = word[1:].partition("@")
        kind = FileKind.ADD if word[0] == "+" else FileKind.DELETE
        result.append(ManifestEntry(kind, EMPTY_ROW, 0, -1, data_file(name, level=int(level or 0))))
    return result


def text(merged: list[ManifestEntry]) -> str:
    return " ".join(f"{'+-'[e.kind]}{e.file.file_name}{f'@{e.file.level}' if e.file.level else ''}" for e in merged)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param("", "", id="nothing"),
        pytest.param("+a +b +c", "+a +b +c", id="order of adding is kept"),
        pytest.param("+a +b -a", "+b", id="a delete takes what it names"),
        pytest.param("+a -a +a", "+a", id="added again after it went"),
        pytest.param("-a +b", "-a +b", id="a delete of something outside stays"),
        pytest.param("+a -a +a@5", "+a@5", id="a file that moved to another level is there once"),
        pytest.param("+a -a@5", "+a -a@5", id="another level is another entry"),
    ],
)
def test_entries_are_merged(given: str, expected: str) -> None:
    assert text(list(merge_entries(entries(given)).values())) == expected


@pytest.mark.parametrize(
    ("given", "message"),
    [
        pytest.param("+a +a", "already exists", id="added twice"),
        pytest.param("-a +a", "was deleted by an earlier entry", id="deleted, then added"),
    ],
)
def test_merging_refuses_contradictory_entries(given: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"file a is added, which {message}"):
        merge_entries(entries(given))


@pytest.mark.parametrize("member", ["extra_files", "embedded_index", "external_path"])
def test_external_path_and_index_are_part_of_the_identity(member: str) -> None:
    (entry,) = entries("+a")
    value = {"extra_files": ("a.index",), "embedded_index": b"i", "external_path": "s3://b/a"}[member]
    other = replace(entry, file=replace(entry.file, **{member: value}))  # type: ignore[arg-type]
    assert len(merge_entries([entry, other])) == 2


def test_a_delete_entry_may_omit_its_statistics() -> None:
    (entry,) = entries("+a")
    full = replace(entry, file=replace(entry.file, value_stats_columns=None))
    dropped = full.as_delete(drop_stats=True)
    assert dropped.identity == full.identity
    assert (dropped.file.value_stats, dropped.file.value_stats_columns) == (EMPTY_STATS, ())
    assert full.as_delete().file == full.file


@pytest.mark.parametrize(
    ("spoil", "found"),
    [
        pytest.param({"_VERSION": 1}, "of version 1", id="older version"),
        pytest.param({"_KIND": 2}, "2 is not a valid FileKind", id="unknown kind"),
        pytest.param({"_FILE": None}, "subscriptable", id="no file"),
    ],
)
def test_a_record_of_another_schema_is_a_corrupt_file(spoil: dict[str, object], found: str) -> None:
    (entry,) = entries("+a")
    with pytest.raises((ValueError, TypeError), match=found):
        entry_from_record({**entry_to_record(entry), **spoil})


@pytest.mark.parametrize(
    "members",
    [{"file_name": "data-\0.orc"}, {"extra_files": ("a.index", "\0")}, {"external_path": "s3://b/\0"}],
    ids="".join,
)
def test_an_invalid_file_name_is_reported_as_a_corrupt_manifest(members: dict[str, Any]) -> None:
    context = make_table(MemoryFileIO(), "memory://names/t")
    (entry,) = entries("+a")
    (meta,) = ManifestStore(context).write([replace(entry, file=replace(entry.file, **members))])
    with pytest.raises(CorruptFile, match=rf"{meta.file_name}.*x00.* as the name of a file"):
        fresh(context).read(meta)


def test_an_invalid_manifest_name_is_reported_as_a_corrupt_list() -> None:
    context = make_table(MemoryFileIO(), "memory://names/t")
    file = ManifestStore(context).write_list([describe_manifest("manifest-\0", 1, entries("+a"), EMPTY_STATS)])
    with pytest.raises(CorruptFile, match=rf"{file.name}.*x00.* as the name of a file"):
        fresh(context).read_list(file)


def test_a_manifest_list_of_another_version_is_refused() -> None:
    meta = describe_manifest("m", 1, entries("+a"), EMPTY_STATS)
    with pytest.raises(ValueError, match="of version 3"):
        meta_from_record({**meta_to_record(meta), "_VERSION": 3})


# ---------------------------------------------------------------- the store


def test_a_list_read_as_a_manifest_is_reported_as_corrupt() -> None:
    context = make_table(MemoryFileIO(), "memory://shapes/t")
    store = ManifestStore(context)
    (meta,) = store.write(entries("+a"))
    reader = fresh(context)
    with pytest.raises(CorruptFile, match=rf"{meta.file_name}.*manifest list.*_FILE_NAME"):
        reader.read_list(ListFile(meta.file_name, None))


def test_partitions_of_other_columns_are_reported_as_a_corrupt_file() -> None:
    io = MemoryFileIO()
    flat, parted = make_table(io, "memory://flat/t"), make_table(io, "memory://parted/t", partitioned=True)
    (meta,) = ManifestStore(flat).write(entries("+a"))
    file = ManifestStore(flat).write_list([meta])
    for name in (meta.file_name, file.name):
        io.write(parted.paths.manifest(name), io.read(flat.paths.manifest(name)))
    store = ManifestStore(parted)
    with pytest.raises(CorruptFile, match=rf"{meta.file_name}: expected partitions of 1 columns"):
        store.read(meta)
    with pytest.raises(CorruptFile, match=rf"{file.name}: expected partitions of 1 columns"):
        store.read_list(file)


def test_a_missing_manifest_is_named() -> None:
    store = ManifestStore(make_table(MemoryFileIO(), "memory://missing/t"))
    with pytest.raises(CorruptFile, match=r"manifest/manifest-list-gone.*no file"):
        store.read_list(ListFile("manifest-list-gone", None))


def test_a_large_manifest_is_rolled_without_losing_entries() -> None:
    options = {"manifest.target-file-size": "100 kb", "manifest.compression": "null"}
    context = make_table(MemoryFileIO(), "memory://rolled/t", options=options)
    many = [ManifestEntry(FileKind.ADD, EMPTY_ROW, 0, -1, data_file(f"file-{i}")) for i in range(5_500)]
    store = ManifestStore(context)
    metas = store.write(many)
    assert len(metas) > 1
    assert all(meta.num_added_files % 1000 == 0 and meta.file_size >= 100 * 1024 for meta in metas[:-1])
    reader = fresh(context)
    assert [entry for meta in metas for entry in reader.read(meta)] == many


def test_manifest_metadata_summarizes_its_entries() -> None:
    mixed = [
        ManifestEntry(FileKind.ADD, EMPTY_ROW, 4, 8, data_file("a", level=5, schema_id=2, first_row_id=10, rows=3)),
        ManifestEntry(FileKind.DELETE, EMPTY_ROW, -2, 8, data_file("b", level=0, schema_id=1, first_row_id=0)),
    ]
    meta = describe_manifest("m", 1, mixed, EMPTY_STATS)
    assert (meta.num_added_files, meta.num_deleted_files, meta.schema_id) == (1, 1, 2)
    assert (meta.min_bucket, meta.max_bucket, meta.min_level, meta.max_level) == (-2, 4, 0, 5)
    assert (meta.min_row_id, meta.max_row_id) == (0, 12)
    assert describe_manifest("m", 1, [mixed[0], *entries("+c")], EMPTY_STATS).min_row_id is None
