"""Migrates a folder in Hive's layout to a table, in steps that can be repeated; or an Iceberg table (`iceberg_source`).

1. All footers are read: columns, rows, bounds. A folder that can't be migrated is refused here; nothing has changed.
2. The table is created, without rows.
3. Each file gets a second name in the table's bucket: a hard link if source and table are on one disk, else a copy.
4. One commit adds all of them, with a dedicated user and identifier: if it is repeated, it is recognized.
5. The names of the committed files are removed from the source.

Until step 4 the source is complete, and readers of the table see no rows. A crash later leaves names that the next call
removes.

Source: Java `hive/migrate/HiveMigrator.java` (which renames, and renames back when it fails).
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tidelake.errors import BadInput
from tidelake.storage.base.logs import get_logger
from tidelake.storage.base.progress import tracked
from tidelake.storage.base.threads import map_parallel
from tidelake.storage.commit.commit_increment import CommitIncrement
from tidelake.storage.commit.commit_message import CommitMessage, Committable
from tidelake.storage.commit.table_commit import TableCommit
from tidelake.storage.fileio.base import FileIO, FileStatus
from tidelake.storage.fileio.local import LocalFileIO
from tidelake.storage.fileio.location import local_path
from tidelake.storage.files.bucket_directory import bucket_directory
from tidelake.storage.kinds.format_tables.definition import data_fields
from tidelake.storage.kinds.format_tables.partition_directories import Partition, is_hidden, list_partitions
from tidelake.storage.maintenance.migration.foreign_files import (
    ForeignFile,
    check_alike,
    check_migratable_format,
    meta_of,
    read_foreign_file,
)
from tidelake.storage.model.binary_row import serialize_row
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.options import TableOptions
from tidelake.storage.model.paths import parse_partition_path
from tidelake.storage.model.schema.table_schema import TableSchema
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import DataField, DataType, parse_type
from tidelake.storage.read.expired_snapshots import newest_live_entries

_log = get_logger(__name__)

HIVE_DEFAULT_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"
_USER: Final = "migration"
_IDENTIFIER: Final = 1
_COPIED_BYTES: Final = 8 << 20
_LINK_UNSUPPORTED_ERRORS: Final = frozenset({errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS})


@dataclass(frozen=True, slots=True)
class SourceFolder:
    """The folder to migrate.

    partition_types: by partition column, in the order of the directories.
    default_name: the name of the directory for NULL.
    """

    io: FileIO
    location: str
    format_name: str
    partition_types: Mapping[str, DataType]
    default_name: str = HIVE_DEFAULT_PARTITION

    def context(self, columns: Sequence[DataField]) -> TableContext:
        """Return a table context for the folder."""
        keys = [DataField(0, name, data_type) for name, data_type in self.partition_types.items()]
        schema = TableSchema(0, (*columns, *keys), 0, tuple(self.partition_types))
        options = TableOptions({"partition.default-name": self.default_name})
        return TableContext(self.io, self.location, self.location, schema, options)


@dataclass(frozen=True, slots=True)
class MigrationPlan:
    """The files to migrate.

    columns: of the table, with the partition columns at the end.
    files: each with its partition.
    """

    source: SourceFolder
    columns: tuple[DataField, ...]
    files: tuple[tuple[Partition, ForeignFile], ...]

    @property
    def identity(self) -> str:
        """A hash of the files. It distinguishes a repeated call from one with other files."""
        listed = sorted(f"{file.path} {file.size} {file.modified_ms}" for _, file in self.files)
        return hashlib.sha256("\n".join(listed).encode()).hexdigest()[:16]

    @property
    def row_count(self) -> int:
        return sum(file.row_count for _, file in self.files)

    @property
    def size_bytes(self) -> int:
        return sum(file.size for _, file in self.files)

    @property
    def partition_count(self) -> int:
        return len({tuple(value.as_py() for value in partition.values) for partition, _ in self.files})


def partition_types_of(io: FileIO, location: str, given: Mapping[str, str]) -> dict[str, DataType]:
    """Return the partition columns that the first directories name.

    Their type is STRING, unless `given` names one (`INT`).

    Raises BadInput for a column in `given` that no directory names.
    """
    found: dict[str, DataType] = {}
    place = location
    while True:
        inner = sorted(e.name for e in io.list_directory(place) if e.is_directory and not is_hidden(e.name))
        if not inner or "=" not in inner[0]:
            break
        (name,) = parse_partition_path(inner[0])
        found[name] = parse_type(given.get(name, "STRING"))
        place = f"{place}/{inner[0]}"
    if missing := [name for name in given if name not in found]:
        raise BadInput(f"{location} has no directories {missing[0]}=…; it has {', '.join(found) or 'none'}")
    return found


def holds_files(io: FileIO, location: str) -> bool:
    """Return whether any directory below has a file. Names that begin with `_` or `.` don't count."""
    entries = [entry for entry in io.list_directory(location) if not is_hidden(entry.name)]
    return any(not entry.is_directory or holds_files(io, f"{location}/{entry.name}") for entry in entries)


def plan_migration(source: SourceFolder) -> MigrationPlan:
    """Read all footers. Raises BadInput, UnsupportedFeature and CorruptFile for a folder that can't become a table."""
    check_migratable_format(source.format_name)
    partitions = list_partitions(source.context(()))
    _check_only_partitions(source, {partition.location for partition in partitions})
    listed = [(partition, *entry) for partition in partitions for entry in _files(source, partition.location)]
    if not listed:
        raise BadInput(f"{source.location} has no files; name the folder with the files or their partitions")
    foreign_files = map_parallel(lambda e: read_foreign_file(source.io, e[1], e[2], source.format_name), listed)
    read = tracked("reading footers", foreign_files, len(listed))
    files = [(partition, file) for (partition, _, _), file in zip(listed, read, strict=True)]
    first = files[0][1]
    for _, file in files[1:]:
        check_alike(first, file)
    if both := [column.name for column in first.columns if column.name in source.partition_types]:
        raise BadInput(
            f"column {both[0]!r} is both in the files and in the names of directories; it must be in only one of them"
        )
    keys = [DataField(0, name, data_type) for name, data_type in source.partition_types.items()]
    return MigrationPlan(source, (*first.columns, *keys), tuple(files))


def _files(source: SourceFolder, location: str) -> list[tuple[str, FileStatus]]:
    """Return the files with their paths."""
    entries = sorted(source.io.list_directory(location), key=lambda entry: entry.name)
    if inner := [e.name for e in entries if e.is_directory and not is_hidden(e.name)]:
        raise BadInput(f"{location} contains a directory {inner[0]!r} that is not a partition; move it away")
    return [(f"{location}/{e.name}", e) for e in entries if not e.is_directory and not is_hidden(e.name)]


def _check_only_partitions(source: SourceFolder, partitions: set[str]) -> None:
    """Raise BadInput for files next to partition directories: they would not be migrated."""
    places, names = [source.location], list(source.partition_types)
    for name in names:
        below = []
        for place in places:
            for entry in source.io.list_directory(place):
                if is_hidden(entry.name):
                    continue
                if not entry.is_directory or not entry.name.startswith(f"{name}="):
                    raise BadInput(
                        f"{place}/{entry.name} is in a place where directories {name}=… are expected; move it away"
                    )
                below.append(f"{place}/{entry.name}")
        places = below
    assert set(places) == partitions


def migrate(plan: MigrationPlan, target: TableContext, *, keep_source: bool, adds: bool = False) -> int | None:
    """Do steps 3 to 5, or what an earlier call left of them.

    Returns the snapshot's id; None if it was committed before.

    target: an append table without buckets, with the plan's columns.
    adds: the table may have other rows. Otherwise it has at most the snapshot of an earlier call. With adds, file names
        and the commit contain the identity of the files: another call may add other files with the same names.
    """
    user, prefix = (f"{_USER}-{plan.identity}", f"{plan.identity}-") if adds else (_USER, "")
    messages: dict[bytes, list[tuple[ForeignFile, str]]] = {}
    for partition, file in plan.files:
        key = serialize_row(partition.values, [f.type for f in target.schema.partition_fields])
        messages.setdefault(key, []).append((file, prefix + _name_in_table(file.path, plan.source.format_name)))
    directories = {key: bucket_directory(target, key, 0) for key in messages}
    moves = [(file, f"{directories[key]}/{name}") for key, files in messages.items() for file, name in files]
    _check_distinct([path for _, path in moves])
    commit = TableCommit(target, user)
    if commit.latest_of_user() is None:
        moving = map_parallel(lambda move: _link_or_copy(plan.source.io, target.io, *move), moves)
        list(tracked("linking or copying", moving, len(moves)))
    fields = data_fields(target.schema)
    made = [
        CommitMessage(
            BucketId(key, 0),
            CommitIncrement(
                new_files=tuple(
                    replace(
                        meta_of(plan.source.io, f, name, fields, plan.source.format_name), schema_id=target.schema.id
                    )
                    for f, name in files
                )
            ),
        )
        for key, files in messages.items()
    ]
    published = commit.commit(Committable(_IDENTIFIER, tuple(made)))
    if published is None:
        _check_same_files(plan, target, moves)
    if not keep_source:
        plan.source.io.delete_all([file.path for file, _ in moves])
        _remove_empty_directories(plan)
    _log.info("migrated", table=target.name, source=plan.source.location, files=len(moves), rows=plan.row_count)
    return published


def is_unfinished(target: TableContext) -> bool:
    """Return whether an earlier call left this table: without rows, or with the one snapshot of a migration."""
    latest = target.snapshots.latest()
    return latest is None or (latest.id, latest.commit_user) == (1, _USER)


def _name_in_table(path: str, format_name: str) -> str:
    """Return the file's name with the format's extension, which Hive's files lack and readers need."""
    name = path.rpartition("/")[2]
    return name if name.endswith(f".{format_name}") else f"{name}.{format_name}"


def _check_distinct(paths: Sequence[str]) -> None:
    for path, count in Counter(paths).items():
        if count > 1:
            raise BadInput(f"two files of the source would both be {path}; rename one of them")


def _link_or_copy(source: FileIO, target: FileIO, file: ForeignFile, path: str) -> None:
    """Create the file under its new name, as a whole or not at all."""
    if target.exists(path) and target.size_bytes(path) == file.size:
        return
    if isinstance(source, LocalFileIO) and isinstance(target, LocalFileIO):
        local_target = local_path(path)
        os.makedirs(os.path.dirname(local_target), exist_ok=True)
        try:
            os.link(local_path(file.path), local_target)
        except FileExistsError:
            raise BadInput(f"{path} already exists, with another size; move it away") from None
        except OSError as e:
            if e.errno not in _LINK_UNSUPPORTED_ERRORS:
                raise
        else:
            return
    with source.open_input(file.path) as read, target.open_output(path) as write:
        while data := read.read(_COPIED_BYTES):
            write.stream.write(data)


def _check_same_files(plan: MigrationPlan, target: TableContext, moves: Sequence[tuple[ForeignFile, str]]) -> None:
    """Raise BadInput if a file in the source is not one that an earlier call committed."""
    directories: dict[bytes, str] = {}
    live = set()
    for entry in newest_live_entries(target):
        if entry.partition not in directories:
            directories[entry.partition] = bucket_directory(target, entry.partition, 0)
        live.add(f"{directories[entry.partition]}/{entry.file.file_name}")
    for file, path in moves:
        if path not in live or not _is_same(plan.source.io, file.path, target.io, path):
            raise BadInput(
                f"table {target.name} was already migrated, but {file.path} was added later, or its rows were "
                "compacted since; nothing was removed. Migrate the file into another table, or remove it"
            )


def _is_same(source: FileIO, one: str, target: FileIO, other: str) -> bool:
    if isinstance(source, LocalFileIO) and os.path.samefile(local_path(one), local_path(other)):
        return True
    with source.open_input(one) as source_stream, target.open_input(other) as target_stream:
        while data := source_stream.read(_COPIED_BYTES):
            if data != target_stream.read(len(data)):
                return False
        return not target_stream.read(1)


def _remove_empty_directories(plan: MigrationPlan) -> None:
    root = f"{plan.source.location}/"
    for location in sorted({file.path.rpartition("/")[0] for _, file in plan.files}, reverse=True):
        place = location
        while place.startswith(root) and plan.source.io.delete_empty_directory(place):
            place = place.rpartition("/")[0]
