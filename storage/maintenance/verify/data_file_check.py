"""Checks that data files exist, have the size in their manifests, and have plausible ranges.

Each file is checked once, even if several snapshots name it. `tidelake.storage.maintenance.verify.row_check` checks the
content.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from tidelake.errors import TidelakeError
from tidelake.storage.commit.manifests.manifest_entry import ManifestEntry
from tidelake.storage.files.bucket_directory import all_paths, bucket_directory
from tidelake.storage.maintenance.verify.file_listing import FileListing
from tidelake.storage.maintenance.verify.finding import REPORT, RESTORE, Finding
from tidelake.storage.merge.sorted_run import key_ranges
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.format import POSTPONE_BUCKET
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import DataType

_EFFECT_ON_READERS: Final = "Readers of this snapshot fail or lose rows"


@dataclass(frozen=True, slots=True)
class ReferencedFile:
    """A data file, with the table context of the first branch that names it (schemas belong to a branch)."""

    context: TableContext
    path: str
    entry: ManifestEntry


class DataFileCheck:
    """Checks referenced data files.

    files: all files that were checked, by path.
    names: their names, and those of their extra files.
    row_counts: rows of the files, by name.
    """

    def __init__(self, listing: FileListing) -> None:
        self._listing = listing
        self._directories: dict[BucketId, str] = {}
        self.files: dict[str, ReferencedFile] = {}
        self.names: set[str] = set()
        self.row_counts: dict[str, int] = {}

    def check(self, context: TableContext, entries: Iterable[ManifestEntry], where: str) -> Iterator[Finding]:
        """context: of the branch that names the files, whose schemas they have."""
        new: list[ManifestEntry] = []
        for entry in entries:
            try:
                path, *extra_paths = all_paths(self._directory(context, entry), entry.file)
            except (TidelakeError, ValueError) as error:
                what = f"data file {entry.file.file_name} has a partition that can't be read: {error}"
                yield Finding("entry-malformed", where, what, REPORT)
                continue
            if path in self.files:
                continue
            self.files[path] = ReferencedFile(context, path, entry)
            self.names |= {entry.file.file_name, *entry.file.extra_files}
            self.row_counts[entry.file.file_name] = entry.file.row_count
            new.append(entry)
            yield from self._check_presence(path, extra_paths, entry, where)
            yield from _check_numbers(context, entry, where)
        if context.schema.has_primary_key:
            in_buckets = [entry for entry in new if entry.bucket != POSTPONE_BUCKET]  # staged rows are not sorted
            yield from _check_keys(context, in_buckets, where)

    def _directory(self, context: TableContext, entry: ManifestEntry) -> str:
        bucket = entry.bucket_id
        if bucket not in self._directories:
            self._directories[bucket] = bucket_directory(context, *bucket)
        return self._directories[bucket]

    def _check_presence(self, path: str, extra_paths: list[str], entry: ManifestEntry, where: str) -> Iterator[Finding]:
        size = self._listing.size_bytes(path)
        if size is None:
            what = f"data file {path} ({entry.file.row_count} rows) is missing. {_EFFECT_ON_READERS}"
            yield Finding("file-missing", where, what, RESTORE)
        elif size != entry.file.file_size:
            what = f"data file {path} has {size} bytes, the manifest says {entry.file.file_size}"
            yield Finding("file-size", where, what, RESTORE)
        for extra in extra_paths:
            if self._listing.size_bytes(extra) is None:
                what = f"{extra}, which belongs to data file {entry.file.file_name}, is missing"
                yield Finding("file-missing", where, what, RESTORE)


def _check_numbers(context: TableContext, entry: ManifestEntry, where: str) -> Iterator[Finding]:
    file = entry.file
    wrong = []
    if file.min_sequence_number > file.max_sequence_number:
        wrong.append(f"sequence numbers from {file.min_sequence_number} down to {file.max_sequence_number}")
    if file.row_count < 0 or not 0 <= (file.delete_row_count or 0) <= file.row_count:
        wrong.append(f"{file.row_count} rows, of them {file.delete_row_count} deletes")
    if file.level < 0 or (file.level > 0 and not context.schema.has_primary_key):
        wrong.append(f"level {file.level}")
    if entry.bucket < 0 and entry.bucket != POSTPONE_BUCKET:
        wrong.append(f"bucket {entry.bucket}")
    if 0 < entry.total_buckets <= entry.bucket:
        wrong.append(f"bucket {entry.bucket} of {entry.total_buckets}")
    try:
        context.schemas.get(file.schema_id)
    except (TidelakeError, OSError):
        wrong.append(f"schema {file.schema_id}, which can't be read")
    if wrong:
        yield Finding("entry-malformed", where, f"data file {file.file_name} has {'; '.join(wrong)}", REPORT)


def _check_keys(context: TableContext, entries: list[ManifestEntry], where: str) -> Iterator[Finding]:
    try:
        by_schema = sorted((entry.file for entry in entries), key=lambda file: file.schema_id)
        ranges = [
            item
            for schema_id, files in groupby(by_schema, key=lambda file: file.schema_id)
            for item in key_ranges(list(files), _key_types(context, schema_id))
        ]
    except (TidelakeError, ValueError) as error:
        yield Finding("entry-malformed", where, f"a key of its data files can't be read: {error}", REPORT)
        return
    for item in ranges:
        if item.min_key > item.max_key:
            what = f"data file {item.file.file_name} has a smallest key above its largest"
            yield Finding("entry-malformed", where, what, REPORT)


def _key_types(context: TableContext, schema_id: int) -> list[DataType]:
    return [field.type for field in context.with_keys_of(schema_id).schema.key_fields]
